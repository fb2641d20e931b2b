"""Simulates the removal of candidates, one after another.

Each removal takes from its group's spare nodes, from the cluster's lower bounds and from its pods' disruption budgets,
and occupies its pods' new places, so that all unneeded nodes could go together. The pods of nodes already under
deletion are placed before.
"""

import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from manager.autoscaler.estimator import problem
from manager.autoscaler.estimator.node_room import Asked
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.estimator.problem import PackingProblem
from manager.autoscaler.scale_down import eligibility, pods_on_nodes
from manager.autoscaler.scale_down.drain import RemainingDisruptions
from manager.autoscaler.scale_down.eligibility import Candidate, NodeStatuses
from manager.autoscaler.scale_down.pods_on_nodes import NO_LOAD, BlockingPod, DrainPlan, PodOnNode
from manager.autoscaler.scale_down.removal_status import SimulatedRemoval, UnremovableReason
from manager.autoscaler.scale_down.scale_down_context import GroupSizeLimits, ScaleDownContext, above_bounds
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot import cluster, predicates
from manager.autoscaler.snapshot.cluster import Flags, Integers, NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from shared.api.placement import TOO_MANY_PODS
from shared.quantity import Resources


class PodBatch(NamedTuple):
    """Pods of one class on one node, each with the same share of a predicted peak."""

    position: int
    pods: tuple[str, ...]
    load: Resources = NO_LOAD


class PodMove(NamedTuple):
    """A pod that moves to the node of this row."""

    pod: str
    row: int


