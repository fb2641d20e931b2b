"""Rounds of the autoscaler for tests: a small cluster, decided by the real rules."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from manager.autoscaler import cost
from manager.autoscaler.cloudprovider.contract import ErrorClass, Group, InstanceError
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.backoff import Backoff
from manager.autoscaler.cluster_state.health import AcceptableRange, Readiness
from manager.autoscaler.cluster_state.state import ClusterState, GroupStatus, Happening, Incident, Request
from manager.autoscaler.cost import Cost
from manager.autoscaler.modes import Mode
from manager.autoscaler.pricing.model import GIB, UnitPrices
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.rounds import Act, Round, What
from manager.autoscaler.scale_down import passes, verdict
from manager.autoscaler.scale_down.drain import Controller, Tenancy
from manager.autoscaler.scale_down.leaving import Leaving, Stage
from manager.autoscaler.scale_down.minimums import ShrinkingGroup
from manager.autoscaler.scale_down.residents import Resident
from manager.autoscaler.scale_down.rules import GroupRules, ScaleDownRules
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import Decision
from manager.autoscaler.scale_up.groups import GroupState
from manager.autoscaler.scale_up.orchestrator import Settings, Situation
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import PODS, NodeFacts, NodeState, NodeTemplate, Snapshot
from manager.autoscaler.snapshot.podclasses import PendingClass
from manager.autoscaler.snapshot.podfacts import PodFacts
from shared.errors import InvalidInput
from shared.quantity import Amounts
from tests.unit.manager import utilized
from tests.unit.manager.objects import NOW

STOCKOUT = InstanceError(ErrorClass.OUT_OF_RESOURCES, "RESOURCE_POOL_EXHAUSTED", "no more of them")


UNITS = UnitPrices(cpu=3.0, memory_gib=0.5, gpu=0.0, disk_gib=0.0)


def node(name: str, more: Amounts | None = None, state: NodeState = NodeState.READY) -> NodeFacts:
    """4 cores and 8 GiB, which are 16 an hour by `UNITS`: 12 for the cores, 4 for the memory."""
    amounts = {"cpu": 4000, "memory": 8 * GIB, PODS: 110, **(more or {})}
    return NodeFacts(name, capacity=amounts, allocatable=amounts, state=state)


def cluster_of(nodes: int, *pods: PodFacts) -> Snapshot:
    """So many nodes, n0 and so on, with all pods on the first."""
    return cluster.of_facts([node(f"n{number}") for number in range(nodes)], [(0, pod) for pod in pods])


def group(name: str, cores: float, target: int = 0, most: int = 100, **more: Any) -> GroupState:
    amounts = {"cpu": round(cores * 1000), "memory": 4 * GIB, PODS: 110}
    machine = NodeFacts("machine", capacity=amounts, allocatable=amounts)
    return GroupState(Group(name, 0, most, target), NodeTemplate(name, machine), **more)


def pending(cores: float, count: int = 1, name: str = "pod") -> PendingClass:
    requests = {"cpu": round(cores * 1000)}
    return PendingClass(PodFacts("ns", requests=requests), tuple(f"ns/{name}-{each:04d}" for each in range(count)))


def decided(states: Sequence[GroupState], classes: Sequence[PendingClass], **options: Any) -> Decision:
    """`options` are those of the decision's settings."""
    given: Mapping[str, Any] = {"pricing": FilePricing(), **options}
    settings = Settings(Ownership({state.id: None for state in states}), **given)
    return orchestrator.decide(Situation(cluster.of_facts([]), classes, states), settings, random.Random(7))


def acts(decision: Decision, mode: Mode = Mode.ENFORCE, **more: Any) -> tuple[Act, ...]:
    """What is to be done of a decision."""
    return tuple(
        Act(What.INCREASE, each.group, mode, each.from_size, each.to_size, each.max_size, **more)
        for each in decision.increases
    )


def round_of(
    states: Sequence[GroupState] = (), classes: Sequence[PendingClass] = (), number: int = 1, **more: Any
) -> Round:
    """What these groups do for these pods."""
    options = {key: more.pop(key) for key in ("pricing", "expanders", "estimates", "bounds") if key in more}
    decision = decided(states, classes, **options)
    given: dict[str, Any] = {"acts": acts(decision), **more}
    return Round(number, NOW, decision=decision, **given)


