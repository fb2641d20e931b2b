"""Rounds of the autoscaler for tests: a small cluster, decided by the real rules."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from manager.autoscaler.cloudprovider.contract import ErrorClass, Group, Instance, InstanceError
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state import cost
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.state import (
    AcceptableRange,
    ClusterState,
    GroupBackoff,
    GroupStatus,
    Incident,
    IncidentKind,
    Readiness,
    ScaleUpRequest,
)
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pricing.model import GIB, UnitPrices
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_down import planner, removal_status
from manager.autoscaler.scale_down.drain import DrainInfo, PodController
from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from manager.autoscaler.scale_down.removal_status import DeletionProgress, DeletionStage, GroupRules
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext, ShrinkingGroup
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import ScaleUpDecision
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import PODS, ClusterSnapshot, NodeInfo, NodeState, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from shared.errors import InvalidInput
from shared.explanation import ScaleExplanation
from shared.quantity import Amounts
from tests.unit.manager import utilized
from tests.unit.manager.objects import NOW

STOCKOUT = InstanceError(ErrorClass.OUT_OF_RESOURCES, "RESOURCE_POOL_EXHAUSTED", "no more of them")


UNITS = UnitPrices(cpu=3.0, memory_gib=0.5, gpu=0.0, disk_gib=0.0)


def node(name: str, more: Amounts | None = None, state: NodeState = NodeState.READY) -> NodeInfo:
    """4 cores and 8 GiB, which are 16 an hour by `UNITS`: 12 for the cores, 4 for the memory."""
    amounts = {"cpu": 4000, "memory": 8 * GIB, PODS: 110, **(more or {})}
    return NodeInfo(name, capacity=amounts, allocatable=amounts, state=state)


def cluster_of(nodes: int, *pods: PodInfo) -> ClusterSnapshot:
    """So many nodes, n0 and so on, with all pods on the first."""
    return cluster.snapshot_of_nodes([node(f"n{number}") for number in range(nodes)], [(0, pod) for pod in pods])


def group(name: str, cores: float, target: int = 0, most: int = 100, **more: Any) -> GroupStatus:
    amounts = {"cpu": round(cores * 1000), "memory": 4 * GIB, PODS: 110}
    machine = NodeInfo("machine", capacity=amounts, allocatable=amounts)
    return GroupStatus(Group(name, 0, most, target), template=NodeTemplate(name, machine), **more)


def pending(cores: float, count: int = 1, name: str = "pod") -> EquivalenceGroup:
    requests = {"cpu": round(cores * 1000)}
    return EquivalenceGroup(PodInfo("ns", requests=requests), tuple(f"ns/{name}-{each:04d}" for each in range(count)))


def decided(states: Sequence[GroupStatus], classes: Sequence[EquivalenceGroup], **options: Any) -> ScaleUpDecision:
    """`options` are those of the decision's settings."""
    given: Mapping[str, Any] = {"pricing": FilePricing(), **options}
    settings = ScaleUpSettings(Ownership({state.id: None for state in states}), **given)
    return orchestrator.decide(ScaleUpInput(cluster.snapshot_of_nodes([]), classes, states), settings, random.Random(7))


def actions(decision: ScaleUpDecision, mode: Mode = Mode.ENFORCE, **more: Any) -> tuple[Action, ...]:
    """What is to be done of a decision."""
    return tuple(
        Action(ActionKind.INCREASE, each.group, mode, each.from_size, each.to_size, each.max_size, **more)
        for each in decision.increases
    )


def round_of(
    states: Sequence[GroupStatus] = (), classes: Sequence[EquivalenceGroup] = (), number: int = 1, **more: Any
) -> Iteration:
    """What these groups do for these pods."""
    options = {key: more.pop(key) for key in ("pricing", "expanders", "estimates", "bounds") if key in more}
    decision = decided(states, classes, **options)
    given: dict[str, Any] = {"actions": actions(decision), **more}
    return Iteration(number, NOW, decision=decision, **given)


def two_groups(number: int = 1, **more: Any) -> Iteration:
    """Three kinds of pods: some that either group takes, one that neither does."""
    states = [group("small", 2), group("big", 8), group("full", 8, most=1, target=1)]
    classes = [pending(1, 5, "web"), pending(100, 1, "huge")]
    return round_of(states, classes, number, **more)


def held(why: str, number: int = 1) -> Iteration:
    return Iteration(number, NOW, blocked_reason=why)


