"""Nodes under filling: places one class at a time, and counts where every node is alike.

The order is Cluster Autoscaler's: each pod goes to the first node that fits, starting after the node that took the last
pod. So the pods of a class go round the nodes that have room for them, one pod each per round, and the room of each
node determines how many it gets.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from manager.autoscaler.estimator.domain_counters import DomainCounters
from manager.autoscaler.estimator.node_room import Asked, NodeRoom
from manager.autoscaler.estimator.problem import NewNodeKind, PackingProblem
from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.cluster import Flags, Holding, Integers, NodeTemplate
from shared.api.placement import TOO_MANY_PODS
from shared.cached_property import cached_property

_LOOKED_AT_ONCE = 256  # nodes, where the first that fits is enough


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
        self.counters: DomainCounters = DomainCounters(
            problem, None if fresh is None else fresh.kind, None if after is None else after.counters
        )
        self.known = self.room.known
        self.placements: list[PackedPods] = []
        self.pending: Integers = (problem.pending if after is None else after.pending).copy()
        self.admits_new: Flags = np.zeros(len(problem.classes), np.bool_) if fresh is None else fresh.kind.admits
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
        if start >= self.known and (not self.admits_new[position] or self.room.is_above_new_nodes(asked)):
            return 0
        left = most
        while left:
            opened = self.counters.open_nodes(rules, start, self.size) if rules else None
            if opened and opened.pods == 0:
                break
            open_nodes = among
            if opened and opened.nodes is not None:
                open_nodes = opened.nodes if among is None else opened.nodes & among
            at_once = min(left, opened.pods) if opened else left
            nodes, room = self._find_room(position, asked, start, open_nodes, skip, at_once)
            if rules and rules.once_per_node:
                room = np.minimum(room, 1)
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
        """Places up to `most` pods of a class on these nodes of the snapshot; returns how many fit. The class has no
        rules, or only volumes to attach.

        Fills one node after another, first those whose resources the class uses most evenly.
        """
        asked = self.problem.asked[position]
        rules = self.problem.bonds.rules.get(position)
        opened = self.counters.open_nodes(rules, 0, self.known).nodes if rules else None
        nodes, room = self._find_room(position, asked, 0, among if opened is None else among & opened, -1)
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
        if rules.attaching and self.counters.volumes and not self.counters.volumes.fits_new_node(rules.attaching):
            return 0
        if rules.choosing and not self.is_open(position, self.known):
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
        if not rules:
            return True
        opened = self.counters.open_nodes(rules, node, node + 1)
        return opened.pods > 0 and (opened.nodes is None or bool(opened.nodes[0]))

    def uses_hostname_spread(self, position: int) -> bool:
        """Whether new nodes may make room for a class on other nodes."""
        rules = self.problem.bonds.rules.get(position)
        return rules is not None and self.counters.uses_hostname_spread(rules)

    def likeness(self, kind: NewNodeKind) -> Hashable:
        """Equal for kinds of new nodes that pending pods fill alike after this packing, which has none.

        Domains that count alike are interchangeable, unless new nodes make pods go to present ones after all.
        """
        return kind if self._may_take_more else self.counters.likeness(kind)

    @cached_property
    def _may_take_more(self) -> bool:
        """Whether a present node fits a pending class for which new nodes may make room there."""
        return any(
            self.uses_hostname_spread(position)
            and (self.room.fits(self.problem.asked[position], 0) & self.problem.admitting(position)).any()
            for position in self.pending.nonzero()[0].tolist()
        )

    def _find_room(
        self, position: int, asked: Asked, start: int, opened: Flags | None, skip: int, most: int | None = None
    ) -> tuple[Integers, Integers]:
        """The nodes that fit at least one pod of a class, and the number of pods that the resources of each allow.

        At least as many nodes as `most` pods, which then go to one node each, count one pod each.
        """
        new_only = start >= self.known
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
        if most is not None and len(nodes) >= most:
            nodes = nodes if self._pointer else nodes[:most]
            return nodes, np.ones(len(nodes), np.int64)
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
        where, admits = packing.template.node, bool(packing.admits_new[position])
    else:
        where, admits = problem.snapshot.nodes[node], False
    reason = None if admits else predicates.refusal(demands, where)
    if reason:
        return [reason]
    rules = problem.bonds.rules.get(position)
    if rules and counters.has_port_conflict(rules, node):
        return [predicates.PORTS]
    free = packing.room.of_node(node).tolist()
    short = [row for row, amount in problem.asked[position] if free[row] < amount]
    if short:
        words = (TOO_MANY_PODS if row == 0 else predicates.insufficient(problem.resources[row]) for row in short)
        return list(dict.fromkeys(words))  # of devices, several are short at once
    if rules and counters.has_disk_conflict(rules, node):
        return [predicates.DISKS]
    reason = None
    if rules and counters.volumes:
        reason = counters.volumes.refusal(rules.attaching, node)
    if reason is None and not admits:
        reason = predicates.volume_refusal(demands, where)
    if reason is None and rules and counters.free_volumes:
        reason = counters.free_volumes.refusal(rules.choosing, node)
    if reason is None and rules:
        reason = counters.refusal(rules, node)
    return [reason] if reason else []
