"""Scale-down as a part of a round: what it is told, what it may touch, and what it comes to."""

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manager.autoscaler.actuation.iteration_executor import ScaleDownController
from manager.autoscaler.cloudprovider.contract import (
    ErrorClass,
    Group,
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
)
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cloudprovider.rights import RightsReview
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry import Registry, add_request
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.disruption.disruption_limits import DisruptionLimits, parse_limits
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.environment import CloudAccess, ClusterAccess, PlanCloud
from manager.autoscaler.listers import Listers, WatchedKinds
from manager.autoscaler.planning import removal_view
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.scale_down import removal_status
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    DeletionProgress,
    DeletionsInProgress,
    DeletionStage,
    GroupRules,
    NodeStanding,
    ScaleDownHistory,
    ScaleDownReason,
    ScaleDownRules,
    UnremovableNode,
    UnremovableReason,
)
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.settings.scale_down import Delays, Parallelism, RemovalRules
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED
from manager.autoscaler.snapshot.taints import TO_BE_REMOVED
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from manager.autoscaler.utilization.node_groups import NodeGroup, ScalingPolicy
from manager.informers import SharedInformers
from manager.node_peaks import NodePeaks
from shared import durations
from shared.api.core import Node, Pod, Taint
from shared.api.workloads import PodDisruptionBudget
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.quantity import Resources
from tests.unit.manager import test_planning
from tests.unit.manager.clouds import MemoryCloud
from tests.unit.manager.objects import NOW
from tests.unit.manager.test_planning import Cloud, node, pod

LONG_AGO = NOW - 86_400
GIB = 1 << 30
SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
NOW_AT_ONCE = ScaleDownRules(delays=Delays(0, 0, 0))


def config(*listed: str, **more: Any) -> DecisionSettings:
    return test_planning.config(*listed, **{"scale_down_enabled": True, "scale_down": NOW_AT_ONCE, **more})


def cloud_of(*nodes: Node, least: int = 0, group: str = "a") -> Cloud:
    cloud = Cloud(Group(group, least, 10, len(nodes)))
    cloud.has(group, *nodes)
    return cloud


def idle(*names: str, **more: Any) -> DeletionsInProgress:
    """They have been unneeded for a day."""
    return DeletionsInProgress(ScaleDownHistory(dict.fromkeys(names, LONG_AGO)), **more)


def resident(name: str, on: str, cpu: str = "1", owner: str = "") -> Pod:
    made = pod(name, {"cpu": cpu}, nodeName=on)
    raw = msgspec.to_builtins(made)
    raw["status"] = {"phase": "Running"}
    if owner:
        reference = {"kind": "ReplicaSet", "name": owner, "controller": True}
        raw["metadata"]["ownerReferences"] = [reference]
    else:
        raw["metadata"]["annotations"] = SAFE
    return msgspec.convert(raw, Pod)


def marked(name: str, at: float, key: str = TAINT_TO_BE_DELETED) -> Node:
    found = node(name)
    taints = (Taint(key, str(int(at)), "NoSchedule"),)
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, taints=taints))


def planned(cloud: Cloud, chosen: DecisionSettings, known: Registry | None = None, **more: Any) -> PlannedIteration:
    return test_planning.planned(cloud, chosen, known, **more)


def reasons(of: PlannedIteration) -> dict[str, UnremovableReason | None]:
    assert of.iteration.scale_down is not None
    return {name: each.reason for name, each in of.iteration.scale_down.statuses.items()}


def removed(of: PlannedIteration) -> list[tuple[str, Mode, int, int, tuple[str, ...]]]:
    return [
        (action.group, action.mode, action.from_size, action.to_size, action.nodes)
        for action in of.iteration.actions
        if action.kind is ActionKind.REMOVE_NODES
    ]


def softened(of: PlannedIteration) -> dict[ActionKind, tuple[str, ...]]:
    return {
        action.kind: action.nodes
        for action in of.iteration.actions
        if action.kind in (ActionKind.TAINT, ActionKind.UNTAINT)
    }


