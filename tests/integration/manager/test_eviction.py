"""Pods that hold more than their node has left: said on a real API server, and evicted in order where that is asked."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from manager.main import Manager
from manager.nodeside.eviction.eviction_client import MAX_REFUSALS, RETRY_SECONDS, EvictionClient
from manager.nodeside.eviction.evictor import PAUSE_SECONDS, Evictor
from manager.nodeside.eviction.metrics import EvictionCounters
from manager.nodeside.eviction.notices import NOTICE_SECONDS
from manager.nodeside.eviction.tracker import CALM_SECONDS, Tracker
from manager.nodeside.reports import EventReporter
from shared import durations, names
from shared.clock import ManualClock
from shared.kube.resources import NODES, PODS
from shared.names import Tier
from tests.integration.manager.conftest import Cluster, StartManager, SteppedClock, counted, fetch
from tests.integration.manager.pods import Pods
from tests.support import eventually
from tests.unit.manager.objects import enabled
from tests.unit.manager.shortfalls import decision

ours = pytest.mark.own_decision("the manager decides by what it has read, whichever API server it came from")

AFTER_SECONDS = 60
T = TypeVar("T")


@pytest.fixture
def pods(cluster: Cluster) -> Iterator[Pods]:
    pods = Pods(cluster)
    yield pods
    pods.clear()


def condition(cluster: Cluster) -> dict[str, Any]:
    found = cluster.client.get(NODES, "n1")["status"].get("conditions", [])
    own = [each for each in found if each["type"] == names.CONDITION_MID_SHORTFALL]
    assert len(own) <= 1
    return own[0] if own else {}


def catch_up(cluster: Cluster, manager: Manager) -> None:
    """Waits until the manager has seen all that has been written to the Node, of which a mark is the last."""

    def is_marked() -> bool:
        return bool(fetch(manager, "/api/v1/nodes").json()["nodes"][0]["simulated"])

    marked = not is_marked()
    labels = {names.LABEL_SIMULATED: "true" if marked else None}
    cluster.client.patch(NODES, "n1", {"metadata": {"labels": labels}})
    eventually(lambda: is_marked() is marked)


def eventually_written(cluster: Cluster, manager: Manager, look: Callable[[], T]) -> T:
    """What it finds on the Node, once that is true.

    A write that meets a change which the manager has not seen is tried again later. Time stands still here, so the next
    change has to bring it about.
    """

    def look_anew() -> T:
        catch_up(cluster, manager)
        return look()

    return eventually(look_anew, interval_seconds=0.2)


def pass_time(manager: Manager, clock: SteppedClock, seconds: float) -> None:
    """Lets the time pass in steps in which the evictor comes round, so that it is awake all the time."""

    def came_round(before: float) -> bool:
        return counted(manager, "eviction_passes_total") > before

    while seconds > 0:
        rounds = counted(manager, "eviction_passes_total")
        clock.advance(min(seconds, PAUSE_SECONDS))
        seconds -= PAUSE_SECONDS
        eventually(partial(came_round, rounds))


def shortfall(manager: Manager) -> Any:
    return fetch(manager, "/api/v1/nodes/n1").json()["tiers"]["mid"]["shortfall"]


def test_a_shortfall_is_said_by_condition_event_metric_and_answer_and_pods_stay(
    cluster: Cluster, start_manager: StartManager, pods: Pods
) -> None:
    clock = SteppedClock()
    cluster.configure(midBuffer="off")
    cluster.add_node("n1")
    for name, priority in (("high", 9), ("low", 1), ("middle", 5)):
        pods.add(name, priority=priority)
    manager = start_manager(clock)  # which knows all of the pods from the start
    cluster.wait_for_metric("n1")
    cluster.report("n1", at=clock.now())
    kubelets = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    cluster.client.patch(NODES, "n1", {"status": {"conditions": [kubelets]}}, subresource="status")
    eventually_written(cluster, manager, lambda: cluster.mid("n1") is not None)

    cluster.report("n1", at=clock.now(), cpu="600m")
    # No less is shown than the pods hold.
    eventually_written(cluster, manager, lambda: (mid := cluster.mid("n1")) is not None and mid.cpu_milli == 1500)
    said = eventually_written(cluster, manager, partial(condition, cluster))
    assert (said["status"], said["reason"]) == ("True", "OfferShrunk")
    assert "the node can offer cpu 600m" in said["message"]
    order = [f"{cluster.namespace}/{name} " for name in ("low", "middle")]
    assert said["message"].index(order[0]) < said["message"].index(order[1])
    assert "high" not in said["message"]
    (event,) = eventually(lambda: cluster.events("MidResourceShort"))
    assert (event["type"], event["message"]) == ("Warning", said["message"])
    types = {each["type"] for each in cluster.client.get(NODES, "n1")["status"]["conditions"]}
    assert {"Ready", names.CONDITION_MID_SHORTFALL} <= types
    assert counted(manager, 'shortfall_nodes{cause="shrunk",tier="mid"}') == 1
    assert counted(manager, 'shortfall_cpu_cores{node="n1",tier="mid"}') == 0.9
    answer = shortfall(manager)
    assert (answer["missing"]["cpu_milli"], answer["evicts_after_seconds"]) == (900, None)
    assert [each["pod"] for each in answer["pods"]] == [each.strip() for each in order]

    catch_up(cluster, manager)
    pass_time(manager, clock, 120)
    assert pods.leaving() == set()
    cluster.report("n1", at=clock.now(), cpu="2")
    eventually(lambda: shortfall(manager) is None)
    assert condition(cluster)["status"] == "True"
    clock.advance(CALM_SECONDS - 1)
    assert condition(cluster)["status"] == "True"

    def status_after_a_second() -> str:
        clock.advance(1)
        return str(condition(cluster)["status"])

    eventually(lambda: status_after_a_second() == "False")
    assert len(eventually(lambda: cluster.events("MidResourceSuffices"))) == 1
    assert len(cluster.events("MidResourceShort")) == 1


def test_a_pod_that_its_creator_binds_raises_no_offer_evicts_nobody_and_is_named_at_once(
    cluster: Cluster, start_manager: StartManager, pods: Pods
) -> None:
    clock = SteppedClock()
    cluster.configure(midBuffer="off", evictionAfterSeconds=1)
    manager = start_manager(clock)
    cluster.add_reporting_node("n1", at=clock.now())
    cluster.report("n1", at=clock.now(), cpu="2")
    eventually_written(cluster, manager, lambda: (mid := cluster.mid("n1")) is not None and mid.cpu_milli == 2000)
    pods.add("other")
    pods.bind("thief", **{names.MID_CPU: "1000000", names.MID_MEMORY: "1Ti"})
    said = eventually_written(cluster, manager, partial(condition, cluster))
    assert (said["status"], said["reason"]) == ("True", "BeyondOffer")
    assert f"{cluster.namespace}/thief (cpu 1000 and memory 1024.00 GiB)" in said["message"]
    (event,) = eventually(lambda: cluster.events("MidResourceShort"))
    assert (event["type"], event["message"]) == ("Warning", said["message"])
    assert shortfall(manager)["cause"] == "beyond"
    mid = cluster.mid("n1")
    assert mid is not None
    assert mid.cpu_milli == 2000
    pass_time(manager, clock, 10)
    assert pods.leaving() == set()


@ours
def test_prod_takes_back_what_mid_was_lent_before_it_was_requested(
    cluster: Cluster, start_manager: StartManager, pods: Pods
) -> None:
    clock = SteppedClock()
    cluster.configure(midFormula="seed-mixed", midBuffer="off", evictionAfterSeconds=AFTER_SECONDS)
    manager = start_manager(clock)
    cluster.add_reporting_node("n1", at=clock.now(), lends=None)
    cluster.report("n1", at=clock.now(), cpu="0")
    eventually_written(cluster, manager, lambda: (mid := cluster.mid("n1")) is not None and mid.cpu_milli == 4000)
    for name, priority in (("last", 9), ("first", 1), ("second", 5)):
        pods.add(name, priority=priority, cpu=1000)
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2500m", "memory": "1Gi"}}}
    prod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "prod"}}
    cluster.client.create(PODS, prod | {"spec": {"nodeName": "n1", "containers": [container]}}, cluster.namespace)

    eventually_written(
        cluster, manager, lambda: (mid := cluster.mid("n1")) is not None and mid.cpu_milli == 3000
    )  # what the pods hold
    eventually_written(cluster, manager, partial(condition, cluster))
    eventually(lambda: shortfall(manager)["missing"]["cpu_milli"] == 1500)
    catch_up(cluster, manager)
    pass_time(manager, clock, AFTER_SECONDS - 1)
    assert pods.leaving() == set()
    pass_time(manager, clock, 1)
    assert pods.leaving() == {"first"}
    eventually(lambda: shortfall(manager)["missing"]["cpu_milli"] == 500)
    pass_time(manager, clock, 2)  # by the rate
    assert pods.leaving() == {"first", "second"}
    eventually(lambda: shortfall(manager) is None)
    pass_time(manager, clock, AFTER_SECONDS)
    assert pods.leaving() == {"first", "second"}
    assert counted(manager, 'evictions_total{outcome="evicted",tier="mid"}') == 2
    eventually(lambda: len(cluster.events("MidResourceEviction")) == 2)
    regarding = [each["involvedObject"] for each in cluster.events("MidResourceEviction")]
    assert {(each["kind"], each["name"]) for each in regarding} == {("Pod", "first"), ("Pod", "second")}


@ours
def test_a_shortfall_that_ends_in_time_and_a_stale_node_metric_evict_nobody(
    cluster: Cluster, start_manager: StartManager, pods: Pods
) -> None:
    clock = SteppedClock()
    cluster.configure(midBuffer="off", evictionAfterSeconds=AFTER_SECONDS)
    manager = start_manager(clock, evictions_per_minute=6000)
    cluster.add_reporting_node("n1", at=clock.now())
    pods.add("pod", cpu=1000)
    for _ in range(2):
        cluster.report("n1", at=clock.now(), cpu="500m")
        eventually(lambda: shortfall(manager) is not None)
        pass_time(manager, clock, AFTER_SECONDS - 1)
        cluster.report("n1", at=clock.now())
        eventually(lambda: shortfall(manager) is None)
    clock.advance(15 * 60 + 1)
    eventually(lambda: (found := shortfall(manager)) is not None and found["cause"] == "unknown")
    eventually(lambda: condition(cluster).get("status") == "Unknown")
    pass_time(manager, clock, 2 * AFTER_SECONDS)
    assert counted(manager, 'shortfall_seconds{node="n1",tier="mid"}') >= 2 * AFTER_SECONDS
    assert pods.leaving() == set()


class Evicting:
    """An evictor whose rounds are called one by one, on what the API server says at that moment."""

    def __init__(self, pods: Pods, *, left: int, per_minute: float = 60.0, leads: bool = True) -> None:
        self.clock = ManualClock()
        self.pods = pods
        self.left = decision(left)
        self.tracker = Tracker(self.clock)
        self.strategy = enabled(eviction_after_seconds=AFTER_SECONDS)
        self.registry = CollectorRegistry()
        self.leads = leads
        self.is_settled = True
        self.evictor = Evictor(
            EvictionClient(
                pods.cluster.client,
                self.clock,
                EventReporter(None),
                per_minute=per_minute,
                is_leader=lambda: self.leads,
            ),
            self.tracker,
            pods,
            lambda _: self.is_settled,
            EvictionCounters(self.registry),
        )
        self.look()
        for _ in range(AFTER_SECONDS // 10 - 1):
            self.clock.advance(10)
            self.evictor.run_once()
        self.clock.advance(9)
        assert pods.leaving() == set()

    def look(self) -> None:
        self.tracker.track(self.pods.node("n1"), self.strategy, self.left, self.pods.records())

    def round(self, after_seconds: float = 1) -> set[str]:
        """Who has been evicted once that time, and a round, have passed."""
        self.clock.advance(after_seconds)
        self.look()
        self.evictor.run_once()
        return self.pods.leaving()

    def notice_passes(self) -> set[str]:
        """Who has been evicted once a notice that is given now has passed."""
        rounds = int(NOTICE_SECONDS // 10)
        before = self.pods.leaving()
        assert [self.round(10 if number else 1) for number in range(rounds)] == [before] * rounds
        return self.round(10)

    def counted(self, outcome: str) -> float | None:
        labels = {"tier": Tier.MID.value, "outcome": outcome}
        return self.registry.get_sample_value("headroom_manager_evictions_total", labels)


@pytest.fixture
def three(cluster: Cluster, pods: Pods) -> Pods:
    """Three pods of 500m each, named by when they go."""
    cluster.add_node("n1")
    for name, priority in (("third", 9), ("first", 1), ("second", 5)):
        pods.add(name, priority=priority)
    return pods


@ours
def test_evictions_keep_their_rate_and_their_order(three: Pods) -> None:
    evicting = Evicting(three, left=0, per_minute=30)
    seen = [evicting.round() for _ in range(5)]
    one, two = {"first"}, {"first", "second"}
    assert seen == [one, one, two, two, two | {"third"}]
    assert evicting.counted("evicted") == 3


def test_a_pod_that_its_budget_protects_is_waited_for_and_then_passed_over(three: Pods) -> None:
    three.guard("first")
    evicting = Evicting(three, left=1000)
    assert evicting.round() == set()
    assert evicting.counted("refused") == 1
    assert evicting.round() == set()
    assert evicting.counted("refused") == 1  # not yet again
    for refusals in range(2, MAX_REFUSALS + 1):
        assert evicting.round(after_seconds=RETRY_SECONDS) == set()
        assert evicting.counted("refused") == refusals
    assert evicting.notice_passes() == {"second"}
    assert evicting.round() == {"second"}  # which is enough


@ours
@pytest.mark.parametrize("obstacle", ["follower", "unsettled", "published", "expired"])
def test_nobody_is_evicted_by_who_does_not_lead_or_know_or_while_more_is_on_offer(three: Pods, obstacle: str) -> None:
    evicting = Evicting(three, left=1000)
    offered = {part: {names.MID_CPU: "1500", names.MID_MEMORY: "100Mi"} for part in ("capacity", "allocatable")}
    if obstacle == "published":
        three.cluster.client.patch(NODES, "n1", {"status": offered}, subresource="status")
    evicting.leads = obstacle != "follower"
    evicting.is_settled = obstacle != "unsettled"
    if obstacle == "expired":
        evicting.left = decision(1000, expires_at=evicting.clock.now())
    assert evicting.round() == set()
    evicting.left = decision(1000)
    evicting.leads = evicting.is_settled = True
    gone = {part: dict.fromkeys(listed) for part, listed in offered.items()}
    three.cluster.client.patch(NODES, "n1", {"status": gone}, subresource="status")
    # Another leader does not know who has had notice.
    assert (evicting.notice_passes() if obstacle == "follower" else evicting.round()) == {"first"}


@ours
def test_what_is_too_little_to_be_written_keeps_no_pod_from_eviction(three: Pods) -> None:
    evicting = Evicting(three, left=1000)
    offered = {part: {names.MID_CPU: "1005", names.MID_MEMORY: "100Mi"} for part in ("capacity", "allocatable")}
    three.cluster.client.patch(NODES, "n1", {"status": offered}, subresource="status")
    assert evicting.round() == {"first"}


@ours
def test_all_pods_that_are_to_be_evicted_get_notice_so_long_before_that_it_delays_none(three: Pods) -> None:
    evicting = Evicting(three, left=500)
    at = durations.timestamp(evicting.clock.now() + 1)  # when the shortfall will have lasted long enough
    assert [three.reclaim_at(name) for name in ("first", "second", "third")] == [at, at, None]
    assert evicting.round() == {"first"}
    assert evicting.round(after_seconds=2) == {"first", "second"}


@ours
def test_who_slept_lets_the_time_pass_again(three: Pods) -> None:
    evicting = Evicting(three, left=1000)
    assert evicting.round(after_seconds=PAUSE_SECONDS + 1) == set()
    for _ in range(AFTER_SECONDS // 10 - 1):
        assert evicting.round(after_seconds=10) == set()
    assert evicting.round(after_seconds=10) == {"first"}


def test_another_pod_of_the_same_name_is_not_evicted_in_its_place(three: Pods) -> None:
    evicting = Evicting(three, left=1000)
    three.stale = three.records()
    three.cluster.client.delete(PODS, "first", three.cluster.namespace, grace_period_seconds=0)
    three.add("first", priority=1)
    evicting.clock.advance(1)
    evicting.evictor.run_once()
    assert three.leaving() == set()
    assert evicting.counted("gone") == 1


@ours
def test_while_an_evicted_pod_is_not_seen_to_leave_nobody_else_goes(three: Pods) -> None:
    evicting = Evicting(three, left=0)
    three.stale = three.records()
    assert evicting.round() == {"first"}
    assert evicting.round() == {"first"}
    three.stale = None
    assert evicting.round() == {"first", "second"}


@ours
def test_what_pods_hold_stays_on_the_node_when_nothing_is_known_and_goes_with_them(
    cluster: Cluster, start_manager: StartManager, pods: Pods
) -> None:
    clock = SteppedClock()
    cluster.configure(midBuffer="off")
    manager = start_manager(clock)
    cluster.add_reporting_node("n1", at=clock.now())
    pods.add("pod", cpu=700)
    clock.advance(3600)

    def offered_milli() -> int | None:
        clock.advance(1)  # a manager that was asleep gives agents a while
        return None if (mid := cluster.mid("n1")) is None else mid.cpu_milli

    eventually(lambda: offered_milli() == 700)
    told = fetch(manager, "/api/v1/nodes/n1").json()["resources"]["cpu"]
    assert (told["bound"], told["result"]) == ("held", 700)
    cluster.client.delete(PODS, "pod", cluster.namespace, grace_period_seconds=0)
    eventually(lambda: offered_milli() is None)
