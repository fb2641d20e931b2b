"""What kubectl's user is told where the embedded API server lacks what a command needs."""

import pytest

from deploy.local.apiserver import kubectl
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.requests import Request

DEPLOYMENT = ApiKind("apps", "v1", "Deployment", "deployments")
CONFIG_MAP = ApiKind("", "v1", "ConfigMap", "configmaps")


def created(user_agent: str) -> Request:
    return Request(
        "POST", "/apis/apps/v1/namespaces/default/deployments", {}, {b"user-agent": user_agent.encode()}, b""
    )


@pytest.mark.parametrize(
    ("kind", "user_agent", "warns"),
    [
        (DEPLOYMENT, "kubectl/v1.36.0 (linux/amd64)", True),
        (DEPLOYMENT, "headroom-up", False),
        (CONFIG_MAP, "kubectl/v1.36.0 (linux/amd64)", False),
    ],
)
def test_kubectl_is_warned_of_an_object_that_nothing_will_act_upon(kind: ApiKind, user_agent: str, warns: bool) -> None:
    said = kubectl.warnings(created(user_agent), kind)
    assert bool(said) is warns
    assert all(
        "no controller makes the Pods of a Deployment here: create Pods (`kubectl run`)" in each for each in said
    )