def test_a_node_that_nobody_needs_goes() -> None:
    one = node("n")
    found = planned(cloud_of(one), config("a"), nodes=(one,), underway=idle("n"))
    assert removed(found) == [("a", Mode.ENFORCE, 1, 0, ("n",))]
    assert softened(found) == {}, "it gets a harder mark at once"


def test_a_limit_that_names_empty_nodes_governs_their_removal_and_others_do_not() -> None:
    nodes = tuple(node(name) for name in "nmo")

    def going(text: str) -> int:
        limits = DisruptionLimits(parse_limits([text], source="flags", name="disruption-budgets"))
        chosen = config("a", disruption=DisruptionRules(limits=limits))
        found = planned(cloud_of(*nodes), chosen, nodes=nodes, underway=idle("n", "m", "o"))
        return sum(len(each) for *_, each in removed(found))

    assert [going(text) for text in ("0", "0;reasons=Underutilized", "1;reasons=Empty", "0;reasons=Empty")] == [
        3,
        3,
        1,
        0,
    ]


def test_a_node_is_marked_as_likely_to_go_and_no_longer_when_it_is_needed_again() -> None:
    one, other = node("n"), marked("m", LONG_AGO, TAINT_DELETION_CANDIDATE)
    busy = resident("p", "m", "3")
    found = planned(cloud_of(one, other), config("a"), nodes=(one, other), pods=(busy,))
    assert reasons(found) == {"n": UnremovableReason.NOT_UNNEEDED_LONG, "m": UnremovableReason.NOT_UNDERUTILIZED}
    assert softened(found) == {ActionKind.TAINT: ("n",), ActionKind.UNTAINT: ("m",)}


def test_a_round_that_grows_for_pods_takes_no_node_away() -> None:
    one = node("n")
    found = planned(cloud_of(one), config("a"), nodes=(one,), pods=(pod("p", {"cpu": "5"}),), underway=idle("n"))
    assert found.iteration.scale_down is not None, "no group helps a pod of that size"
    found = planned(
        cloud_of(one), config("a"), nodes=(one,), pods=tuple(pod(f"p{each}") for each in range(2)), underway=idle("n")
    )
    assert found.iteration.scale_down is None
    assert removed(found) == []


def test_where_growth_is_only_recommended_nodes_are_judged_all_the_same() -> None:
    one = node("n")
    chosen = config("a", mode=Mode.RECOMMEND)
    pods = tuple(pod(f"p{each}") for each in range(2))
    assert planned(cloud_of(one), chosen, nodes=(one,), pods=pods, underway=idle("n")).iteration.scale_down is not None


def test_a_pending_pod_keeps_the_node_that_has_room_for_it() -> None:
    one = node("n")
    found = planned(cloud_of(one), config("a"), nodes=(one,), pods=(pod("p", {"cpu": "1"}),), underway=idle("n"))
    assert reasons(found) == {"n": UnremovableReason.NO_PLACE}


def test_a_pod_keeps_the_node_that_it_is_nominated_for() -> None:
    one = node("n")
    waiting = msgspec.to_builtins(pod("p", {"cpu": "1"}))
    waiting["status"]["nominatedNodeName"] = "n"
    found = planned(cloud_of(one), config("a"), nodes=(one,), pods=(msgspec.convert(waiting, Pod),), underway=idle("n"))
    assert reasons(found) == {"n": UnremovableReason.NO_PLACE}


def test_expendable_and_ended_pods_keep_nobody() -> None:
    one = node("n")
    ended = msgspec.structs.replace(
        resident("e", "n", "3"), status=msgspec.structs.replace(resident("e", "n").status, phase="Succeeded")
    )
    expendable = resident("x", "n", "3")
    expendable = msgspec.structs.replace(expendable, spec=msgspec.structs.replace(expendable.spec, priority=-100))
    found = planned(cloud_of(one), config("a"), nodes=(one,), pods=(ended, expendable), underway=idle("n"))
    assert [each[-1] for each in removed(found)] == [("n",)]


