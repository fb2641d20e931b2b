"""What a real kube-apiserver lets the manager's own token change of its webhook configurations."""

import base64
from collections.abc import Iterator

import pytest

from deploy.local.identities import CHART, RELEASE
from shared.kube.client import Client, Patch
from shared.kube.errors import Forbidden
from shared.kube.resources import MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS, Resource
from tests.chart.access import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACE,
    in_force,
    object_of,
    role_with_binding,
)
from tests.chart.helm import QUIET, Helm
from tests.support import eventually
from tests.support.apiserver import RealApiServer

pytestmark = pytest.mark.real_only("admission policies are a real one's")

BUNDLE = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()
BOTH = (MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS)
ALL = {key: ["*"] for key in ("apiGroups", "apiVersions", "resources", "operations")}
MATCH = [{"name": "never", "expression": "false"}]

# Path below /webhooks/0, or of the object, and what a stolen token would like to have there.
CHANGES: dict[str, tuple[str, object]] = {
    "the operations": ("/webhooks/0/rules/0/operations", ["*"]),
    "the resources": ("/webhooks/0/rules/0/resources", ["secrets", "pods"]),
    "one more rule": (
        "/webhooks/0/rules/-",
        {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]},
    ),
    "the namespaces": ("/webhooks/0/namespaceSelector", {}),
    "the objects": ("/webhooks/0/objectSelector", {"matchLabels": {"a": "b"}}),
    "the service": ("/webhooks/0/clientConfig/service/name", "mine"),
    "its path": ("/webhooks/0/clientConfig/service/path", "/mine"),
    "what happens on failure": ("/webhooks/0/failurePolicy", "Fail"),
    "side effects": ("/webhooks/0/sideEffects", "NoneOnDryRun"),
    "the timeout": ("/webhooks/0/timeoutSeconds", 30),
    "how versions match": ("/webhooks/0/matchPolicy", "Exact"),
    "conditions": ("/webhooks/0/matchConditions", MATCH),
    "the name": ("/webhooks/0/name", "mine.webhook.headroom.io"),
    "labels": ("/metadata/labels/mine", "yes"),
    "annotations": ("/metadata/annotations", {"cert-manager.io/inject-ca-from": "mine/mine"}),
    "finalizers": ("/metadata/finalizers", ["example.com/mine"]),
}


@pytest.fixture(scope="module")
def cluster(real: RealApiServer, helm: Helm) -> Iterator[RealApiServer]:
    """Somebody has given the manager far more than the chart does, so that the policy alone is in the way."""
    upgrade = ("upgrade", RELEASE, CHART, "--namespace", NAMESPACE, "--reset-values", *QUIET)
    helm.must(*upgrade, "--kubeconfig", real.kubeconfig)
    client, name = real.client(), "generous-with-webhooks"
    resources = [each.plural for each in BOTH]
    rule = {"apiGroups": [MUTATINGWEBHOOKS.group], "resources": resources, "verbs": ["*"]}
    manager = {"kind": "ServiceAccount", "name": f"{RELEASE}-manager", "namespace": NAMESPACE}
    for resource, body in role_with_binding("ClusterRole", name, manager, rule).items():
        client.create(resource, body)
    in_force(real)
    eventually(lambda: is_refused(real.client(real.manager_connection()), MUTATINGWEBHOOKS, "/metadata/labels/x", "y"))
    yield real
    client.delete(CLUSTER_ROLE_BINDINGS, name)
    client.delete(CLUSTER_ROLES, name)


@pytest.fixture
def manager(cluster: RealApiServer) -> Client:
    """By a token as the kubelet mounts it."""
    return cluster.client(cluster.manager_connection())


def change(client: Client, resource: Resource, path: str, value: object, name: str = RELEASE) -> None:
    client.patch(resource, name, [{"op": "add", "path": path, "value": value}], kind=Patch.JSON)


def is_refused(client: Client, resource: Resource, path: str, value: object) -> bool:
    try:
        change(client, resource, path, value)
    except Forbidden as error:
        return "the manager may" in error.message
    return False


@pytest.mark.parametrize("resource", BOTH, ids=str)
def test_the_manager_says_whom_to_trust(manager: Client, resource: Resource) -> None:
    change(manager, resource, "/webhooks/0/clientConfig/caBundle", BUNDLE)
    assert manager.get(resource, RELEASE)["webhooks"][0]["clientConfig"]["caBundle"] == BUNDLE


@pytest.mark.parametrize("resource", BOTH, ids=str)
@pytest.mark.parametrize(("path", "value"), CHANGES.values(), ids=CHANGES.keys())
def test_the_manager_changes_nothing_else_of_its_webhooks(
    cluster: RealApiServer, manager: Client, resource: Resource, path: str, value: object
) -> None:
    before = cluster.client().get(resource, RELEASE)
    with pytest.raises(Forbidden, match="the manager may change nothing of"):
        change(manager, resource, path, value)
    assert cluster.client().get(resource, RELEASE) == before


@pytest.mark.parametrize("resource", BOTH, ids=str)
def test_the_manager_adds_and_takes_away_no_webhook(
    cluster: RealApiServer, manager: Client, resource: Resource
) -> None:
    found = cluster.client().get(resource, RELEASE)
    (webhook,) = found["webhooks"]
    for webhooks in ([], [webhook, webhook | {"name": "mine.webhook.headroom.io"}]):
        with pytest.raises(Forbidden, match="the manager may change nothing of"):
            manager.replace(resource, RELEASE, found | {"webhooks": webhooks})


@pytest.mark.parametrize("resource", BOTH, ids=str)
def test_the_manager_touches_no_other_configuration(
    cluster: RealApiServer, manager: Client, resource: Resource
) -> None:
    admin = cluster.client()
    own = admin.get(resource, RELEASE)
    body = object_of(resource, own["kind"], "others", webhooks=own["webhooks"])
    with pytest.raises(Forbidden, match="may neither create nor delete"):
        manager.create(resource, body)
    admin.create(resource, body)
    try:
        with pytest.raises(Forbidden, match="of its own release only"):
            change(manager, resource, "/webhooks/0/clientConfig/caBundle", BUNDLE, "others")
        for name in ("others", RELEASE):
            with pytest.raises(Forbidden, match="may neither create nor delete"):
                manager.delete(resource, name)
    finally:
        admin.delete(resource, "others")


@pytest.mark.parametrize("resource", BOTH, ids=str)
def test_others_are_not_held_to_it(cluster: RealApiServer, resource: Resource) -> None:
    change(cluster.client(), resource, "/webhooks/0/timeoutSeconds", 4)
    change(cluster.client(), resource, "/webhooks/0/timeoutSeconds", 3)