class Arrival(NamedTuple):
    """Pods that have moved to a node: what they share, their keys, and the share of a predicted peak of each."""

    facts: PodInfo
    pods: tuple[str, ...]
    load: Resources = NO_LOAD


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why not all pods of a node find a place."""

    reason: UnremovableReason
    detail: str


class Rescheduling:
    """The pods of nodes that leave one after another, packed onto the nodes that remain.

    A removed node stays as an empty ghost, because its Node exists while it is drained: topology spread still counts
    its domain. Pods go to the first rows that fit. `peak_room` gives what each row can take of predicted peaks, where
    peaks count; a row without one takes nothing.
    """

    def __init__(
        self,
        problem: PackingProblem,
        moving: Mapping[int, Sequence[PodBatch]],
        peak_room: Sequence[Resources | None] | None = None,
    ) -> None:
        self._problem = problem
        self._moving = moving
        self._arrived: dict[int, list[PodBatch]] = {}
        self._nodes = len(problem.snapshot.nodes)
        self._destinations: Flags = np.ones(self._nodes, np.bool_)
        loads: Integers | None = None
        if peak_room is not None:
            self._destinations &= np.array([each is not None for each in peak_room], np.bool_)
            loads = np.array([each or NO_LOAD for each in peak_room], np.int64).reshape(-1, 2).T
        self._counts_peaks = loads is not None
        self._packing = Packing(problem, loads=loads)
        self._there: dict[int, list[tuple[int, int]]] = {}
        # Nodes only fill up and leave. So the nodes before the first one that fitted do not fit the next such pod, and
        # thousands of pods of a few sizes find their places without a look at the full nodes.
        self._first_open: dict[int, int] = {}
        self._before: dict[int, int] = {}  # the same as of the start of the current node's removal
        alike: dict[Hashable, int] = {}
        self._fits_as = [
            alike.setdefault((asked, demands), len(alike))
            for asked, demands in zip(problem.asked, problem.demands_of.tolist(), strict=True)
        ]
        snapshot = problem.snapshot
        if problem.bonds.counters:
            first = len(problem.classes)
            listed = zip(
                snapshot.placed_node.tolist(),
                snapshot.placed_kind.tolist(),
                snapshot.placed_count.tolist(),
                strict=True,
            )
            for row, kind, count in listed:
                self._there.setdefault(row, []).append((first + kind, count))
        cpu, memory = problem.cpu_and_memory
        sizes = sum(each / max(1, int(each.max(initial=0))) for each in (cpu, memory))
        self._sizes: list[float] = np.asarray(sizes, np.float64).tolist()

    @property
    def arrivals(self) -> dict[int, list[Arrival]]:
        """The pods that have moved to each row, and are still there."""
        classes = self._problem.classes
        return {
            row: [Arrival(classes[each.position].facts, each.pods, each.load) for each in batches]
            for row, batches in self._arrived.items()
        }

    def close(self, rows: Iterable[int]) -> None:
        """No pods move to these nodes any more."""
        for row in rows:
            self._destinations[row] = False

    def leave(self, row: int) -> tuple[PodMove, ...] | NoPlace:
        """Moves all pods of a node, the largest first; or returns why not, and changes nothing."""
        was_open = self._close(row)
        mark = len(self._packing.placements)
        self._before = {}
        arrivals: list[tuple[int, PodBatch]] = []
        for batch in self._leaving(row):
            arrived = self._place(batch)
            if sum(len(each.pods) for _, each in arrived) < len(batch.pods):
                stuck = self._why(batch)
                self._packing.take_back(mark)
                self._first_open |= self._before
                self._count(row, 1)
                self._destinations[row] = was_open
                return stuck
            arrivals += arrived
        return self._settle(arrivals)

    def empty_out(self, row: int) -> tuple[PodMove, ...]:
        """The same for a node that goes in any case: moves those of its pods that find a place."""
        self._close(row)
        return self._settle([arrival for batch in self._leaving(row) for arrival in self._place(batch)])

    def _leaving(self, row: int) -> list[PodBatch]:
        """All pods that move off a node, including those that came to it, the largest first."""
        batches = [*self._moving.get(row, ()), *self._arrived.get(row, ())]
        return sorted(batches, key=lambda each: (-self._sizes[each.position], each))

    def _close(self, row: int) -> bool:
        """Removes a node from the destinations; returns whether it was one."""
        was_open = bool(self._destinations[row])
        self._destinations[row] = False
        self._count(row, -1)
        return was_open

    def _place(self, batch: PodBatch) -> list[tuple[int, PodBatch]]:
        """Places as many of these pods as fit on the first rows that fit; returns the pods by row."""
        load = self._load_of(batch)
        start = self._where_to_start(batch.position)
        if start is None:
            return self._fill(batch, 0, load)
        arrived = self._fill(batch, start, load) if len(batch.pods) > 1 else self._place_one(batch, start, load)
        if not load:
            self._learn(batch.position, arrived[0][0] if arrived else self._nodes)
        return arrived

    def _place_one(self, batch: PodBatch, start: int, load: Asked) -> list[tuple[int, PodBatch]]:
        row = self._packing.place_one(batch.position, start, self._destinations, load)
        return [(row, batch)] if row >= 0 else []

    def _fill(self, batch: PodBatch, start: int, load: Asked) -> list[tuple[int, PodBatch]]:
        placements = self._packing.placements
        first = len(placements)
        self._packing.start_over()
        self._packing.fill(batch.position, len(batch.pods), start, among=self._destinations[start:], load=load)
        waiting = iter(batch.pods)
        return [
            (row, batch._replace(pods=tuple(itertools.islice(waiting, count))))
            for placement in placements[first:]
            for row, count in zip(placement.nodes.tolist(), placement.counts.tolist(), strict=True)
        ]

    def _where_to_start(self, position: int) -> int | None:
        """The row before which no node fits such a pod; None with rules between pods, which can open nodes again."""
        if position in self._problem.bonds.rules:
            return None
        return self._first_open.get(self._fits_as[position], 0)

    def _learn(self, position: int, first: int) -> None:
        """Records that no node before this row fits such a pod."""
        kind = self._fits_as[position]
        self._before.setdefault(kind, self._first_open.get(kind, 0))
        self._first_open[kind] = first

    def _settle(self, arrivals: Sequence[tuple[int, PodBatch]]) -> tuple[PodMove, ...]:
        for row, batch in arrivals:
            self._arrived.setdefault(row, []).append(batch)
        return tuple(PodMove(pod, row) for row, batch in arrivals for pod in batch.pods)

    def _load_of(self, batch: PodBatch) -> Asked:
        """The load of each of these pods on the peaks' rows, which come after those of the resources."""
        if not self._counts_peaks:
            return ()
        first = len(self._problem.resources)
        return tuple((first + row, amount) for row, amount in enumerate(batch.load) if amount)

    def _count(self, row: int, sign: int) -> None:
        """Removes a node's pods from the counts of inter-pod rules, or adds them again."""
        if not self._problem.bonds.counters:
            return
        counters = self._packing.counters
        for kind, count in self._there.get(row, ()):
            counters.count_on(kind, row, sign * count)
        for batch in self._arrived.get(row, ()):
            counters.count_on(batch.position, row, sign * len(batch.pods))

    def _why(self, batch: PodBatch) -> NoPlace:
        """Why one more of these pods fits nowhere: the number of nodes that each rule excludes, in the scheduler's
        order.
        """
        problem, position = self._problem, batch.position
        pod = batch.pods[-1]
        left = self._destinations.copy()
        others = int(left.sum())
        keeping: list[str] = []

        def keep(flags: Flags, reason: str) -> None:
            nonlocal left
            out = int((left & ~flags).sum())
            left = left & flags
            if out:
                keeping.append(f"{out} {reason}")

        keep(problem.admitting(position), "not matched or tolerated")
        for row, amount in problem.asked[position]:
            name = TOO_MANY_PODS if row == 0 else predicates.insufficient(problem.resources[row])
            keep(self._packing.room.fits(((row, amount),), 0), name)
        rules = problem.bonds.rules.get(position)
        if rules:
            opened = self._packing.counters.open_nodes(rules, 0, self._nodes).nodes
            if opened is not None:
                keep(opened, "kept free by rules between pods")
        if left.any():
            detail = f"pod {pod} fits on {int(left.sum())} other nodes, none of which has room for its predicted peak"
            return NoPlace(UnremovableReason.PEAKS, detail)
        if not others:
            return NoPlace(UnremovableReason.NO_PLACE, f"no other node exists for pod {pod}")
        where = "does not fit on the only other node" if others == 1 else f"fits on none of {others} other nodes"
        return NoPlace(UnremovableReason.NO_PLACE, f"pod {pod} {where}: {', '.join(keeping)}")