def test_nodes_of_others_are_told_why_they_are_left_alone() -> None:
    one, other, scanned = node("n"), node("o"), node("s")
    cloud = Cloud(Group("a", 0, 5, 1), Group("b", 0, 5, 1), Group("c", 0, 5, 1))
    for group, each in (("a", one), ("b", other), ("c", scanned)):
        cloud.has(group, each)
    both = NodeGroup(name="c", cloud_provider_group_name="c", policy=ScalingPolicy.BOTH)
    chosen = config("a", "b", "c", group_modes={"b": Mode.OBSERVE}, groups=(both,))
    nodes = (one, other, scanned, node("stranger"))
    found = planned(cloud, chosen, nodes=nodes, underway=idle("n", "o", "s", "stranger"))
    assert found.iteration.scale_down is not None
    said = {name: each.detail for name, each in found.iteration.scale_down.statuses.items() if each.reason is not None}
    assert said == {
        "o": removal_view.OBSERVED,
        "s": removal_view.SCANNED,
        "stranger": "it belongs to no node group that may shrink",
    }
    assert [each[-1] for each in removed(found)] == [("n",)]


def test_nodes_that_are_only_advised_to_go_take_no_turn_from_others() -> None:
    nodes = [node(name) for name in ("a1", "a2", "b1", "b2")]
    cloud = Cloud(Group("a", 0, 5, 2), Group("b", 0, 5, 2))
    cloud.has("a", *nodes[:2])
    cloud.has("b", *nodes[2:])
    rules = replace(NOW_AT_ONCE, parallelism=Parallelism(2, 1))
    chosen = config("a", "b", group_modes={"a": Mode.RECOMMEND}, scale_down=rules)
    found = planned(cloud, chosen, nodes=tuple(nodes), underway=idle("a1", "a2", "b1", "b2"))
    assert removed(found) == [
        ("b", Mode.ENFORCE, 2, 0, ("b1", "b2")),
        ("a", Mode.RECOMMEND, 2, 0, ("a1", "a2")),
    ]
    assert reasons(found) == dict.fromkeys(("a1", "a2", "b1", "b2"))


def test_what_is_only_advised_takes_neither_marks_nor_places_nor_budgets_from_what_is_done() -> None:
    nodes = tuple(node(name) for name in ("a1", "a2", "b1", "b2"))
    cloud = Cloud(Group("a", 0, 5, 2), Group("b", 0, 5, 2))
    cloud.has("a", *nodes[:2])
    cloud.has("b", *nodes[2:])
    pods = (
        *(resident(f"p-{each}", each, owner="web") for each in ("a1", "b1")),
        *(resident(f"busy-{each}", each, "2100m") for each in ("a2", "b2")),
    )
    budget = msgspec.convert(
        {
            "metadata": {"name": "all", "namespace": "ns"},
            "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 1},
        },
        PodDisruptionBudget,
    )
    memory = ScaleDownHistory({"a1": NOW - 100, "b1": NOW - 50})  # none of them is ripe
    chosen = config(
        "a",
        "b",
        group_modes={"a": Mode.RECOMMEND},
        scale_down=replace(NOW_AT_ONCE, removal=RemovalRules(max_bulk_soft_taint_count=1)),
    )
    found = planned(cloud, chosen, nodes=nodes, pods=pods, budgets=(budget,), underway=DeletionsInProgress(memory))
    assert reasons(found) == {
        **dict.fromkeys(("a1", "b1"), UnremovableReason.NOT_UNNEEDED_LONG),
        **dict.fromkeys(("a2", "b2"), UnremovableReason.NOT_UNDERUTILIZED),
    }
    assert softened(found) == {ActionKind.TAINT: ("b1",)}
    assert found.iteration.scale_down is not None
    assert found.iteration.scale_down.memory == ScaleDownHistory({"a1": NOW - 100, "b1": NOW - 50})


