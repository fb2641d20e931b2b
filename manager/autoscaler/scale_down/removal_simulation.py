"""Simulates the removal of candidates, one after another.

Each removal takes from its group's spare nodes, from the cluster's lower bounds and from its pods' disruption budgets,
and occupies its pods' new places, so that all unneeded nodes could go together. The pods of nodes already under
deletion are placed before.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from manager.autoscaler.estimator import problem
from manager.autoscaler.scale_down import budgets, eligibility, pods_on_nodes
from manager.autoscaler.scale_down.budgets import GroupSizeLimits
from manager.autoscaler.scale_down.drain import RemainingDisruptions
from manager.autoscaler.scale_down.eligibility import Candidate, NodeStatuses
from manager.autoscaler.scale_down.inputs import ScaleDownContext
from manager.autoscaler.scale_down.pods_on_nodes import BlockingPod, DrainPlan, PodOnNode
from manager.autoscaler.scale_down.removal_status import SimulatedRemoval
from manager.autoscaler.scale_down.rescheduling import Arrival, NoPlace, PodBatch, PodMove, Rescheduling
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.quantity import Resources


class RemovalSimulation:
    """One simulation: `going` are the removals already under way, `simulated` the possible ones, in order."""

    def __init__(self, context: ScaleDownContext, statuses: NodeStatuses) -> None:
        self._context = context
        self._statuses = statuses
        self.going: list[SimulatedRemoval] = []
        self.simulated: list[SimulatedRemoval] = []

    def run(self, candidates: Sequence[Candidate], is_late: Callable[[], bool]) -> dict[str, DrainPlan]:
        """Tries all candidates in order; returns the removable ones with their drain plans."""
        deleted = [node.name for node in self._context.nodes if self._context.is_leaving(node)]
        remaining, rows = self._remaining(candidates, deleted)
        names = list(rows)
        for name in deleted:  # their pods come first, because they are already on their way
            self.going.append(SimulatedRemoval(name, _named(remaining.empty_out(rows[name]), names)))
        disruptions = RemainingDisruptions(self._context.inputs.disruption_budgets)
        for name in deleted:
            disruptions.take(self._still_to_evict(name, disruptions))
        usage = QuotaUsage(self._context.rules.gpu_label)
        spare = GroupSizeLimits(
            {name: group.spare for name, group in self._context.inputs.groups.items()},
            budgets.above_bounds(
                self._context.rules.bounds,
                (usage.node_usage(node) for node in self._context.nodes if not self._context.is_leaving(node)),
            ),
        )
        found: dict[str, DrainPlan] = {}
        for each in candidates:
            node, group = each.node, each.group_id
            if is_late():
                self._statuses.keep(
                    node, UnremovableReason.OUT_OF_TIME, "the time of this pass was over before its turn came"
                )
                continue
            if not spare.has_node(group):
                self._statuses.keep(node, *eligibility.at_minimum(each.group))
                continue
            gives = usage.node_usage(node)
            short = spare.short_of(gives)
            if short:
                self._statuses.keep(
                    node, UnremovableReason.BELOW_LIMIT, f"the cluster would have too little {', '.join(short)}"
                )
                continue
            drain = self._context.drain_plan(each.name, disruptions)
            if isinstance(drain, BlockingPod):
                self._statuses.keep_for_a_while(node, UnremovableReason.BLOCKED_BY_POD, str(drain))
                continue
            if drain.moving and self._context.peaks is not None and each.name not in self._context.peaks:
                self._statuses.keep(
                    node, UnremovableReason.PEAK_UNKNOWN, "it has pods to move, and nothing is predicted of it"
                )
                continue
            moves = remaining.leave(rows[each.name])
            if isinstance(moves, NoPlace):
                self._statuses.keep_for_a_while(node, moves.reason, moves.detail)
                continue
            disruptions.take(drain.disruptions)
            spare.take(group, gives)
            self.simulated.append(SimulatedRemoval(each.name, _named(moves, names)))
            found[each.name] = drain
        return found

    def _remaining(
        self, candidates: Sequence[Candidate], deleted: Iterable[str]
    ) -> tuple[Rescheduling, dict[str, int]]:
        """The nodes as rows: nodes that stay anyway first, and those tried first last.

        Pods go to the first rows that fit, so most pods move only once.
        """
        tried = {each.name for each in candidates}
        ordered = [node for node in self._context.nodes if node.name not in tried]
        ordered += [each.node for each in reversed(candidates)]
        return RemainingNodes(self._context, ordered).rescheduling((*tried, *deleted))

    def _still_to_evict(self, node: str, disruptions: RemainingDisruptions) -> Iterable[int]:
        """The budgets that the evictions still to come on a node under deletion use."""
        for each in self._context.pods_that_move(node):
            who = each.drain_info
            if who is not None and who.deleted_at is None:
                yield from disruptions.covering(who.namespace, who.labels)


class RemainingNodes:
    """The nodes of one observation as rows in this order, for one or many simulations.

    Nodes in `emptied` have no pods any more, and other nodes have those in `arrived`, too.
    """

    def __init__(
        self,
        context: ScaleDownContext,
        ordered: Sequence[NodeInfo],
        emptied: Container[str] = (),
        arrived: Mapping[str, Sequence[Arrival]] = MappingProxyType({}),
    ) -> None:
        self._context = context
        self._arrived = arrived
        self._rows = {node.name: row for row, node in enumerate(ordered)}
        own = (
            (row, each.facts)
            for name, row in self._rows.items()
            if name not in emptied
            for each in context.pods_on(name)
        )
        more = ((self._rows[name], each.facts) for name, found in arrived.items() for each in found for _ in each.pods)
        self._snapshot = cluster.snapshot_of_nodes(ordered, chain(own, more))
        self._peak_room = None if context.peaks is None else [self._room(node) for node in ordered]

    def _room(self, node: NodeInfo) -> Resources | None:
        room = _peak_room(self._context, node)
        if room is None:
            return None
        for each in self._arrived.get(node.name, ()):
            for _ in each.pods:
                room = room.minus(each.load)
        return room

    def rescheduling(
        self, leaving: Iterable[str], fresh: Sequence[tuple[NodeInfo, NodeTemplate]] = ()
    ) -> tuple[Rescheduling, dict[str, int]]:
        """The row of each node, too; the pods of those in `leaving` may be moved. `fresh` are nodes that do not exist
        yet, in rows after the others.
        """
        context, arrived = self._context, self._arrived
        snapshot, rows, peak_room = self._snapshot, self._rows, self._peak_room
        if fresh:
            first = len(rows)
            rows = rows | {node.name: first + number for number, (node, _) in enumerate(fresh)}
            daemons = [
                (first + number, daemon, 1) for number, (_, template) in enumerate(fresh) for daemon in template.daemons
            ]
            snapshot = cluster.extend(snapshot, [node for node, _ in fresh], daemons)
            if peak_room is not None:
                peak_room = [*peak_room, *(_fresh_peak_room(context, *each) for each in fresh)]
        moving = {name: context.pods_that_move(name) for name in leaving}
        classes: dict[int, EquivalenceGroup] = {}
        for name in sorted(moving):
            for facts in chain((each.facts for each in moving[name]), (each.facts for each in arrived.get(name, ()))):
                classes.setdefault(id(facts), EquivalenceGroup(facts, ()))
        position = {known: number for number, known in enumerate(classes)}
        asked = problem.packing_problem(snapshot, tuple(classes.values()))
        batches = {rows[name]: _batches(context, name, found, position) for name, found in moving.items()}
        for name in moving:
            for each in arrived.get(name, ()):
                batches[rows[name]].append(PodBatch(position[id(each.facts)], each.pods, each.load))
        return Rescheduling(asked, batches, peak_room), rows


def _batches(
    context: ScaleDownContext, node: str, moving: Sequence[PodOnNode], position: Mapping[int, int]
) -> list[PodBatch]:
    """The pods that move off a node, batched by class and by load."""
    peak = (context.peaks or {}).get(node)
    loads = pods_on_nodes.shares(peak, [each.facts.requests for each in moving]) if peak and moving else None
    alike: dict[tuple[int, Resources], list[str]] = {}
    for number, each in enumerate(moving):
        load = loads[number] if loads else pods_on_nodes.NO_LOAD
        alike.setdefault((position[id(each.facts)], load), []).append(each.key)
    return [PodBatch(which, tuple(pods), load) for (which, load), pods in alike.items()]


def _peak_room(context: ScaleDownContext, node: NodeInfo) -> Resources | None:
    """The remaining room of a node, None without a prediction."""
    peak = (context.peaks or {}).get(node.name)
    if peak is None:
        return None
    placed = [each.facts.requests for each in context.pods_on(node.name)]
    return pods_on_nodes.room(node.allocatable, peak, placed, context.rules.peak_margin_percent)


def _fresh_peak_room(context: ScaleDownContext, node: NodeInfo, template: NodeTemplate) -> Resources:
    """The same for a node that does not exist yet: its peak is its own pods' requests, as agents count pods without
    history.
    """
    placed = [each.requests for each in template.daemons]
    peak = pods_on_nodes.requested(placed)
    return pods_on_nodes.room(node.allocatable, peak, placed, context.rules.peak_margin_percent)


def _named(moves: Iterable[PodMove], names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((move.pod, names[move.row]) for move in moves)
