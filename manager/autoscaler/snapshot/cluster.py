"""The cluster for scale-up and scale-down, as arrays: nodes with their free resources, and kinds of pods on them."""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from manager.autoscaler.pricing.model import Machine
from manager.autoscaler.snapshot import equivalence_groups, interruptions, pod_info, volumes
from manager.autoscaler.snapshot.pod_info import MOST_AMOUNT, PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from manager.autoscaler.snapshot.volumes import AttachedVolume
from shared import durations
from shared.api import pods
from shared.api.core import Node, Pod, Taint
from shared.errors import InvalidInput
from shared.quantity import Amounts, QuantityError

Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Holding: TypeAlias = "tuple[int, PodInfo, int]"  # the row of a node, and how many pods of a kind are on it

PODS = "pods"
LABEL_HOSTNAME = pod_info.LABEL_HOSTNAME
TAINT_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
TAINT_UNREGISTERED = "karpenter.sh/unregistered"  # on a node that Karpenter has not seen yet
ANNOTATION_UPCOMING = "cluster-autoscaler.kubernetes.io/upcoming-node"

# Controllers remove these taints only after the node has become ready; until then no pod comes there.
_NOT_READY_TAINTS = frozenset(
    f"node.kubernetes.io/{condition}"
    for condition in ("not-ready", "unreachable", "disk-pressure", "network-unavailable")
) | {"node.cloudprovider.kubernetes.io/uninitialized", TAINT_UNREGISTERED}
_NONE: frozenset[AttachedVolume] = frozenset()
_NEVER_READY_SECONDS = 120.0  # a node that turned unready this soon after its creation never was ready


class NodeState(enum.StrEnum):
    """The state of a node. Pods are placed only on ready and upcoming nodes."""

    READY = "ready"
    UPCOMING = "upcoming"  # requested, not yet present: a copy of its group's template
    UNREADY = "unready"
    NOT_STARTED = "not started"  # registered, never yet ready: part of the upcoming nodes
    CORDONED = "cordoned"
    INTERRUPTED = "interrupted"  # the cloud takes it within minutes
    TO_BE_DELETED = "to be deleted"


TAKING = frozenset({NodeState.READY, NodeState.UPCOMING})


@dataclass(frozen=True, eq=False, slots=True)
class NodeInfo:
    """One node, present or upcoming."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Amounts = field(default_factory=dict)
    allocatable: Amounts = field(default_factory=dict)
    state: NodeState = NodeState.READY
    unschedulable: bool = False
    readiness: NodeState | None = None  # set for a cordoned or tainted node; None if `state` has it
    features: frozenset[str] = frozenset()  # that its kubelet declares
    volume_limits: Mapping[str, int] = field(default_factory=dict)  # by CSI driver; no limit for those not named
    attached: frozenset[AttachedVolume] = frozenset()

    @property
    def machine(self) -> Machine:
        """The facts that decide its price."""
        return Machine(self.capacity, self.labels, self.annotations)


@dataclass(frozen=True, eq=False, slots=True)
class NodeTemplate:
    """A new node of a group, with the pods that start on every such node.

    `overhead` has their requests, their number under `pods`, and `free` what they leave, at least zero.
    """

    group: str
    node: NodeInfo
    daemons: tuple[PodInfo, ...] = ()
    machine: Machine = field(init=False)
    overhead: Amounts = field(init=False)
    free: Amounts = field(init=False)

    def __post_init__(self) -> None:
        taken = _sum(self.daemons)
        free = {name: max(0, amount - taken.get(name, 0)) for name, amount in self.node.allocatable.items()}
        object.__setattr__(self, "machine", self.node.machine)
        object.__setattr__(self, "overhead", taken)
        object.__setattr__(self, "free", free)


@dataclass(frozen=True, eq=False)
class ClusterSnapshot:
    """Nodes by row.

    `free` has a column per resource of `resources`; entry i of `placed_*` says how many pods of which of `kinds` are on
    which node.
    """

    nodes: tuple[NodeInfo, ...]
    resources: tuple[str, ...]
    free: Integers
    kinds: tuple[PodInfo, ...]
    placed_node: Integers
    placed_kind: Integers
    placed_count: Integers
    refused: Mapping[str, InvalidInput] = field(default_factory=dict)

    @property
    def is_empty(self) -> Flags:
        """Whether each node has no pods except those that come with every node; upcoming nodes have none."""
        empty = np.ones(len(self.nodes), np.bool_)
        of_node = np.array([kind.of_node for kind in self.kinds], np.bool_)
        if len(of_node):
            empty[self.placed_node[~of_node[self.placed_kind]]] = False
        return empty

    def free_of(self, resource: str) -> Integers:
        """The free amount of one resource on every node."""
        if resource not in self.resources:
            return np.zeros(len(self.nodes), np.int64)
        return self.free[:, self.resources.index(resource)]


@dataclass(frozen=True)
class StateRules:
    """The rules for node states. `gpu_label` is the provider's; a node with it is not ready before its GPUs appear."""

    now: float
    startup_seconds: float = 900.0
    startup_taints: frozenset[str] = frozenset()  # by key
    startup_taint_prefixes: tuple[str, ...] = ()
    gpu_label: str | None = None
    gpu_resources: tuple[str, ...] = ()


