"""Pending classes and one snapshot as arrays, shared by the estimates of all groups."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from manager.autoscaler.snapshot import affinity, attach_limits, predicates, volume_choices
from manager.autoscaler.snapshot.affinity import OF_ONE_NODE, Bonds
from manager.autoscaler.snapshot.cluster import (
    PODS,
    ClusterSnapshot,
    Flags,
    Integers,
    NodeTemplate,
    fresh_node,
)
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import MOST_AMOUNT, NodeDemands, PodInfo
from manager.autoscaler.snapshot.predicates import NodeShapes, Shapes
from manager.autoscaler.snapshot.volume_choices import NewNodeVolumes
from shared.cached_property import cached_property
from shared.quantity import Amounts


@dataclass(frozen=True, eq=False)
class NewNodeKind:
    """What new nodes have in common that only their free amounts tell apart.

    `admits` says which classes such a node admits. By topology key, `domains` has the number of its domain where many
    nodes share one (-1 without one), `counts` which counters count its pods, and `own_pods` how many of these come with
    it. `volume_room` is how many volumes of each limited driver it can attach; `volumes` are the free ones it reaches.
    """

    admits: Flags
    domains: dict[str, int]
    counts: dict[str, Flags]
    own_pods: dict[str, Integers]
    volume_room: tuple[int, ...] = ()
    volumes: NewNodeVolumes | None = None

    @cached_property
    def likeness(self) -> Hashable:
        """Equal for kinds that are equal but for their domains."""
        return (
            self.admits.tobytes(),
            self.volume_room,
            self.volumes,
            *((key, self.counts[key].tobytes(), self.own_pods[key].tobytes()) for key in sorted(self.counts)),
        )

    @property
    def content(self) -> Hashable:
        """Equal for kinds that are equal."""
        return self.likeness, tuple(sorted(self.domains.items()))


@dataclass(frozen=True, eq=False, slots=True)
class NewNode:
    """A new node of a template, without other pods than those that come with it. Equal kinds are one object."""

    free: Integers
    kind: NewNodeKind


@dataclass(frozen=True, eq=False)
class PackingProblem:
    """`requests` has a row per class and a column per resource of `resources`; `free` has a row per resource and a
    column per node. `daemons` gives the kinds that come with a new node of each template, by group.
    """

    snapshot: ClusterSnapshot
    classes: tuple[EquivalenceGroup, ...]
    resources: tuple[str, ...]
    requests: Integers
    asked: tuple[tuple[tuple[int, int], ...], ...]  # by class: row and amount of each resource it requests
    pending: Integers
    free: Integers
    universe: tuple[PodInfo, ...]
    daemons: dict[str, tuple[int, ...]]
    shapes: Shapes
    bonds: Bonds
    distinct_demands: tuple[NodeDemands, ...]
    demands_of: Integers  # by class: the position of its demands among the distinct ones
    _new_nodes: dict[NodeTemplate, NewNode] = field(default_factory=dict)
    _kinds: dict[Hashable, NewNodeKind] = field(default_factory=dict)

    def new_node(self, template: NodeTemplate) -> NewNode:
        """The new node of this template in terms of the problem; computed once for each template."""
        found = self._new_nodes.get(template)
        if found is None:
            found = self._new_nodes[template] = NewNode(self.row(template.free), self._kind(template))
        return found

    def _kind(self, template: NodeTemplate) -> NewNodeKind:
        """The kind of a template's new nodes; computed once for all templates that no rule tells apart."""
        name = template.node.name if self._names_nodes else ""
        limits = self.bonds.limits
        room = limits.of_new_node(template.node) if limits else ()
        shape = (self._node_shapes.shape(template.node), name, self.daemons.get(template.group, ()), room)
        found = self._kinds.get(shape)
        if found is None:
            made = _new_node_kind(self, template)
            found = self._kinds[shape] = self._kinds.setdefault(made.content, made)
        return found

    @cached_property
    def _node_shapes(self) -> NodeShapes:
        bonds = self.bonds
        keys = {*bonds.tables, *(key for counting in bonds.countings for key in counting.keys)}
        return NodeShapes(self.distinct_demands, keys - OF_ONE_NODE)  # every new node has its own hostname

    @cached_property
    def _names_nodes(self) -> bool:
        return any(predicates.names_nodes(each) for each in self.distinct_demands)

    def admitting(self, position: int) -> Flags:
        """The nodes of the snapshot that admit a class, regardless of their pods."""
        return self.shapes.admitting(self.classes[position].facts.demands)

    def row(self, amounts: Amounts) -> Integers:
        """The amounts as a row of the problem's resources."""
        return np.array([max(0, min(amounts.get(name, 0), MOST_AMOUNT)) for name in self.resources], np.int64)

    @cached_property
    def cpu_and_memory(self) -> tuple[Integers, Integers]:
        """The cpu and memory requests of each class."""
        columns = [self.resources.index(name) if name in self.resources else None for name in ("cpu", "memory")]
        nothing = np.zeros(len(self.classes), np.int64)
        cpu, memory = (nothing if column is None else self.requests[:, column] for column in columns)
        return cpu, memory