@pytest.mark.parametrize("least", [0, 3, 4])
def test_machines_that_never_worked_and_nodes_that_are_idle_do_not_share_what_a_group_can_spare(least: int) -> None:
    nodes = tuple(node(name) for name in "xyz")
    cloud = cloud_of(*nodes)
    cloud.listed = [Group("a", least, 10, 5)]
    failed = InstanceError(ErrorClass.OUT_OF_RESOURCES, "STOCKOUT", "none left")
    cloud.members["a"] += [Instance(f"broken{each}", InstanceState.CREATING, failed) for each in range(2)]
    found = planned(cloud, config("a"), nodes=nodes, underway=idle(*"xyz"))
    sizes = [(action.kind, action.from_size, action.to_size) for action in found.iteration.actions if action.nodes]
    assert sizes[0] == (ActionKind.DELETE_NODES, 5, 3)
    assert sizes[1:] == ([(ActionKind.REMOVE_NODES, 3, 0)] if least == 0 else [])
    if least:
        assert set(reasons(found).values()) == {UnremovableReason.AT_MINIMUM}


def not_ready(name: str) -> Node:
    """A cordoned one."""
    found = test_planning.node(name, ready="Unknown")
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, unschedulable=True))


def test_a_node_that_is_cordoned_and_not_ready_goes_by_what_is_set_for_unready_ones() -> None:
    nodes = (not_ready("n"), *(node(f"m{each}") for each in range(3)))
    memory = ScaleDownHistory({"n": NOW - 700})

    def found(**more: Any) -> PlannedIteration:
        chosen = config("a", scale_down=replace(NOW_AT_ONCE, **more))
        return planned(cloud_of(*nodes), chosen, nodes=nodes, underway=DeletionsInProgress(memory))

    assert reasons(found())["n"] is UnremovableReason.NOT_UNREADY_LONG
    assert (
        reasons(found(removal=RemovalRules(scale_down_unready_enabled=False)))["n"]
        is UnremovableReason.UNREADY_DISABLED
    )
    gone = found(group=GroupRules(scale_down_unready_time_seconds=0)).iteration.scale_down
    assert gone is not None
    assert [(each.node, each.kind) for each in gone.removals] == [("n", ScaleDownReason.UNREADY)]


def test_a_node_that_cannot_be_read_is_told_so() -> None:
    raw = msgspec.to_builtins(node("n"))
    raw["status"]["allocatable"]["cpu"] = "bogus"
    nodes = (msgspec.convert(raw, Node), node("m"))
    found = planned(cloud_of(*nodes), config("a"), nodes=nodes, underway=idle("n", "m"))
    assert reasons(found) == {"m": None, "n": UnremovableReason.UNEXPECTED}
    assert found.iteration.scale_down is not None
    verdict = found.iteration.scale_down.statuses["n"]
    assert (verdict.group, verdict.standing) == ("a", NodeStanding.NEEDED)
    assert "bogus" in verdict.detail


def test_a_pass_ends_when_its_time_is_over() -> None:
    nodes = (node("n"), node("m"))
    ticks = itertools.count()
    chosen = config("a", clock=lambda: float(next(ticks)), scale_down_simulation_timeout_seconds=2.0)
    found = planned(cloud_of(*nodes), chosen, nodes=nodes, underway=idle("n", "m"))
    assert reasons(found) == {"m": None, "n": UnremovableReason.OUT_OF_TIME}


def test_nodes_on_their_way_out_are_neither_counted_on_nor_chosen_again() -> None:
    nodes = tuple(node(name) for name in ("n", "m", "o"))
    going = DeletionProgress("n", "a", ScaleDownReason.EMPTY, DeletionStage.DRAINING, NOW - 10)
    found = planned(cloud_of(*nodes, least=1), config("a"), nodes=nodes, underway=idle("n", "m", "o", leaving=(going,)))
    assert found.iteration.leaving == (going,)
    assert reasons(found) == {"n": UnremovableReason.BEING_DELETED, "m": None, "o": UnremovableReason.AT_MINIMUM}