def everything() -> Iteration:
    """A round that has something to say in every place."""
    status = GroupStatus(
        Group("small", 0, 10, 3),
        Mode.ENFORCE,
        Readiness(ready=1, unregistered=2),
        AcceptableRange(1, 3, 3),
        healthy=True,
        upcoming=2,
        request=ScaleUpRequest("small", 2, NOW - 60, NOW + 840),
        backoff=GroupBackoff("no more of them", NOW - 10, 300.0, NOW + 290),
        broken=(Instance("i-1", error=STOCKOUT), Instance("i-2", error=STOCKOUT)),
        nodes=("n1",),
    )
    return two_groups(
        state=ClusterState(
            {"small": status},
            {"lost": "the node group exists in the registry but not in the cloud"},
            frozenset({"theirs"}),
            ("alone",),
        ),
        skipped_pods={"ns/gated": "waiting for scheduling gates: [later]", "ns/new": "it waits until it is old enough"},
        invalid_objects={
            "ns/broken": InvalidInput(source="Pod ns/broken", field="spec", value="?", problem="unreadable")
        },
        incidents=(Incident(IncidentKind.CREATION_FAILED, "small", 2, 60.0, STOCKOUT),),
        cost=cost.cluster_cost(cluster_of(2), {"n0": "small"}, FilePricing()),
    )


def unpriced() -> Iteration:
    return two_groups(pricing=None, cost=Cost(unpriced=tuple(f"n{number}" for number in range(30))))


def resident(name: str, on: str, cores: float, **tenancy: Any) -> PodOnNode:
    """A pod of a ReplicaSet on a node."""
    given: dict[str, Any] = {"namespace": "ns", "controller": PodController("ReplicaSet", "web"), **tenancy}
    return PodOnNode(f"ns/{name}", on, PodInfo("ns", requests={"cpu": round(cores * 1000)}), DrainInfo(**given))


def shrinking_pool(least: int = 0) -> ShrinkingGroup:
    """The group of the nodes of `unneeded`."""
    return ShrinkingGroup(Group("pool", least, 100, 4), GroupRules())


def unneeded(**more: Any) -> removal_status.ScaleDownDecision:
    """Of the group "pool": the node "empty" goes, "idle" might soon, "full" and "stuck" stay, as does "alone", which is
    of no group. What is given goes before what else the pass looks at.
    """
    names = ("empty", "idle", "full", "stuck")
    given: dict[str, Any] = {
        "groups": {"pool": shrinking_pool()},
        "group_of": dict.fromkeys(names, "pool"),
        "memory": removal_status.ScaleDownHistory({"empty": NOW - 3600, "idle": NOW - 60, "stuck": NOW - 3600}),
        **more,
    }
    pods = [resident("web", "idle", 1), resident("db", "full", 3), resident("bare", "stuck", 0.5, controller=None)]
    nodes = [node(name) for name in (*names, "alone")]
    return planner.decide(ScaleDownContext(NOW, nodes, pods, **given))


def shrinking(**more: Any) -> Iteration:
    """A round in which "empty" goes and a scan of "jobs" taints one of two nodes; three other nodes are on their way,
    or were.
    """
    decision = unneeded()
    prices = cost.cluster_cost(
        cluster.snapshot_of_nodes([node(name) for name in decision.statuses]), {}, FilePricing(units=UNITS)
    )
    pool = ("empty", "idle", "full", "stuck")
    state = GroupStatus(
        Group("pool", 0, 100, 4), Mode.ENFORCE, Readiness(ready=4), AcceptableRange(4, 4, 4), healthy=True, nodes=pool
    )
    scan = utilized.decided(utilized.rules_of(), utilized.seen(utilized.nodes(2, "jobs")))
    going = DeletionProgress(
        "way", "pool", removal_status.ScaleDownReason.UNDERUTILIZED, DeletionStage.DRAINING, NOW - 30, ("ns/slow",)
    )
    given: dict[str, Any] = {
        "actions": (
            Action(
                ActionKind.REMOVE_NODES,
                "pool",
                from_size=4,
                to_size=3,
                nodes=("empty",),
                explanation=ScaleExplanation("not needed"),
                done=True,
            ),
            Action(
                ActionKind.TAINT,
                "jobs-nodes",
                nodes=("jobs1",),
                explanation=ScaleExplanation("below the lower threshold"),
                done=True,
            ),
        ),
        "leaving": (
            going,
            replace(going, node="lost", stage=DeletionStage.GONE, waits_for=()),
            replace(going, node="full", stage=DeletionStage.FAILED, waits_for=("ns/db",), error="a budget keeps ns/db"),
        ),
        **more,
    }
    return Iteration(1, NOW, ClusterState({"pool": state}), scale_down=decision, scans=(scan,), cost=prices, **given)