def node_state(node: Node, rules: StateRules) -> NodeState:
    """The state of a registered node."""
    taints = node.spec.taints or ()
    if any(taint.key == TAINT_TO_BE_DELETED for taint in taints):
        return NodeState.TO_BE_DELETED
    interruption = interruptions.read_interruption(node)
    if interruption is not None and interruption.is_imminent:
        return NodeState.INTERRUPTED
    if node.spec.unschedulable:
        return NodeState.CORDONED
    return node_readiness(node, rules)


def node_readiness(node: Node, rules: StateRules) -> NodeState:
    """Ready, unready or not started, whether or not it takes pods."""
    taints = node.spec.taints or ()
    created = node.metadata.created_at
    is_young = rules.now - created < rules.startup_seconds
    ready = next((each for each in node.status.conditions or () if each.type == "Ready"), None)
    if ready is None or ready.status != "True":
        turned = durations.instant(ready.last_transition_time) if ready and ready.last_transition_time else created
        return NodeState.NOT_STARTED if is_young and turned - created < _NEVER_READY_SECONDS else NodeState.UNREADY
    # It is ready, but not yet open for pods.
    is_held = any(
        taint.key in _NOT_READY_TAINTS
        or taint.key in rules.startup_taints
        or taint.key.startswith(rules.startup_taint_prefixes)
        for taint in taints
    )
    if is_held or _lacks_gpus(node, rules):
        return NodeState.NOT_STARTED if is_young else NodeState.UNREADY
    return NodeState.READY


def _lacks_gpus(node: Node, rules: StateRules) -> bool:
    """Whether it has the provider's label, and no GPUs yet."""
    if not rules.gpu_label or node.metadata.label(rules.gpu_label) is None:
        return False
    allocatable = node.status.allocatable or {}
    return all(str(allocatable.get(name, "0")) == "0" for name in rules.gpu_resources)


def node_info(
    node: Node,
    state: NodeState,
    readiness: NodeState | None = None,
    *,
    volume_limits: Mapping[str, int] | None = None,
    attached: frozenset[AttachedVolume] = frozenset(),
) -> NodeInfo:
    """A node read from its wire form; without `volume_limits`, with those that its resources state. Raises
    InvalidInput.
    """
    amounts = []
    for field_name, listed in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        try:
            found = pods.amounts(listed or {})
        except QuantityError as problem:
            raise InvalidInput(
                source=f"Node {node.metadata.name}", field=f"status.{field_name}", value=listed, problem=str(problem)
            ) from problem
        amounts.append({name: min(amount, MOST_AMOUNT) for name, amount in found.items()})
    return NodeInfo(
        name=node.metadata.name,
        labels=node.metadata.labels or {},
        annotations=node.metadata.annotations or {},
        taints=node.spec.taints or (),
        capacity=amounts[0],
        allocatable=amounts[1],
        state=state,
        unschedulable=node.spec.unschedulable,
        readiness=readiness,
        features=frozenset(node.status.declared_features or ()),
        volume_limits=volumes.told_limits(amounts[1]) if volume_limits is None else volume_limits,
        attached=attached,
    )


