"""Inter-pod rules as counters: how many pods of certain kinds are in each domain of a topology key.

Inter-pod affinity and anti-affinity (of the pod itself and of present pods), topology spread, host ports and disks in
the spec all ask the same about a node: how many relevant pods are in its domain. For a host port or a disk, the domain
is the node itself.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from manager.autoscaler.snapshot.attach_limits import Attaching, AttachLimits
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, ClusterSnapshot, Flags, Integers
from manager.autoscaler.snapshot.pod_info import NodeDemands, PodInfo, PodTerm
from manager.autoscaler.snapshot.predicates import Shapes
from manager.autoscaler.snapshot.volume_choices import ChosenClaim, VolumeChoices
from shared.cached_property import cached_property

NODE = ""  # the topology key of a single node
OF_ONE_NODE = frozenset({NODE, LABEL_HOSTNAME})


@dataclass(frozen=True)
class Counting:
    """Whether a spread constraint counts a node: the node has all the keys, and the policies agree."""

    keys: tuple[str, ...]
    demands: NodeDemands
    honors_affinity: bool
    honors_taints: bool


@dataclass(frozen=True, eq=False)
class Counter:
    """Counts pods of `members` (positions in the universe of kinds) by the domain of `key`, in a `row` of its table.

    `counting` is the number of the `Counting` that limits a spread constraint to some nodes; None counts all of them.
    """

    key: str
    row: int
    members: frozenset[int]
    counting: int | None = None


@dataclass(frozen=True, slots=True)
class SpreadRule:
    counter: int
    max_skew: int
    min_domains: int
    counts_itself: bool


@dataclass(frozen=True, slots=True)
class InterPodRules:
    """All inter-pod rules of one class, by counter. In the node's domain, no counter of `ports`, `disks`, `anti` and
    `existing` may count anything, and each of `affinity` must count something, unless the first pod may go anywhere.

    `once_per_node`: a second pod of the class on the same node would violate one of these;
    `one_by_one`: a placed pod may change the result for the next pod of its class on other nodes, too; `of_one_node`:
    only the node itself decides whether it takes a pod. `attaching` are the volumes that a node has to attach;
    `choosing`
    are its claims on free volumes, which other pods may take first.
    """

    ports: tuple[int, ...] = ()
    disks: tuple[int, ...] = ()
    anti: tuple[int, ...] = ()
    existing: tuple[int, ...] = ()
    affinity: tuple[int, ...] = ()
    attracts_itself: bool = False
    spread: tuple[SpreadRule, ...] = ()
    once_per_node: bool = False
    one_by_one: bool = False
    of_one_node: bool = False
    attaching: Attaching = ()
    choosing: tuple[ChosenClaim, ...] = ()

    @property
    def only_attach(self) -> bool:
        """Whether only the volumes of the pods matter."""
        return not (self.excluding or self.affinity or self.spread or self.choosing)

    @property
    def excluding(self) -> tuple[int, ...]:
        return self.ports + self.disks + self.anti + self.existing


@dataclass(frozen=True, eq=False)
class TopologyDomains:
    """The domains of one key: their number by label value, and that of every node (-1 without one)."""

    key: str
    values: dict[str, int]
    of_node: Integers

    @property
    def is_of_one_node(self) -> bool:
        """Whether every node is its own domain, and every new node will be."""
        return self.key in OF_ONE_NODE and len(self.values) == len(self.of_node) and not (self.of_node < 0).any()


@dataclass(frozen=True, eq=False)
class CounterTable:
    """All counters of one topology key: a row per counter, a column per domain of the snapshot.

    `sums` has a last column that stays 0, for nodes without a domain. `present` says for spread constraints which
    domains exist.
    """

    counters: tuple[int, ...]
    sums: Integers
    present: Flags


@dataclass(frozen=True, eq=False)
class Bonds:
    """The rules of every class, and their counters.

    `contributions` lists, by kind, the counters that count it. `counted` says, by the number of a `Counting`, which
    nodes of the snapshot count.
    """

    rules: dict[int, InterPodRules]
    counters: tuple[Counter, ...]
    contributions: dict[int, tuple[int, ...]]
    topologies: dict[str, TopologyDomains]
    tables: dict[str, CounterTable]
    countings: tuple[Counting, ...]
    counted: tuple[Flags, ...]
    limits: AttachLimits | None = None
    choices: VolumeChoices | None = None


def bonds(
    universe: Sequence[PodInfo],
    classes: int,
    snapshot: ClusterSnapshot,
    shapes: Shapes,
    limits: AttachLimits | None = None,
    choices: VolumeChoices | None = None,
) -> Bonds:
    """The rules of the first `classes` kinds of the universe.

    The universe starts with the classes, followed by the kinds of the snapshot, followed by kinds that may come with
    new nodes. `limits` are those on volumes, `choices` the free volumes that claims may take.
    """
    return _Compiler(universe, classes, snapshot, shapes, limits, choices).compile()


class _Index:
    """Finds the kinds that a term selects, by their labels."""

    def __init__(self, universe: Sequence[PodInfo]) -> None:
        self._universe = universe
        self._found: dict[object, frozenset[int]] = {}

    @cached_property
    def _by_label(self) -> Mapping[tuple[str, str], Sequence[int]]:
        """Made when a term first asks, since most pods have none."""
        found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for position, kind in enumerate(self._universe):
            for item in kind.labels.items():
                found[item].append(position)
        return found

    def matching(self, term: PodTerm) -> frozenset[int]:
        if term.selector is None:
            return frozenset()
        labels = term.selector.match_labels
        cached = (term.namespaces, tuple(labels.items()) if labels else None, term.selector.match_expressions)
        if cached not in self._found:
            candidates: Sequence[int] = range(len(self._universe))
            if labels:
                candidates = min((self._by_label.get(item, ()) for item in labels.items()), key=len)
            self._found[cached] = frozenset(each for each in candidates if term.matches(self._universe[each]))
        return self._found[cached]


class _Compiler:
    def __init__(
        self,
        universe: Sequence[PodInfo],
        classes: int,
        snapshot: ClusterSnapshot,
        shapes: Shapes,
        limits: AttachLimits | None,
        choices: VolumeChoices | None,
    ) -> None:
        self._universe = universe
        self._choices = choices
        self._limits = limits
        self._classes = classes
        self._snapshot = snapshot
        self._shapes = shapes
        self._index = _Index(universe)
        self._counters: list[Counter] = []
        self._known: dict[object, int] = {}
        self._of_key: defaultdict[str, list[int]] = defaultdict(list)
        self._countings: dict[Counting, int] = {}
        self._topologies: dict[str, TopologyDomains] = {}
        self._keeping_away = self._existing_terms()
        self._with_ports = [position for position, kind in enumerate(universe) if kind.ports]
        self._with_disks = [position for position, kind in enumerate(universe) if kind.disks]

    def compile(self) -> Bonds:
        rules = {}
        for position in range(self._classes):
            found = self._rules(position)
            if found is not None:
                rules[position] = found
        contributions: defaultdict[int, list[int]] = defaultdict(list)
        for number, counter in enumerate(self._counters):
            for member in counter.members:
                contributions[member].append(number)
        counted = tuple(self._counted(each) for each in self._countings)
        return Bonds(
            rules,
            tuple(self._counters),
            {member: tuple(numbers) for member, numbers in contributions.items()},
            self._topologies,
            {key: self._table(key, numbers, counted) for key, numbers in self._of_key.items()},
            tuple(self._countings),
            counted,
            self._limits,
            self._choices,
        )

    def _existing_terms(self) -> dict[int, list[tuple[str, int]]]:
        """By class: the key and the owner of each anti-affinity term that excludes it."""
        found: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        for owner, kind in enumerate(self._universe):
            for term in kind.anti_affinity:
                for position in self._index.matching(term):
                    if position < self._classes:
                        found[position].append((term.key, owner))
        return found

    def _rules(self, position: int) -> InterPodRules | None:
        kind = self._universe[position]
        away = self._keeping_away.get(position)
        attaching = self._limits.of_class.get(position, ()) if self._limits else ()
        alone = kind.ports or kind.disks or kind.anti_affinity or away
        choosing = self._choices.of_class.get(position, ()) if self._choices else ()
        if not (alone or kind.affinity or kind.spread or attaching or choosing):
            return None
        ports, disks = self._ports(kind), self._disks(kind)
        anti = tuple(self._counter(term.key, self._index.matching(term)) for term in kind.anti_affinity)
        owners: defaultdict[str, set[int]] = defaultdict(set)
        for key, owner in away or ():
            owners[key].add(owner)
        existing = tuple(self._counter(key, frozenset(found)) for key, found in sorted(owners.items()))
        excluding = (*ports, *disks, *anti, *existing)
        own = [self._counters[each] for each in excluding if position in self._counters[each].members]
        of_one_node = [counter for counter in own if self._topology(counter.key).is_of_one_node]
        keys = {self._counters[each].key for each in excluding}
        return InterPodRules(
            ports=ports,
            disks=disks,
            anti=anti,
            existing=existing,
            affinity=self._affinity(kind),
            attracts_itself=bool(kind.affinity) and kind.attracts_itself,
            spread=self._spread(position),
            once_per_node=bool(of_one_node),
            one_by_one=bool(choosing) or len(of_one_node) < len(own),
            of_one_node=not (kind.affinity or kind.spread or choosing)
            and all(self._topology(key).is_of_one_node for key in keys),
            attaching=attaching,
            choosing=choosing,
        )

    def _ports(self, kind: PodInfo) -> tuple[int, ...]:
        if not kind.ports:
            return ()
        members = frozenset(
            other
            for other in self._with_ports
            if any(port.conflicts(theirs) for port in kind.ports for theirs in self._universe[other].ports)
        )
        return (self._counter(NODE, members),)

    def _disks(self, kind: PodInfo) -> tuple[int, ...]:
        if not kind.disks:
            return ()
        members = frozenset(
            other
            for other in self._with_disks
            if any(disk.conflicts(theirs) for disk in kind.disks for theirs in self._universe[other].disks)
        )
        return (self._counter(NODE, members),)

    def _affinity(self, kind: PodInfo) -> tuple[int, ...]:
        if not kind.affinity:
            return ()
        members = frozenset.intersection(*(self._index.matching(term) for term in kind.affinity))
        return tuple(self._counter(term.key, members) for term in kind.affinity)

    def _spread(self, position: int) -> tuple[SpreadRule, ...]:
        kind = self._universe[position]
        keys = tuple(sorted({spread.key for spread in kind.spread}))
        found = []
        for spread in kind.spread:
            counting = Counting(keys, kind.demands, spread.honors_affinity, spread.honors_taints)
            members = frozenset(
                each for each in self._index.matching(spread.term) if not self._universe[each].terminating
            )
            counter = self._counter(spread.key, members, counting)
            found.append(SpreadRule(counter, spread.max_skew, spread.min_domains, position in members))
        return tuple(found)

    def _counter(self, key: str, members: frozenset[int], counting: Counting | None = None) -> int:
        which = None if counting is None else self._countings.setdefault(counting, len(self._countings))
        identity = (key, members, which)
        if identity not in self._known:
            self._known[identity] = number = len(self._counters)
            rows = self._of_key[key]
            self._counters.append(Counter(key, len(rows), members, which))
            rows.append(number)
            self._topology(key)
        return self._known[identity]

    def _topology(self, key: str) -> TopologyDomains:
        if key not in self._topologies:
            nodes = self._snapshot.nodes
            values: dict[str, int] = {}
            if key == NODE:
                self._topologies[key] = TopologyDomains(
                    key, {str(row): row for row in range(len(nodes))}, np.arange(len(nodes))
                )
                return self._topologies[key]
            of_node = np.full(len(nodes), -1, np.int64)
            for row, node in enumerate(nodes):
                value = node.labels.get(key)
                if value is not None:
                    of_node[row] = values.setdefault(value, len(values))
            self._topologies[key] = TopologyDomains(key, values, of_node)
        return self._topologies[key]

    def _table(self, key: str, numbers: Sequence[int], counted: Sequence[Flags]) -> CounterTable:
        snapshot, topology = self._snapshot, self._topologies[key]
        shape = len(numbers), len(topology.values) + 1
        table = CounterTable(tuple(numbers), np.zeros(shape, np.int64), np.zeros(shape, np.bool_))
        for number, sums, present in zip(numbers, table.sums, table.present, strict=True):
            counter = self._counters[number]
            of_node = topology.of_node
            if counter.counting is not None:
                of_node = np.where(counted[counter.counting], of_node, -1)
                present[of_node[of_node >= 0]] = True
            placed = [self._placed[kind] for each in counter.members if (kind := each - self._classes) in self._placed]
            if placed:
                entries = np.concatenate(placed)
                domains = of_node[snapshot.placed_node[entries]]
                np.add.at(sums, domains[domains >= 0], snapshot.placed_count[entries][domains >= 0])
        return table

    @cached_property
    def _placed(self) -> dict[int, Integers]:
        """By kind of the snapshot: its entries among the placed pods."""
        kinds = self._snapshot.placed_kind
        order = np.argsort(kinds, kind="stable")
        found, starts = np.unique(kinds[order], return_index=True)
        return dict(zip(found.tolist(), np.split(order, starts[1:]), strict=bool(len(found))))

    def _counted(self, counting: Counting) -> Flags:
        flags = self._shapes.counted(counting.demands, counting.honors_affinity, counting.honors_taints)
        for key in counting.keys:
            flags = flags & (self._topology(key).of_node >= 0)
        return flags
