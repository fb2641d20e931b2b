"""What reaches the Node on a real API server, how often, and what people are told of it."""

import time

import pytest

from manager.nodeside.noderesource.report import MAX_LISTED
from shared import durations, names
from shared.clock import ManualClock
from shared.kube.resources import NODEMETRICS, NODES
from shared.quantity import Resources
from tests.integration.manager.conftest import (
    Cluster,
    StartManager,
    SteppedClock,
    counted,
    explained,
    fetch,
    seen,
)
from tests.support import eventually

ours = pytest.mark.own_decision("the manager decides by what it has read, whichever API server it came from")

GIB = 1 << 30
OFFERED = Resources(1500, GIB)
TIERS = (names.MID_CPU, names.MID_MEMORY, names.BATCH_CPU, names.BATCH_MEMORY)


def extended(cluster: Cluster, name: str) -> dict[str, str]:
    """What the Node has of the tiers' resources, on which capacity and allocatable must agree."""
    status = cluster.client.get(NODES, name)["status"]
    capacity, allocatable = (
        {each: status[part][each] for each in TIERS if each in status[part]} for part in ("capacity", "allocatable")
    )
    assert capacity == allocatable
    return allocatable


def test_both_tiers_come_and_go_in_one_write_each(cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    # 60 % of 4 cores and 65 % of 8 GiB: nothing runs there.
    expected = {names.MID_CPU: "1500", names.MID_MEMORY: str(GIB)}
    expected |= {names.BATCH_CPU: "2400", names.BATCH_MEMORY: str(8 * GIB - int(8 * GIB * 0.35))}
    assert eventually(lambda: extended(cluster, "n1") == expected)
    eventually(lambda: counted(manager, 'node_writes_total{reason="difference"}') == 1)
    eventually(lambda: counted(manager, 'node_batch_cpu_cores{node="n1"}') == 2.4)
    said = {"MidResourceChanged", "BatchResourceChanged"}
    eventually(lambda: {event["reason"] for event in cluster.events()} == said)

    cluster.configure(enable=False)
    assert eventually(lambda: extended(cluster, "n1") == {})
    eventually(lambda: counted(manager, 'node_writes_total{reason="difference"}') == 2)
    eventually(lambda: {"MidResourceReset", "BatchResourceReset"} <= {event["reason"] for event in cluster.events()})


def test_a_tier_that_is_not_chosen_is_never_touched(cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure()
    cluster.add_node("n1")
    theirs = {names.BATCH_CPU: "7", names.BATCH_MEMORY: "8"}
    cluster.client.patch(NODES, "n1", {"status": {"capacity": theirs, "allocatable": theirs}}, subresource="status")
    manager = start_manager(offers="mid")
    cluster.wait_for_metric("n1")
    cluster.report("n1", at=time.time())
    eventually(lambda: extended(cluster, "n1") == theirs | {names.MID_CPU: "1500", names.MID_MEMORY: str(GIB)})
    assert list(fetch(manager, "/api/v1/nodes/n1").json()["tiers"]) == ["mid"]
    cluster.configure(enable=False)
    eventually(lambda: extended(cluster, "n1") == theirs)
    annotations = cluster.client.get(NODES, "n1")["metadata"].get("annotations", {})
    assert names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE not in annotations


@ours
def test_growth_after_a_fall_waits_and_says_so_and_then_comes_by_itself(
    cluster: Cluster, start_manager: StartManager
) -> None:
    clock = SteppedClock()
    cluster.configure(midBuffer="off")
    manager = start_manager(clock)
    cluster.add_reporting_node("n1", at=clock.now())
    eventually(lambda: cluster.mid("n1") == OFFERED)
    cluster.report("n1", at=clock.now(), cpu="3")
    eventually(lambda: cluster.mid("n1") == Resources(3000, GIB))
    cluster.report("n1", at=clock.now(), cpu="2900m")
    eventually(lambda: cluster.mid("n1") == Resources(2900, GIB))
    eventually(lambda: counted(manager, 'node_writes_total{reason="safety"}') == 1)
    cluster.report("n1", at=clock.now(), cpu="1")
    eventually(lambda: cluster.mid("n1") == Resources(1000, GIB))
    eventually(lambda: seen(manager, "n1") == Resources(1000, GIB))
    cluster.report("n1", at=clock.now(), cpu="3")
    held = "kubernetes.io/mid-cpu 1000 -> 3000: fell to 1000 lately"
    eventually(lambda: held in str(explained(manager, "n1")["pending"]))
    pending = explained(manager, "n1")["pending"]
    eventually(lambda: counted(manager, 'node_writes_suppressed_total{reason="damped"}') > 0)
    assert cluster.mid("n1") == Resources(1000, GIB)
    until = durations.instant(pending["until"])
    assert 0 < until - clock.now() <= 600
    clock.advance(until - clock.now() + 1)
    eventually(lambda: cluster.mid("n1") == Resources(3000, GIB))
    eventually(lambda: explained(manager, "n1")["pending"] is None)
    why = "kubernetes.io/mid-cpu 1000 -> 3000: moved by more than 10 %"
    last = eventually(lambda: (found := explained(manager, "n1")["last_write"])["why"] == why and found)
    assert last["offers"]["mid"] == {"cpu_milli": 3000, "memory_bytes": GIB}


@ours
def test_a_manager_that_starts_anew_withdraws_what_has_turned_stale_meanwhile(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    first = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: len(extended(cluster, "n1")) == 4)
    first.close()
    start_manager(ManualClock(time.time() + 16 * 60))
    eventually(lambda: extended(cluster, "n1") == {})


@pytest.mark.parametrize(
    "status",
    [
        {"nodeMetric": {"nodeUsage": {"resources": {"cpu": "-3", "memory": "1Gi"}}}},
        {"nodeMetric": {"systemUsage": {"resources": {"cpu": "9" * 5000}}}},
        {"podsMetric": [{"name": f"p{index}", "namespace": "d", "podUsage": {}} for index in range(MAX_LISTED + 1)]},
        {"updateTime": "2999-01-01T00:00:00Z"},
    ],
    ids=["less than nothing", "5000 digits", "too many pods", "the far future"],
)
def test_a_hostile_report_costs_its_node_what_it_offers_and_nobody_else_anything(
    cluster: Cluster, start_manager: StartManager, status: dict[str, object]
) -> None:
    cluster.configure()
    manager = start_manager()
    for name in ("n1", "n2"):
        cluster.add_reporting_node(name, at=time.time())
    eventually(lambda: [len(extended(cluster, name)) for name in ("n1", "n2")] == [4, 4])
    cluster.client.patch(NODEMETRICS, "n1", {"status": status}, subresource="status")
    eventually(lambda: extended(cluster, "n1") == {})
    assert fetch(manager, "/api/v1/nodes/n1").json()["tiers"]["batch"]["reason"].startswith("degrade node resource")
    assert len(extended(cluster, "n2")) == 4
    assert "headroom_manager_failures_total{" not in fetch(manager, "/metrics").text
    cluster.client.patch(NODEMETRICS, "n1", {"status": dict.fromkeys(status)}, subresource="status")
    cluster.report("n1", at=time.time())
    eventually(lambda: len(extended(cluster, "n1")) == 4)


@ours
def test_a_change_of_the_whole_fleet_is_spread_with_what_shrinks_ahead(
    cluster: Cluster, start_manager: StartManager
) -> None:
    clock = SteppedClock()
    pools = {name: "low" if name in ("n4", "n5") else "high" for name in ("n1", "n2", "n3", "n4", "n5")}
    cluster.configure(midCPUThresholdPercent=20)
    manager = start_manager(clock, writes_per_second=1.0, write_burst=2, offers="mid")
    for name, pool in pools.items():
        cluster.add_node(name, labels={"pool": pool})

    def drained() -> bool:
        clock.advance(1)
        waiting = counted(manager, "pending_writes") + counted(manager, "queue_length")
        return waiting == 0 and all(cluster.has_metric(name) for name in pools)

    eventually(drained)
    for name in pools:
        cluster.report(name, at=clock.now())
    eventually(lambda: drained() and all(seen(manager, name) == Resources(800, GIB) for name in pools))
    eventually(lambda: all(explained(manager, name)["last_write"] for name in pools))  # and no writer is at work
    clock.advance(10)

    low = {"name": "low", "nodeSelector": {"matchLabels": {"pool": "low"}}, "midCPUThresholdPercent": 10}
    cluster.configure(midCPUThresholdPercent=30, nodeConfigs=[low])
    # Two tokens are there, and what is left is the policy in five NodeMetrics, with what grows after it.
    eventually(lambda: sum(cluster.mid(name) != Resources(800, GIB) for name in pools) == 2)
    eventually(lambda: counted(manager, "pending_writes") == 5)
    shrunk = [name for name in pools if cluster.mid(name) == Resources(400, GIB)]
    assert shrunk == ["n4", "n5"]
    assert all(cluster.mid(name) == Resources(800, GIB) for name in ("n1", "n2", "n3"))
    assert "writes that wait for their turn" in fetch(manager, "/api/v1/nodes/n1").json()["pending"]["reason"]
    clock.advance(5)
    assert counted(manager, "pending_writes_oldest_seconds") > 0
    eventually(lambda: drained() and all(cluster.mid(name) == Resources(1200, GIB) for name in ("n1", "n2", "n3")))


@ours
def test_a_dry_run_says_what_it_would_write_and_why_and_writes_nothing(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager(dry_run=True)
    cluster.add_node("n1")
    cluster.add_node("n2")
    metric = {"apiVersion": NODEMETRICS.api_version, "kind": "NodeMetric", "metadata": {"name": "n1"}}
    cluster.client.create(NODEMETRICS, metric)
    cluster.report("n1", at=time.time())
    eventually(lambda: explained(manager, "n1").get("pending"))
    answer = explained(manager, "n1")
    assert answer["pending"] == {"reason": "dry run: kubernetes.io/mid-cpu absent -> 1500", "until": None}
    term = next(each for each in answer["resources"]["cpu"]["terms"] if each["name"] == "threshold")
    assert term["source"] == "midCPUThresholdPercent (default)"
    assert all(each["time"] for tier in answer["tiers"].values() for each in tier["cpu"]["terms"])
    assert answer["last_write"] is None
    cluster.configure("{")
    eventually(lambda: counted(manager, "config_last_reload_success") == 0)
    assert (cluster.mid("n1"), cluster.has_metric("n2"), cluster.events()) == (None, False, [])
