"""One pass of scale-down: finds candidates, simulates their removal, and selects the nodes to remove now.

The order of the simulation keeps earlier results: nodes unneeded longest come first, then empty ones, then the least
requested. The order of the given nodes and pods does not matter. At one time, atomic groups come first, whole or not at
all, then empty nodes, then drained nodes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler.scale_down import eligibility, removal_status
from manager.autoscaler.scale_down.eligibility import Candidate, NodeStatuses
from manager.autoscaler.scale_down.pods_on_nodes import DrainPlan
from manager.autoscaler.scale_down.removal_simulation import RemovalSimulation
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    DeletionCounts,
    NodeToRemove,
    Objection,
    ScaleDownDecision,
    ScaleDownHistory,
    ScaleDownReason,
    UnremovableReason,
)
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext
from manager.autoscaler.scale_up.options import no_deadline
from manager.autoscaler.settings.scale_down import Parallelism
from manager.autoscaler.snapshot import taints
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.snapshot.taints import SoftTaints

ALL_ARE_GOING = "the maximum number of nodes is already being deleted"


@dataclass(frozen=True, slots=True)
class NodeBucket:
    """The nodes of one group that may go, in the order of their removal."""

    group: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AtomicSize:
    """The target and the registered nodes of a group that has all of its nodes or none."""

    target: int
    registered: int

    def is_all(self, nodes: int) -> bool:
        """Whether this many nodes are the whole group. Nodes that never registered go with the others."""
        return nodes in (self.target, self.registered)


@dataclass(frozen=True, slots=True)
class CroppedBuckets:
    empty: tuple[NodeBucket, ...]
    drained: tuple[NodeBucket, ...]


@dataclass
class _Left:
    nodes: int
    drained: int
    is_untouched: bool = True  # no atomic group has been taken yet

    def takes_whole(self, empty: int, drained: int) -> bool:
        """Whether a whole group may go.

        The first one may exceed the rest of the budget, since a large group would otherwise never go; it may not when
        no budget is left.
        """
        if empty + drained <= self.nodes and drained <= self.drained:
            return True
        return self.is_untouched and self.nodes > 0 and (not drained or self.drained > 0)

    def take(self, empty: int, drained: int) -> None:
        self.nodes -= empty + drained
        self.drained -= drained


def crop(
    empty: Sequence[NodeBucket],
    drained: Sequence[NodeBucket],
    atomic: Mapping[str, AtomicSize],
    in_progress: DeletionCounts,
    parallelism: Parallelism,
) -> CroppedBuckets:
    """The nodes whose deletion may begin now.

    `atomic` holds the groups that go as a whole: those with empty nodes come first, then those that only drain.
    """
    left = _Left(
        parallelism.max_scale_down_parallelism - in_progress.empty - in_progress.drained,
        parallelism.max_drain_parallelism - in_progress.drained,
    )
    chosen_empty: list[NodeBucket] = []
    chosen_drained: list[NodeBucket] = []
    parts: dict[str, tuple[list[NodeBucket], list[NodeBucket]]] = {}
    for which, buckets in enumerate((empty, drained)):
        for bucket in buckets:
            if bucket.group in atomic:
                parts.setdefault(bucket.group, ([], []))[which].append(bucket)
    held: set[bool] = set()
    for group, (of_empty, of_drained) in parts.items():
        only_drains = not of_empty
        if only_drains in held:
            continue
        counts = sum(len(each.nodes) for each in of_empty), sum(len(each.nodes) for each in of_drained)
        if not left.takes_whole(*counts):
            held.add(only_drains)  # its turn comes; smaller groups of its kind would otherwise keep it waiting forever
        elif atomic[group].is_all(sum(counts)):
            left.take(*counts)
            left.is_untouched = False
            chosen_empty += of_empty
            chosen_drained += of_drained
    chosen_empty += _cropped((each for each in empty if each.group not in atomic), left.nodes)
    left.nodes -= sum(len(each.nodes) for each in chosen_empty if each.group not in atomic)
    chosen_drained += _cropped((each for each in drained if each.group not in atomic), min(left.nodes, left.drained))
    return CroppedBuckets(tuple(chosen_empty), tuple(chosen_drained))


def _cropped(buckets: Iterable[NodeBucket], most: int) -> list[NodeBucket]:
    found = []
    for bucket in buckets:
        nodes = bucket.nodes[: max(0, most)]
        if nodes:
            found.append(NodeBucket(bucket.group, nodes))
            most -= len(nodes)
    return found


@dataclass(frozen=True, slots=True)
class _Unneeded:
    candidate: Candidate
    drain: DrainPlan
    since: float

    @property
    def ripe_at(self) -> float:
        """When it will have been unneeded for long enough."""
        candidate = self.candidate
        return self.since + removal_status.wanted_seconds(eligibility.is_ready(candidate.node), candidate.group.rules)


def decide(context: ScaleDownContext, is_late: Callable[[], bool] = no_deadline) -> ScaleDownDecision:
    """The nodes to remove now, and a verdict on every node. No further node is tried once `is_late` returns true."""
    rules = context.rules
    statuses = NodeStatuses(context.group_of, context.now + rules.removal.unremovable_node_recheck_timeout_seconds)
    candidates = eligibility.find_candidates(context, statuses)
    simulation = RemovalSimulation(context, statuses)
    drains = simulation.run(candidates, is_late)
    since = removal_status.unneeded_since(context.memory.unneeded_since, drains, context.now)
    by_name = {each.name: each for each in candidates}
    unneeded = [_Unneeded(by_name[name], drain, since[name]) for name, drain in drains.items()]
    removals = _Selection(context, statuses).select(unneeded)
    cooldown = (
        None
        if rules.delays.scale_down_delay_type_local
        else removal_status.cooldown(context.happened, rules.delays, context.now)
    )
    return ScaleDownDecision(
        statuses={node.name: statuses.by_node[node.name] for node in context.registered},
        removals=removals,
        going=tuple(simulation.going),
        simulated=tuple(simulation.simulated),
        soft_taints=_soft_taints(context, list(drains)),
        memory=ScaleDownHistory(since, dict(sorted(statuses.unremovable.items()))),
        cooldown=cooldown or "",
    )


def _soft_taints(context: ScaleDownContext, unneeded: Sequence[str]) -> SoftTaints:
    ours = (
        node
        for node in context.registered
        if context.group_id(node) in context.groups and node.state is not NodeState.TO_BE_DELETED
    )
    return taints.soft_taints(ours, unneeded, context.rules.removal.max_bulk_soft_taint_count)


@dataclass(frozen=True, slots=True)
class _Selection:
    """Which unneeded nodes go now."""

    context: ScaleDownContext
    statuses: NodeStatuses

    def select(self, unneeded: Sequence[_Unneeded]) -> tuple[NodeToRemove, ...]:
        """Selects the unneeded nodes to remove now; all get their verdict."""
        ripe = []
        for each in unneeded:
            waits = self._delay_of(each)
            if waits is None:
                ripe.append(each)
            else:
                self._delay(each, waits)
        ripe = self._within_limits(ripe)
        there: dict[str, int] = {}
        for node in self.context.registered:
            group = self.context.group_id(node)
            there[group] = there.get(group, 0) + 1
        atomic = {
            name: AtomicSize(group.group.target_size, there.get(name, 0))
            for name, group in self.context.groups.items()
            if group.rules.zero_or_max_node_scaling
        }
        going = self._crop(self._drop_incomplete(ripe, atomic), atomic)
        for each in going:
            self.statuses.remove(each.candidate.node, _describe_removal(each), since=each.since, ripe_at=each.ripe_at)
        return tuple(
            NodeToRemove(
                each.candidate.name,
                each.candidate.group_id,
                _reason(each),
                each.candidate.used.share,
                tuple(pod.key for pod in each.drain.evicted),
            )
            for each in going
        )

    def _delay_of(self, unneeded: _Unneeded) -> Objection | None:
        """The reason why an unneeded node waits."""
        candidate, awaited = unneeded.candidate, unneeded.drain.awaited
        group = candidate.group
        short = removal_status.too_short(
            unneeded.since, eligibility.is_ready(candidate.node), group.rules, self.context.now
        )
        if short is not None:
            return short
        if awaited:
            return Objection(UnremovableReason.ON_COMPLETION_POD, f"pod {awaited[0].key} is to end by itself")
        delays = self.context.rules.delays
        happened = self.context.happened
        if delays.scale_down_delay_type_local:
            happened = self.context.happened_in.get(candidate.group_id, CooldownTimestamps())
        cooling = removal_status.cooldown(happened, delays, self.context.now)
        return Objection(UnremovableReason.COOLDOWN, cooling) if cooling else None

    def _within_limits(self, ripe: Iterable[_Unneeded]) -> list[_Unneeded]:
        """Without the empty nodes that a disruption limit keeps."""
        left = {limit: limit.nodes for limit in self.context.empty_node_limits}
        found = []
        for each in ripe:
            limit = next((limit for limit in left if each.candidate.group_id in limit.groups), None)
            if limit is None or _reason(each) is not ScaleDownReason.EMPTY:
                found.append(each)
            elif left[limit] > 0:
                left[limit] -= 1
                found.append(each)
            else:
                detail = f"the disruption limit {limit.text!r} allows no more empty nodes to be deleted now"
                self._delay(each, Objection(UnremovableReason.BUDGET, detail))
        return found

    def _drop_incomplete(self, ripe: Sequence[_Unneeded], atomic: Mapping[str, AtomicSize]) -> list[_Unneeded]:
        """Drops the nodes of atomic groups in which not all nodes are ripe."""
        counts: dict[str, int] = {}
        for each in ripe:
            group = each.candidate.group_id
            counts[group] = counts.get(group, 0) + 1
        found = []
        for each in ripe:
            group = each.candidate.group_id
            if group in atomic and not atomic[group].is_all(counts[group]):
                of_all = f"{counts[group]} of its {atomic[group].registered}"
                detail = f"its group is deleted as a whole, and only {of_all} nodes are due"
                self._delay(each, Objection(UnremovableReason.ATOMIC, detail))
            else:
                found.append(each)
        return found

    def _crop(self, ripe: Sequence[_Unneeded], atomic: Mapping[str, AtomicSize]) -> list[_Unneeded]:
        """The nodes that may go at one time, empty nodes first."""
        empty = [each for each in ripe if not each.drain.evicted]
        drained = [each for each in ripe if each.drain.evicted]
        chosen = crop(
            _buckets(empty), _buckets(drained), atomic, self.context.in_progress, self.context.rules.parallelism
        )
        going = {name for bucket in (*chosen.empty, *chosen.drained) for name in bucket.nodes}
        for each in ripe:
            if each.candidate.name not in going:
                self._delay(each, Objection(UnremovableReason.BUDGET, ALL_ARE_GOING))
        return [each for each in (*empty, *drained) if each.candidate.name in going]

    def _delay(self, unneeded: _Unneeded, why: Objection) -> None:
        self.statuses.delay(unneeded.candidate.node, why, since=unneeded.since, ripe_at=unneeded.ripe_at)


def _buckets(unneeded: Iterable[_Unneeded]) -> list[NodeBucket]:
    """One bucket per group, in the order of the groups' first nodes."""
    found: dict[str, list[str]] = {}
    for each in unneeded:
        found.setdefault(each.candidate.group_id, []).append(each.candidate.name)
    return [NodeBucket(group, tuple(nodes)) for group, nodes in found.items()]


def _reason(unneeded: _Unneeded) -> ScaleDownReason:
    if not eligibility.is_ready(unneeded.candidate.node):
        return ScaleDownReason.UNREADY
    return ScaleDownReason.UNDERUTILIZED if unneeded.drain.evicted else ScaleDownReason.EMPTY


def _describe_removal(unneeded: _Unneeded) -> str:
    evicted = len(unneeded.drain.evicted)
    if not evicted:
        return "it is empty"
    used = unneeded.candidate.used
    return f"{used.share:.1%} of its {used.resource} is requested, and its {evicted} pods have other places"
