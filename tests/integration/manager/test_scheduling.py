"""A manager on a real API server answers schedulers from what it has seen there."""

import time
from pathlib import Path
from typing import Any

import pytest

from manager.main import Manager
from shared import durations, names
from shared.errors import InvalidInput
from shared.kube.resources import NODEMETRICS, NODES, PODS
from shared.quantity import Resources
from tests.integration.manager.conftest import Cluster, StartManager
from tests.support import eventually
from tests.support.local_http import LOCAL_HTTP

ours = pytest.mark.own_decision("the extender answers the same, whichever API server has the nodes")

GIB = 1 << 30
ASKED = {names.MID_CPU: "1000", names.MID_MEMORY: str(GIB)}
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": ASKED, "limits": ASKED}}


def mid_pod(name: str, node: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {names.LABEL_PRIORITY_CLASS: "koord-mid"}},
        "spec": {"containers": [CONTAINER]} | ({"nodeName": node} if node else {}),
    }


def ask(manager: Manager, verb: str, node_names: list[str], pod: dict[str, Any] | None = None) -> Any:
    host, port = manager.address
    question = {"Pod": pod or mid_pod("p"), "Nodes": None, "NodeNames": node_names}
    answer = LOCAL_HTTP.post(f"http://{host}:{port}/scheduler/{verb}", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_mid_pod_is_held_back_as_soon_as_the_prediction_moves_and_before_the_node_says_so(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") == Resources(1500, GIB))
    assert ask(manager, "filter", ["n1"])["FailedNodes"] == {}

    cluster.client.create(PODS, mid_pod("holder", "n1"), cluster.namespace)
    refusal = eventually(lambda: ask(manager, "filter", ["n1"])["FailedNodes"])
    assert refusal == {"n1": "Mid cpu has shrunk: offers 1500m, pods request 1, this pod requests 1"}
    cluster.client.delete(PODS, "holder", cluster.namespace, grace_period_seconds=0)
    eventually(lambda: ask(manager, "filter", ["n1"])["NodeNames"] == ["n1"])

    # Too small a change to be written to the Node, yet one the pod does not fit into.
    exactly = {"resources": {"cpu": "1500m", "memory": str(GIB - 1)}}
    status = {"updateTime": durations.timestamp(time.time()), "prodReclaimableMetric": {"resource": exactly}}
    cluster.client.patch(NODEMETRICS, "n1", {"status": status}, subresource="status")
    refusal = eventually(lambda: ask(manager, "filter", ["n1"])["FailedNodes"])
    assert "Mid memory has shrunk: offers 1024 MiB" in refusal["n1"]
    assert cluster.mid("n1") == Resources(1500, GIB)
    cluster.client.delete(NODES, "n1")
    eventually(lambda: ask(manager, "filter", ["n1"])["NodeNames"] == ["n1"])


@ours
def test_arguments_that_mean_nothing_end_the_manager_before_it_serves(
    start_manager: StartManager, tmp_path: Path
) -> None:
    args = tmp_path / "args.yaml"
    args.write_text("usageThresholds: {cpu: 650}\n")
    with pytest.raises(InvalidInput, match=r"args.yaml: usageThresholds.cpu: 650"):
        start_manager(load_aware_args=str(args))