class RemovalSimulation:
    """One simulation: `going` are the removals already under way, `simulated` the possible ones, in order."""

    def __init__(self, context: ScaleDownContext, statuses: NodeStatuses) -> None:
        self._context = context
        self._statuses = statuses
        self.going: list[SimulatedRemoval] = []
        self.simulated: list[SimulatedRemoval] = []

    def run(self, candidates: Sequence[Candidate], is_late: Callable[[], bool]) -> dict[str, DrainPlan]:
        """Tries all candidates in order; returns the removable ones with their drain plans."""
        deleted = [node.name for node in self._context.registered if self._context.is_leaving(node)]
        remaining, rows = self._remaining(candidates, deleted)
        names = list(rows)
        for name in deleted:  # their pods come first, because they are already on their way
            self.going.append(SimulatedRemoval(name, _named(remaining.empty_out(rows[name]), names)))
        disruptions = RemainingDisruptions(self._context.disruption_budgets, self._context.gangs)
        for name in deleted:
            disruptions.take(self._still_to_evict(name, disruptions))
        usage = QuotaUsage(self._context.rules.gpu_label)
        spare = GroupSizeLimits(
            {name: group.spare for name, group in self._context.groups.items()},
            above_bounds(
                self._context.rules.bounds,
                (usage.node_usage(node) for node in self._context.registered if not self._context.is_leaving(node)),
            ),
        )
        found: dict[str, DrainPlan] = {}
        for each in candidates:
            node, group = each.node, each.group_id
            if is_late():
                self._statuses.keep(
                    node,
                    UnremovableReason.OUT_OF_TIME,
                    "the time limit of this iteration was reached before this node was examined",
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
            if drain.moving and self._context.known_peaks is not None and each.name not in self._context.known_peaks:
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
        ordered = [node for node in self._context.registered if node.name not in tried]
        ordered += [each.node for each in reversed(candidates)]
        return RemainingNodes(self._context, ordered).rescheduling((*tried, *deleted))

    def _still_to_evict(self, node: str, disruptions: RemainingDisruptions) -> Iterable[int]:
        """The budgets and gangs that the evictions still to come on a node under deletion use."""
        for each in self._context.pods_that_move(node):
            who = each.drain_info
            if who is not None and who.deleted_at is None:
                yield from disruptions.used_by(who)


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
        self._peak_room = None if context.known_peaks is None else [self._room(node) for node in ordered]

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
    peak = (context.known_peaks or {}).get(node)
    loads = pods_on_nodes.shares(peak, [each.facts.requests for each in moving]) if peak and moving else None
    alike: dict[tuple[int, Resources], list[str]] = {}
    for number, each in enumerate(moving):
        load = loads[number] if loads else pods_on_nodes.NO_LOAD
        alike.setdefault((position[id(each.facts)], load), []).append(each.key)
    return [PodBatch(which, tuple(pods), load) for (which, load), pods in alike.items()]


def _peak_room(context: ScaleDownContext, node: NodeInfo) -> Resources | None:
    """The remaining room of a node, None without a prediction."""
    peak = (context.known_peaks or {}).get(node.name)
    if peak is None:
        return None
    placed = [each.facts.requests for each in context.pods_on(node.name)]
    return pods_on_nodes.room(node.allocatable, peak, placed, context.rules.removal.scale_down_peak_margin_percent)


def _fresh_peak_room(context: ScaleDownContext, node: NodeInfo, template: NodeTemplate) -> Resources:
    """The same for a node that does not exist yet: its peak is its own pods' requests, as agents count pods without
    history.
    """
    placed = [each.requests for each in template.daemons]
    peak = pods_on_nodes.requested(placed)
    return pods_on_nodes.room(node.allocatable, peak, placed, context.rules.removal.scale_down_peak_margin_percent)


def _named(moves: Iterable[PodMove], names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((move.pod, names[move.row]) for move in moves)
