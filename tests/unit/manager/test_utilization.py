"""Scaling by utilisation: the worked examples, and each thing that is done otherwise than by Escalator."""

import dataclasses
from typing import Any

import msgspec
import pytest

from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import arithmetic, observation, rules, scan
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.decisions import ScanRule, explain_delta
from manager.autoscaler.utilization.memory import Awaited, Breaker, Mark, Memory, ScaleLock
from manager.autoscaler.utilization.node_groups import Compat, NodeGroup
from manager.autoscaler.utilization.observation import CloudGroup, Observation, Observer
from manager.autoscaler.utilization.reaping import TaintedNodeReason
from shared.api.core import Node, Pod, Taint
from shared.errors import InvalidInput
from shared.quantity import Resources
from tests.unit.manager.objects import NOW
from tests.unit.manager.utilized import SIZE, Town, decided, names, node, nodes, pod, rules_of, seen

BOTH = pytest.mark.parametrize("compat", ["headroom", "escalator"])
HELD = Memory(lock=ScaleLock(NOW - 10, 4))


@BOTH
def test_seed_250_percent_of_two_nodes_are_six_nodes_more(compat: str) -> None:
    two = tuple(node(f"n{at}", allocatable=Resources(1000, 4000)) for at in range(2))
    pods = [observation.GroupPod(f"p{at}", Resources(500, 100)) for at in range(10)]
    decision = decided(rules_of(compat), seen(two, *pods))
    assert decision.fullness.utilization == arithmetic.GroupUtilization(250.0, 12.5)
    assert (decision.delta, decision.increase) == (6, 6)


@BOTH
@pytest.mark.parametrize(("size", "delta"), [(SIZE, 3), (Resources(), 1), (Resources(1000, 0), 1)])
def test_seed_from_zero_1800m_are_three_nodes_where_their_size_is_known(
    compat: str, size: Resources, delta: int
) -> None:
    decision = decided(rules_of(compat, min_nodes=0), seen((), pod("p", 1800)), Memory(node_size=size))
    assert (decision.delta, decision.increase) == (delta, delta)


@BOTH
def test_the_size_of_nodes_outlives_them(compat: str) -> None:
    known, observed = rules_of(compat), seen(nodes(1))
    memory = scan.remember(known, observed, Memory(), decided(known, observed), now=NOW)
    gone = seen(())
    assert scan.remember(known, gone, memory, decided(known, gone, memory), now=NOW).node_size == SIZE


@BOTH
def test_newest_come_back_first_and_the_cloud_adds_the_rest(compat: str) -> None:
    there = (*nodes(2), *nodes(2, "old", age=9000, tainted_for=5), *nodes(1, "young", age=60, tainted_for=5))
    decision = decided(rules_of(compat), seen(there, pod("p", 4000)))
    assert decision.delta == 4
    assert names(decision.untaint.planned)[0] == "young0"
    assert (decision.untaint.count, decision.increase) == (3, 1)


@BOTH
def test_nodes_that_cannot_be_untainted_are_bought_as_far_as_the_cloud_goes(compat: str) -> None:
    there = (*nodes(2), *nodes(2, "t", tainted_for=5))
    decision = decided(rules_of(compat), seen(there, pod("p", 4000), cloud=CloudGroup(0, 7, 4)))
    assert (decision.delta, decision.untaint.count, decision.increase) == (4, 2, 2)
    assert [decision.increase_after(each) for each in (2, 1, 0)] == [2, 3, 3]


@BOTH
def test_a_cloud_that_refuses_leaves_no_lock(compat: str) -> None:
    known, observed = rules_of(compat), seen(nodes(2), pod("p", 4000))
    decision = decided(known, observed)
    assert memories.lock_state(known, scan.remember(known, observed, Memory(), decision, now=NOW), now=NOW + 119.9)
    refused = dataclasses.replace(decision, increase=0)
    assert scan.remember(known, observed, Memory(), refused, now=NOW).lock is None


@BOTH
def test_oldest_go_first(compat: str) -> None:
    assert names(decided(rules_of(compat), seen(nodes(9))).taint.planned) == ["n8", "n7", "n6", "n5", "n4"]


@BOTH
def test_empty_groups_are_silent(compat: str) -> None:
    decision = decided(rules_of(compat, min_nodes=0), seen(()))
    assert (decision.error, decision.delta, decision.writes) == ("", 0, False)


def test_a_group_without_nodes_and_pods_is_brought_to_its_minimum_once() -> None:
    empty = decided(rules_of(min_nodes=5), seen(()))
    assert (empty.error, empty.increase, empty.steps[-1].rule) == ("", 5, ScanRule.BELOW_MIN)
    ordered = decided(rules_of(min_nodes=5), seen((), cloud=CloudGroup(0, 100, 5)))
    assert (ordered.error, ordered.increase, ordered.steps[-1].rule) == ("", 0, ScanRule.ON_ITS_WAY)
    town = Town(rules_of(min_nodes=5), (), boot_seconds=360)
    for _ in range(6):
        town.scan()
    assert town.target_size == 5