@pytest.mark.parametrize(("told", "goes"), [(True, {"m", "o"}), (False, {"m"})])
def test_a_node_that_the_cloud_has_taken_is_part_of_its_target_until_that_is_told(told: bool, goes: set[str]) -> None:
    nodes = tuple(node(name) for name in ("n", "m", "o"))
    cloud = cloud_of(*nodes, least=1 if not told else 0)
    if told:
        cloud.members["a"][0] = Instance("id:n", InstanceState.DELETING)
        cloud.listed = [Group("a", 0, 10, 2)]
    found = planned(cloud, config("a"), nodes=nodes, underway=idle("m", "o", gone={"n": "a"}))
    assert {name for name, reason in reasons(found).items() if reason is None} == goes


def test_what_is_deleted_by_somebody_else_is_not_chosen() -> None:
    nodes = (node("n"), node("m"))
    cloud = cloud_of(*nodes)
    cloud.members["a"][0] = Instance("id:n", InstanceState.DELETING)
    cloud.listed = [Group("a", 0, 10, 1)]
    found = planned(cloud, config("a"), nodes=nodes, underway=idle("n", "m"))
    assert reasons(found) == {"n": UnremovableReason.BEING_DELETED, "m": None}


def test_an_increase_under_way_keeps_nodes_whoever_asked_for_it() -> None:
    one = node("n")
    under_way = add_request(Registry(), Increase("a", 1, 2, 10), NOW - 60, 900)
    rules = replace(NOW_AT_ONCE, delays=Delays(scale_down_delay_after_add_seconds=600))
    cloud = cloud_of(one)
    cloud.listed = [Group("a", 0, 10, 2)]
    cloud.members["a"].append(Instance("id:new", InstanceState.CREATING))
    found = planned(cloud, config("a", scale_down=rules), under_way, nodes=(one,), underway=idle("n"))
    assert reasons(found) == {"n": UnremovableReason.COOLDOWN}
    happened = DeletionsInProgress(ScaleDownHistory({"n": LONG_AGO}), happened=CooldownTimestamps(added=NOW - 60))
    assert reasons(planned(cloud_of(one), config("a", scale_down=rules), nodes=(one,), underway=happened)) == {
        "n": UnremovableReason.COOLDOWN
    }


def test_controllers_and_budgets_of_the_cluster_are_asked() -> None:
    nodes = (node("n"), node("m"))
    web = resident("p", "n", owner="web")
    busy = tuple(resident(f"q{each}", "m", "1100m") for each in range(2))
    chosen = config("a")

    def found(**more: Any) -> str:
        made = planned(cloud_of(*nodes), chosen, nodes=nodes, pods=(web, *busy), underway=idle("n"), **more)
        assert made.iteration.scale_down is not None
        return made.iteration.scale_down.statuses["n"].detail

    assert "other places" in found()
    assert "ReplicaSet web is not there" in found(controllers={})
    budget = msgspec.convert(
        {"metadata": {"name": "all", "namespace": "ns"}, "spec": {"selector": {}}}, PodDisruptionBudget
    )
    assert "budget all allows no eviction now" in found(budgets=(budget,))
    unseen = msgspec.json.decode(
        b'{"metadata": {"name": "all", "namespace": "ns", "generation": 2}, "spec": {"selector": {}},'
        b' "status": {"disruptionsAllowed": 9, "observedGeneration": 1}}',
        type=PodDisruptionBudget,
    )
    assert "budget all allows no eviction now" in found(budgets=(unseen,))


