"""Nodes under filling: places one class at a time, and counts where every node is alike.

The order is Cluster Autoscaler's: each pod goes to the first node that fits, starting after the node that took the last
pod. So the pods of a class go round the nodes that have room for them, one pod each per round, and the room of each
node determines how many it gets.
"""

from typing import NamedTuple

import numpy as np

from manager.autoscaler.estimator.problem import PackingProblem
from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.affinity import OF_ONE_NODE, InterPodRules, SpreadRule
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, Flags, Integers, NodeTemplate, fresh_node
from shared.api.placement import TOO_MANY_PODS

UNLIMITED = 1 << 62
_FIRST_ROOM = 64  # for new nodes; doubled when used up


class PackedPods(NamedTuple):
    """The number of pods of a class on each of these nodes."""

    position: int
    nodes: Integers
    counts: Integers


class OpenNode(NamedTuple):
    """Which nodes of a range are open to a class, and how many pods may go before the next check."""

    nodes: Flags | None
    pods: int


class Packing:
    """The nodes of a problem's snapshot, followed by new nodes of one template, and the pods placed on all of them."""

    def __init__(
        self, problem: PackingProblem, template: NodeTemplate | None = None, after: "Packing | None" = None
    ) -> None:
        """Starts with the snapshot, or with the result of `after`, which has no new nodes."""
        self.problem = problem
        self.template = template
        self.known = len(problem.snapshot.nodes)
        self.size = self.known
        self.placements: list[PackedPods] = []
        self.pointer = 0
        bonds = problem.bonds
        source: Integers = problem.free if after is None else after._free[:, : self.known]
        room = self.known + (_FIRST_ROOM if template else 0)
        self._free: Integers = np.empty((len(problem.resources), room), np.int64)
        self._free[:, : self.known] = source
        self._rows = list(self._free)  # views, one per resource
        self.used = np.zeros(room, np.bool_)
        self.pending: Integers = (problem.pending if after is None else after.pending).copy()
        self._fresh = problem.row(template.free) if template else np.empty(0, np.int64)
        self._fresh_amounts: list[int] = self._fresh.tolist()
        self.admits_new = self._admitted(template)
        self._ceiling = [0] * len(problem.resources)  # an upper bound on the free amount of any new node, by resource
        self._domains: dict[str, Integers] = {}
        self._sums: list[Integers] = []
        self._present: list[Flags | None] = []
        self._counts_new: list[bool] = []
        self._fresh_domain: dict[str, int] = {}
        self._fresh_sums: list[int] = []
        if not bonds.counters:
            return
        labels = fresh_node(template, "new").labels if template else {}
        for key, topology in bonds.topologies.items():
            domains = np.full(room, -1, np.int64)
            domains[: self.known] = topology.of_node
            self._domains[key] = domains
            if key not in OF_ONE_NODE:
                value = labels.get(key)
                self._fresh_domain[key] = -1 if value is None else topology.values.get(value, len(topology.values))
        more = room - self.known + 1
        daemons = problem.daemons.get(template.group, ()) if template else ()
        for number, counter in enumerate(bonds.counters):
            before = bonds.base[number] if after is None else after._sums[number][: len(bonds.base[number])]
            self._sums.append(np.concatenate((before[:-1], np.zeros(more + 1, np.int64))))
            present = bonds.present[number]
            self._present.append(
                None if present is None else np.concatenate((present[:-1], np.zeros(more + 1, np.bool_)))
            )
            self._fresh_sums.append(sum(daemon in counter.members for daemon in daemons))
            counting = counter.counting
            self._counts_new.append(
                counting is None
                or (
                    template is not None
                    and all(key in labels for key in counting.keys)
                    and predicates.is_counted(
                        counting.demands, template.node, counting.honors_affinity, counting.honors_taints
                    )
                )
            )

    @property
    def new_count(self) -> int:
        return self.size - self.known

    def free_on(self, node: int) -> Integers:
        """The free amounts of one node, by the problem's resources."""
        return self._free[:, node]

    def add_nodes(self, count: int) -> None:
        """Adds `count` new nodes of the template, with only the pods that come with each."""
        start, stop = self.size, self.size + count
        if stop > self._free.shape[1]:
            self._grow(stop)
        self._free[:, start:stop] = self._fresh[:, None]
        self.used[start:stop] = False
        self._ceiling = self._fresh_amounts.copy()
        self.size = stop
        for key, domains in self._domains.items():
            if key in OF_ONE_NODE:
                first = len(self.problem.bonds.topologies[key].values) + start - self.known
                domains[start:stop] = np.arange(first, first + count)
            else:
                domains[start:stop] = self._fresh_domain[key]
        for number, counter in enumerate(self.problem.bonds.counters):
            if not self._counts_new[number]:
                continue
            domains = self._domains[counter.key][start:stop]
            if domains[0] < 0:
                continue
            if self._fresh_sums[number]:
                np.add.at(self._sums[number], domains, self._fresh_sums[number])
            present = self._present[number]
            if present is not None:
                present[domains] = True

    def fill(self, position: int, most: int, start: int, skip: int = -1, among: Flags | None = None) -> int:
        """Places up to `most` pods of a class on nodes from `start` on, in order; returns how many fit.

        `among` limits the nodes of the snapshot, for a class without rules.
        """
        rules = self.problem.bonds.rules.get(position)
        left = most
        while left:
            opened = self._open(position, rules, start, self.size) if rules else None
            if opened and opened.pods == 0:
                break
            nodes, room = self._room(position, start, opened.nodes if opened else among, skip)
            if rules and rules.once_per_node:
                room = np.minimum(room, 1)
            at_once = min(left, opened.pods) if opened else left
            placed = self._go_round(position, nodes, room, at_once)
            left -= placed
            if opened is None or placed < opened.pods:
                break
        return most - left

    def fill_up(self, position: int, most: int, among: Flags) -> int:
        """Places up to `most` pods of a class without rules on these nodes of the snapshot; returns how many fit.

        Fills one node after another, first those whose resources the class uses most evenly.
        """
        nodes, room = self._room(position, 0, among, -1)
        if not len(nodes):
            return 0
        shares = np.array([amount / self._rows[row][nodes] for row, amount in self.problem.asked[position][1:]])
        if len(shares) > 1:
            unevenness = np.round(shares.max(axis=0) / shares.mean(axis=0), 6)
            order = np.argsort(unevenness, kind="stable")
            nodes, room = nodes[order], room[order]
        before = np.cumsum(room) - room
        counts = np.clip(most - before, 0, room)
        taken = counts > 0
        self._commit(position, nodes[taken], counts[taken])
        return int(counts.sum())

    def fill_one(self, position: int, node: int, most: int) -> int:
        """Places up to `most` pods of a class on one node; returns how many fit."""
        rules = self.problem.bonds.rules.get(position)
        left = most
        while left:
            room = min(left, self._room_on(position, node))
            opened = self._open(position, rules, node, node + 1) if rules and room else None
            if opened:
                room = min(room, opened.pods) if opened.nodes is None or opened.nodes[0] else 0
                room = min(room, 1) if rules and rules.once_per_node else room
            if room <= 0:
                break
            self._commit(position, np.array([node]), np.array([room]))
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
        self._commit(position, np.arange(start, start + nodes), counts)
        return placed

    def room_on_fresh(self, position: int) -> int:
        """How many pods of a class fit on a new node, regardless of other nodes."""
        if not self.admits_new[position]:
            return 0
        room = min(self._fresh_amounts[row] // amount for row, amount in self.problem.asked[position])
        rules = self.problem.bonds.rules.get(position)
        if rules is None:
            return room
        if any(self._fresh_sums[number] for number in rules.excluding):
            return 0
        return min(room, 1) if rules.once_per_node else room

    def refusals(self, position: int, node: int) -> list[str]:
        """Why one more pod of a class does not fit on one node, in words of the scheduler's first failing plugin."""
        problem = self.problem
        facts = problem.classes[position].facts
        if node >= self.known:
            assert self.template is not None
            where = self.template.node
        else:
            where = problem.snapshot.nodes[node]
        reason = predicates.refusal(facts.demands, where)
        if reason:
            return [reason]
        rules = problem.bonds.rules.get(position) or InterPodRules()
        at = slice(node, node + 1)
        if any(self._in_domain(number, at)[0] for number in rules.ports):
            return [predicates.PORTS]
        free = self._free[:, node].tolist()
        short = [row for row, amount in problem.asked[position] if free[row] < amount]
        if short:
            return [TOO_MANY_PODS if row == 0 else predicates.insufficient(problem.resources[row]) for row in short]
        reason = predicates.volume_refusal(facts.demands, where)
        if reason:
            return [reason]
        for rule in rules.spread:
            if self._domains[problem.bonds.counters[rule.counter].key][node] < 0:
                return [predicates.SPREAD_LABEL]
            opened, _ = self._spread_open((rule,), at)
            if opened is not None and not opened[0]:
                return [predicates.SPREAD]
        attracted, _ = self._attracted(rules, at)
        if attracted is not None and not attracted[0]:
            return [predicates.POD_AFFINITY]
        if any(self._in_domain(number, at)[0] for number in rules.anti):
            return [predicates.POD_ANTI_AFFINITY]
        if any(self._in_domain(number, at)[0] for number in rules.existing):
            return [predicates.EXISTING_ANTI_AFFINITY]
        return []

    def _admitted(self, template: NodeTemplate | None) -> Flags:
        """Which classes a new node admits, whatever runs there."""
        problem = self.problem
        admitted = [
            template is not None and predicates.admits(each, template.node) for each in problem.distinct_demands
        ]
        return np.array(admitted, np.bool_)[problem.demands_of] if admitted else np.empty(0, np.bool_)

    def _grow(self, needed: int) -> None:
        before = self._free.shape[1]
        more = max(needed, 2 * before) - before
        self._free = np.concatenate((self._free, np.empty((len(self._free), more), np.int64)), axis=1)
        self._rows = list(self._free)
        self.used = np.concatenate((self.used, np.zeros(more, np.bool_)))
        for key, domains in self._domains.items():
            self._domains[key] = np.concatenate((domains, np.full(more, -1, np.int64)))
        self._sums = [np.concatenate((sums, np.zeros(more, np.int64))) for sums in self._sums]
        self._present = [
            None if present is None else np.concatenate((present, np.zeros(more, np.bool_)))
            for present in self._present
        ]

    def _room(self, position: int, start: int, opened: Flags | None, skip: int) -> tuple[Integers, Integers]:
        """The nodes that fit at least one pod of a class, and how many pods the resources of each allow."""
        asked = self.problem.asked[position]
        stop = self.size
        nothing = np.empty(0, np.int64)
        new_only = start >= self.known
        if new_only and not self.admits_new[position]:
            return nothing, nothing
        if new_only:
            ceiling = self._ceiling
            for row, amount in asked:
                if ceiling[row] < amount:
                    return nothing, nothing
        rows = self._rows
        row, amount = asked[-1]
        fits = rows[row][start:stop] >= amount
        for row, amount in asked[:-1]:
            fits &= rows[row][start:stop] >= amount
        if opened is not None:
            fits &= opened
        if not new_only:
            fits[: self.known - start] &= self.problem.admitting(position)[start:]
            fits[self.known - start :] &= self.admits_new[position]
        if skip >= start:
            fits[skip - start] = False
        nodes = fits.nonzero()[0]
        if not len(nodes):
            if new_only and opened is None and stop > start:
                for row, _ in asked:
                    self._ceiling[row] = int(np.maximum.reduce(rows[row][start:stop]))
            return nothing, nothing
        nodes += start
        room = rows[0][nodes]  # every pod takes one of `pods`
        for row, amount in asked[1:]:
            np.minimum(room, rows[row][nodes] // amount, out=room)
        return nodes, room

    def _room_on(self, position: int, node: int) -> int:
        if not (self.problem.admitting(position)[node] if node < self.known else self.admits_new[position]):
            return 0
        return min(int(self._rows[row][node]) // amount for row, amount in self.problem.asked[position])

    def _go_round(self, position: int, nodes: Integers, room: Integers, most: int) -> int:
        """Places up to `most` pods, one per node and round, starting at the pointer."""
        if len(nodes) <= 1:
            return self._put_on_one(position, nodes, room, most)
        split = int(nodes.searchsorted(self.pointer))
        if split and split < len(nodes):
            nodes = np.concatenate((nodes[split:], nodes[:split]))
            room = np.concatenate((room[split:], room[:split]))
        if most <= len(nodes):
            nodes, counts = nodes[:most], np.ones(most, np.int64)
            last = most - 1
        else:
            total = int(np.add.reduce(room))
            if total <= most:
                most, counts = total, room
                last = int((room == np.maximum.reduce(room)).nonzero()[0][-1])
            else:
                rounds = _full_rounds(room, most)
                counts = np.minimum(room, rounds)
                rest = most - int(counts.sum())
                if rest:
                    lucky = (room > rounds).nonzero()[0][:rest]
                    counts[lucky] += 1
                    last = int(lucky[-1])
                else:
                    last = int((room >= rounds).nonzero()[0][-1])
        self._point_behind(int(nodes[last]))
        self._commit(position, nodes, counts)
        return most

    def _put_on_one(self, position: int, nodes: Integers, room: Integers, most: int) -> int:
        """The same where at most one node takes pods."""
        if not len(nodes):
            return 0
        placed = min(most, int(room[0]))
        self._point_behind(int(nodes[0]))
        self._commit(position, nodes, np.array([placed]))
        return placed

    def _point_behind(self, node: int) -> None:
        """Moves the pointer behind this node; behind the last present node it wraps, as later nodes come after all."""
        self.pointer = (node + 1) % self.size

    def _commit(self, position: int, nodes: Integers, counts: Integers) -> None:
        rows = self._rows
        if len(nodes) == 1:  # most placements are on one node, and one number is subtracted faster than an array of one
            node, count = int(nodes[0]), int(counts[0])
            for row, amount in self.problem.asked[position]:
                rows[row][node] -= count * amount
            self.used[node] = True
        else:
            for row, amount in self.problem.asked[position]:
                rows[row][nodes] -= counts * amount
            self.used[nodes] = True
        self.placements.append(PackedPods(position, _alone(nodes), _alone(counts)))
        for number in self.problem.bonds.contributions.get(position, ()):
            domains = self._domains[self.problem.bonds.counters[number].key][nodes]
            counted = domains >= 0
            of_known = self.problem.bonds.counted[number]
            if of_known is not None:
                new = nodes >= self.known
                counted &= np.where(
                    new, self._counts_new[number], of_known[np.where(new, 0, nodes)] if self.known else False
                )
            np.add.at(self._sums[number], domains[counted], counts[counted])

    def _in_domain(self, number: int, at: slice) -> Integers:
        """How many pods a counter counts in the domain of each node; 0 if the node has no domain."""
        return self._sums[number][self._domains[self.problem.bonds.counters[number].key][at]]

    def _open(self, position: int, rules: InterPodRules, start: int, stop: int) -> OpenNode:
        """Which nodes of a range the inter-pod rules leave open to a class."""
        at = slice(start, stop)
        pods = 1 if rules.one_by_one else UNLIMITED
        open_nodes: Flags | None = None
        for number in rules.excluding:
            free = self._in_domain(number, at) == 0
            open_nodes = free if open_nodes is None else open_nodes & free
        for judged, more in (self._attracted(rules, at), self._spread_open(rules.spread, at)):
            if judged is not None:
                open_nodes = judged if open_nodes is None else open_nodes & judged
                pods = min(pods, more)
        return OpenNode(open_nodes, pods)

    def _attracted(self, rules: InterPodRules, at: slice) -> tuple[Flags | None, int]:
        """Where pod affinity holds. The first pod of a class that attracts itself may go anywhere, alone."""
        if not rules.affinity:
            return None, UNLIMITED
        if rules.attracts_itself and not any(self._sums[number].any() for number in rules.affinity):
            anywhere = np.ones(at.stop - at.start, np.bool_)
            for number in rules.affinity:
                anywhere &= self._domains[self.problem.bonds.counters[number].key][at] >= 0
            return anywhere, 1
        holds = np.ones(at.stop - at.start, np.bool_)
        for number in rules.affinity:
            holds &= self._in_domain(number, at) > 0
        return holds, UNLIMITED

    def _spread_open(self, spread: tuple[SpreadRule, ...], at: slice) -> tuple[Flags | None, int]:
        """Where one more pod violates no spread constraint, and for how many pods that stays true."""
        if not spread:
            return None, UNLIMITED
        holds = np.ones(at.stop - at.start, np.bool_)
        pods = UNLIMITED
        for rule in spread:
            counter = self.problem.bonds.counters[rule.counter]
            domains = self._domains[counter.key][at]
            there = self._sums[rule.counter][domains]
            present = self._present[rule.counter]
            assert present is not None
            sums = self._sums[rule.counter][present]
            if len(sums):
                least = int(sums.min()) if len(sums) >= rule.min_domains else 0
                holds &= there + rule.counts_itself - least <= rule.max_skew
            holds &= domains >= 0
            if rule.counts_itself:
                pods = min(pods, self._until_skewed(rule.counter, at, rule.max_skew, rule.min_domains))
        return holds, pods

    def _until_skewed(self, number: int, at: slice, max_skew: int, min_domains: int) -> int:
        """How many pods may go to nodes that all share one domain; 1 if they do not."""
        key = self.problem.bonds.counters[number].key
        if at.start < self.known or key in OF_ONE_NODE:
            return 1
        domain = self._fresh_domain[key]
        present = self._present[number]
        assert present is not None
        if domain < 0 or not present[domain]:
            return 1
        sums = self._sums[number]
        others = present.copy()
        others[domain] = False
        elsewhere = sums[others]
        if len(elsewhere) + 1 < min_domains:
            least = 0
        elif len(elsewhere):
            least = int(elsewhere.min())
        else:
            return UNLIMITED
        return max(0, max_skew + least - int(sums[domain]))

    def uses_hostname_spread(self, position: int) -> bool:
        """Whether new nodes may make room for a class on other nodes."""
        rules = self.problem.bonds.rules.get(position)
        return rules is not None and any(
            self.problem.bonds.counters[rule.counter].key == LABEL_HOSTNAME for rule in rules.spread
        )


def _alone(part: Integers) -> Integers:
    """The array without the larger one that it may be a view of and would keep alive."""
    return part if part.base is None or len(part.base) <= len(part) else part.copy()


def _full_rounds(room: Integers, most: int) -> int:
    """In how many rounds all nodes get one pod each until full, with less than one more round remaining."""
    low, high = most // len(room), int(room.max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(room, middle).sum()) <= most:
            low = middle
        else:
            high = middle - 1
    return low