@BOTH
def test_nothing_is_written_in_dry_mode_and_the_nodes_are_kept_in_mind(compat: str) -> None:
    town = Town(rules_of(compat, dry_mode=True, scale_down_cool_down_period="0"), nodes(10))
    before = town.nodes
    decisions = [town.scan() for _ in range(3)]
    assert not any(each.writes for each in decisions)
    assert town.nodes == before
    assert [each.taint.count for each in decisions] == [5, 4, 0]
    assert len(town.memory.dry_tainted) == 9


@BOTH
def test_cordoned_nodes_are_left_alone(compat: str) -> None:
    there = (*nodes(3), node("c", cordoned=True, tainted_for=9999, force=True, ready=False))
    decision = decided(
        rules_of(compat, unhealthy_node_grace_period="1m", health_check_newest_nodes_percent=1), seen(there)
    )
    touched = (*decision.health_taints, *decision.deletions, *decision.taint.planned, *decision.untaint.planned)
    assert "c" not in names(touched)


@BOTH
@pytest.mark.parametrize(
    ("marked", "with_pod", "why"),
    [
        ({"tainted_for": 60}, False, TaintedNodeReason.TOO_EARLY),
        ({"tainted_for": 61}, False, TaintedNodeReason.EMPTY),
        ({"tainted_for": 600}, True, TaintedNodeReason.HOLDS_PODS),
        ({"tainted_for": 601}, True, TaintedNodeReason.OVERDUE),
        ({"tainted_for": 9999, "no_delete": "debugging"}, False, TaintedNodeReason.PROTECTED),
        ({"taints": (Taint(taints.TO_BE_REMOVED, "soon"),)}, False, TaintedNodeReason.NO_TIME),
        ({"force": True}, False, TaintedNodeReason.FORCED),
        ({"force": True, "no_delete": "debugging"}, False, TaintedNodeReason.FORCED),
        ({"force": True}, True, TaintedNodeReason.HOLDS_PODS),
    ],
)
def test_every_marked_node_has_one_reason(
    compat: str, marked: dict[str, Any], with_pod: bool, why: TaintedNodeReason
) -> None:
    there = (node("m", **marked), *nodes(3))
    pods = [pod("a", 1500), *([pod("b", 100, "m")] if with_pod else [])]
    decision = decided(rules_of(compat), seen(there, *pods))
    (verdict,) = (*decision.forced.statuses, *decision.reaped.statuses)
    assert verdict.why is why
    assert names(decision.deletions) == (["m"] if verdict.goes else [])


@BOTH
def test_an_unhealthy_group_neither_grows_nor_shrinks_and_only_unhealthy_nodes_leave(compat: str) -> None:
    known = rules_of(compat, unhealthy_node_grace_period="1m", health_check_newest_nodes_percent=100)
    there = (*nodes(3), node("bad", tainted_for=100, ready=False), node("good", tainted_for=100))
    decision = decided(known, seen(there, pod("p", 9000)))
    assert (decision.delta, decision.healthy, decision.steps[-1].rule) == (0, False, ScanRule.UNHEALTHY)
    assert names(decision.deletions) == ["bad"]


@BOTH
def test_bounds_left_to_the_cloud_are_the_clouds_at_every_scan(compat: str) -> None:
    known = rules_of(compat, min_nodes=0, max_nodes=0)
    assert known.group.bounds is None
    there = nodes(9)
    few, many = (decided(known, seen(there, cloud=CloudGroup(least, 100, 9))).taint.count for least in (8, 0))
    assert (few, many) == (1, 5)


@BOTH
def test_what_the_last_scale_up_brought_is_named_once_its_lock_ended(compat: str) -> None:
    town = Town(rules_of(compat), nodes(2), (pod("p", 2000),))
    assert town.scan(seconds=30).increase == 1
    town.nodes = (*town.nodes[:2], dataclasses.replace(town.nodes[2], created_at=town.now))
    assert town.scan(seconds=100).arrived == ()
    assert names(town.scan().arrived) == ["new-0001"]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1700000000", 1_700_000_000), ("+5", 5), ("-5", -5), ("007", 7), ("-9223372036854775808", -(2**63))],
)
def test_the_time_on_a_taint_is_read_as_go_reads_numbers(value: str, seconds: int) -> None:
    assert taints.tainted_at((Taint(taints.TO_BE_REMOVED, value),)) == seconds


@pytest.mark.parametrize("value", ["", "soon", "-+5", "+-5", "5.0", "1_000", "\u0661", "9223372036854775808", "9" * 60])
def test_what_is_no_time_on_a_taint_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="Unix time"):
        taints.tainted_at((Taint(taints.TO_BE_REMOVED, value),))


def test_percentages_of_much_memory_are_those_of_floating_point() -> None:
    demand, capacity = 149_930_631_292_206, 309_446_353_638_322
    found = arithmetic.utilization(Resources(0, demand), Resources(1, capacity), 1)
    assert found.memory_percent == float(demand * 1000) / float(capacity * 1000) * 100
    assert found.memory_percent != demand * 1000 / (capacity * 1000) * 100


