"""A pod of class Mid asks for what others do not use without saying so itself, and runs on it."""

import json
from typing import Any

import pytest

from deploy.local import webhook
from shared import names
from shared.kube.errors import Forbidden
from shared.kube.resources import CONFIGMAPS, PODS, VALIDATINGWEBHOOKS
from tests.e2e.conftest import RunningCluster
from tests.e2e.kubectl import Kubectl
from tests.support import eventually

PLACED_SECONDS = 120.0


def mid_pod(name: str) -> dict[str, Any]:
    resources = {"requests": {"memory": "16Mi"}}
    container = {"name": "main", "image": "example.com/image:1", "command": ["sleep", "600"], "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"priorityClassName": "koord-mid", "containers": [container], "terminationGracePeriodSeconds": 1},
    }


def test_a_pod_of_class_mid_is_admitted_as_one_and_placed_on_what_is_lent(cluster: RunningCluster) -> None:
    kubectl = Kubectl(cluster.kubeconfig, cluster.client)

    def admitted() -> bool:
        """Until the manager has told API servers whom to trust, they go on without its webhook."""
        kubectl.apply(mid_pod("admitted"))
        stored = cluster.pod("admitted")
        assert stored is not None
        if stored["spec"]["containers"][0]["resources"] == {
            "requests": {names.MID_MEMORY: "16Mi", "cpu": "0", "memory": "0"},
            "limits": {"cpu": "250m", "memory": "16Mi"},
        }:
            return True
        cluster.client.delete(PODS, "admitted", "default", grace_period_seconds=0)
        return False

    eventually(admitted)

    def runs() -> bool:
        found = cluster.pod("admitted")
        return found is not None and found["status"]["phase"] == "Running"

    eventually(runs, PLACED_SECONDS, 0.2)
    kubectl.delete_pod("admitted")
    eventually(lambda: cluster.pod("admitted") is None)


def test_a_configuration_that_means_nothing_does_not_come_in(cluster: RunningCluster) -> None:
    def known() -> bool:
        (registered,) = cluster.client.get(VALIDATINGWEBHOOKS, webhook.NAME)["webhooks"]
        return bool(registered["clientConfig"].get("caBundle"))

    eventually(known)  # until then, API servers go on without it
    bad = {"data": {names.CONFIG_KEY_COLOCATION: json.dumps({"enable": True, "degradeTimeMinutes": 0})}}
    with pytest.raises(Forbidden, match="degradeTimeMinutes: 0: must be greater than 0"):
        cluster.client.patch(CONFIGMAPS, names.CONFIG_MAP, bad, names.INSTALL_NAMESPACE)
