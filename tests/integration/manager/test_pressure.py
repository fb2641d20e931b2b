"""Nodes under pressure: pods evicted on a real API server, in order, by budgets, with Event, metric and explanation."""

import json
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry

from manager.nodeside.eviction.eviction_client import EvictionClient
from manager.nodeside.eviction.metrics import PressureCounters
from manager.nodeside.eviction.notices import LAPSE_SECONDS, NOTICE_SECONDS
from manager.nodeside.eviction.reliever import Reliever
from manager.nodeside.noderesource.prod_first import ProdWaiting
from manager.nodeside.pressure import NodePressure, PodPressure
from manager.nodeside.reports import EventReporter
from shared import durations, names
from shared.api.nodemetric_spec import ResourceThresholds
from shared.clock import ManualClock
from shared.kube.resources import CONFIGMAPS, NODEMETRICS
from shared.names import Tier
from shared.quantity import Resources
from tests.integration.manager.conftest import Cluster, StartManager, SteppedClock, counted, fetch
from tests.integration.manager.pods import Pods
from tests.support import eventually
from tests.unit.manager.objects import node_report

ours = pytest.mark.own_decision("the manager decides by what it has read, whichever API server it came from")

MIB = 1 << 20
EVICTS = ResourceThresholds(enable=True, evict_enabled=True)


@pytest.fixture
def pods(cluster: Cluster) -> Iterator[Pods]:
    pods = Pods(cluster)
    yield pods
    pods.clear()


class Relieving:
    """A reliever whose rounds are called one by one, on what the API server says at that moment.

    Of 100 MiB 80 are used, so that twelve are to be released; each pod uses eight.
    """

    def __init__(self, pods: Pods, *, actions: bool = True, per_minute: float = 60) -> None:
        self.clock = ManualClock()
        self.pods = pods
        self.registry = CollectorRegistry()
        pods.allowed = EVICTS
        self.actions = actions
        evictions = EvictionClient(
            pods.cluster.client, self.clock, EventReporter(None), per_minute=per_minute, is_leader=lambda: True
        )
        self.reliever = Reliever(evictions, pods, lambda: self.actions, PressureCounters(self.registry, lambda: 0))
        self.report()

    def report(self, *, leaving: bool = True) -> None:
        """A fresh one, also of the pods that leave unless it is told not to."""
        now = self.clock.now()
        uses = {
            pod.uid: PodPressure(Resources(0, 8 * MIB), pod.held)
            for pod in self.pods.records()
            if leaving or (pod.dispensability is not None and not pod.dispensability.terminating)
        }
        seen = NodePressure((names.MEMORY,), Resources(1, 100 * MIB), Resources(0, 80 * MIB), 0, 0, 0, uses)
        updated = durations.timestamp(now)
        self.pods.reported = node_report(update_time=now, updated=updated, pressure=seen)

    def report_slowed(self) -> None:
        """A fresh one: Prod has waited too long for CPU for a minute, and each pod uses half a core."""
        now = self.clock.now()
        uses = {pod.uid: PodPressure(Resources(500, 8 * MIB), pod.held) for pod in self.pods.records()}
        seen = NodePressure((), Resources(4000, 100 * MIB), Resources(4000, 8 * MIB), 0, 500 * len(uses), 0, uses)
        waits = {names.CPU: ProdWaiting(40.0, 1.0, now - 60, now)}
        updated = durations.timestamp(now)
        self.pods.reported = node_report(update_time=now, updated=updated, pressure=seen, prod_waits=waits)

    def round(self, after_seconds: float = 1) -> set[str]:
        self.clock.advance(after_seconds)
        self.reliever.run_once()
        return self.pods.leaving()

    def counted(self, tier: Tier, outcome: str) -> float | None:
        labels = {"resource": names.MEMORY, "tier": tier.value, "outcome": outcome}
        return self.registry.get_sample_value("headroom_manager_pressure_evictions_total", labels)


@ours
def test_batch_goes_before_mid_one_after_the_other_and_only_as_many_as_it_takes(pods: Pods) -> None:
    for name, tier in (("m", Tier.MID), ("b2", Tier.BATCH), ("b1", Tier.BATCH)):
        pods.add(name, tier=tier)
    relieving = Relieving(pods)
    assert len(relieving.round()) == 1
    assert relieving.round() == {"b1", "b2"}
    for _ in range(5):
        assert relieving.round() == {"b1", "b2"}  # sixteen of twelve
    pressed = relieving.reliever.pressure_on("n1")
    assert pressed is not None
    assert pressed.relief.reason.endswith("that much is leaving already")
    assert relieving.counted(Tier.BATCH, "evicted") == 2
    pods.reported = None
    relieving.round()
    assert relieving.reliever.pressure_on("n1") is None


def test_a_pod_with_a_budget_stays_and_others_go_at_once(pods: Pods) -> None:
    pods.add("b", tier=Tier.BATCH)
    pods.add("m")
    pods.guard("b")
    relieving = Relieving(pods)
    relieving.round()
    assert relieving.round() == {"m"}
    assert relieving.counted(Tier.BATCH, "refused") == 1
    assert relieving.round() == {"m"}


@ours
def test_a_new_report_waits_for_the_cool_down_and_an_old_one_evicts_nobody(pods: Pods) -> None:
    for name in ("a", "b", "c", "d"):
        pods.add(name, tier=Tier.BATCH)
    relieving = Relieving(pods)
    relieving.round()
    assert len(relieving.round()) == 2
    relieving.report()
    assert len(relieving.round()) == 2
    assert relieving.reliever.all() != []
    relieving.clock.advance(60)
    assert len(relieving.round()) == 2


