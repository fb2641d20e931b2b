"""Whatever goes wrong around the manager, it ends up where it should be, and offers nothing unsafe on the way."""

import time
from pathlib import Path
from typing import Any

import pytest

from manager.nodeside.node_writes import WRITE_TIMEOUT_SECONDS
from shared import durations, names
from shared.kube.resources import NODEMETRICS, NODES, PODS
from shared.quantity import Resources
from tests.integration.manager.conftest import Cluster, StartManager, counted, fetch, summed
from tests.integration.manager.process import ManagerProcess
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule, write_kubeconfig

pytestmark = pytest.mark.embedded_only("the proxy before a real server leaves connections open that break so often")

GIB = 1 << 30
MIB = 1 << 20
OFFERED = Resources(1500, GIB)


def restarts(manager: Any, reason: str) -> float:
    """How many watches ended so."""
    lines = fetch(manager, "/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("headroom_kube_watch_restarts") and f'reason="{reason}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def failures(manager: Any) -> float:
    """How often a node could not be brought up to date."""
    return summed(manager, "headroom_manager_failures_total{")


def test_while_nothing_is_heard_of_nodes_no_part_of_a_node_keeps_another_waiting(
    server: ApiServer, cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    cluster.add_node("n1")
    server.fault(rule("status", "^/api/v1/nodes\\?.*watch=true", times=0, status=500))
    start_manager()
    cluster.wait_for_metric("n1")
    cluster.report("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") == OFFERED)
    cluster.configure(midCPUThresholdPercent=20, metricReportIntervalSeconds=30)
    eventually(lambda: cluster.mid("n1") == Resources(800, GIB))
    eventually(
        lambda: cluster.client.get(NODEMETRICS, "n1")["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 30
    )


def test_a_server_that_comes_back_without_its_history_is_listed_again(
    server: ApiServer, cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    for name in ("stays", "goes"):
        cluster.add_node(name)
        cluster.wait_for_metric(name)
        cluster.report(name, at=time.time())
    eventually(lambda: (cluster.mid("stays"), cluster.mid("goes")) == (OFFERED, OFFERED))
    server.kill()
    # By then it has become patient, so that it does not come back before it is told to wait.
    eventually(lambda: restarts(manager, "unreachable") >= 12)
    server.start(rule("status", "watch=true", times=0, status=503))
    eventually(lambda: restarts(manager, "refused") >= 1)
    # While nobody watches: one node goes, the other one reports, and the server forgets how it came to that.
    cluster.client.delete(NODES, "goes")
    cluster.report("stays", at=time.time(), cpu="500m")
    server.compact()
    server.heal()
    eventually(lambda: cluster.mid("stays") == Resources(500, GIB))
    eventually(lambda: not cluster.has_metric("goes"))
    assert fetch(manager, "/api/v1/nodes/goes").status_code == 404
    assert restarts(manager, "gone") >= 1


def test_a_node_replaced_between_decision_and_patch_gets_nothing_that_was_meant_for_the_old_one(
    server: ApiServer, cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_node("n1")
    cluster.wait_for_metric("n1")
    server.fault(rule("delay", "^/api/v1/nodes/n1/status", method="PATCH", seconds=WRITE_TIMEOUT_SECONDS / 2))
    cluster.report("n1", at=time.time(), cpu="3500m")
    eventually(lambda: server.faults_left() == 0)
    cluster.client.delete(NODES, "n1")
    native = {"cpu": "2", "memory": "4Gi"}
    cluster.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    status = {"capacity": native, "allocatable": native}
    cluster.client.patch(NODES, "n1", {"status": status}, subresource="status")
    eventually(lambda: counted(manager, "node_write_conflicts_total") >= 1)
    eventually(lambda: cluster.has_metric("n1"))
    cluster.report("n1", at=time.time(), cpu="1")
    eventually(lambda: cluster.mid("n1") == Resources(1000, GIB))
    assert not failures(manager)


def test_a_write_that_takes_its_time_keeps_nobody_else_waiting(
    server: ApiServer, cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    for name in ("slow", "quick"):
        cluster.add_node(name)
        cluster.wait_for_metric(name)
    server.fault(rule("delay", "^/api/v1/nodes/slow/status", method="PATCH", seconds=8.0))
    cluster.report("slow", at=time.time())
    eventually(lambda: server.faults_left() == 0)
    cluster.report("quick", at=time.time())
    cluster.report("slow", at=time.time(), cpu="500m")
    eventually(lambda: cluster.mid("quick") == OFFERED)
    eventually(lambda: fetch(manager, "/api/v1/nodes/slow").json()["resources"]["cpu"]["result"] == 500)
    assert cluster.mid("slow") is None, "it is still on its way"
    eventually(lambda: cluster.mid("slow") == Resources(500, GIB))


def resources(cpu: str, memory: str) -> dict[str, object]:
    return {"resources": {"cpu": cpu, "memory": memory}}


def pods_using(cpu: str, memory: str, count: int = 1) -> list[dict[str, object]]:
    return [
        {"name": f"pod-{number}", "namespace": "default", "podUsage": resources(cpu, memory), "priority": "koord-prod"}
        for number in range(count)
    ]


def a_pod(name: str, *, on: str, asks: dict[str, str]) -> dict[str, object]:
    container = {"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}
    meta, spec = {"name": name}, {"nodeName": on, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


# One report is hostile to every formula; each of the others to the formula of the defaults, and in CI to all.


def test_a_node_metric_that_cannot_be_written_keeps_nothing_else_of_the_node_waiting(
    server: ApiServer, cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure(midBuffer="off")
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") == OFFERED)
    holder = a_pod("mid", on="n1", asks={names.MID_CPU: "1400", names.MID_MEMORY: "1Mi"})
    cluster.client.create(PODS, holder, cluster.namespace)
    server.fault(rule("status", "nodemetrics/n1[?]", method="PATCH", status=403, times=0))
    cluster.configure(midBuffer="off", nodePredictPolicy={"predictor": "n-sigma-v1"})
    eventually(lambda: counted(manager, 'failures_total{error="Forbidden"}') >= 1)
    cluster.report("n1", at=time.time(), cpu="300m")

    def is_short() -> bool:
        conditions = cluster.client.get(NODES, "n1")["status"].get("conditions", [])
        return any(each["type"] == names.CONDITION_MID_SHORTFALL and each["status"] == "True" for each in conditions)

    eventually(is_short)
    assert cluster.mid("n1") == Resources(1400, GIB)  # what the pod holds
    server.fault()
    cluster.report("n1", at=time.time(), cpu="400m")
    eventually(
        lambda: cluster.client.get(NODEMETRICS, "n1")["spec"].get("predictPolicy") == {"predictor": "n-sigma-v1"}
    )


@pytest.mark.thorough
def test_reports_as_large_as_the_server_takes_them_do_not_stay_in_memory(
    server: ApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.configure()
    kubeconfig = str(write_kubeconfig(tmp_path / "kubeconfig", server.manager_connection()))
    manager = ManagerProcess("m", kubeconfig, cluster.namespace, tmp_path, leader_elect="false")
    try:
        nodes = [f"n{number}" for number in range(4)]
        for name in nodes:
            cluster.add_node(name)
        for name in nodes:
            cluster.wait_for_metric(name)
        pods = pods_using("1", "1Gi", 10_000)

        def burden(round_: int) -> None:
            for name in nodes:
                status = {"updateTime": durations.timestamp(time.time() + round_), "podsMetric": pods}
                cluster.client.patch(NODEMETRICS, name, {"status": status}, subresource="status")
            eventually(lambda: "no node runs more than" in manager.get(f"/api/v1/nodes/{nodes[-1]}").text)

        burden(0)
        before = manager.resident_bytes()
        for round_ in range(1, 4):
            burden(round_)
        eventually(lambda: manager.resident_bytes() - before < 8 * MIB)
        assert manager.get("/healthz").status_code == 200
        cluster.report(nodes[0], at=time.time())
        cluster.client.patch(NODEMETRICS, nodes[0], {"status": {"podsMetric": []}}, subresource="status")
        eventually(lambda: cluster.mid(nodes[0]) == OFFERED)
    finally:
        manager.close()