def two_groups(number: int = 1, **more: Any) -> Round:
    """Three kinds of pods: some that either group takes, one that neither does."""
    states = [group("small", 2), group("big", 8), group("full", 8, most=1, target=1)]
    classes = [pending(1, 5, "web"), pending(100, 1, "huge")]
    return round_of(states, classes, number, **more)


def held(why: str, number: int = 1) -> Round:
    return Round(number, NOW, held=why)


def everything() -> Round:
    """A round that has something to say in every place."""
    status = GroupStatus(
        Group("small", 0, 10, 3),
        Mode.ENFORCE,
        Readiness(ready=1, unregistered=2),
        AcceptableRange(1, 3, 3),
        healthy=True,
        upcoming=2,
        request=Request("small", 2, NOW - 60, NOW + 840),
        backoff=Backoff("no more of them", NOW - 10, 300.0, NOW + 290),
        errors=(STOCKOUT, STOCKOUT),
        nodes=("n1",),
    )
    return two_groups(
        state=ClusterState(
            {"small": status}, {"lost": "listed as ours, and not there"}, frozenset({"theirs"}), ("alone",)
        ),
        aside={"ns/gated": "waiting for scheduling gates: [later]", "ns/new": "it waits until it is old enough"},
        unread={"ns/broken": InvalidInput(source="Pod ns/broken", field="spec", value="?", problem="unreadable")},
        incidents=(Incident(Happening.CREATION_FAILED, "small", 2, 60.0, STOCKOUT),),
        cost=cost.of(cluster_of(2), {"n0": "small"}, FilePricing()),
    )


def unpriced() -> Round:
    return two_groups(pricing=None, cost=Cost(unpriced=tuple(f"n{number}" for number in range(30))))


def resident(name: str, on: str, cores: float, **tenancy: Any) -> Resident:
    """A pod of a ReplicaSet on a node."""
    given: dict[str, Any] = {"namespace": "ns", "controller": Controller("ReplicaSet", "web"), **tenancy}
    return Resident(f"ns/{name}", on, PodFacts("ns", requests={"cpu": round(cores * 1000)}), Tenancy(**given))


def unneeded(**more: Any) -> verdict.Decision:
    """Of the group "pool": the node "empty" goes, "idle" might soon, "full" and "stuck" stay, as does "alone", which is
    of no group. What is given goes before what else the pass looks at.
    """
    names = ("empty", "idle", "full", "stuck")
    given: dict[str, Any] = {
        "groups": {"pool": ShrinkingGroup(Group("pool", 0, 100, len(names)), GroupRules())},
        "group_of": dict.fromkeys(names, "pool"),
        "memory": verdict.Memory({"empty": NOW - 3600, "idle": NOW - 60, "stuck": NOW - 3600}),
        **more,
    }
    pods = [resident("web", "idle", 1), resident("db", "full", 3), resident("bare", "stuck", 0.5, controller=None)]
    nodes = [node(name) for name in (*names, "alone")]
    return passes.decide(passes.Situation(NOW, nodes, pods, **given), ScaleDownRules())


def shrinking(**more: Any) -> Round:
    """A round in which "empty" goes and a scan of "jobs" taints one of two nodes; three other nodes are on their way,
    or were.
    """
    decision = unneeded()
    prices = cost.of(cluster.of_facts([node(name) for name in decision.verdicts]), {}, FilePricing(units=UNITS))
    pool = ("empty", "idle", "full", "stuck")
    state = GroupStatus(
        Group("pool", 0, 100, 4), Mode.ENFORCE, Readiness(ready=4), AcceptableRange(4, 4, 4), healthy=True, nodes=pool
    )
    scan = utilized.decided(utilized.rules_of(), utilized.seen(utilized.nodes(2, "jobs")))
    going = Leaving("way", "pool", verdict.Kind.UNDERUTILIZED, Stage.DRAINING, NOW - 30, ("ns/slow",))
    given: dict[str, Any] = {
        "acts": (
            Act(What.REMOVE_NODES, "pool", from_size=4, to_size=3, nodes=("empty",), reason="not needed", done=True),
            Act(What.TAINT, "jobs-nodes", nodes=("jobs1",), reason="below the lower threshold", done=True),
        ),
        "leaving": (
            going,
            replace(going, node="lost", stage=Stage.GONE, waits_for=()),
            replace(going, node="full", stage=Stage.FAILED, waits_for=("ns/db",), error="a budget keeps ns/db"),
        ),
        **more,
    }
    return Round(1, NOW, ClusterState({"pool": state}), scale_down=decision, scans=(scan,), cost=prices, **given)