# What follows is done otherwise than by Escalator, whose errors help no user.


def test_keeps_max_nodes() -> None:
    observed = seen(nodes(8), pod("p", 9000))
    assert decided(rules_of(max_nodes=10), observed).increase == 2
    full = seen((*nodes(10), *nodes(2, "t", tainted_for=1)), pod("p", 12000))
    kept = decided(rules_of(max_nodes=10), full)
    assert (kept.untaint.count, kept.increase, len(kept.refusals)) == (0, 0, 1)


def test_locks_below_min() -> None:
    observed = seen((*nodes(3), node("c1", cordoned=True), node("c2", cordoned=True)))
    held = decided(rules_of(min_nodes=5), observed, HELD)
    assert (held.increase, held.locked, held.delta) == (0, True, 4)
    assert decided(rules_of(min_nodes=5), observed).increase == 2


def test_reaps_while_locked() -> None:
    observed = seen((*nodes(3), node("t", tainted_for=99), node("f", force=True)), pod("p", 100))
    held = decided(rules_of(), observed, HELD)
    assert (names(held.deletions), held.taint.count, held.delta) == (["f", "t"], 0, 4)


def test_bound_pods_do_not_starve() -> None:
    pulling = pod("p", 600, "n0", phase="Pending")
    known = rules_of(scale_on_starve=True)
    assert decided(known, seen(nodes(1), pulling)).delta == 0
    assert decided(known, seen(nodes(2), pod("a", 500, "n0"), pod("b", 600, "n1"), pod("c", 501))).delta >= 1


def test_all_pods_keep_nodes() -> None:
    there = (*nodes(3), node("t", tainted_for=99))
    observed = seen(there, pod("p", 1500), others=(pod("kube-system/dns", 1, "t"),))
    assert decided(rules_of(), observed).deletions == ()
    only_daemons = seen(there, pod("p", 1500), others=(pod("kube-system/agent", 1, "t", of_node=True),))
    assert names(decided(rules_of(), only_daemons).deletions) == ["t"]


def a_pod(**spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)


