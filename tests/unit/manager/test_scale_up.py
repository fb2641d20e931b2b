"""What scale-up decides: which group, how many nodes, at what cost, and why not the others."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from manager.autoscaler.actuation import group_writer
from manager.autoscaler.cloudprovider.contract import Created, Group, GroupOptions, GroupSpec
from manager.autoscaler.cloudprovider.errors import Refused, Unavailable
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupBackoff, GroupStatus, Increase
from manager.autoscaler.estimator.limits import Quota, ResourceBounds
from manager.autoscaler.expander.priority import Pattern, Priorities
from manager.autoscaler.expander.ranking import CLUSTER_AUTOSCALER, LEAST_COST
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pricing.model import NVIDIA_GPU, Machine
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.reporting import answers
from manager.autoscaler.scale_up import groups, orchestrator
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.scale_up.options import EstimateRules, ScaleUpInput, ScaleUpSettings, TimeLimits
from manager.autoscaler.snapshot import cluster, templates
from manager.autoscaler.snapshot.cluster import PODS, ClusterSnapshot, NodeInfo, NodeState, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo, PodTerm, Spread
from shared.api.selectors import LabelSelector
from shared.names import MID_CPU

GIB = 1 << 30
PREFIX = "nodeautoprovisioning"
ZONE = "topology.kubernetes.io/zone"
ATOMIC = GroupOptions(zero_or_max_node_scaling=True)


def machine(cores: float, memory_gib: int = 4, *, labels: Mapping[str, str] | None = None, gpus: int = 0) -> NodeInfo:
    amounts = {"cpu": round(cores * 1000), "memory": memory_gib * GIB, PODS: 110}
    amounts |= {NVIDIA_GPU: gpus} if gpus else {}
    return NodeInfo("machine", labels or {}, capacity=amounts, allocatable=amounts)


def group(name: str, node: NodeInfo, target: int = 0, most: int = 100, **more: Any) -> GroupStatus:
    least = more.pop("least", 0)
    return GroupStatus(Group(name, least, most, target), template=NodeTemplate(name, node), **more)


def pending(cores: float, count: int = 1, name: str = "pod", memory_gib: float = 0, **more: int) -> EquivalenceGroup:
    requests = {"cpu": round(cores * 1000), **more}
    if memory_gib:
        requests["memory"] = round(memory_gib * GIB)
    return EquivalenceGroup(PodInfo("ns", requests=requests), tuple(f"ns/{name}-{each:04d}" for each in range(count)))


def rules(states: Sequence[GroupStatus], **more: Any) -> ScaleUpSettings:
    chosen = ScaleUpSettings(Ownership({state.id: None for state in states}), FilePricing())
    return replace(chosen, **more)


def decided(
    states: Sequence[GroupStatus],
    classes: Sequence[EquivalenceGroup],
    snapshot: ClusterSnapshot | None = None,
    situation: Mapping[str, Any] | None = None,
    **more: Any,
) -> ScaleUpDecision:
    taken = cluster.snapshot_of_nodes([]) if snapshot is None else snapshot
    seen = ScaleUpInput(taken, classes, states, len(taken.nodes), **(situation or {}))
    return orchestrator.decide(seen, rules(states, **more), random.Random(7))


def grown(decision: ScaleUpDecision) -> dict[str, int]:
    return {each.group: each.to_size for each in decision.increases}


def test_nothing_is_bought_for_pods_that_fit_on_nodes_there_are_or_on_upcoming_ones() -> None:
    states = [group("a", machine(4))]
    upcoming = replace(machine(4), name="upcoming-0", state=NodeState.UPCOMING)
    decision = decided(states, [pending(2, 2)], cluster.snapshot_of_nodes([upcoming]))
    assert (decision.outcome, decision.increases, decision.demands[0].schedulable) == (ScaleUpOutcome.NOT_NEEDED, (), 2)
    decision = decided(states, [pending(2, 3)], cluster.snapshot_of_nodes([upcoming]))
    assert grown(decision) == {"a": 1}
    assert decision.triggered == ("ns/pod-0002",)


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"healthy": False}, groups.NOT_READY),
        ({"backoff": GroupBackoff("it failed", 0.0, 300.0, 300.0)}, groups.BACKED_OFF),
        ({"template": None}, groups.NO_TEMPLATE),
        ({"group": Group("a", 0, 3, 3)}, groups.AT_MAXIMUM),
        ({"group": Group("a", 0, 3, 4)}, groups.AT_MAXIMUM),
        ({"options": ATOMIC, "group": Group("a", 0, 6, 0)}, groups.ATOMIC_BEYOND_NODES),
        ({"group": Group("of another", 0, 3, 0)}, groups.NOT_OURS),
    ],
)
def test_a_group_that_cannot_grow_says_why(spoilt: dict[str, Any], reason: str) -> None:
    state = replace(group("a", machine(4)), **spoilt)
    ours = Ownership({"a": None})
    decision = decided([state], [pending(1)], ownership=ours, max_nodes_total=5)
    assert decision.outcome is ScaleUpOutcome.NO_OPTIONS
    assert [(each.group, each.reason) for each in decision.skipped] == [(state.id, reason)]
    assert decision.reasons(decision.left[0]) == {state.id: (reason,)}


def test_a_group_whose_next_node_a_quota_forbids_is_not_looked_at() -> None:
    decision = decided(
        [group("a", machine(4))], [pending(1)], bounds={"cpu": ResourceBounds(0, 3), "memory": ResourceBounds(0, GIB)}
    )
    assert decision.skipped[0].reason == 'exceeded quota: "cluster-wide", resources: cpu, memory'


def test_a_quota_takes_off_nodes_and_only_pods_on_those_bought_are_triggered() -> None:
    decision = decided([group("a", machine(2))], [pending(2, 3)], bounds={"cpu": ResourceBounds(0, 4)})
    assert grown(decision) == {"a": 2}
    assert len(decision.triggered) == 2
    (left,) = decision.left
    assert (len(left.pods), left.awaiting) == (1, False)
    assert decision.reasons(left) == {"a": ('exceeded quota: "cluster-wide", resources: cpu',)}
    assert [(cap.wanted, cap.allowed, cap.limit) for cap in decision.caps] == [
        (3, 2, 'exceeded quota: "cluster-wide", resources: cpu')
    ]
    assert decision.comparison is not None
    assert decision.comparison.single.pod_count == 2


CPU_QUOTA = 'exceeded quota: "cluster-wide", resources: cpu'
NODES_QUOTA = 'exceeded quota: "max-nodes-total", resources: nodes'


@pytest.mark.parametrize(
    ("others", "given", "awaiting", "reasons"),
    [
        ([], {"bounds": {"cpu": ResourceBounds(0, 4)}}, False, {"a": CPU_QUOTA}),
        ([], {"max_nodes_total": 2}, False, {"a": NODES_QUOTA}),
        ([group("b", machine(3))], {"bounds": {"cpu": ResourceBounds(0, 4)}}, False, {"a": CPU_QUOTA, "b": CPU_QUOTA}),
        ([group("b", machine(3))], {"max_nodes_total": 2}, False, {"a": NODES_QUOTA, "b": NODES_QUOTA}),
        (
            [],
            {"estimates": EstimateRules(max_nodes_per_scaleup=2)},
            True,
            {"a": "--max-nodes-per-scaleup allows 2 at once"},
        ),
        ([group("c", machine(3), 2, most=2)], {"most": 2}, False, {"a": groups.AT_MAXIMUM, "c": groups.AT_MAXIMUM}),
        ([group("c", machine(3), 1, most=2)], {"most": 2}, True, {"a": groups.AT_MAXIMUM}),
        (
            [group("c", machine(3), backoff=GroupBackoff("no stock", 0, 300, 300))],
            {"most": 2},
            False,
            {"a": groups.AT_MAXIMUM, "c": groups.BACKED_OFF},
        ),
        ([group("tiny", machine(1))], {"most": 2}, False, {"a": groups.AT_MAXIMUM, "tiny": "Insufficient cpu"}),
    ],
)
def test_pods_await_a_later_round_only_if_a_group_may_grow_then_and_else_each_limit_is_named(
    others: list[GroupStatus], given: dict[str, Any], awaiting: bool, reasons: dict[str, str]
) -> None:
    states = [group("a", machine(2), most=given.pop("most", 100)), *others]
    more = {"least_cost_mix": False, "pricing": FilePricing(), **given}
    decision = decided(states, [pending(2, 5)], **more)
    assert grown(decision) == {"a": 2}
    (left,) = decision.left
    assert (len(left.pods), left.awaiting) == (3, awaiting)
    assert decision.reasons(left) == {name: (reason,) for name, reason in reasons.items()}


def test_pods_that_a_rule_keeps_from_further_nodes_of_the_chosen_group_await_nothing() -> None:
    there = cluster.snapshot_of_nodes([replace(machine(0.1, labels={ZONE: "z2"}), name="old")])
    spread = Spread(PodTerm(ZONE, frozenset({"ns"}), LabelSelector({"app": "w"})), 1, 1, True, False)
    facts = PodInfo("ns", {"app": "w"}, {"cpu": 1000}, spread=(spread,))
    classes = [EquivalenceGroup(facts, ("ns/w-0", "ns/w-1", "ns/w-2"))]
    decision = decided([group("a", machine(2, labels={ZONE: "z1"}))], classes, there)
    (left,) = decision.left
    assert (decision.triggered, left.pods, left.awaiting) == (("ns/w-0",), ("ns/w-1", "ns/w-2"), False)


def test_all_or_nothing_names_the_limit_that_is_to_blame() -> None:
    only = EstimateRules(scale_up_all_or_nothing=True)
    capped = decided([group("a", machine(2))], [pending(2, 3)], estimates=only, bounds={"cpu": ResourceBounds(0, 4)})
    few = decided([group("a", machine(2), most=2)], [pending(2, 3)], estimates=only)
    for decision, limit in ((capped, CPU_QUOTA), (few, groups.AT_MAXIMUM)):
        (left,) = decision.left
        assert (left.awaiting, decision.reasons(left)) == (False, {"a": (f"{groups.NOT_ALL_FIT}; {limit}",)})


GPU_LABEL = "cloud.google.com/gke-accelerator"
BALANCED = EstimateRules(balance_similar_node_groups=True, gpu_label=GPU_LABEL)


@pytest.mark.parametrize(
    ("given", "bounds", "bought", "placed"),
    [
        ({}, {"cpu": ResourceBounds(0, 4)}, 1, 4),
        ({}, {"cpu": ResourceBounds(0, 7)}, 1, 4),
        ({}, {"cpu": ResourceBounds(0, 3)}, 0, 0),
        ({}, {"memory": ResourceBounds(0, 8 * GIB)}, 2, 8),
        ({}, {"gpu": ResourceBounds(0, 3)}, 3, 12),
        ({}, {"cpu": ResourceBounds(0, 8), "memory": ResourceBounds(0, 4 * GIB)}, 1, 4),
        ({}, {"cpu": ResourceBounds(0, 40)}, 10, 40),
        ({"similar": 2}, {"cpu": ResourceBounds(0, 12)}, 3, 12),
        ({"options": ATOMIC, "most": 2}, {"cpu": ResourceBounds(0, 8)}, 2, 8),
        ({"spec": GroupSpec("m", PREFIX)}, {"cpu": ResourceBounds(0, 4)}, 1, 4),
    ],
)
def test_under_max_cpu_max_memory_and_gpu_total_a_plan_says_of_no_pod_that_it_gets_a_node_that_is_not_bought(
    given: dict[str, Any], bounds: dict[str, ResourceBounds], bought: int, placed: int
) -> None:
    given = dict(given)
    kind = machine(4, labels={GPU_LABEL: "gpu"}, gpus=1)
    names = [f"{PREFIX}-{letter}" for letter in "abc"[: given.pop("similar", 1)]]
    states = [group(name, kind, **given) for name in names]
    for expanders in (("least-waste",), ("price",)):
        decision = decided(states, [pending(0.9, 40)], bounds=bounds, estimates=BALANCED, expanders=expanders)
        assert (decision.new_nodes, len(decision.triggered)) == (bought, placed)
        (row,) = (plan := answers.plan(Iteration(1, 0.0, decision=decision))).pending
        assert (row.triggered, row.unplaced) == (placed, 40 - placed)
        assert [(each.count, bool(each.reasons)) for each in plan.unplaced] == (
            [(40 - placed, True)] if placed < 40 else []
        )


def test_there_are_never_more_nodes_than_the_cluster_may_have() -> None:
    there = cluster.snapshot_of_nodes([machine(0.1), replace(machine(0.1), name="other", state=NodeState.UPCOMING)])
    states = [group("a", machine(2))]
    decision = decided(states, [pending(2, 5)], there, max_nodes_total=4)
    assert (grown(decision), decision.considered[0].node_count, decision.caps) == ({"a": 2}, 2, ())
    full = decided(states, [pending(2, 5)], there, max_nodes_total=2)
    assert (full.outcome, full.increases) == (ScaleUpOutcome.ALL_NODES, ())


def test_a_group_of_all_or_nothing_gets_all_its_nodes() -> None:
    atomic = group("a", machine(4), most=5, options=ATOMIC)
    assert grown(decided([atomic], [pending(1)])) == {"a": 5}


def test_gpus_count_against_their_quota_by_type_while_drivers_are_not_ready_too() -> None:
    label = "cloud.google.com/gke-accelerator"
    ready = machine(4, gpus=2, labels={label: "t4"})
    starting = replace(machine(4, labels={label: "t4"}), name="starting")
    states = [group("a", ready)]
    estimates = EstimateRules(gpu_label=label)
    classes = [EquivalenceGroup(PodInfo("ns", requests={NVIDIA_GPU: 2}), ("ns/a", "ns/b", "ns/c"))]
    there = cluster.snapshot_of_nodes([starting])
    seen = {"templates_of_nodes": {"starting": ready}}
    for most, nodes_left in ((6, 2), (5, 1), (3, 0)):
        found = decided(states, classes, there, seen, estimates=estimates, bounds={"t4": ResourceBounds(0, most)})
        assert sum(each.nodes for each in found.increases) == nodes_left


@pytest.mark.parametrize("kind", ["cpu", "memory", "nodes"])
def test_no_type_of_gpu_takes_the_place_of_another_resource(kind: str) -> None:
    node = machine(4, 4, gpus=2, labels={"gpu": kind})
    taken = QuotaUsage("gpu").node_usage(node)
    assert (taken["cpu"], taken["memory"], taken["nodes"], taken[NVIDIA_GPU]) == (4, 4 << 30, 1, 2)


def test_all_or_nothing_refuses_what_would_leave_a_pod_behind() -> None:
    classes = [pending(1), pending(8, name="large")]
    only = EstimateRules(scale_up_all_or_nothing=True)
    decision = decided([group("a", machine(4))], classes, estimates=only)
    assert (decision.outcome, decision.skipped[0].reason) == (ScaleUpOutcome.NO_OPTIONS, groups.NOT_ALL_FIT)
    assert grown(decided([group("a", machine(8))], classes, estimates=only)) == {"a": 2}
    capped = decided([group("a", machine(8))], classes, estimates=only, bounds={"cpu": ResourceBounds(0, 8)})
    assert (capped.outcome, capped.increases) == (ScaleUpOutcome.NO_OPTIONS, ())


def test_on_the_fast_path_the_pods_that_counting_helps_most_are_estimated_last() -> None:
    """Then small ones, which are first, take nodes of their own before the large ones have left room for them."""
    classes = [pending(3, 9, name="large"), pending(1, 4, name="small")]
    assert grown(decided([group("a", machine(4))], classes)) == {"a": 9}
    fast = EstimateRules(fastpath_binpacking_enabled=True)
    assert grown(decided([group("a", machine(4))], classes, estimates=fast)) == {"a": 10}


@pytest.mark.parametrize(
    ("cores", "grows_to", "placed"), [(20, 15, 20), (13, 13, 18), (11, 11, 16), (10, 10, 15), (5, 5, 10), (1, 1, 2)]
)
def test_on_the_fast_path_a_quota_takes_off_the_last_nodes_with_their_pods(
    cores: int, grows_to: int, placed: int
) -> None:
    """The usual order would take ten nodes for the same pods, fewer than some of these quotas allow."""
    classes = [pending(0.6, 10, name="large"), pending(0.4, 10, name="small")]
    limits: dict[str, Any] = {
        "estimates": EstimateRules(fastpath_binpacking_enabled=True),
        "bounds": {"cpu": ResourceBounds(0, cores)},
    }
    decision = decided([group("a", machine(1))], classes, **limits)
    assert grown(decision) == {"a": grows_to}
    assert len(decision.triggered) == placed


def test_similar_groups_share_the_nodes_and_a_quota_is_not_made_up_for_elsewhere() -> None:
    states = [group("a", machine(2), 1), group("b", machine(2), 3), group("c", machine(2), 2, most=2)]
    balanced = EstimateRules(balance_similar_node_groups=True)
    assert grown(decided(states, [pending(2, 4)], estimates=balanced)) == {"a": 4, "b": 4}
    marked = [replace(states[0], template=NodeTemplate("a", machine(2, labels={"kubernetes.io/hostname": "x"})))]
    quota = Quota("of a", {"nodes": 1}, LabelSelector({"kubernetes.io/hostname": "x"}))
    decision = decided(
        [*marked, states[1]],
        [pending(2, 4)],
        situation={"quotas": (quota,)},
        estimates=balanced,
        expanders=("priority",),
        priorities=Priorities({1: (Pattern("b"),)}),
    )
    assert grown(decision) == {"a": 2, "b": 4}


def test_every_term_of_every_rank_is_there_and_the_lowest_rank_wins() -> None:
    states = [
        group("small", machine(2, 8)),
        group("large", machine(8, 30)),
        group("gpu", machine(2, 8, gpus=1)),
    ]
    full = cluster.snapshot_of_nodes([replace(machine(0.01), name=f"n{each}") for each in range(50)])
    decision = decided(states, [pending(1.5)], full)
    ranks = {each.group: each.ranked.rank for each in decision.considered}
    assert decision.chosen is not None
    lowest = min((rank.rank, name) for name, rank in ranks.items() if rank is not None)
    assert decision.chosen.group == lowest[1] == "large"
    assert ranks["small"] is not None
    assert ranks["small"].unfitness == 4
    assert decision.steps[0].groups == ("large",)


def test_what_has_no_price_is_not_bought_by_price() -> None:
    decision = decided([group("a", machine(4))], [pending(1)], pricing=None)
    assert decision.outcome is ScaleUpOutcome.NO_OPTIONS
    assert decision.reasons(decision.left[0]) == {"a": (orchestrator.NO_PRICES,)}
    assert grown(decided([group("a", machine(4))], [pending(1)], pricing=None, expanders=("most-pods",))) == {"a": 1}


def test_a_group_that_does_not_exist_yet_costs_twice_under_the_preset() -> None:
    spec = GroupSpec("m", PREFIX)
    states = [group("there", machine(1.4)), group(f"{PREFIX}-new", machine(1.2), spec=spec)]
    decision = decided(states, [pending(1)])
    assert [(each.group, each.nodes) for each in decision.creations] == [(f"{PREFIX}-new", 1)]
    assert decision.increases == ()
    assert grown(decided(states, [pending(1)], preset=CLUSTER_AUTOSCALER)) == {"there": 1}


def test_nodes_go_to_the_created_group_and_to_those_that_came_with_it_within_the_quota() -> None:
    state = group(f"{PREFIX}-theory", machine(2), spec=GroupSpec("m", PREFIX))
    chosen = rules([], estimates=EstimateRules(balance_similar_node_groups=True), bounds={"cpu": ResourceBounds(0, 6)})
    taken = ScaleUpInput(cluster.snapshot_of_nodes([]), [pending(2, 4), pending(9, name="vast")], [state])
    decision = orchestrator.decide(taken, chosen, random.Random(1))
    made = Created(Group(f"{PREFIX}-1", 0, 9, 0, True), (Group(f"{PREFIX}-2", 0, 9, 0, True),))
    shapes = {each.id: NodeTemplate(each.id, machine(2)) for each in (made.main, *made.extras)}
    after = orchestrator.after_creation(decision, decision.creations[0], made, shapes, chosen)
    assert grown(after) == {f"{PREFIX}-1": 2, f"{PREFIX}-2": 1}
    assert after.creations == ()
    vast = next(left for left in after.left if left.pods == ("ns/vast-0000",))
    assert (list(after.reasons(vast)), vast.awaiting) == ([f"{PREFIX}-1"], False)


def test_what_came_with_a_created_group_gets_no_share_that_its_quota_forbids() -> None:
    state = group(f"{PREFIX}-theory", machine(2), spec=GroupSpec("m", PREFIX))
    chosen = rules([], estimates=EstimateRules(balance_similar_node_groups=True))
    zone = Quota("of zone b", {"nodes": 0}, LabelSelector({"zone": "b"}))
    taken = ScaleUpInput(cluster.snapshot_of_nodes([]), [pending(2, 4)], [state], quotas=(zone,))
    decision = orchestrator.decide(taken, chosen, random.Random(1))
    made = Created(Group(f"{PREFIX}-a", 0, 9, 0, True), (Group(f"{PREFIX}-b", 0, 9, 0, True),))
    shapes = {f"{PREFIX}-{each}": NodeTemplate("", machine(2, labels={"zone": each})) for each in "ab"}
    after = orchestrator.after_creation(decision, decision.creations[0], made, shapes, chosen)
    assert grown(after) == {f"{PREFIX}-a": 4}


def test_groups_below_their_minimum_are_brought_up_to_it_as_far_as_quotas_allow() -> None:
    states = [group("a", machine(2), 1, least=3), group("b", machine(2), 2, least=2)]
    assert decided(states, []).increases == ()
    assert grown(decided(states, [], enforce_node_group_min_size=True)) == {"a": 3}
    capped = decided(states, [], enforce_node_group_min_size=True, bounds={"cpu": ResourceBounds(0, 2)})
    assert (grown(capped), len(capped.caps)) == ({"a": 2}, 1)


def test_estimates_end_with_their_time() -> None:
    ticks = iter(range(1000))
    late = EstimateRules(time=TimeLimits(lambda: float(next(ticks)), all_seconds=2, group_seconds=100))
    states = [group("a", machine(2)), group("b", machine(2)), group("c", machine(2))]
    decision = decided(states, [pending(1)], estimates=late)
    assert {each.reason for each in decision.skipped} == {groups.OUT_OF_TIME}
    assert decision.outcome is ScaleUpOutcome.GROW


def test_several_groups_are_taken_where_they_cost_less_than_one() -> None:
    classes = [pending(1, 8, "busy", 0.5), pending(0.1, 1, "fat", memory_gib=7)]
    states = [group("whole", machine(16, 64)), group("small", machine(1, 8)), group("wide", machine(8, 8))]
    decision = decided(states, classes, expanders=("price",))
    comparison = decision.comparison
    assert comparison is not None
    assert comparison.minimum is not None
    assert comparison.several is not None
    assert comparison.uses_several
    assert comparison.single.cost is not None
    assert comparison.several.nodes == {"small": 1, "wide": 1}
    cost = comparison.several.cost
    assert cost == pytest.approx(9 * 0.033174 + 16 * 0.004446)
    assert cost is not None
    assert comparison.minimum < cost < comparison.single.cost
    assert {each.group: each.nodes for each in decision.increases} == dict(comparison.several.nodes)
    alone = decided(states, classes, least_cost_mix=False)
    assert alone.comparison is not None
    assert not alone.comparison.uses_several
    assert {each.group: each.nodes for each in alone.increases} == dict(comparison.single.nodes)


@pytest.mark.parametrize(("pods", "several"), [(9, None), (10, {"big": 1, "small": 1}), (18, {"big": 1, "small": 9})])
def test_of_several_groups_none_is_needless(pods: int, several: dict[str, int] | None) -> None:
    """A big node has room for nine of these pods, a small one for one; the rank is for small ones."""
    states = [group("small", machine(2, 8)), group("big", machine(16, 16))]
    comparison = decided(states, [pending(1.7, pods)], expanders=("price",)).comparison
    assert comparison is not None
    assert comparison.single.nodes == {"small": pods}
    assert (None if comparison.several is None else comparison.several.nodes) == several
    assert comparison.uses_several is (several is not None)


def test_only_without_a_preferred_size_another_single_group_takes_the_place_of_the_chosen_one() -> None:
    """Two big nodes are cheaper than a big and nine small ones, and than all small ones."""
    states = [group("small", machine(2, 8)), group("big", machine(16, 16))]
    classes = [pending(1.7, 18)]
    assert decided(states, classes, expanders=("price",)).nodes == {"big": 1, "small": 9}
    assert decided(states, classes, expanders=("price",), preset=LEAST_COST).nodes == {"big": 2}


def test_several_groups_together_keep_to_each_ones_maximum_and_to_the_number_of_new_groups() -> None:
    classes = [pending(1, 32, "busy", 0.5), pending(0.1, 1, "fat", memory_gib=7)]
    small, wide = group("small", machine(1, 8)), group("wide", machine(8, 8), most=2)
    decision = decided([small, wide], classes)
    assert grown(decision) == {"small": 17, "wide": 2}
    spec = GroupSpec("m", PREFIX)
    new = [
        replace(group(f"{PREFIX}-{each.id}", each.template.node), spec=spec) for each in (small, wide) if each.template
    ]
    two = decided([*new, group("whole", machine(16, 30))], classes, situation={"new_groups": 2})
    assert {each.group: each.nodes for each in two.creations} == {f"{PREFIX}-small": 1, f"{PREFIX}-wide": 4}
    assert [each.headroom.nodes for each in two.creations] == [None, None]
    counted = decided([*new, group("whole", machine(16, 30))], classes, situation={"new_groups": 2}, max_nodes_total=40)
    assert [each.headroom.nodes for each in counted.creations] == [40 - 4, 40 - 1]
    assert counted.remaining.nodes == 40 - 5
    one = decided([*new, group("whole", machine(16, 30))], classes, situation={"new_groups": 1})
    assert len(one.creations) == 1


class ByZone(FilePricing):
    """Prices that differ between zones."""

    def __init__(self, factors: Mapping[str, float]) -> None:
        super().__init__()
        self._factors = factors

    def node_price(self, machine: Machine) -> float:
        return self._factors.get(machine.labels.get(ZONE, ""), 1.0) * super().node_price(machine)


@pytest.mark.parametrize(("factor", "small"), [(1.05, "small-b"), (2.0, "small-a")])
def test_one_of_several_groups_shares_its_nodes_only_where_several_stay_cheaper(factor: float, small: str) -> None:
    classes = [pending(1, 8, "busy", 0.5), pending(0.1, 1, "fat", memory_gib=7)]
    states = [
        group("small-a", machine(1, 8, labels={ZONE: "a"}), 5, most=6),
        group("small-b", machine(1, 8, labels={ZONE: "b"}), 0, most=1),
        group("wide", machine(8, 8)),
        group("whole", machine(9, 12, labels={ZONE: "c"})),
    ]
    full = cluster.snapshot_of_nodes([replace(machine(0.01), name=f"n{each}") for each in range(50)])
    alike, prices = EstimateRules(balance_similar_node_groups=True), ByZone({"b": factor, "c": 1.12})
    decision = decided(states, classes, full, estimates=alike, pricing=prices)
    comparison = decision.comparison
    assert comparison is not None
    assert comparison.single.nodes == {"whole": 1}
    assert comparison.several is not None
    assert comparison.several.nodes == {small: 1, "wide": 1}
    assert comparison.several.cost is not None
    assert comparison.single.cost is not None
    assert comparison.several.cost < comparison.single.cost
    assert {each.group: each.nodes for each in decision.increases} == {small: 1, "wide": 1}


@pytest.mark.parametrize(("most", "created"), [(9, 0), (1, 1)])
def test_several_groups_create_none_that_one_there_has_room_for(most: int, created: int) -> None:
    large = machine(8, 32, labels={ZONE: "c"})
    new = replace(group(f"{PREFIX}-large", large), spec=GroupSpec("m", PREFIX))
    states = [group("general", machine(4, 16)), group("large", large, most=most), new]
    decision = decided(states, [pending(3, 4)], pricing=ByZone({"c": 0.9}))
    assert decision.chosen is not None
    assert decision.chosen.group == "general", "a mix of two kinds of one machine would be cheaper"
    assert len(decision.creations) == created


def test_a_group_of_all_or_nothing_is_no_part_of_several() -> None:
    classes = [pending(1, 24, "busy", 0.5), pending(0.1, 1, "fat", memory_gib=7)]
    atomic = group("atomic", machine(8, 30), most=4, options=ATOMIC)
    states = [atomic, group("wide", machine(4, 4)), group("odd", machine(1, 8))]
    decision = decided(states, classes, expanders=("least-nodes",))
    assert decision.chosen is not None
    assert decision.chosen.group == "atomic"
    assert decision.comparison is not None
    assert decision.comparison.several is not None
    assert decision.comparison.several.nodes.keys() == {"odd", "wide"}


def test_nothing_is_bought_for_what_reclaiming_gives_within_a_reporting_interval() -> None:
    there = replace(machine(4), name="n", allocatable={**machine(4).allocatable, MID_CPU: 1000})
    classes = [EquivalenceGroup(PodInfo("ns", requests={MID_CPU: 1000}), tuple(f"ns/mid-{each}" for each in range(3)))]
    states = [group("a", machine(4))]
    assert decided(states, classes, cluster.snapshot_of_nodes([there])).outcome is ScaleUpOutcome.NO_OPTIONS
    soon = decided(
        states, classes, cluster.snapshot_of_nodes([there]), {"expected": {"n": {MID_CPU: 1000}, "gone": {MID_CPU: 9}}}
    )
    assert (soon.demands[0].schedulable, soon.demands[0].reclaimed) == (1, 1)
    assert soon.left[0].pods == ("ns/mid-2",)
    enough = decided(
        states, classes, cluster.snapshot_of_nodes([there]), {"expected": {"n": {MID_CPU: 2000, "cpu": 9}}}
    )
    assert (enough.outcome, enough.demands[0].reclaimed) == (ScaleUpOutcome.NOT_NEEDED, 2)


def test_what_is_expected_of_other_resources_than_reclaimed_ones_is_not_believed() -> None:
    there = cluster.snapshot_of_nodes([replace(machine(1), name="n")])
    decision = decided([group("a", machine(4))], [pending(2)], there, {"expected": {"n": {"cpu": 9000}}})
    assert grown(decision) == {"a": 1}


def test_a_new_node_brings_the_mid_it_will_offer() -> None:
    state = group("a", machine(4))
    assert state.template is not None
    state = replace(state, template=templates.with_reclaimed(state.template, {MID_CPU: 1500, "cpu": 1}))
    classes = [EquivalenceGroup(PodInfo("ns", requests={MID_CPU: 700}), ("ns/a", "ns/b", "ns/c"))]
    assert grown(decided([state], classes)) == {"a": 2}
    assert state.template is not None
    assert templates.without_reclaimed(state.template).node.capacity == machine(4).capacity


def test_one_after_the_other_the_first_error_ends_it_and_all_at_once_none_does() -> None:
    wanted = [Increase("a", 0, 1, 9), Increase("b", 0, 2, 9), Increase("c", 1, 2, 9)]
    errors = {"a": Refused("cloud", "a", "no"), "b": Unavailable("cloud", "b", 'timed "out"')}
    asked: list[tuple[str, int]] = []

    def increase(name: str, delta: int) -> None:
        asked.append((name, delta))
        if name in errors:
            raise errors[name]

    results = group_writer.try_increases(wanted, increase)
    assert (asked, [each.error for each in results]) == ([("a", 1)], [errors["a"]])
    asked.clear()
    results = group_writer.try_increases(wanted, increase, parallel=True)
    assert (sorted(asked), [each.increase.group for each in results]) == (
        [("a", 1), ("b", 2), ("c", 1)],
        ["a", "b", "c"],
    )


def test_a_group_that_takes_too_few_by_itself_still_shares_the_nodes_of_one_like_it() -> None:
    only = EstimateRules(scale_up_all_or_nothing=True, balance_similar_node_groups=True)
    states = [
        group("a", machine(2), most=3),
        group("b", machine(2, labels={ZONE: "z"}), most=3),
    ]
    apart = PodTerm(ZONE, frozenset({"ns"}), LabelSelector({"app": "x"}))
    facts = PodInfo("ns", {"app": "x"}, {"cpu": 2000}, anti_affinity=(apart,))
    decision = decided(states, [EquivalenceGroup(facts, ("ns/0", "ns/1"))], estimates=only)
    assert grown(decision) == {"a": 1, "b": 1}