def test_a_node_that_claims_pressure_without_end_gets_its_share_of_the_rate_and_no_more(pods: Pods) -> None:
    for number in range(6):
        pods.add(f"b{number}", tier=Tier.BATCH)
    relieving = Relieving(pods, per_minute=12)

    def claim(times: int) -> int:
        for _ in range(times):  # each is fresh, and says nothing of what leaves already
            relieving.report(leaving=False)
            relieving.round(after_seconds=5)
        return len(pods.leaving())

    assert claim(11) == 4  # within a minute, though all evictions together may be twelve
    pressed = relieving.reliever.pressure_on("n1")
    assert pressed is not None
    assert pressed.relief.evictions == ()
    assert pressed.relief.reason.endswith("no more than 4 pods of a node are evicted within a minute")
    assert claim(4) > 4


@ours
def test_nobody_goes_without_leave_of_policy_or_lead(pods: Pods) -> None:
    pods.add("a")
    relieving = Relieving(pods, actions=False)
    assert relieving.round() == set()
    assert relieving.reliever.pressure_on("n1") is not None  # what would be done is told all the same
    relieving.actions, pods.allowed = True, None
    assert relieving.round() == set()
    assert relieving.reliever.pressure_on("n1") is None


def test_the_manager_hands_the_policy_down_evicts_by_what_comes_back_and_explains_it(
    cluster: Cluster, start_manager: StartManager, pods: Pods
) -> None:
    clock = SteppedClock()
    cluster.configure()
    strategy = {"enable": True, "evictEnabled": True, "memoryEvictThresholdPercent": 75}
    patch = {"data": {names.CONFIG_KEY_THRESHOLDS: json.dumps({"clusterStrategy": strategy})}}
    cluster.client.patch(CONFIGMAPS, names.CONFIG_MAP, patch, cluster.namespace)
    cluster.add_node("n1")
    pods.add("b", tier=Tier.BATCH)
    pods.add("m")
    manager = start_manager(clock)
    cluster.wait_for_metric("n1")
    assert cluster.client.get(NODEMETRICS, "n1")["spec"]["resourceUsedThresholdWithBE"] == strategy

    each = {"usage": {"cpu": "100m", "memory": "8Mi"}, "held": {"cpu": "500m", "memory": "1Mi"}}
    amounts = {"capacity": {"cpu": "4", "memory": "100Mi"}, "usage": {"cpu": "1", "memory": "76Mi"}}
    uses = [{"name": pod.key.partition("/")[2], "uid": pod.uid, **each} for pod in pods.records() if pod.held_tier]
    pressure = {"resources": ["memory"], **amounts, "pods": uses}
    reported = durations.timestamp(clock.now())
    status = {"updateTime": reported, "prediction": {"pressure": pressure}}
    cluster.client.patch(NODEMETRICS, "n1", {"status": status}, subresource="status")
    # A report that is half a minute old evicts no pod, and the clock goes on faster than watches.
    eventually(lambda: fetch(manager, "/api/v1/nodes").json()["nodes"][0]["reported"] == reported)

    def second_later(holds: Callable[[], object]) -> bool:
        clock.advance(1)
        return bool(holds())

    eventually(lambda: second_later(lambda: counted(manager, "pressed_nodes")))
    eventually(lambda: second_later(lambda: "b" in pods.leaving()))
    (event,) = eventually(lambda: cluster.events("PressureEviction"))
    assert event["involvedObject"]["name"] == "b"
    assert "76 % of capacity 100 MiB, memoryEvictThresholdPercent is 75" in event["message"]
    assert counted(manager, 'pressure_evictions_total{outcome="evicted",resource="memory",tier="batch"}') == 1
    told = fetch(manager, "/api/v1/nodes/n1").json()["pressure"]
    assert [need["resource"] for need in told["needs"]] == ["memory"]
    cluster.client.patch(NODEMETRICS, "n1", {"status": {"prediction": {"pressure": None}}}, subresource="status")
    eventually(lambda: second_later(lambda: not counted(manager, "pressed_nodes")))
    assert fetch(manager, "/api/v1/nodes/n1").json()["pressure"] is None
    assert pods.leaving() == {"b"}


@ours
def test_a_pod_that_slows_prod_is_told_half_a_minute_before_and_then_evicted(pods: Pods) -> None:
    for name in ("m1", "m2"):
        pods.add(name)
    relieving = Relieving(pods)
    relieving.report_slowed()
    assert relieving.round() == set()
    (told,) = [name for name in ("m1", "m2") if relieving.pods.reclaim_at(name)]
    assert relieving.pods.reclaim_at(told) == durations.timestamp(relieving.clock.now() + NOTICE_SECONDS)
    for _ in range(2):
        relieving.report_slowed()
        assert relieving.round(NOTICE_SECONDS / 3) == set()
    relieving.report_slowed()
    assert relieving.round(NOTICE_SECONDS / 3) == {told}


@ours
def test_a_notice_without_a_reason_is_withdrawn(pods: Pods) -> None:
    pods.add("m")
    relieving = Relieving(pods)
    relieving.report_slowed()
    relieving.round()
    assert relieving.pods.reclaim_at("m")
    pods.reported = None
    assert relieving.round(LAPSE_SECONDS + 1) == set()
    assert relieving.pods.reclaim_at("m") is None
    relieving.report_slowed()
    assert relieving.round() == set()  # another notice, with its own time
    assert relieving.pods.reclaim_at("m") == durations.timestamp(relieving.clock.now() + NOTICE_SECONDS)


@ours
def test_where_memory_is_short_there_is_no_time_for_notice(pods: Pods) -> None:
    for name in ("b1", "b2"):
        pods.add(name, tier=Tier.BATCH)
    relieving = Relieving(pods)
    assert len(relieving.round()) == 1
    assert not any(map(pods.reclaim_at, ("b1", "b2")))