def test_a_node_stays_where_the_others_would_not_hold_what_is_predicted() -> None:
    nodes = (node("n"), node("m"))
    pods = (resident("p", "n"), resident("q", "m", "2100m"))
    peaks = {each: NodePeaks(Resources(2000, GIB), Resources(0, 0), NOW) for each in ("n", "m")}

    def reason(chosen: DecisionSettings, **more: Any) -> UnremovableReason | None:
        return reasons(planned(cloud_of(*nodes), chosen, nodes=nodes, pods=pods, underway=idle("n"), **more))["n"]

    assert reason(config("a")) is None
    assert reason(config("a"), peaks=peaks) is UnremovableReason.PEAKS
    assert reason(config("a", scale_down_peaks=False), peaks=peaks) is None
    assert reason(config("a"), peaks={"m": peaks["m"]}) is UnremovableReason.PEAK_UNKNOWN
    assert reason(config("a"), peaks={}) is UnremovableReason.PEAK_UNKNOWN, "there are reports, and none to be trusted"


@pytest.mark.parametrize(("created", "placed"), [(NOW - 10, None), (NOW - 900, NOW - 10)])
def test_pods_that_came_since_a_node_has_told_its_peak_count_beside_it(created: float, placed: float | None) -> None:
    nodes = (node("n"), node("m"))
    raw = msgspec.to_builtins(resident("new", "m", "1", owner="web"))
    raw["metadata"]["creationTimestamp"] = durations.timestamp(created)
    if placed is not None:
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": durations.timestamp(placed)}
        raw["status"]["conditions"] = [condition]
    pods = (resident("p", "n"), resident("q", "m", "1500m"), msgspec.convert(raw, Pod))

    def reason(reported_at: float) -> UnremovableReason | None:
        peaks = {each: NodePeaks(Resources(1500, GIB), Resources(), reported_at) for each in ("n", "m")}
        found = planned(cloud_of(*nodes), config("a"), nodes=nodes, pods=pods, underway=idle("n"), peaks=peaks)
        return reasons(found)["n"]

    assert reason(NOW) is None
    assert reason(NOW - 60) is UnremovableReason.PEAKS


def test_marks_that_nobody_works_on_are_taken_back() -> None:
    fresh, old, going = marked("fresh", NOW - 10), marked("old", NOW - 1000), marked("going", NOW - 1000)
    nodes = (fresh, old, going, node("plain"))
    underway = DeletionsInProgress(
        leaving=(DeletionProgress("going", "a", ScaleDownReason.EMPTY, DeletionStage.DELETING, NOW),)
    )

    def abandoned(chosen: DecisionSettings, **more: Any) -> tuple[str, ...]:
        return planned(cloud_of(*nodes), chosen, nodes=nodes, underway=underway, **more).abandoned

    assert abandoned(config("a")) == ("old",)
    assert abandoned(config("a"), begins=True) == ("fresh", "old")
    assert abandoned(config("a", mode=Mode.RECOMMEND), begins=True) == ()
    assert planned(cloud_of(*nodes, group="b"), config(), nodes=nodes, begins=True).abandoned == ()


@pytest.mark.parametrize("policy", ScalingPolicy)
@pytest.mark.parametrize("mode", Mode)
def test_marks_that_nobody_works_on_are_taken_back_by_whatever_a_group_scales(
    policy: ScalingPolicy, mode: Mode
) -> None:
    fresh, old, cordoned = marked("fresh", NOW - 10), marked("old", NOW - 1000), node("cordoned")
    cordoned = msgspec.structs.replace(cordoned, spec=msgspec.structs.replace(cordoned.spec, unschedulable=True))
    leaving = marked("leaving", NOW - 1000, TO_BE_REMOVED)
    nodes = (fresh, old, cordoned, leaving)
    own = NodeGroup(name="g", cloud_provider_group_name="a", policy=policy, mode=mode)
    chosen = config("a", groups=(own,), group_modes={"a": mode if own.takes_pending_pods else Mode.OBSERVE})
    expected = {False: ("old",), True: ("fresh", "old")} if mode is Mode.ENFORCE else {False: (), True: ()}
    for begins, names in expected.items():
        assert planned(cloud_of(*nodes), chosen, nodes=nodes, begins=begins).abandoned == names
        held = replace(chosen, mode=Mode.RECOMMEND)
        assert planned(cloud_of(*nodes), held, nodes=nodes, begins=begins).abandoned == ()


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, ()),
        ({"scale_down_enabled": False}, ("n",)),
        ({"scale_down": replace(NOW_AT_ONCE, removal=RemovalRules(max_bulk_soft_taint_count=0))}, ("n",)),
    ],
)
def test_marks_of_what_is_likely_to_go_are_taken_back_where_there_are_to_be_none(
    more: dict[str, Any], found: tuple[str, ...]
) -> None:
    one = marked("n", LONG_AGO, TAINT_DELETION_CANDIDATE)
    assert planned(cloud_of(one), config("a", **more), nodes=(one,), begins=True).abandoned == found
    assert planned(cloud_of(one), config("a", **more), nodes=(one,)).abandoned == ()


