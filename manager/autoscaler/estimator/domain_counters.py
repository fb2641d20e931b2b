"""The rules between pods while pods are placed: how many pods each counter counts, by domain, in arrays.

A table per topology key has a row per counter and a column per domain, so that new nodes and copies cost one operation
per key, however many rules there are.
"""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from manager.autoscaler.estimator.problem import NewNode, PackingProblem
from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.affinity import OF_ONE_NODE, InterPodRules, SpreadRule
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, Flags, Integers

_Item = TypeVar("_Item", np.int64, np.bool_)

UNLIMITED = 1 << 62
_FIRST_SPARE = 64  # domains of single new nodes; doubled when used up


class OpenNodes(NamedTuple):
    """Which nodes of a range are open to a class, and how many pods may go before the next check."""

    nodes: Flags | None
    pods: int


class DomainCounters:
    """The counters of a problem over its snapshot and new nodes of one template, and what they say of nodes."""

    def __init__(self, problem: PackingProblem, fresh: NewNode | None, after: "DomainCounters | None") -> None:
        """Starts with the snapshot, or with the counts of `after`, which has no new nodes."""
        self._bonds = problem.bonds
        self._known = len(problem.snapshot.nodes)
        self._fresh = fresh
        self._tables: dict[str, Integers] = {}
        self._present: dict[str, Flags] = {}
        self._domains: dict[str, Integers] = {}
        for key, table in self._bonds.tables.items():
            topology = self._bonds.topologies[key]
            spare = 0 if fresh is None else _FIRST_SPARE if key in OF_ONE_NODE else 1
            width = table.sums.shape[1] - 1
            sums = table.sums if after is None else after._tables[key]
            self._tables[key] = _widened(sums[:, :width], spare + 1)
            self._present[key] = _widened(table.present[:, :width], spare + 1)
            domains = np.full(self._known + (_FIRST_SPARE if fresh else 0), -1, np.int64)
            domains[: self._known] = topology.of_node
            self._domains[key] = domains
        self._view()

    def _view(self) -> None:
        """Looks up the row of each counter."""
        counters = self._bonds.counters
        self._sums = [self._tables[each.key][each.row] for each in counters]
        self._domains_of = [self._domains[each.key] for each in counters]

    def add_nodes(self, start: int, stop: int) -> None:
        """Counts the pods that come with new nodes."""
        fresh = self._fresh
        assert fresh is not None
        if not self._tables:
            return
        if stop > len(next(iter(self._domains.values()))):
            self._grow(stop)
        for key, sums in self._tables.items():
            counts, own_pods = fresh.counts[key], fresh.own_pods[key]
            if key in OF_ONE_NODE:
                first = len(self._bonds.topologies[key].values) + start - self._known
                at = slice(first, first + stop - start)
                self._domains[key][start:stop] = np.arange(at.start, at.stop)
                self._present[key][counts, at] = True
                if own_pods.any():
                    sums[:, at] += own_pods[:, None]
                continue
            domain = fresh.domains[key]
            self._domains[key][start:stop] = domain
            if domain >= 0:
                self._present[key][counts, domain] = True
                sums[:, domain] += own_pods * (stop - start)

    def _grow(self, needed: int) -> None:
        before = len(next(iter(self._domains.values())))
        more = max(needed, 2 * before) - before
        for key, domains in self._domains.items():
            self._domains[key] = np.concatenate((domains, np.full(more, -1, np.int64)))
            if key in OF_ONE_NODE:
                self._tables[key] = _widened(self._tables[key], more)
                self._present[key] = _widened(self._present[key], more)
        self._view()

    def count(self, kind: int, nodes: Integers, counts: Integers) -> None:
        """Adds pods of one kind on these nodes; negative counts take them off."""
        for number in self._bonds.contributions.get(kind, ()):
            domains = self._domains_of[number][nodes]
            counted = domains >= 0
            counting = self._bonds.counters[number].counting
            if counting is not None:
                new = nodes >= self._known
                known = self._bonds.counted[counting][np.where(new, 0, nodes)] if self._known else False
                counted &= np.where(new, self._counts_new(number), known)
            np.add.at(self._sums[number], domains[counted], counts[counted])

    def count_on(self, kind: int, node: int, count: int) -> None:
        """The same for one node."""
        for number in self._bonds.contributions.get(kind, ()):
            domain = self._domains_of[number][node]
            if domain < 0:
                continue
            counting = self._bonds.counters[number].counting
            if counting is not None:
                is_new = node >= self._known
                if not (self._counts_new(number) if is_new else self._bonds.counted[counting][node]):
                    continue
            self._sums[number][domain] += count

    def _counts_new(self, number: int) -> bool:
        """Whether the counter counts pods on new nodes."""
        counter = self._bonds.counters[number]
        return self._fresh is not None and bool(self._fresh.counts[counter.key][counter.row])

    def comes_with_new_nodes(self, number: int) -> bool:
        """Whether a pod that this counter counts comes with every new node."""
        assert self._fresh is not None
        counter = self._bonds.counters[number]
        return bool(self._fresh.own_pods[counter.key][counter.row])

    def uses_hostname_spread(self, rules: InterPodRules) -> bool:
        """Whether new nodes may make room on other nodes."""
        return any(self._bonds.counters[rule.counter].key == LABEL_HOSTNAME for rule in rules.spread)

    def open_nodes(self, rules: InterPodRules, start: int, stop: int) -> OpenNodes:
        """Which nodes of a range the rules leave open to their class."""
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
        return OpenNodes(open_nodes, pods)

    def has_port_conflict(self, rules: InterPodRules, node: int) -> bool:
        """Whether a pod on the node uses one of the host ports."""
        at = slice(node, node + 1)
        return any(self._in_domain(number, at)[0] for number in rules.ports)

    def refusal(self, rules: InterPodRules, node: int) -> str | None:
        """The first rule, host ports aside, that excludes one node, in kube-scheduler's words and order."""
        at = slice(node, node + 1)
        for rule in rules.spread:
            if self._domains_of[rule.counter][node] < 0:
                return predicates.SPREAD_LABEL
            opened, _ = self._spread_open((rule,), at)
            if opened is not None and not opened[0]:
                return predicates.SPREAD
        attracted, _ = self._attracted(rules, at)
        if attracted is not None and not attracted[0]:
            return predicates.POD_AFFINITY
        if any(self._in_domain(number, at)[0] for number in rules.anti):
            return predicates.POD_ANTI_AFFINITY
        if any(self._in_domain(number, at)[0] for number in rules.existing):
            return predicates.EXISTING_ANTI_AFFINITY
        return None

    def _in_domain(self, number: int, at: slice) -> Integers:
        """The number of pods that a counter counts in the domain of each node; 0 without a domain."""
        sums: Integers = self._sums[number][self._domains_of[number][at]]
        return sums

    def _attracted(self, rules: InterPodRules, at: slice) -> tuple[Flags | None, int]:
        """Where pod affinity holds. The first pod of a class that attracts itself may go anywhere, alone."""
        if not rules.affinity:
            return None, UNLIMITED
        if rules.attracts_itself and not any(self._sums[number].any() for number in rules.affinity):
            anywhere = np.ones(at.stop - at.start, np.bool_)
            for number in rules.affinity:
                anywhere &= self._domains_of[number][at] >= 0
            return anywhere, 1
        holds = np.ones(at.stop - at.start, np.bool_)
        for number in rules.affinity:
            holds &= self._in_domain(number, at) > 0
        return holds, UNLIMITED

    def _spread_open(self, spread: tuple[SpreadRule, ...], at: slice) -> tuple[Flags | None, int]:
        """Where one more pod violates no spread constraint, and for how many pods that stays true."""
        if not spread:
            return None, UNLIMITED
        holds: Flags | None = None
        pods = UNLIMITED
        for rule in spread:
            domains = self._domains_of[rule.counter][at]
            holds = domains >= 0 if holds is None else holds & (domains >= 0)
            there = self._sums[rule.counter][domains]
            sums = self._sums[rule.counter][self._present_domains(rule.counter)]
            if len(sums):
                least = int(sums.min()) if len(sums) >= rule.min_domains else 0
                holds &= there + rule.counts_itself - least <= rule.max_skew
            if rule.counts_itself:
                pods = min(pods, self._until_skewed(rule, at))
        return holds, pods

    def _until_skewed(self, rule: SpreadRule, at: slice) -> int:
        """The number of pods that may go to nodes that all share one domain; 1 if they do not."""
        key = self._bonds.counters[rule.counter].key
        if self._fresh is None or at.start < self._known or key in OF_ONE_NODE:
            return 1
        domain = self._fresh.domains[key]
        present = self._present_domains(rule.counter)
        if domain < 0 or not present[domain]:
            return 1
        sums = self._sums[rule.counter]
        others = present.copy()
        others[domain] = False
        elsewhere = sums[others]
        if len(elsewhere) + 1 < rule.min_domains:
            least = 0
        elif len(elsewhere):
            least = int(elsewhere.min())
        else:
            return UNLIMITED
        return max(0, rule.max_skew + least - int(sums[domain]))

    def _present_domains(self, number: int) -> Flags:
        counter = self._bonds.counters[number]
        present: Flags = self._present[counter.key][counter.row]
        return present


def _widened(table: NDArray[_Item], more: int) -> NDArray[_Item]:
    """The table with `more` empty columns at its end."""
    return np.concatenate((table, np.zeros((len(table), more), table.dtype)), axis=1)