def upcoming_copies(template: NodeTemplate, count: int) -> list[NodeInfo]:
    """`count` requested nodes, as the template describes them."""
    return [fresh_node(template, f"upcoming-{index}", NodeState.UPCOMING) for index in range(count)]


def fresh_node(template: NodeTemplate, suffix: str, state: NodeState = NodeState.READY) -> NodeInfo:
    """One new node of the template with its own name, and so its own hostname."""
    base = template.node
    name = f"{base.name}-{suffix}"
    annotations = base.annotations
    if state is NodeState.UPCOMING:
        annotations = {**annotations, ANNOTATION_UPCOMING: "true"}
    return NodeInfo(
        name=name,
        labels={**base.labels, LABEL_HOSTNAME: name},
        annotations=annotations,
        taints=base.taints,
        capacity=base.capacity,
        allocatable=base.allocatable,
        state=state,
        unschedulable=base.unschedulable,
        features=base.features,
        volume_limits=base.volume_limits,
    )


def take_snapshot(
    nodes: Iterable[tuple[Node, NodeState]],
    placed: Iterable[Pod],
    *,
    surroundings: ReferencedObjects | None = None,
    upcoming: Iterable[tuple[NodeTemplate, int]] = (),
    starting_since: float = math.inf,
) -> ClusterSnapshot:
    """The cluster with the pods on its nodes, pods nominated for a node included. Nodes created after `starting_since`,
    in Unix seconds, may still get CSI drivers.

    Nodes not started are left out, because `upcoming` stands for them. Do not pass expendable and finished pods, which
    occupy nothing. An unreadable node or pod is refused alone; the pod still occupies its requests.
    """
    refused: dict[str, InvalidInput] = {}
    found: list[NodeInfo] = []
    placed, surroundings = tuple(placed), surroundings or ReferencedObjects()
    attached = surroundings.attached_volumes(placed)
    for node, state in sorted(nodes, key=lambda pair: pair[0].metadata.name):
        if state is NodeState.NOT_STARTED:
            continue
        try:
            name = node.metadata.name
            limits = surroundings.volume_limits(name, is_starting=node.metadata.created_at > starting_since)
            readiness, there = _cordoned_readiness(node, state), attached.get(name, _NONE)
            found.append(node_info(node, state, readiness, volume_limits=limits, attached=there))
        except InvalidInput as problem:
            refused[node.metadata.name] = problem
    kinds, holdings = _read_placed(placed, {node.name: row for row, node in enumerate(found)}, surroundings, refused)
    known = {id(kind): index for index, kind in enumerate(kinds)}
    for template, count in sorted(upcoming, key=lambda pair: pair[0].group):
        for copy in upcoming_copies(template, count):
            for daemon in template.daemons:
                if id(daemon) not in known:
                    known[id(daemon)] = len(kinds)
                    kinds.append(daemon)
                holdings.append((len(found), known[id(daemon)], 1))
            found.append(copy)
    return _as_arrays(found, kinds, holdings, refused)


def _cordoned_readiness(node: Node, state: NodeState) -> NodeState | None:
    """Whether a cordoned node is ready, and so takes pods that tolerate its taint."""
    if state is not NodeState.CORDONED:
        return None
    is_ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())
    return NodeState.READY if is_ready else NodeState.UNREADY


def snapshot_of_nodes(nodes: Sequence[NodeInfo], placed: Iterable[tuple[int, PodInfo]] = ()) -> ClusterSnapshot:
    """A snapshot of nodes that are already read, and of the pods on them by the node's position."""
    kinds: list[PodInfo] = []
    known: dict[int, int] = {}
    holdings = []
    for row, kind in placed:
        if id(kind) not in known:
            known[id(kind)] = len(kinds)
            kinds.append(kind)
        holdings.append((row, known[id(kind)], 1))
    return _as_arrays(list(nodes), kinds, holdings, {})


