"""The nodes that remain as others leave, and the new places of their pods."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.estimator.problem import PackingProblem
from manager.autoscaler.scale_down.peaks import NO_LOAD
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.cluster import Flags, Integers
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


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why not all pods of a node find a place."""

    reason: UnremovableReason
    detail: str


class Rescheduling(Packing):
    """A packing without new nodes, from which nodes leave one after another.

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
        super().__init__(problem)
        self._moving = moving
        self._arrived: dict[int, list[PodBatch]] = {}
        self._destinations: Flags = np.ones(self.known, np.bool_)
        self._peak_room: Integers | None = None
        if peak_room is not None:
            self._destinations &= np.array([each is not None for each in peak_room], np.bool_)
            self._peak_room = np.array([each or NO_LOAD for each in peak_room], np.int64).reshape(-1, 2).T.copy()
        self._load = NO_LOAD
        self._loads: list[Resources] = []  # by placement
        self._there: dict[int, list[tuple[int, int]]] = {}
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

    def leave(self, row: int) -> tuple[PodMove, ...] | NoPlace:
        """Moves all pods of a node, the largest first; or returns why not, and changes nothing."""
        was_open = self._close(row)
        mark = len(self.placements)
        arrivals: list[tuple[int, PodBatch]] = []
        for batch in self._leaving(row):
            arrived = self._place(batch)
            if sum(len(each.pods) for _, each in arrived) < len(batch.pods):
                stuck = self._why(batch)
                self._undo(mark)
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
        self._load, self.pointer, first = batch.load, 0, len(self.placements)
        self.fill(batch.position, len(batch.pods), 0)
        waiting = iter(batch.pods)
        return [
            (row, batch._replace(pods=tuple(itertools.islice(waiting, count))))
            for placement in self.placements[first:]
            for row, count in zip(placement.nodes.tolist(), placement.counts.tolist(), strict=True)
        ]

    def _settle(self, arrivals: Sequence[tuple[int, PodBatch]]) -> tuple[PodMove, ...]:
        for row, batch in arrivals:
            self._arrived.setdefault(row, []).append(batch)
        return tuple(PodMove(pod, row) for row, batch in arrivals for pod in batch.pods)

    def _room(self, position: int, start: int, opened: Flags | None, skip: int) -> tuple[Integers, Integers]:
        nodes, room = super()._room(
            position, start, self._destinations if opened is None else opened & self._destinations, skip
        )
        if self._peak_room is None or not len(nodes):
            return nodes, room
        for left, load in zip(self._peak_room, self._load, strict=True):
            if load:
                room = np.minimum(room, np.maximum(left[nodes], 0) // load)
        takes = room > 0
        return nodes[takes], room[takes]

    def _commit(self, position: int, nodes: Integers, counts: Integers) -> None:
        super()._commit(position, nodes, counts)
        self._loads.append(self._load)
        if self._peak_room is not None:
            for left, load in zip(self._peak_room, self._load, strict=True):
                left[nodes] -= counts * load

    def _undo(self, mark: int) -> None:
        """Takes back all placements after the first `mark`."""
        for placement, load in zip(self.placements[mark:], self._loads[mark:], strict=True):
            for row, amount in self.problem.asked[placement.position]:
                self._rows[row][placement.nodes] += placement.counts * amount
            if self._peak_room is not None:
                for left, part in zip(self._peak_room, load, strict=True):
                    left[placement.nodes] += placement.counts * part
            for node, count in zip(placement.nodes.tolist(), placement.counts.tolist(), strict=True):
                self._count_kind(placement.position, node, -count)
        del self.placements[mark:], self._loads[mark:]

    def _count(self, row: int, sign: int) -> None:
        """Removes a node's pods from the counts of inter-pod rules, or adds them again."""
        if not self.problem.bonds.counters:
            return
        for kind, count in self._there.get(row, ()):
            self._count_kind(kind, row, sign * count)
        for batch in self._arrived.get(row, ()):
            self._count_kind(batch.position, row, sign * len(batch.pods))

    def _count_kind(self, kind: int, row: int, count: int) -> None:
        bonds = self.problem.bonds
        for number in bonds.contributions.get(kind, ()):
            counted = bonds.counted[number]
            domain = self._domains[bonds.counters[number].key][row]
            if domain >= 0 and (counted is None or counted[row]):
                self._sums[number][domain] += count

    def _why(self, batch: PodBatch) -> NoPlace:
        """Why one more of these pods fits nowhere: the number of nodes that each rule excludes, in the scheduler's
        order.
        """
        problem, position = self.problem, batch.position
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
            keep(self._rows[row][: self.known] >= amount, name)
        rules = problem.bonds.rules.get(position)
        if rules:
            opened = self._open(position, rules, 0, self.known).nodes
            if opened is not None:
                keep(opened, "kept free by rules between pods")
        if left.any():
            detail = f"pod {pod} fits on {int(left.sum())} other nodes, none of which holds its predicted peak with it"
            return NoPlace(UnremovableReason.PEAKS, detail)
        if not others:
            return NoPlace(UnremovableReason.NO_PLACE, f"there is no other node for pod {pod}")
        return NoPlace(
            UnremovableReason.NO_PLACE, f"pod {pod} fits on none of {others} other nodes: {', '.join(keeping)}"
        )