def packing_problem(
    snapshot: ClusterSnapshot, classes: Sequence[EquivalenceGroup], templates: Iterable[NodeTemplate] = ()
) -> PackingProblem:
    """The problem: place these pods on the present nodes and on new nodes of these templates."""
    universe = [each.facts for each in classes] + list(snapshot.kinds)
    known = {id(kind): position for position, kind in enumerate(universe)}
    daemons = {}
    templates = tuple(templates)
    for template in templates:
        for daemon in template.daemons:
            if id(daemon) not in known:
                known[id(daemon)] = len(universe)
                universe.append(daemon)
        daemons[template.group] = tuple(known[id(daemon)] for daemon in template.daemons)
    names = {name for each in classes for name, amount in each.facts.requests.items() if amount and name != PODS}
    resources = (PODS, *sorted(names))
    requests = np.array(
        [[1, *(each.facts.requests.get(name, 0) for name in resources[1:])] for each in classes], np.int64
    ).reshape(len(classes), len(resources))
    demands: dict[NodeDemands, int] = {}
    demands_of = [demands.setdefault(each.facts.demands, len(demands)) for each in classes]
    shapes = Shapes(snapshot.nodes, demands)
    rows = {name: row for row, name in enumerate(resources)}
    return PackingProblem(
        snapshot=snapshot,
        classes=tuple(classes),
        resources=resources,
        requests=requests,
        asked=tuple(
            (
                (0, 1),
                *(
                    (rows[name], amount)
                    for name, amount in sorted(each.facts.requests.items())
                    if name in names and amount
                ),
            )
            for each in classes
        ),
        pending=np.array([len(each.pods) for each in classes], np.int64),
        free=np.array([snapshot.free_of(name) for name in resources], np.int64).reshape(len(resources), -1),
        universe=tuple(universe),
        daemons=daemons,
        shapes=shapes,
        bonds=affinity.bonds(
            universe,
            len(classes),
            snapshot,
            shapes,
            attach_limits.attach_limits(universe[: len(classes)], snapshot, (each.node for each in templates)),
            volume_choices.volume_choices(universe[: len(classes)], snapshot),
        ),
        distinct_demands=tuple(demands),
        demands_of=np.array(demands_of, np.int64),
    )


def _new_node_kind(problem: PackingProblem, template: NodeTemplate) -> NewNodeKind:
    admits = [predicates.admits(each, template.node) for each in problem.distinct_demands]
    bonds = problem.bonds
    labels = fresh_node(template, "new").labels
    own = np.zeros(len(bonds.counters), np.int64)
    for daemon in problem.daemons.get(template.group, ()):
        own[list(bonds.contributions.get(daemon, ()))] += 1
    counting = [
        all(key in labels for key in each.keys)
        and predicates.is_counted(each.demands, template.node, each.honors_affinity, each.honors_taints)
        for each in bonds.countings
    ]
    counts = np.array([each.counting is None or counting[each.counting] for each in bonds.counters], np.bool_)
    domains = {}
    for key in bonds.tables.keys() - OF_ONE_NODE:
        topology = bonds.topologies[key]
        domains[key] = topology.values.get(labels[key], len(topology.values)) if key in labels else -1
    rows = {key: list(table.counters) for key, table in bonds.tables.items()}
    return NewNodeKind(
        admits=np.array(admits, np.bool_)[problem.demands_of] if admits else np.empty(0, np.bool_),
        domains=domains,
        counts={key: counts[numbers] for key, numbers in rows.items()},
        own_pods={key: np.where(counts, own, 0)[numbers] for key, numbers in rows.items()},
        volume_room=bonds.limits.of_new_node(template.node) if bonds.limits else (),
        volumes=bonds.choices.of_new_node(template.node) if bonds.choices else None,
    )