def extend(before: ClusterSnapshot, nodes: Sequence[NodeInfo], holdings: Iterable[Holding]) -> ClusterSnapshot:
    """A snapshot with further nodes after the present ones, and further pods."""
    kinds = list(before.kinds)
    known = {id(kind): index for index, kind in enumerate(kinds)}
    listed = []
    for row, kind, count in holdings:
        if id(kind) not in known:
            known[id(kind)] = len(kinds)
            kinds.append(kind)
        listed.append((row, known[id(kind)], count))
    more = _as_arrays(list(nodes), [], [], {})
    new_kinds = kinds[len(before.kinds) :]
    resources = tuple(
        sorted({*before.resources, *more.resources, *(name for kind in new_kinds for name in kind.requests)})
    )
    free = np.array(
        [np.concatenate((before.free_of(name), more.free_of(name))) for name in resources], np.int64
    ).T.copy()
    rows, which, counts = np.array(listed, np.int64).reshape(-1, 3).T
    requests = _requests([kinds[each] for each in which.tolist()], resources)
    np.subtract.at(free, rows, requests * counts[:, None])
    return ClusterSnapshot(
        (*before.nodes, *nodes),
        resources,
        free,
        tuple(kinds),
        np.concatenate((before.placed_node, rows)),
        np.concatenate((before.placed_kind, which)),
        np.concatenate((before.placed_count, counts)),
        before.refused,
    )


def _read_placed(
    placed: Iterable[Pod],
    rows: Mapping[str, int],
    surroundings: ReferencedObjects,
    refused: dict[str, InvalidInput],
) -> tuple[list[PodInfo], list[tuple[int, int, int]]]:
    kinds: list[PodInfo] = []
    holdings: list[tuple[int, int, int]] = []
    binding = [pod for pod in placed if surroundings.unbound_claims(pod)]
    alone = {id(pod) for pod in binding}
    groups = equivalence_groups.group_placed(pod for pod in placed if id(pod) not in alone)
    for alike in (*groups, *([pod] for pod in binding)):
        try:
            of_node = equivalence_groups.is_of_node(alike[0])
            facts = pod_info.read_placed(alike[0], surroundings, of_node=of_node)
        except InvalidInput as problem:
            refused |= dict.fromkeys([pod.metadata.key for pod in alike], problem)
            requests_alone = pod_info.requests_of(alike[0], of_node=of_node)
            if requests_alone is None:
                continue
            facts = requests_alone
        on_node: dict[int, int] = {}
        for pod in alike:
            row = rows.get(pod.spec.node_name or pod.status.nominated_node_name)
            if row is not None:
                on_node[row] = on_node.get(row, 0) + 1
        holdings += [(row, len(kinds), count) for row, count in on_node.items()]
        kinds.append(facts)
    return kinds, holdings


def _as_arrays(
    nodes: list[NodeInfo],
    kinds: list[PodInfo],
    holdings: list[tuple[int, int, int]],
    refused: Mapping[str, InvalidInput],
) -> ClusterSnapshot:
    names = {
        PODS,
        *(name for node in nodes for name in node.allocatable),
        *(name for k in kinds for name in k.requests),
    }
    resources = tuple(sorted(names))
    free = np.array([[node.allocatable.get(name, 0) for name in resources] for node in nodes], np.int64).reshape(
        len(nodes), len(resources)
    )
    requests = _requests(kinds, resources)
    rows, which, counts = np.array(holdings, np.int64).reshape(-1, 3).T
    np.subtract.at(free, rows, requests[which] * counts[:, None])
    return ClusterSnapshot(tuple(nodes), resources, free, tuple(kinds), rows, which, counts, refused)


def _requests(kinds: Sequence[PodInfo], resources: Sequence[str]) -> Integers:
    """The requests of a pod of each kind, by resource."""
    return np.array(
        [[1 if name == PODS else kind.requests.get(name, 0) for name in resources] for kind in kinds], np.int64
    ).reshape(len(kinds), len(resources))


def _sum(kinds: Iterable[PodInfo]) -> dict[str, int]:
    total: dict[str, int] = {}
    for kind in kinds:
        for name, amount in (*kind.requests.items(), (PODS, 1)):
            total[name] = total.get(name, 0) + amount
    return total


def stable_since(node: Node) -> float:
    """When the node's readiness last changed, in Unix seconds; its creation if that time cannot be read."""
    ready = next((each for each in node.status.conditions or () if each.type == "Ready"), None)
    try:
        turned = durations.instant(ready.last_transition_time) if ready and ready.last_transition_time else 0.0
    except ValueError:
        turned = 0.0
    return max(turned, node.metadata.created_at)
