"""One pass of scale-down: finds candidates, simulates their removal, and selects the nodes to remove now.

The order of the simulation keeps earlier results: nodes unneeded longest come first, then empty ones, then the least
requested. Each removal takes from its group's spare nodes, from the cluster's lower bounds and from its pods'
disruption budgets, and occupies its pods' new places, so that all unneeded nodes could go together. The pods of nodes
already under deletion are placed before. The order of the given nodes and pods does not matter.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler import taints
from manager.autoscaler.estimator import problem
from manager.autoscaler.scale_down import budgets, eligibility, peaks, pods_on_nodes, size_limits, timing
from manager.autoscaler.scale_down.budgets import AtomicSize, NodeBucket
from manager.autoscaler.scale_down.disruptions import RemainingDisruptions
from manager.autoscaler.scale_down.eligibility import Objection
from manager.autoscaler.scale_down.inputs import ScaleDownInputs
from manager.autoscaler.scale_down.node_utilization import NodeUtilization, node_utilization
from manager.autoscaler.scale_down.pods_on_nodes import BlockingPod, DrainPlan, PodOnNode
from manager.autoscaler.scale_down.removal_status import (
    NodeRemovalStatus,
    NodeStanding,
    NodeToRemove,
    ScaleDownDecision,
    ScaleDownHistory,
    ScaleDownReason,
    SimulatedRemoval,
    UnremovableNode,
)
from manager.autoscaler.scale_down.rescheduling import NoPlace, PodBatch, PodMove, Rescheduling
from manager.autoscaler.scale_down.rules import ScaleDownRules, UnremovableReason
from manager.autoscaler.scale_down.size_limits import GroupSizeLimits, ShrinkingGroup
from manager.autoscaler.scale_down.timing import CooldownTimestamps
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.scale_up.options import no_deadline
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.errors import InvalidInput
from shared.quantity import Amounts, Resources

_OF_PODS = frozenset(
    {UnremovableReason.NO_PLACE, UnremovableReason.PEAKS, UnremovableReason.BLOCKED_BY_POD}
)  # these reasons do not apply to nodes without pods


@dataclass(frozen=True, slots=True)
class _Candidate:
    node: NodeInfo
    group: ShrinkingGroup
    used: NodeUtilization
    since: float | None
    is_empty: bool

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def turn(self) -> tuple[bool, float, bool, float, str]:
        """The sort key of the simulation."""
        return self.since is None, self.since or 0.0, not self.is_empty, self.used.share, self.name


@dataclass(frozen=True, slots=True)
class _Unneeded:
    candidate: _Candidate
    departure: DrainPlan
    since: float

    @property
    def ripe_at(self) -> float:
        """When it will have been unneeded for long enough."""
        candidate = self.candidate
        return self.since + timing.wanted_seconds(eligibility.is_ready(candidate.node), candidate.group.rules)


def decide(
    situation: ScaleDownInputs, rules: ScaleDownRules, is_late: Callable[[], bool] = no_deadline
) -> ScaleDownDecision:
    """The nodes to remove now, and a verdict on every node. No further node is tried once `is_late` returns true."""
    return _Pass(situation, rules, is_late).decision()


class _Pass:
    def __init__(self, situation: ScaleDownInputs, rules: ScaleDownRules, is_late: Callable[[], bool]) -> None:
        self._given = situation
        self._rules = rules
        self._is_late = is_late
        self._now = situation.now
        self._nodes = sorted(
            (node for node in situation.nodes if node.state is not NodeState.UPCOMING), key=lambda node: node.name
        )
        self._residents = {
            name: sorted(found, key=lambda each: each.key)
            for name, found in pods_on_nodes.pods_by_node(situation.residents).items()
        }
        told = situation.peaks
        self._peaks = None if told is None else peaks.peaks_with_new_pods(told, self._residents, situation.untold)
        self._used: dict[str, NodeUtilization | InvalidInput] = {}
        self._verdicts: dict[str, NodeRemovalStatus] = {}
        self._remembered: dict[str, UnremovableNode] = {}
        self._going: list[SimulatedRemoval] = []
        self._simulated: list[SimulatedRemoval] = []

    def decision(self) -> ScaleDownDecision:
        candidates = self._candidates()
        departures = self._simulate(candidates)
        since = timing.unneeded_since(self._given.memory.unneeded_since, departures, self._now)
        by_name = {each.name: each for each in candidates}
        unneeded = [_Unneeded(by_name[name], found, since[name]) for name, found in departures.items()]
        removals = self._chosen(unneeded)
        marks = taints.soft_taints(
            (node for node in self._nodes if self._is_ours(node) and node.state is not NodeState.TO_BE_DELETED),
            [each.candidate.name for each in unneeded],
            self._rules.soft_taints_at_once,
        )
        verdicts = {node.name: self._verdicts[node.name] for node in self._nodes}
        memory = ScaleDownHistory(since, dict(sorted(self._remembered.items())))
        delays = self._rules.delays
        cooldown = None if delays.local else timing.cooldown(self._given.happened, delays, self._now)
        return ScaleDownDecision(
            verdicts, removals, tuple(self._going), tuple(self._simulated), marks, memory, cooldown=cooldown or ""
        )

    def _candidates(self) -> list[_Candidate]:
        """The nodes to simulate, in order; all others get their verdict."""
        found = []
        for node in self._nodes:
            group_id = self._given.group_of.get(node.name, "")
            group = self._given.groups.get(group_id)
            if group is None:
                detail = self._given.kept.get(group_id, "it is of no group that may shrink")
                self._needed(node, UnremovableReason.NOT_AUTOSCALED, detail)
                continue
            used = self._used[node.name] = self._utilization(node, group)
            against = self._objection(node, group, used)
            if against is not None or isinstance(used, InvalidInput):
                self._needed(node, *(against or (UnremovableReason.UNEXPECTED, str(used))))
                continue
            since = self._given.memory.unneeded_since.get(node.name)
            is_empty = not self._needing_places(node.name)
            candidate = _Candidate(node, group, used, since, is_empty)
            known = self._given.memory.unremovable.get(node.name)
            if known is not None and self._is_fresh(known) and not (is_empty and known.reason in _OF_PODS):
                self._remembered[node.name] = known
                detail = f"a short while ago, {known.reason}: {known.detail}"
                self._needed(node, UnremovableReason.RECENTLY_UNREMOVABLE, detail)
                continue
            found.append(candidate)
        return sorted(found, key=lambda each: each.turn)

    def _utilization(self, node: NodeInfo, group: ShrinkingGroup) -> NodeUtilization | InvalidInput:
        counted: list[Amounts] = []
        ignored: list[Amounts] = []
        for each in self._residents.get(node.name, ()):
            who = each.drain_info
            if who is not None and who.is_long_gone(self._now):
                continue
            is_ignored = who is not None and (
                (who.is_daemon and group.rules.ignores_daemons) or (who.is_mirror and self._rules.ignores_mirror_pods)
            )
            (ignored if is_ignored else counted).append(each.facts.requests)
        try:
            return node_utilization(node, counted, ignored, self._rules.gpu_label)
        except InvalidInput as problem:
            return problem

    def _objection(
        self, node: NodeInfo, group: ShrinkingGroup, used: NodeUtilization | InvalidInput
    ) -> Objection | None:
        if self._is_leaving(node):
            return UnremovableReason.BEING_DELETED, "it is being deleted"
        found = eligibility.objection(node, used, self._rules, group.rules)
        if found is not None:
            return found
        if node.name in self._given.unreadable:
            return UnremovableReason.UNEXPECTED, self._given.unreadable[node.name]
        return _at_minimum(group) if not group.spare else None

    def _is_leaving(self, node: NodeInfo) -> bool:
        return node.name in self._given.leaving or eligibility.is_being_deleted(node, self._rules, self._now)

    def _is_ours(self, node: NodeInfo) -> bool:
        return self._given.group_of.get(node.name, "") in self._given.groups

    def _is_fresh(self, known: UnremovableNode) -> bool:
        """An `until` further ahead than the recheck time comes from a clock that was set back since."""
        return self._now < known.until <= self._now + self._rules.recheck_seconds

    def _needing_places(self, node: str) -> list[PodOnNode]:
        return [each for each in self._residents.get(node, ()) if each.needs_a_place(self._now)]

    def _simulate(self, candidates: Sequence[_Candidate]) -> dict[str, DrainPlan]:
        """Tries all candidates in order; returns the removable ones with their drain plans."""
        deleted = [node.name for node in self._nodes if self._is_leaving(node)]
        remaining, rows = self._remaining(candidates, deleted)
        names = list(rows)
        for name in deleted:  # their pods come first, because they are already on their way
            self._going.append(SimulatedRemoval(name, _named(remaining.empty_out(rows[name]), names)))
        disruptions = RemainingDisruptions(self._given.disruption_budgets)
        for name in deleted:
            disruptions.take(self._still_to_evict(name, disruptions))
        usage = QuotaUsage(self._rules.gpu_label)
        spare = GroupSizeLimits(
            self._given.groups.values(),
            size_limits.above_bounds(
                self._rules.bounds, (usage.node_usage(node) for node in self._nodes if not self._is_leaving(node))
            ),
        )
        found: dict[str, DrainPlan] = {}
        for each in candidates:
            node, group = each.node, each.group.group.id
            if self._is_late():
                self._needed(node, UnremovableReason.OUT_OF_TIME, "the time of this pass was over before its turn came")
                continue
            if not spare.has_node(group):
                self._needed(node, *_at_minimum(each.group))
                continue
            gives = usage.node_usage(node)
            short = spare.short_of(gives)
            if short:
                self._needed(
                    node, UnremovableReason.BELOW_LIMIT, f"the cluster would have too little {', '.join(short)}"
                )
                continue
            departure = pods_on_nodes.drain_plan(
                self._residents.get(each.name, ()), self._rules.drain, disruptions, self._now
            )
            if isinstance(departure, BlockingPod):
                self._unremovable(node, UnremovableReason.BLOCKED_BY_POD, str(departure))
                continue
            if departure.moving and self._peaks is not None and each.name not in self._peaks:
                self._needed(
                    node, UnremovableReason.PEAK_UNKNOWN, "it has pods to move, and nothing is predicted of it"
                )
                continue
            moves = remaining.leave(rows[each.name])
            if isinstance(moves, NoPlace):
                self._unremovable(node, moves.reason, moves.detail)
                continue
            disruptions.take(departure.disruptions)
            spare.take(group, gives)
            self._simulated.append(SimulatedRemoval(each.name, _named(moves, names)))
            found[each.name] = departure
        return found

    def _remaining(
        self, candidates: Sequence[_Candidate], deleted: Iterable[str]
    ) -> tuple[Rescheduling, dict[str, int]]:
        """The nodes as rows: nodes that stay anyway first, and those tried first last.

        Pods go to the first rows that fit, so most pods move only once.
        """
        tried = {each.name for each in candidates}
        ordered = [node for node in self._nodes if node.name not in tried]
        ordered += [each.node for each in reversed(candidates)]
        rows = {node.name: row for row, node in enumerate(ordered)}
        placed = [each for node in ordered for each in self._residents.get(node.name, ())]
        snapshot = cluster.snapshot_of_nodes(ordered, ((rows[each.node], each.facts) for each in placed))
        moving = {name: self._moving(name) for name in (*tried, *deleted)}
        classes: dict[int, EquivalenceGroup] = {}
        for name in sorted(moving):
            for each in moving[name]:
                classes.setdefault(id(each.facts), EquivalenceGroup(each.facts, ()))
        position = {facts: number for number, facts in enumerate(classes)}
        asked = problem.packing_problem(snapshot, tuple(classes.values()))
        batches = {rows[name]: self._batches(name, found, position) for name, found in moving.items()}
        return Rescheduling(asked, batches, self._peak_room(ordered)), rows

    def _moving(self, node: str) -> list[PodOnNode]:
        """The pods of a node that need another place, if no pod blocks the removal."""
        return [each for each in self._needing_places(node) if not each.is_awaited]

    def _still_to_evict(self, node: str, disruptions: RemainingDisruptions) -> Iterable[int]:
        """The budgets that the evictions still to come on a node under deletion use."""
        for each in self._moving(node):
            who = each.drain_info
            if who is not None and who.deleted_at is None:
                yield from disruptions.covering(who.namespace, who.labels)

    def _batches(self, node: str, moving: Sequence[PodOnNode], position: Mapping[int, int]) -> list[PodBatch]:
        """The same pods, batched by class and by load."""
        peak = (self._peaks or {}).get(node)
        loads = peaks.shares(peak, [each.facts.requests for each in moving]) if peak and moving else None
        alike: dict[tuple[int, Resources], list[str]] = {}
        for number, each in enumerate(moving):
            load = loads[number] if loads else peaks.NO_LOAD
            alike.setdefault((position[id(each.facts)], load), []).append(each.key)
        return [PodBatch(which, tuple(pods), load) for (which, load), pods in alike.items()]

    def _peak_room(self, ordered: Iterable[NodeInfo]) -> list[Resources | None] | None:
        """What each node can still take, None for a node without a prediction; or None where peaks do not count."""
        known = self._peaks
        if known is None:
            return None
        return [
            peaks.room(
                node.allocatable,
                known[node.name],
                [each.facts.requests for each in self._residents.get(node.name, ())],
                self._rules.peak_margin_percent,
            )
            if node.name in known
            else None
            for node in ordered
        ]

    def _chosen(self, unneeded: Sequence[_Unneeded]) -> tuple[NodeToRemove, ...]:
        """Selects the unneeded nodes to remove now; all get their verdict."""
        ripe = []
        for each in unneeded:
            waits = self._waits(each)
            if waits is None:
                ripe.append(each)
            else:
                self._unneeded(each, *waits)
        there: dict[str, int] = {}
        for node in self._nodes:
            group = self._given.group_of.get(node.name, "")
            there[group] = there.get(group, 0) + 1
        atomic = {
            name: AtomicSize(group.group.target_size, there.get(name, 0))
            for name, group in self._given.groups.items()
            if group.rules.zero_or_max
        }
        going = self._cropped(self._whole(ripe, atomic), atomic)
        for each in going:
            self._add(each.candidate.node, NodeStanding.GOES, None, _parting(each), each)
        return tuple(
            NodeToRemove(
                each.candidate.name,
                each.candidate.group.group.id,
                _kind(each),
                each.candidate.used.share,
                tuple(pod.key for pod in each.departure.evicted),
            )
            for each in going
        )

    def _waits(self, unneeded: _Unneeded) -> Objection | None:
        """What an unneeded node waits for."""
        candidate, awaited = unneeded.candidate, unneeded.departure.awaited
        group = candidate.group
        short = timing.too_short(unneeded.since, eligibility.is_ready(candidate.node), group.rules, self._now)
        if short is not None:
            return short
        if awaited:
            return UnremovableReason.ON_COMPLETION_POD, f"pod {awaited[0].key} is to end by itself"
        delays = self._rules.delays
        happened = self._given.happened
        if delays.local:
            happened = self._given.happened_in.get(group.group.id, CooldownTimestamps())
        cooling = timing.cooldown(happened, delays, self._now)
        return (UnremovableReason.COOLDOWN, cooling) if cooling else None

    def _whole(self, ripe: Sequence[_Unneeded], atomic: Mapping[str, AtomicSize]) -> list[_Unneeded]:
        """Drops the nodes of atomic groups in which not all nodes are ripe."""
        counts: dict[str, int] = {}
        for each in ripe:
            group = each.candidate.group.group.id
            counts[group] = counts.get(group, 0) + 1
        found = []
        for each in ripe:
            group = each.candidate.group.group.id
            if group in atomic and not atomic[group].is_all(counts[group]):
                detail = f"its group goes as a whole, and {counts[group]} of its {atomic[group].registered} nodes could"
                self._unneeded(each, UnremovableReason.ATOMIC, detail)
            else:
                found.append(each)
        return found

    def _cropped(self, ripe: Sequence[_Unneeded], atomic: Mapping[str, AtomicSize]) -> list[_Unneeded]:
        """As many as may go at one time, empty nodes first."""
        empty = [each for each in ripe if not each.departure.evicted]
        drained = [each for each in ripe if each.departure.evicted]
        chosen = budgets.crop(
            _buckets(empty), _buckets(drained), atomic, self._given.in_progress, self._rules.parallelism
        )
        going = {name for bucket in (*chosen.empty, *chosen.drained) for name in bucket.nodes}
        for each in ripe:
            if each.candidate.name not in going:
                self._unneeded(each, UnremovableReason.BUDGET, "as many nodes as may go at one time are going already")
        return [each for each in (*empty, *drained) if each.candidate.name in going]

    def _needed(self, node: NodeInfo, reason: UnremovableReason, detail: str) -> None:
        self._add(node, NodeStanding.NEEDED, reason, detail)

    def _unremovable(self, node: NodeInfo, reason: UnremovableReason, detail: str) -> None:
        """The verdict for a node that is not tried again for a while."""
        self._remembered[node.name] = UnremovableNode(self._now + self._rules.recheck_seconds, reason, detail)
        self._needed(node, reason, detail)

    def _unneeded(self, unneeded: _Unneeded, reason: UnremovableReason, detail: str) -> None:
        self._add(unneeded.candidate.node, NodeStanding.UNNEEDED, reason, detail, unneeded)

    def _add(
        self,
        node: NodeInfo,
        standing: NodeStanding,
        reason: UnremovableReason | None,
        detail: str,
        found: _Unneeded | None = None,
    ) -> None:
        used = self._used.get(node.name)
        share = used.share if isinstance(used, NodeUtilization) else None
        group = self._given.group_of.get(node.name, "")
        since, ripe_at = (None, None) if found is None else (found.since, found.ripe_at)
        self._verdicts[node.name] = NodeRemovalStatus(node.name, group, standing, reason, detail, share, since, ripe_at)


def _named(moves: Iterable[PodMove], names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((move.pod, names[move.row]) for move in moves)


def _at_minimum(group: ShrinkingGroup) -> Objection:
    size, deleting = group.group.target_size, group.deleting
    going = f", {deleting} of which are going" if deleting else ""
    return (
        UnremovableReason.AT_MINIMUM,
        f"its group has {size} nodes{going}, and is to have at least {group.group.min_size}",
    )


def _buckets(unneeded: Iterable[_Unneeded]) -> list[NodeBucket]:
    """One bucket per group, in the order of the groups' first nodes."""
    found: dict[str, list[str]] = {}
    for each in unneeded:
        found.setdefault(each.candidate.group.group.id, []).append(each.candidate.name)
    return [NodeBucket(group, tuple(nodes)) for group, nodes in found.items()]


def _kind(unneeded: _Unneeded) -> ScaleDownReason:
    if not eligibility.is_ready(unneeded.candidate.node):
        return ScaleDownReason.UNREADY
    return ScaleDownReason.UNDERUTILIZED if unneeded.departure.evicted else ScaleDownReason.EMPTY


def _parting(unneeded: _Unneeded) -> str:
    evicted = len(unneeded.departure.evicted)
    if not evicted:
        return "it is empty"
    used = unneeded.candidate.used
    return f"{used.share:.1%} of its {used.resource} is requested, and its {evicted} pods have other places"