def test_a_group_that_scales_by_how_full_it_is_keeps_no_marks_of_what_is_likely_to_go() -> None:
    one = marked("n", LONG_AGO, TAINT_DELETION_CANDIDATE)
    both = NodeGroup(name="g", cloud_provider_group_name="a", policy=ScalingPolicy.BOTH)
    for begins, found in ((True, ("n",)), (False, ())):
        chosen = config("a", groups=(both,))
        assert planned(cloud_of(one), chosen, nodes=(one,), begins=begins).abandoned == found


def test_what_a_group_wants_otherwise_holds_for_it() -> None:
    one = node("n")
    cloud = cloud_of(one)
    cloud.given_options = GroupOptions(scale_down_unneeded_time_seconds=172_800.0)
    assert reasons(planned(cloud, config("a"), nodes=(one,), underway=idle("n"))) == {
        "n": UnremovableReason.NOT_UNNEEDED_LONG
    }


def test_without_scale_down_nobody_is_judged() -> None:
    one = node("n")
    found = planned(cloud_of(one), config("a", scale_down_enabled=False), nodes=(one,), underway=idle("n"))
    assert (found.iteration.scale_down, found.iteration.actions) == (None, ())


def draining(name: str) -> DeletionsInProgress:
    return DeletionsInProgress(
        leaving=(DeletionProgress(name, "a", ScaleDownReason.UNDERUTILIZED, DeletionStage.DRAINING, NOW),)
    )


def test_pods_of_a_node_that_is_drained_take_their_new_places_before_anything_is_bought() -> None:
    going, other = marked("going", NOW - 10), node("other")
    moving = resident("moving", "going", "3", owner="o")

    def grown(**more: Any) -> list[tuple[str, int]]:
        found = planned(cloud_of(going, other), config("a"), nodes=(going, other), underway=draining("going"), **more)
        return [
            (action.group, action.to_size) for action in found.iteration.actions if action.kind is ActionKind.INCREASE
        ]

    assert grown(pods=(moving,)) == [], "there is room on the other node"
    assert grown(pods=(pod("waiting"),)) == []
    assert grown(pods=(moving, pod("waiting"))) == [("a", 3)]
    assert grown(pods=(resident("bare", "going", "3"), pod("waiting"))) == [], "nobody makes that one anew"


def test_a_pod_keeps_no_other_of_its_kind_away_from_where_it_is_about_to_leave() -> None:
    going, other = marked("going", NOW - 10), node("other")
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
        ]
    }
    raw = msgspec.to_builtins(resident("moving", "going", "1", owner="o"))
    raw["metadata"]["labels"] = {"app": "x"}
    raw["spec"]["affinity"] = {"podAntiAffinity": apart}
    in_zone = [
        msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, labels={"zone": "z"}))
        for each in (going, other)
    ]
    found = planned(
        cloud_of(*in_zone),
        config("a"),
        nodes=tuple(in_zone),
        pods=(msgspec.convert(raw, Pod),),
        underway=draining("going"),
    )
    assert found.iteration.decision is not None
    assert [each.unplaced for each in found.iteration.decision.demands] == [()]


