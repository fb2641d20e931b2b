"""The rules between pods while pods are placed: how many pods each counter counts, by domain, in arrays.

A table per topology key has a row per counter and a column per domain, so that new nodes and copies cost one operation
per key, however many rules there are.
"""

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from manager.autoscaler.estimator.free_volumes import FreeVolumeRoom
from manager.autoscaler.estimator.problem import NewNodeKind, PackingProblem
from manager.autoscaler.estimator.volume_room import VolumeRoom
from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.affinity import OF_ONE_NODE, InterPodRules, SpreadRule
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, Flags, Integers

_Item = TypeVar("_Item", np.int64, np.bool_)

Judged: TypeAlias = "bool | np.bool_ | Flags"  # one result for all nodes of a range, or one for each

UNLIMITED = 1 << 62
_FIRST_SPARE = 64  # domains of single new nodes; doubled when used up


class OpenNodes(NamedTuple):
    """Which nodes of a range are open to a class (None: all), and how many pods may go before the next check."""

    nodes: Flags | None
    pods: int


class DomainCounters:
    """The counters of a problem over its snapshot and new nodes of one template, and what they say of nodes."""

    def __init__(self, problem: PackingProblem, fresh: NewNodeKind | None, after: "DomainCounters | None") -> None:
        """Starts with the snapshot, or with the counts of `after`, which has no new nodes."""
        self._bonds = problem.bonds
        self._known = len(problem.snapshot.nodes)
        self._fresh = fresh
        # By counter: the domain that all new nodes share; None if each is a domain of its own, or none will come.
        self._shared = [None if fresh is None else fresh.domains.get(each.key) for each in self._bonds.counters]
        self._least: dict[int, tuple[int, int]] = {}
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
        limits = self._bonds.limits
        self.volumes: VolumeRoom | None = None
        if limits is not None:
            room = None if fresh is None else fresh.volume_room
            self.volumes = VolumeRoom(limits, room, None if after is None else after.volumes)
        choices = self._bonds.choices
        self.free_volumes: FreeVolumeRoom | None = None
        if choices is not None:
            reached = None if fresh is None else fresh.volumes
            self.free_volumes = FreeVolumeRoom(choices, reached, None if after is None else after.free_volumes)
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
        if self.volumes is not None:
            self.volumes.add_nodes(start, stop)
        if not self._tables:
            return
        if stop > len(next(iter(self._domains.values()))):
            self._grow(stop)
        self._least.clear()
        for key, sums in self._tables.items():
            counts, own_pods = fresh.counts[key], fresh.own_pods[key]
            present, domain = self._present[key], fresh.domains.get(key)
            if domain is None:
                first = len(self._bonds.topologies[key].values) + start - self._known
                at = slice(first, first + stop - start)
                self._domains[key][start:stop] = np.arange(at.start, at.stop)
                present[:, at] |= counts[:, None]
                sums[:, at] += own_pods[:, None]
                continue
            self._domains[key][start:stop] = domain
            if domain >= 0:
                present[:, domain] |= counts
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
        self._count_volumes(kind, nodes, counts)
        for number in self._bonds.contributions.get(kind, ()):
            domains = self._domains_of[number][nodes]
            counted = domains >= 0
            counting = self._bonds.counters[number].counting
            if counting is not None:
                new = nodes >= self._known
                known = self._bonds.counted[counting][np.where(new, 0, nodes)] if self._known else False
                counted &= np.where(new, self._counts_new(number), known)
            np.add.at(self._sums[number], domains[counted], counts[counted])
            self._least.pop(number, None)

    def count_on(self, kind: int, node: int, count: int) -> None:
        """The same for one node."""
        if self.volumes is not None or self.free_volumes is not None:
            self._count_volumes(kind, np.array([node]), np.array([count]))
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
            self._least.pop(number, None)

    def _count_volumes(self, kind: int, nodes: Integers, counts: Integers) -> None:
        rules = self._bonds.rules.get(kind)
        if rules is not None and self.volumes is not None:
            self.volumes.count(rules.attaching, nodes, counts)
        if rules is not None and self.free_volumes is not None:
            self.free_volumes.count(rules.choosing, nodes, counts)

    def _counts_new(self, number: int) -> bool:
        """Whether the counter counts pods on new nodes."""
        counter = self._bonds.counters[number]
        return self._fresh is not None and bool(self._fresh.counts[counter.key][counter.row])

    def likeness(self, kind: NewNodeKind) -> Hashable:
        """Equal for kinds of new nodes that are equal but for their domains, which count alike so far."""
        alike = [
            (
                key,
                domain
                if domain < 0
                else (self._tables[key][:, domain].tobytes(), self._present[key][:, domain].tobytes()),
            )
            for key, domain in sorted(kind.domains.items())
        ]
        return kind.likeness, tuple(alike)

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
        open_nodes: Judged = True
        for number in rules.excluding:
            open_nodes = open_nodes & (self._in_domain(number, at) == 0)
        if rules.affinity:
            attracted, more = self._attracted(rules, at)
            open_nodes, pods = open_nodes & attracted, min(pods, more)
        if rules.spread:
            spread, more = self._spread_open(rules.spread, at)
            open_nodes, pods = open_nodes & spread, min(pods, more)
        if rules.attaching and self.volumes is not None:
            open_nodes = open_nodes & self.volumes.open_nodes(rules.attaching, start, stop)
        if rules.choosing and self.free_volumes is not None:
            open_nodes = open_nodes & self.free_volumes.open_nodes(rules.choosing, start, stop)
        if isinstance(open_nodes, np.ndarray):
            return OpenNodes(open_nodes, pods)
        return OpenNodes(None, pods if open_nodes else 0)

    def has_port_conflict(self, rules: InterPodRules, node: int) -> bool:
        """Whether a pod on the node uses one of the host ports."""
        return any(self._counts_any(number, node) for number in rules.ports)

    def has_disk_conflict(self, rules: InterPodRules, node: int) -> bool:
        """Whether a pod on the node uses one of the disks in the spec."""
        return any(self._counts_any(number, node) for number in rules.disks)

    def refusal(self, rules: InterPodRules, node: int) -> str | None:
        """The first other rule that excludes one node, in kube-scheduler's words and order."""
        at = slice(node, node + 1)
        for rule in rules.spread:
            if self._domains_of[rule.counter][node] < 0:
                return predicates.SPREAD_LABEL
            if not self._spread_open((rule,), at)[0]:
                return predicates.SPREAD
        if rules.affinity and not self._attracted(rules, at)[0]:
            return predicates.POD_AFFINITY
        if any(self._counts_any(number, node) for number in rules.anti):
            return predicates.POD_ANTI_AFFINITY
        if any(self._counts_any(number, node) for number in rules.existing):
            return predicates.EXISTING_ANTI_AFFINITY
        return None

    def _counts_any(self, number: int, node: int) -> bool:
        return bool(self._sums[number][self._domains_of[number][node]])

    def _domains_at(self, number: int, at: slice) -> int | Integers:
        """The domain of each node of a range; one number if they are new nodes that share it, as most of them do."""
        shared = self._shared[number] if at.start >= self._known else None
        return self._domains_of[number][at] if shared is None else shared

    def _in_domain(self, number: int, at: slice) -> np.int64 | Integers:
        """The number of pods that a counter counts in the domain of each node; 0 without a domain."""
        sums: np.int64 | Integers = self._sums[number][self._domains_at(number, at)]
        return sums

    def _attracted(self, rules: InterPodRules, at: slice) -> tuple[Judged, int]:
        """Where pod affinity holds. The first pod of a class that attracts itself may go anywhere, alone."""
        holds: Judged = True
        if rules.attracts_itself and not any(self._sums[number].any() for number in rules.affinity):
            for number in rules.affinity:
                holds = holds & (self._domains_at(number, at) >= 0)
            return holds, 1
        for number in rules.affinity:
            holds = holds & (self._in_domain(number, at) > 0)
        return holds, UNLIMITED

    def _spread_open(self, spread: tuple[SpreadRule, ...], at: slice) -> tuple[Judged, int]:
        """Where one more pod violates no spread constraint, and for how many pods that stays true."""
        holds: Judged = True
        pods = UNLIMITED
        for rule in spread:
            domains = self._domains_at(rule.counter, at)
            holds = holds & (domains >= 0)
            present, least = self._least_of(rule.counter)
            if present:
                least = least if present >= rule.min_domains else 0
                most = rule.max_skew + least - rule.counts_itself
                holds = holds & (self._sums[rule.counter][domains] <= most)
            if rule.counts_itself:
                pods = min(pods, self._until_skewed(rule, at))
        return holds, pods

    def _least_of(self, number: int) -> tuple[int, int]:
        """The number of domains that exist for a spread constraint, and the least that it counts in one of them."""
        found = self._least.get(number)
        if found is None:
            sums = self._sums[number][self._present_domains(number)]
            found = self._least[number] = len(sums), int(np.minimum.reduce(sums, initial=UNLIMITED))
        return found

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
