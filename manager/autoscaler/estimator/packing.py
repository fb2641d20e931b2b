"""Nodes under filling: places one class at a time, and counts where every node is alike.

The order is Cluster Autoscaler's: each pod goes to the first node that fits, starting after the node that took the last
pod. So the pods of a class go round the nodes that have room for them, one pod each per round, and the room of each
node determines how many it gets.
"""

from typing import NamedTuple

import numpy as np

from manager.autoscaler.estimator.domain_counters import DomainCounters
from manager.autoscaler.estimator.problem import PackingProblem
from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.cluster import Flags, Holding, Integers, NodeTemplate
from shared.api.placement import TOO_MANY_PODS

Asked = tuple[tuple[int, int], ...]  # the row and amount of each resource that one pod requests, `pods` first

_FIRST_SPARE = 64  # columns for new nodes; doubled when used up
_LOOKED_AT_ONCE = 256  # nodes, where the first that fits is enough


class NodeRoom:
    """A row per resource and a column per node; the room of a node is how many pods its free amounts allow."""

    def __init__(self, free: Integers, fresh: Integers | None = None) -> None:
        """`free` is copied; `fresh` is what every new node has free, None where none will come."""
        self.known: int = free.shape[1]
        self.size: int = self.known
        columns = self.known + (0 if fresh is None else _FIRST_SPARE)
        self._free: Integers = np.empty((len(free), columns), np.int64)
        self._free[:, : self.known] = free
        self._rows = list(self._free)  # views, one per resource
        self.used: Flags = np.zeros(columns, np.bool_)
        self._fresh = fresh
        self._fresh_amounts: list[int] = [] if fresh is None else fresh.tolist()
        self._ceiling = [0] * len(free)  # an upper bound on the free amount of any new node, by resource

    def of_known(self) -> Integers:
        """The free amounts of the snapshot's nodes."""
        return self._free[:, : self.known]

    def of_node(self, node: int) -> Integers:
        """The free amounts of one node."""
        return self._free[:, node]

    def sufficient(self, more: Integers) -> Integers | None:
        """By resource, the free amount of a new node that suffices for the most that any took, plus `more`.

        None without new nodes, or if one of them has less.
        """
        if self._fresh is None or self.size == self.known:
            return None
        least = self._free[:, self.known : self.size].min(axis=1)
        return self._fresh - least + more if (more <= least).all() else None

    def add(self, count: int) -> None:
        """Adds `count` new nodes."""
        assert self._fresh is not None
        start, self.size = self.size, self.size + count
        columns = self._free.shape[1]
        if self.size > columns:
            more = max(self.size, 2 * columns) - columns
            self._free = np.concatenate((self._free, np.empty((len(self._free), more), np.int64)), axis=1)
            self._rows = list(self._free)
            self.used = np.concatenate((self.used, np.zeros(more, np.bool_)))
        self._free[:, start : self.size] = self._fresh[:, None]
        self._ceiling = self._fresh_amounts.copy()

    def fits(self, asked: Asked, start: int, stop: int | None = None) -> Flags:
        """Which nodes from `start` on fit at least one such pod."""
        rows, stop = self._rows, self.size if stop is None else stop
        row, amount = asked[-1]
        fits: Flags = rows[row][start:stop] >= amount
        for row, amount in asked[:-1]:
            fits &= rows[row][start:stop] >= amount
        return fits

    def is_above_new_nodes(self, asked: Asked) -> bool:
        """Whether such a pod is known to fit on no new node."""
        ceiling = self._ceiling
        return any(ceiling[row] < amount for row, amount in asked)

    def measure_new_nodes(self, asked: Asked, start: int) -> None:
        """Learns what new nodes have free at most, after a pod has fitted on none of the nodes from `start` on."""
        if self.size > start:
            for row, _ in asked:
                self._ceiling[row] = int(np.maximum.reduce(self._rows[row][start : self.size]))

    def room(self, asked: Asked, nodes: Integers) -> Integers:
        """The number of such pods that fit on each of these nodes."""
        rows = self._rows
        room: Integers = rows[0][nodes]  # every pod takes one of `pods`
        for row, amount in asked[1:]:
            np.minimum(room, rows[row][nodes] // amount, out=room)
        return room

    def room_on(self, asked: Asked, node: int) -> int:
        """The number of such pods that fit on one node."""
        return min(int(self._rows[row][node]) // amount for row, amount in asked)

    def room_on_fresh(self, asked: Asked) -> int:
        """The number of such pods that fit on a new node."""
        return min(self._fresh_amounts[row] // amount for row, amount in asked)

    def shares(self, asked: Asked, nodes: Integers) -> Integers:
        """By requested resource besides `pods`: the share of each node's free amount that one such pod takes."""
        return np.array([amount / self._rows[row][nodes] for row, amount in asked[1:]])

    def take(self, asked: Asked, nodes: Integers, counts: Integers) -> None:
        """Puts pods on nodes."""
        rows = self._rows
        if len(nodes) == 1:  # most placements are on one node, and one number is subtracted faster than an array of one
            node, count = int(nodes[0]), int(counts[0])
            for row, amount in asked:
                rows[row][node] -= count * amount
            self.used[node] = True
        else:
            for row, amount in asked:
                rows[row][nodes] -= counts * amount
            self.used[nodes] = True

    def give_back(self, asked: Asked, nodes: Integers, counts: Integers) -> None:
        """Takes pods off nodes."""
        self.take(tuple([(row, -amount) for row, amount in asked]), nodes, counts)


class PackedPods(NamedTuple):
    """The number of pods of a class on each of these nodes, and what each took besides the requests of its class."""

    position: int
    nodes: Integers
    counts: Integers
    load: Asked = ()


class Packing:
    """The nodes of a problem's snapshot, followed by new nodes of one template, and the pods placed on all of them."""

    def __init__(
        self,
        problem: PackingProblem,
        template: NodeTemplate | None = None,
        after: "Packing | None" = None,
        *,
        loads: Integers | None = None,
    ) -> None:
        """Starts with the snapshot, or with the result of `after`, which has no new nodes.

        `loads` are further rows of free amounts of the snapshot's nodes, for what classes do not request.
        """
        fresh = problem.new_node(template) if template else None
        free = problem.free if after is None else after.room.of_known()
        self.problem = problem
        self.room: NodeRoom = NodeRoom(
            free if loads is None else np.concatenate((free, loads)), None if fresh is None else fresh.free
        )
        self.counters: DomainCounters = DomainCounters(problem, fresh, None if after is None else after.counters)
        self.known = self.room.known
        self.placements: list[PackedPods] = []
        self.pending: Integers = (problem.pending if after is None else after.pending).copy()
        self.admits_new: Flags = np.zeros(len(problem.classes), np.bool_) if fresh is None else fresh.admits
        self.template = template
        self._pointer = 0

    @property
    def size(self) -> int:
        return self.room.size

    @property
    def new_count(self) -> int:
        return self.room.size - self.known

    @property
    def used(self) -> Flags:
        """Which nodes have taken pods; with spare entries at the end."""
        return self.room.used

    def add_nodes(self, count: int) -> None:
        """Adds `count` new nodes of the template, with only the pods that come with each."""
        start = self.size
        self.room.add(count)
        self.counters.add_nodes(start, start + count)

    def start_over(self) -> None:
        """Lets the next pod go to the first node that fits, regardless of where the last one went."""
        self._pointer = 0

    def fill(
        self,
        position: int,
        most: int,
        start: int,
        skip: int = -1,
        among: Flags | None = None,
        load: Asked = (),
    ) -> int:
        """Places up to `most` pods of a class on nodes from `start` on, in order; returns how many fit.

        `among` says which of these nodes to use. Each pod takes `load` besides its requests.
        """
        rules = self.problem.bonds.rules.get(position)
        asked = self.problem.asked[position] + load
        left = most
        while left:
            opened = self.counters.open_nodes(rules, start, self.size) if rules else None
            if opened and opened.pods == 0:
                break
            open_nodes = among
            if opened and opened.nodes is not None:
                open_nodes = opened.nodes if among is None else opened.nodes & among
            each_on_first = left if rules is None and not self._pointer else None
            nodes, room = self._find_room(position, asked, start, open_nodes, skip, each_on_first)
            if rules and rules.once_per_node:
                room = np.minimum(room, 1)
            at_once = min(left, opened.pods) if opened else left
            placed = self._go_round(position, load, nodes, room, at_once)
            left -= placed
            if opened is None or placed < opened.pods:
                break
        return most - left

    def place_one(self, position: int, start: int, among: Flags, load: Asked = ()) -> int:
        """Places a pod of a class without rules on the first of these nodes of the snapshot, from `start` on, that
        fits; returns its row, or -1. Equals `fill`, but does not examine the nodes behind it.
        """
        asked, admitting = self.problem.asked[position] + load, self.problem.admitting(position)
        if start < self.known and among[start] and admitting[start] and self.room.room_on(asked, start) > 0:
            self._commit(position, load, np.array([start]), _ONE)
            return start  # most often, where the last such pod went
        for begin in range(start, self.known, _LOOKED_AT_ONCE):
            stop = min(self.known, begin + _LOOKED_AT_ONCE)
            fits = self.room.fits(asked, begin, stop)
            fits &= among[begin:stop]
            fits &= admitting[begin:stop]
            offset = int(fits.argmax())
            if fits[offset]:
                self._commit(position, load, np.array([begin + offset]), _ONE)
                return begin + offset
        return -1

    def fill_up(self, position: int, most: int, among: Flags) -> int:
        """Places up to `most` pods of a class without rules on these nodes of the snapshot; returns how many fit.

        Fills one node after another, first those whose resources the class uses most evenly.
        """
        asked = self.problem.asked[position]
        nodes, room = self._find_room(position, asked, 0, among, -1)
        if not len(nodes):
            return 0
        shares = self.room.shares(asked, nodes)
        if len(shares) > 1:
            unevenness = np.round(shares.max(axis=0) / shares.mean(axis=0), 6)
            order = np.argsort(unevenness, kind="stable")
            nodes, room = nodes[order], room[order]
        before = np.cumsum(room) - room
        counts = np.clip(most - before, 0, room)
        taken = counts > 0
        self._commit(position, (), nodes[taken], counts[taken])
        return int(counts.sum())

    def fill_one(self, position: int, node: int, most: int) -> int:
        """Places up to `most` pods of a class on one node; returns how many fit."""
        rules = self.problem.bonds.rules.get(position)
        left = most
        while left:
            room = min(left, self._room_on(position, node))
            opened = self.counters.open_nodes(rules, node, node + 1) if rules and room else None
            if opened:
                room = min(room, opened.pods) if opened.nodes is None or opened.nodes[0] else 0
                room = min(room, 1) if rules and rules.once_per_node else room
            if room <= 0:
                break
            self._commit(position, (), np.array([node]), np.array([room]))
            left -= room
            if opened is None:
                break
        return most - left

    def fill_new(self, position: int, most: int, nodes: int, each: int) -> int:
        """Adds nodes with `each` pods of a class without rules on other nodes; the last node gets the rest."""
        start = self.size
        self.add_nodes(nodes)
        placed = min(most, nodes * each)
        counts = np.full(nodes, each, np.int64)
        counts[-1] -= nodes * each - placed
        self._commit(position, (), np.arange(start, start + nodes), counts)
        return placed

    def room_on_fresh(self, position: int) -> int:
        """The number of pods of a class that fit on a new node, regardless of other nodes."""
        if not self.admits_new[position]:
            return 0
        room = self.room.room_on_fresh(self.problem.asked[position])
        rules = self.problem.bonds.rules.get(position)
        if rules is None:
            return room
        if any(self.counters.comes_with_new_nodes(number) for number in rules.excluding):
            return 0
        return min(room, 1) if rules.once_per_node else room

    def take_back(self, first: int) -> None:
        """Takes back all placements after the `first` ones."""
        for position, nodes, counts, load in self.placements[first:]:
            self.room.give_back(self.problem.asked[position] + load, nodes, counts)
            self.counters.count(position, nodes, -counts)
        del self.placements[first:]

    def is_open(self, position: int, node: int) -> bool:
        """Whether the rules between pods leave a node open to one more pod of a class."""
        rules = self.problem.bonds.rules.get(position)
        opened = self.counters.open_nodes(rules, node, node + 1).nodes if rules else None
        return opened is None or bool(opened[0])

    def uses_hostname_spread(self, position: int) -> bool:
        """Whether new nodes may make room for a class on other nodes."""
        rules = self.problem.bonds.rules.get(position)
        return rules is not None and self.counters.uses_hostname_spread(rules)

    def _find_room(
        self, position: int, asked: Asked, start: int, opened: Flags | None, skip: int, enough: int | None = None
    ) -> tuple[Integers, Integers]:
        """The nodes that fit at least one pod of a class, and the number of pods that the resources of each allow.

        With `enough`, the search ends after that many nodes, and each counts one pod.
        """
        new_only = start >= self.known
        if new_only and (not self.admits_new[position] or self.room.is_above_new_nodes(asked)):
            return _NOTHING, _NOTHING
        fits = self.room.fits(asked, start)
        if opened is not None:
            fits &= opened
        if not new_only:
            fits[: self.known - start] &= self.problem.admitting(position)[start:]
            fits[self.known - start :] &= self.admits_new[position]
        if skip >= start:
            fits[skip - start] = False
        nodes: Integers = fits.nonzero()[0]
        if not len(nodes):
            if new_only and opened is None:
                self.room.measure_new_nodes(asked, start)
            return _NOTHING, _NOTHING
        nodes += start
        if enough is not None and len(nodes) >= enough:
            return nodes[:enough], np.ones(enough, np.int64)
        return nodes, self.room.room(asked, nodes)

    def _room_on(self, position: int, node: int) -> int:
        if not (self.problem.admitting(position)[node] if node < self.known else self.admits_new[position]):
            return 0
        return self.room.room_on(self.problem.asked[position], node)

    def _go_round(self, position: int, load: Asked, nodes: Integers, room: Integers, most: int) -> int:
        """Places up to `most` pods, one per node and round, starting at the pointer."""
        if not len(nodes):
            return 0
        if len(nodes) == 1:
            last, most = 0, min(most, int(room[0]))
            counts = np.array([most])
        else:
            split = int(nodes.searchsorted(self._pointer))
            if split and split < len(nodes):
                nodes = np.concatenate((nodes[split:], nodes[:split]))
                room = np.concatenate((room[split:], room[:split]))
            counts, last = _counts_of_rounds(room, most)
            nodes, most = nodes[: len(counts)], min(most, int(np.add.reduce(counts)))
        # After the last present node it starts again, as later nodes were added after all these.
        self._pointer = (int(nodes[last]) + 1) % self.size
        self._commit(position, load, nodes, counts)
        return most

    def _commit(self, position: int, load: Asked, nodes: Integers, counts: Integers) -> None:
        self.room.take(self.problem.asked[position] + load, nodes, counts)
        self.placements.append(PackedPods(position, _alone(nodes), _alone(counts), load))
        if len(nodes) == 1:
            self.counters.count_on(position, int(nodes[0]), int(counts[0]))
        else:
            self.counters.count(position, nodes, counts)


_NOTHING: Integers = np.empty(0, np.int64)
_ONE: Integers = np.ones(1, np.int64)


def _alone(part: Integers) -> Integers:
    """The array without the larger one that it may be a view of and would keep alive."""
    return part if part.base is None or len(part.base) <= len(part) else part.copy()


def _counts_of_rounds(room: Integers, most: int) -> tuple[Integers, int]:
    """The share of each node in up to `most` pods, one per round while it has room, and the node of the last pod."""
    if most <= len(room):
        return np.ones(most, np.int64), most - 1
    if int(np.add.reduce(room)) <= most:
        return room, int((room == np.maximum.reduce(room)).nonzero()[0][-1])
    rounds = _full_rounds(room, most)
    counts = np.minimum(room, rounds)
    rest = most - int(counts.sum())
    if rest:
        lucky = (room > rounds).nonzero()[0][:rest]
        counts[lucky] += 1
        return counts, int(lucky[-1])
    return counts, int((room >= rounds).nonzero()[0][-1])


def _full_rounds(room: Integers, most: int) -> int:
    """The number of rounds in which all nodes get one pod each until full, with less than one more round remaining."""
    low, high = most // len(room), int(room.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(room, middle).sum()) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def holdings(packing: Packing) -> list[Holding]:
    """The placed pods as a snapshot holds them."""
    return [
        (int(node), packing.problem.classes[placed.position].facts, int(count))
        for placed in packing.placements
        for node, count in zip(placed.nodes, placed.counts, strict=True)
    ]


def refusals(packing: Packing, position: int, node: int) -> list[str]:
    """Why one more pod of a class does not fit on one node, in words of the scheduler's first failing plugin."""
    problem, counters = packing.problem, packing.counters
    demands = problem.classes[position].facts.demands
    if node >= packing.known:
        assert packing.template is not None
        where = packing.template.node
    else:
        where = problem.snapshot.nodes[node]
    reason = predicates.refusal(demands, where)
    if reason:
        return [reason]
    rules = problem.bonds.rules.get(position)
    if rules and counters.has_port_conflict(rules, node):
        return [predicates.PORTS]
    free = packing.room.of_node(node).tolist()
    short = [row for row, amount in problem.asked[position] if free[row] < amount]
    if short:
        return [TOO_MANY_PODS if row == 0 else predicates.insufficient(problem.resources[row]) for row in short]
    reason = predicates.volume_refusal(demands, where)
    if reason is None and rules:
        reason = counters.refusal(rules, node)
    return [reason] if reason else []