def test_counts_sidecars() -> None:
    def container(cpu: str, **more: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    with_sidecar = a_pod(containers=[container("1")], initContainers=[container("500m", restartPolicy="Always")])
    assert observation.read_pod(with_sidecar).requests.cpu_milli == 1500


def test_ignores_pod_affinity() -> None:
    term = {"topologyKey": "kubernetes.io/hostname"}
    apart = a_pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    picky = [{"matchExpressions": [{"key": "customer", "operator": "In", "values": ["shared"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": picky}}
    assert observation.takes_pod(rules_of(name="default"), apart)
    assert not observation.takes_pod(rules_of(name="default"), a_pod(affinity={"nodeAffinity": required}))


def test_clamps_deletions() -> None:
    there = (*nodes(3), *nodes(3, "t", tainted_for=99))
    for least, left in ((4, 2), (6, 0)):
        observed = seen(there, pod("p", 1500), cloud=CloudGroup(least, 100, 6))
        clamped = decided(rules_of(), observed)
        assert len(clamped.deletions) == left
        assert [each.why for each in clamped.reaped.statuses].count(TaintedNodeReason.AT_MINIMUM) == 3 - left


def test_counts_deletions() -> None:
    there = (*nodes(6), *nodes(2, "t", tainted_for=99))
    observed = seen(there, cloud=CloudGroup(5, 100, 8))
    fresh = decided(rules_of(min_nodes=5), observed)
    assert (len(fresh.deletions), fresh.taint.count) == (2, 1)
    tight = seen((*nodes(6), *nodes(2, "t", tainted_for=99)), cloud=CloudGroup(6, 100, 8))
    fresh = decided(rules_of(min_nodes=1), tight)
    assert (len(fresh.deletions), fresh.taint.count) == (2, 0)


def test_excludes_unavailable() -> None:
    there = (*nodes(2), *nodes(2, "t", tainted_for=5))
    observed = seen(there, *(pod(f"p-{each.name}", 500, each.name) for each in there))
    assert decided(rules_of("escalator"), observed).fullness.utilization == arithmetic.GroupUtilization(100, 100)
    assert decided(rules_of(), observed).fullness.utilization == arithmetic.GroupUtilization(50, 50)
    chosen = decided(rules_of("escalator", exclude_unavailable_node_pods=True), observed)
    assert chosen.fullness.utilization == arithmetic.GroupUtilization(50, 50)
    assert chosen.deletions == ()


def test_excluded_pods_still_keep_their_nodes() -> None:
    observed = seen((*nodes(2), node("t", tainted_for=99)), pod("a", 1000), pod("b", 500, "t"))
    assert decided(rules_of(), observed).deletions == ()


def test_taints_what_others_hold() -> None:
    observed = seen(nodes(3), *(pod(f"p{at}", 350, f"n{at}") for at in range(3)))
    kept = decided(rules_of(), observed)
    assert (kept.taint.count, kept.delta) == (1, -2)
    assert kept.refusals == ("1 of 2 nodes are not tainted: without them the others would be above 70 %",)
    small = seen(nodes(2), pod("a", 250, "n0"), pod("b", 250, "n1"))
    assert decided(rules_of(), small).taint.count == 1
    overbooked: dict[str, Any] = {"taint_upper_capacity_threshold_percent": 60, "scale_up_threshold_percent": 150}
    full = seen(nodes(2), pod("a", 550, "n0"), pod("b", 550, "n1"))
    assert decided(rules_of(**overbooked), full).taint.count == 0
    above = decided(rules_of(max_nodes=2), observed)
    assert (above.taint.count, above.delta) == (1, -2)


def test_marks_once() -> None:
    options: dict[str, Any] = {"dry_mode": True, "unhealthy_node_grace_period": "1m"}
    options["health_check_newest_nodes_percent"] = 100
    town = Town(rules_of(**options), (*nodes(2), node("bad", ready=False)), (pod("p", 1000),))
    for _ in range(3):
        town.scan()
    assert town.memory.dry_tainted.count("bad") == 1


def test_takes_over() -> None:
    on_its_way = seen(nodes(2), pod("p", 5000), cloud=CloudGroup(0, 100, 5))
    begun = memories.taken_over(on_its_way, now=NOW)
    assert decided(rules_of(), on_its_way, begun).locked
    assert not decided(rules_of(), on_its_way, begun, after=120).locked
    assert memories.taken_over(seen(nodes(2)), now=NOW) == Memory()


def test_reaps_while_growing() -> None:
    options: dict[str, Any] = {"unhealthy_node_grace_period": "1m", "health_check_newest_nodes_percent": 100}
    there = (*nodes(2), node("bad", ready=False, tainted_for=99), node("good", tainted_for=99))
    crowded = seen(there, pod("p", 5000), cloud=CloudGroup(0, 4, 4))
    moving = decided(rules_of(max_unhealthy_nodes_percent=50, **options), crowded)
    assert (names(moving.deletions), names(moving.untaint.planned), moving.increase) == (["bad"], ["good"], 1)
    # At the group's own maximum even the healthy cannot come back.
    full = decided(rules_of(max_nodes=2, max_unhealthy_nodes_percent=50, **options), crowded)
    assert (names(full.deletions), full.untaint.count, full.increase) == (["bad", "good"], 0, 0)


@pytest.mark.parametrize("way", ["forced", "unhealthy"])
def test_a_group_that_may_not_grow_has_its_useless_nodes_replaced(way: str) -> None:
    options: dict[str, Any] = {"min_nodes": 3, "max_nodes": 3, "unhealthy_node_grace_period": "1m"}
    options |= {"health_check_newest_nodes_percent": 100, "max_unhealthy_nodes_percent": 50}
    useless = node("x", force=True) if way == "forced" else node("x", ready=False, tainted_for=99)
    town = Town(rules_of(**options), (*nodes(2), useless), (pod("a", 500, "n0"), pod("b", 500, "n1")), boot_seconds=90)
    decision = town.scan()
    assert (names(decision.deletions), decision.increase, decision.error) == (["x"], 1, "")
    for _ in range(3):
        assert not town.scan().writes
    assert names(town.nodes) == ["n0", "n1", "new-0001"]


def test_keeps_min_nodes() -> None:
    there = (*nodes(1), node("f1", force=True), node("f2", force=True))
    on_its_way = seen(there, pod("p", 500, "n0"), cloud=CloudGroup(0, 100, 5))
    held = Memory(lock=ScaleLock(NOW - 10, 2))
    for memory in (None, held):
        kept = decided(rules_of(min_nodes=3), on_its_way, memory)
        assert (kept.deletions, kept.increase) == ((), 0)
        assert [each.why for each in kept.forced.statuses] == [TaintedNodeReason.AWAITS_OTHERS] * 2
    come = seen((*there, *nodes(2, "new")), pod("p", 500, "n0"))
    assert names(decided(rules_of(min_nodes=3), come, held).deletions) == ["f1", "f2"]


def test_renews_with_room() -> None:
    rules = rules_of(min_nodes=3, max_nodes=5, max_node_age="30m")
    running = [pod(f"p{at}", 500, f"n{at}") for at in range(3)]
    for most, ours in ((3, 0), (4, 1)):
        observed = seen(nodes(3), *running, cloud=CloudGroup(0, most, 3))
        found = decided(rules, observed)
        assert (found.delta, found.increase, found.refusals) == (ours, ours, ())
    full = decided(rules_of(min_nodes=3, max_nodes=3, max_node_age="30m"), seen(nodes(3), *running))
    assert (full.delta, full.refusals) == (0, ())


def test_grows_below_min() -> None:
    observed = seen(nodes(4), pod("p", 9000))
    grows = decided(rules_of(min_nodes=5), observed)
    assert (grows.error, grows.increase) == ("", 1)
    ordered = decided(rules_of(min_nodes=5), seen(nodes(4), pod("p", 9000), cloud=CloudGroup(0, 100, 5)))
    assert (ordered.error, ordered.increase, ordered.steps[-1].rule) == ("", 0, ScanRule.ON_ITS_WAY)


def test_counts_ordered() -> None:
    on_its_way = seen(nodes(3), pod("p", 4000), cloud=CloudGroup(0, 100, 5))
    some = decided(rules_of(), on_its_way)
    assert (some.delta, some.increase, some.steps[-1].rule) == (3, 1, ScanRule.SCALE_UP)
    all_of_it = decided(rules_of(), seen(nodes(3), pod("p", 4000), cloud=CloudGroup(0, 100, 6)))
    assert (all_of_it.delta, all_of_it.increase, all_of_it.steps[-1].rule) == (3, 0, ScanRule.ON_ITS_WAY)


def test_machines_that_boot_slower_than_the_cool_down_are_asked_for_once() -> None:
    running = tuple(pod(f"p{at}", 900, f"n{at}") for at in range(3))
    waiting = tuple(pod(f"w{at}", 900) for at in range(10))
    town = Town(rules_of(), nodes(3), (*running, *waiting), boot_seconds=360)
    for _ in range(6):
        town.scan()
    assert town.target_size == 17


def test_what_never_comes_is_asked_for_again_after_a_while() -> None:
    town = Town(rules_of(), nodes(3), (pod("p", 4000),), boot_seconds=10**9)
    asked = [town.scan().increase for _ in range(34)]
    assert [at for at, each in enumerate(asked) if each] == [0, 15, 30]


@pytest.mark.parametrize(
    ("options", "observed", "why"),
    [
        (
            {},
            seen(nodes(2), pod("p", 5000)),
            "above the scale-up threshold: 250.0 % of cpu, scale_up_threshold_percent is 70",
        ),
        (
            {},
            seen(nodes(9), pod("p", 900)),
            "below the upper threshold: 10.0 % of cpu, taint_upper_capacity_threshold_percent is 40",
        ),
        (
            {},
            seen(nodes(9), pod("p", 90)),
            "below the lower threshold: 1.0 % of cpu, taint_lower_capacity_threshold_percent is 10",
        ),
        (
            {"min_nodes": 3},
            seen((*nodes(2), node("c", cordoned=True))),
            "below the minimum: 2 nodes take pods, min_nodes is 3",
        ),
        (
            {},
            seen((node("c", cordoned=True),), pod("p", 1)),
            "below the minimum: 0 nodes take pods, min_nodes is 1",
        ),
        (
            {"min_nodes": 0},
            seen((), pod("p", 1)),
            "above the scale-up threshold: pods exist and no nodes, scale_up_threshold_percent is 70",
        ),
        ({"max_nodes": 3}, seen(nodes(5), pod("p", 2500)), "above the maximum: 50.0 % of cpu"),
    ],
)
def test_every_change_has_its_reason(options: dict[str, Any], observed: Observation, why: str) -> None:
    known = rules_of(**options)
    assert explain_delta(known, decided(known, observed)).reason == why


def test_after_tainting_the_next_nodes_wait_for_the_scale_down_cool_down() -> None:
    town = Town(rules_of(scale_down_cool_down_period="5m"), nodes(20))
    assert [town.scan().taint.count for _ in range(6)] == [5, 0, 0, 0, 0, 5]
    eager = Town(rules_of("escalator"), nodes(20))
    assert [eager.scan().taint.count for _ in range(3)] == [5, 5, 5]


def test_a_node_that_came_back_stays_for_the_untaint_grace() -> None:
    options = {"untaint_grace_period": "10m", "scale_down_cool_down_period": "0", "soft_delete_grace_period": "1h"}
    options["hard_delete_grace_period"] = "2h"
    town = Town(rules_of(**options), (*nodes(1), node("back", age=99999, tainted_for=5)), (pod("p", 1000),))
    assert names(town.scan().untaint.planned) == ["back"]
    town.pods = ()
    assert [names(town.scan().taint.planned) for _ in range(2)] == [["n0"], []]
    assert "back" in town.memory.untainted_at


def test_a_clock_that_was_set_back_holds_nothing_for_ever() -> None:
    ahead = NOW + 10**6
    memory = Memory(lock=ScaleLock(ahead, 4), tainted_at=ahead, untainted_at={"n8": ahead})
    decision = decided(rules_of(), seen(nodes(9)), memory)
    assert (decision.locked, names(decision.taint.planned)[0]) == (False, "n8")


JUMPS = pytest.mark.parametrize("seconds", [-30 * 86400.0, -3600.0, 3600.0, 7200.0])


@BOTH
@JUMPS
def test_a_clock_that_jumps_orders_nothing_twice(compat: str, seconds: float) -> None:
    known = rules_of(compat, scale_up_cool_down_period="10m")
    demand = tuple(pod(f"p{at}", 500) for at in range(8))
    observed = seen(nodes(2), *demand)
    first = decided(known, observed)
    assert first.increase == 4
    memory = memories.shifted(scan.remember(known, observed, Memory(), first, now=NOW), seconds)
    waiting = seen(nodes(2), *demand, cloud=CloudGroup(0, 100, 6))
    assert [decided(known, waiting, memory, after=after + seconds).locked for after in (30, 599, 601)] == [1, 1, 0]


@JUMPS
def test_a_clock_that_jumps_makes_nothing_late_and_nothing_young(seconds: float) -> None:
    memory = Memory(
        ScaleLock(NOW - 1, 1),
        Awaited(NOW - 2, 2),
        scaled_out_at=NOW - 3,
        tainted_at=NOW - 4,
        untainted_at={"n8": NOW - 5},
        breaker=Breaker(asked_at=NOW - 6),
        marks={"n7": Mark(NOW - 7, NOW - 7)},
    )
    assert memories.shifted(memory, seconds) == Memory(
        ScaleLock(NOW - 1 + seconds, 1),
        Awaited(NOW - 2 + seconds, 2),
        scaled_out_at=NOW - 3 + seconds,
        tainted_at=NOW - 4 + seconds,
        untainted_at={"n8": NOW - 5 + seconds},
        breaker=Breaker(asked_at=NOW - 6 + seconds),
        marks={"n7": Mark(NOW - 7, NOW - 7 + seconds)},
    )
    assert memories.shifted(Memory(), seconds) == Memory()


def ages(observed: Observation, memory: Memory, *, now: float) -> tuple[list[float], Memory]:
    """For how long the nodes have been tainted, and what is to be known of that next time."""
    marks = memories.marks_on(observed.nodes, memory.marks, now=now)
    found = [taints.tainted_at(each.taints) for each in memories.dated(observed, marks).nodes]
    return [now - at for at in found if at is not None], dataclasses.replace(memory, marks=marks)


@BOTH
@JUMPS
def test_a_clock_that_jumps_leaves_taints_the_age_they_had(compat: str, seconds: float) -> None:
    known, one, other = rules_of(compat, slow_node_removal_rate=1, fast_node_removal_rate=1), *nodes(2)
    older = node("older", tainted_for=100)
    before = seen((one, other, older))
    was, memory = ages(before, Memory(), now=NOW)
    decision = decided(known, before, memory)
    assert (was, names(decision.taint.planned)) == ([100], ["n1"])
    memory = memories.shifted(scan.remember(known, before, memory, decision, now=NOW), seconds)
    new = node("n1", tainted_for=0)
    assert ages(seen((one, new, older)), memory, now=NOW + seconds + 60)[0] == [60, 160]
    anew = node("n1", tainted_for=-seconds - 50)  # by the clock as it goes now
    assert ages(seen((one, anew, older)), memory, now=NOW + seconds + 60)[0] == [10, 160]


def test_a_taint_from_a_time_to_come_counts_from_when_it_was_first_seen() -> None:
    observed = seen(nodes(1, tainted_for=-30 * 86400))
    first, memory = ages(observed, Memory(), now=NOW)
    later, memory = ages(observed, memory, now=NOW + 61)
    assert (first, later) == ([0], [61])
    assert memories.dated(observed, memories.marks_on(observed.nodes, {}, now=NOW + 40 * 86400)) is observed


def test_the_breaker_stops_asking_a_cloud_that_brings_nothing() -> None:
    known = rules_of("escalator", scale_up_failure_threshold=2, scale_up_cool_down_period="1s")
    memory, target, asked = Memory(), 2, []
    for scans in range(6):  # each later than what was requested before is waited for
        observed = seen(nodes(2), pod("p", 4000), cloud=CloudGroup(0, 100, target, size=2))
        decision = decided(known, observed, memory, after=1000.0 * scans)
        memory = scan.remember(known, observed, memory, decision, now=NOW + 1000 * scans)
        target += decision.target_change
        asked.append(decision.increase)
    assert asked == [4, 4, 0, 0, 0, 0]
    assert memory.breaker == Breaker(2, 2, 10, 10, NOW + 1000)
    arrived = seen(nodes(10), pod("p", 9000), cloud=CloudGroup(0, 100, 10, size=10))
    assert decided(known, arrived, memory, after=999).increase == 3


@BOTH
def test_the_breaker_stops_asking_a_cloud_that_gives_up_and_tries_it_again_after_a_while(compat: str) -> None:
    known = rules_of(compat, scale_up_failure_threshold=3)
    town = Town(known, nodes(2), (pod("p", 4000),), giving_up=True)
    asked = [town.scan().increase for _ in range(40)]
    assert [at for at, each in enumerate(asked) if each] == [0, 2, 4, 19, 34]
    town.giving_up = False
    for _ in range(16):
        town.scan()
    assert len(town.nodes) >= 6
    assert not town.memory.breaker.is_open


def test_nodes_that_leave_on_purpose_open_no_breaker() -> None:
    town = Town(rules_of(scale_up_failure_threshold=1, scale_down_cool_down_period="0"), nodes(4), (pod("p", 3000),))
    assert town.scan().increase == 1
    town.pods = ()
    for _ in range(9):
        town.scan()
    assert len(town.nodes) == 1
    town.pods = (pod("p", 3000),)
    assert town.scan().increase == 4


@BOTH
def test_a_dry_mode_that_asks_for_nothing_opens_no_breaker(compat: str) -> None:
    town = Town(rules_of(compat, dry_mode=True, scale_up_failure_threshold=1), nodes(2), (pod("p", 4000),))
    assert [town.scan().increase for _ in range(8)] == [4, 0, 4, 0, 4, 0, 4, 0]


def test_the_breaker_lets_tainted_nodes_come_back_and_never_waits_for_what_is_not_wanted_any_more() -> None:
    memory = Memory(breaker=Breaker(3, 2, 50))
    observed = seen((*nodes(2), node("t", tainted_for=5)), pod("p", 9000), cloud=CloudGroup(0, 100, 5, size=3))
    decision = decided(rules_of(), observed, memory)
    assert (names(decision.untaint.planned), decision.increase) == (["t"], 0)
    assert "50 instances" in decision.refusals[0]
    fewer = seen(nodes(3), pod("p", 9000), cloud=CloudGroup(0, 100, 3, size=3))
    assert decided(rules_of(), fewer, memory).increase > 0


@pytest.mark.parametrize(("counted", "percent"), [("off", 20.0), ("prod", 60.0), ("prod-and-mid", 90.0)])
def test_a_group_may_be_as_full_as_its_predicted_peaks(counted: str, percent: float) -> None:
    peaks: dict[str, Any] = {"prod_peak": Resources(600, 100), "mid_peak": Resources(300, 0)}
    there = nodes(4, **peaks)
    decision = decided(
        rules_of(predicted_peaks=counted), seen(there, *(pod(f"p{at}", 200, f"n{at}") for at in range(4)))
    )
    assert decision.fullness.utilization is not None
    assert decision.fullness.utilization.percent == pytest.approx(percent)
    assert (decision.delta > 0) is (percent > 70)


def test_pods_on_nodes_of_which_nothing_is_predicted_count_as_they_request() -> None:
    told, untold = nodes(5, prod_peak=Resources(950, 950)), nodes(5, "x")
    running = [pod(f"p{each.name}", 650, each.name) for each in (*told, *untold)]
    for there, percent in (((*told, *untold), 80.0), (untold, 65.0), ((*told, *nodes(5, "y")), 47.5)):
        on = {each.name for each in there}
        observed = seen(there, *(each for each in running if each.node in on))
        decision = decided(rules_of(predicted_peaks="prod"), observed)
        assert decision.fullness.utilization == arithmetic.GroupUtilization(percent, percent)
    there = (*nodes(2, prod_peak=Resources(500, 500)), *untold[:2])
    kept = seen(there, *(pod(f"p{each.name}", 400 if each in untold else 100, each.name) for each in there))
    assert decided(rules_of(predicted_peaks="prod"), kept).taint.count == 0
    assert decided(rules_of(), kept).taint.count == 2


def test_a_node_may_be_drained_before_it_goes() -> None:
    known = rules_of(drain_before_termination=True)
    there = (*nodes(3), node("full", tainted_for=601), node("early", tainted_for=600))
    observed = seen(there, pod("p", 1500), pod("a", 10, "full"), pod("b", 10, "early"))
    decision = decided(known, observed)
    assert (names(decision.drains), decision.deletions, decision.writes) == (["full"], (), True)
    left = seen(there, pod("p", 1500), pod("b", 10, "early"))
    assert names(decided(known, left).deletions) == ["full"]


def test_a_node_whose_pods_never_may_leave_goes_with_them_when_it_was_drained_for_long() -> None:
    known = rules_of(drain_before_termination=True)
    there = (*nodes(3), node("draining", tainted_for=1200), node("over", tainted_for=1201))
    decision = decided(known, seen(there, pod("p", 1500), pod("a", 10, "draining"), pod("b", 10, "over")))
    assert (names(decision.drains), names(decision.deletions)) == (["draining"], ["over"])


def test_what_waits_for_a_node_comes_on_top_of_predicted_peaks() -> None:
    there = nodes(10, prod_peak=Resources(650, 650))
    running = [pod(f"p{at}", 300, f"n{at}") for at in range(10)]
    waiting = [pod(f"w{at}", 300) for at in range(10)]
    for options, percent in (({"predicted_peaks": "prod"}, 95.0), ({}, 60.0)):
        decision = decided(rules_of(**options), seen(there, *running, *waiting))
        assert decision.fullness.utilization == arithmetic.GroupUtilization(percent, percent)


@BOTH
def test_nodes_that_are_gone_are_out_of_mind_in_dry_mode(compat: str) -> None:
    town = Town(rules_of(compat, dry_mode=True, min_nodes=0), nodes(3))
    for at in range(20):
        town.nodes = nodes(3, f"x{at}-")
        town.scan(600)
    assert len(town.memory.dry_tainted) <= 3


@pytest.mark.parametrize(
    ("options", "observed", "why"),
    [
        ({"min_nodes": 7}, seen(nodes(9)), "3 of 5 nodes are not tainted: the group's minimum is 7"),
        ({}, seen(nodes(9), cloud=CloudGroup(5, 100, 9)), "1 of 5 nodes are not tainted: the cloud's minimum is 5"),
    ],
)
def test_a_node_that_is_not_tainted_after_all_has_its_reason(
    options: dict[str, Any], observed: Observation, why: str
) -> None:
    for compat in ("escalator", "headroom"):
        assert decided(rules_of(compat, **options), observed).refusals == (why,)


def test_nodes_that_came_back_are_named_as_the_reason_why_others_stay() -> None:
    memory = Memory(untainted_at={f"n{at}": NOW - 5 for at in range(6)})
    decision = decided(rules_of(), seen(nodes(9)), memory)
    assert decision.taint.count == 3
    assert decision.refusals == ("2 of 5 nodes are not tainted: the others were untainted a short time ago",)


def test_a_node_that_the_clouds_minimum_keeps_is_not_drained() -> None:
    known = rules_of(drain_before_termination=True)
    there = (*nodes(3), node("full", tainted_for=601), node("empty", tainted_for=601))
    observed = seen(there, pod("p", 1500), pod("a", 10, "full"), cloud=CloudGroup(4, 100, 5))
    decision = decided(known, observed)
    assert (names(decision.deletions), decision.drains) == (["empty"], ())


def test_zones_stay_even_where_that_is_wanted() -> None:
    there = (*nodes(4, "a", age=99, zone="a"), *nodes(2, "b", age=9999, zone="b"), node("c", age=99999, zone="c"))
    even = [each.zone for each in decided(rules_of(balance_zones=True), seen(there)).taint.planned]
    assert even == ["a", "a", "b", "a", "c"]
    assert [each.zone for each in decided(rules_of(), seen(there)).taint.planned] == ["c", "b", "b", "a", "a"]


def test_a_group_is_selected_from_all_nodes_and_pods_and_what_cannot_be_read_is_named() -> None:
    def a_node(name: str, labels: dict[str, str], cpu: str = "1") -> Node:
        status = {"allocatable": {"cpu": cpu, "memory": "1000"}, "conditions": [{"type": "Ready", "status": "True"}]}
        return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)

    def bound(name: str, node_name: str, phase: str = "Running", **spec: Any) -> Pod:
        return msgspec.convert(
            {"metadata": {"name": name}, "spec": {"nodeName": node_name, **spec}, "status": {"phase": phase}}, Pod
        )

    ours = {"customer": "shared"}
    selector: dict[str, Any] = {"nodeSelector": ours}
    wrong = [{"resources": {"requests": {"cpu": "much"}}}]
    a = a_node("a", ours)
    pods = {
        "counted": bound("counted", "a", **selector),
        "waiting": bound("waiting", "", "Pending", **selector),
        "lost": bound("lost", "a", "Unknown", **selector),
        "over": bound("over", "a", "Succeeded", **selector),
        "other": bound("other", "a"),
        "elsewhere": bound("elsewhere", "b"),
        "wrong": bound("wrong", "a", **selector, containers=wrong),
    }
    observer = Observer(rules_of())
    peaks = {"a": (Resources(5, 5), Resources(1, 1))}
    all_nodes = [a, a_node("b", {"customer": "other"}), a_node("c", ours, cpu="many")]
    found = observer.observe(all_nodes, pods.values(), CloudGroup(0, 10, 1), peaks)
    assert names(found.nodes) == ["a"]
    assert (found.nodes[0].prod_peak, found.nodes[0].ready) == (Resources(5, 5), True)
    assert [each.name for each in found.pods] == ["counted", "waiting", "lost"]
    assert [each.name for each in found.others] == ["other", "Pod wrong"]  # nobody deletes its node
    assert set(found.refused) == {"Node c", "Pod wrong"}
    assert observer.observe(all_nodes, pods.values(), CloudGroup(0, 10, 1), peaks) == found
    # What has changed is read again: a pod that got its node, one that ended, a node that left the group.
    pods |= {"waiting": bound("waiting", "a", **selector), "other": bound("other", "a", "Failed")}
    changed = observer.observe([a_node("a", ours, cpu="2")], pods.values(), CloudGroup(0, 10, 1))
    assert changed.nodes[0].allocatable.cpu_milli == 2000
    assert [each.node for each in changed.pods] == ["a", "a", "a"]
    assert ([each.name for each in changed.others], set(changed.refused)) == (["Pod wrong"], {"Pod wrong"})
    assert observer.observe([], [pods["counted"]], CloudGroup(0, 10, 1)).pods == changed.pods[:1]


@BOTH
def test_a_group_without_options_is_no_reason_to_fail(compat: str) -> None:
    known = rules.scan_rules(NodeGroup(max_nodes=100, compat=Compat(compat)))
    assert decided(known, seen(nodes(3), pod("p", 10))).error == "scale_up_threshold_percent must be larger than 0"
    assert not decided(known, seen(nodes(3))).writes