def test_pods_of_a_node_that_is_drained_are_counted_once_when_further_nodes_are_looked_at() -> None:
    nodes = (marked("going", NOW - 10), node("idle"), node("other"))
    pods = (resident("moving", "going", "1500m", owner="o"), resident("busy", "other", "2500m"))
    found = planned(
        cloud_of(*nodes),
        config("a"),
        nodes=nodes,
        pods=pods,
        underway=replace(draining("going"), memory=ScaleDownHistory({"idle": LONG_AGO})),
    )
    assert removed(found) == [("a", Mode.ENFORCE, 3, 2, ("idle",))], "4 cores hold 2.5 and 1.5, and not 1.5 once more"


def test_a_node_that_could_not_go_is_not_tried_again_at_once_and_begins_anew() -> None:
    failed = DeletionProgress("n", "a", ScaleDownReason.UNDERUTILIZED, DeletionStage.FAILED, NOW, error="a budget")
    gone = DeletionProgress("m", "a", ScaleDownReason.EMPTY, DeletionStage.GONE, NOW)
    memory = removal_status.history_after_failures(
        ScaleDownHistory({"n": LONG_AGO, "m": LONG_AGO}), (failed, gone), NOW + 300
    )
    assert memory == ScaleDownHistory(
        {"m": LONG_AGO}, {"n": UnremovableNode(NOW + 300, UnremovableReason.UNEXPECTED, "a budget")}
    )
    nodes = (node("n"), node("o"))
    pods = (resident("p", "n"), resident("q", "o", "2100m"))
    found = planned(cloud_of(*nodes), config("a"), nodes=nodes, pods=pods, underway=DeletionsInProgress(memory))
    assert reasons(found)["n"] is UnremovableReason.RECENTLY_UNREMOVABLE


def test_what_lasts_does_so_whatever_the_clock_says() -> None:
    memory = ScaleDownHistory({"n": NOW}, {"m": UnremovableNode(NOW + 300, UnremovableReason.NO_PLACE, "")})
    assert removal_status.shifted_history(memory, 3600) == ScaleDownHistory(
        {"n": NOW + 3600}, {"m": UnremovableNode(NOW + 3900, UnremovableReason.NO_PLACE, "")}
    )


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_jumps_between_two_rounds_makes_no_node_ripe_and_keeps_none(seconds: float) -> None:
    clock = ManualClock(NOW)
    client = Client(Connection("http://127.0.0.1:1"), "test").single_attempt()
    informers = SharedInformers(client, with_autoscaler=True)
    listers = Listers(
        client,
        informers,
        WatchedKinds(controllers=True),
        expected=lambda _: {},
        peaks=lambda _: None,
        pending=lambda: None,
    )
    cloud = MemoryCloud()
    guard = Guard(cloud, Ownership())
    access = ClusterAccess(client, informers, "default", None, is_leader=lambda: True)
    reader = PlanCloud(cloud, guard, deadline_seconds=1.0)
    access_to_cloud = CloudAccess(guard, reader, RightsReview(client, cloud.name, (), clock))
    removals = ScaleDownController(config(), access, access_to_cloud, listers, clock)
    one = node("n")
    found = planned(cloud_of(one), config("a"), nodes=(one,))
    removals.begin(clock.now())
    removals.remember(found.iteration)
    clock.advance(10)
    clock.jump(seconds)
    removals.begin(clock.now())
    assert removals.underway.memory == ScaleDownHistory({"n": clock.now() - 10})
    clock.advance(10)
    removals.begin(clock.now())
    assert removals.underway.memory == ScaleDownHistory({"n": clock.now() - 20})
    guard.close()


def test_verdicts_stand_even_where_nothing_is_done() -> None:
    one = node("n")
    found = planned(cloud_of(one), config("a"), nodes=(one,), underway=idle("n"), dry_run=True)
    assert found.iteration.scale_down is not None
    assert found.iteration.scale_down.statuses["n"].standing is NodeStanding.GOES
    assert [action.done for action in found.iteration.actions] == [False]
