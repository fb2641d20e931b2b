"""The inputs of a scan of one group: its nodes, the pods that count, and the state of its cloud group."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import msgspec

from manager.autoscaler.cloudprovider.ownership import SizeBounds
from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization.rules import DEFAULT_GROUP, ScanRules
from shared import names, quantity
from shared.api import pods
from shared.api.core import Affinity, Node, Pod, Quantities, Taint
from shared.errors import InvalidInput
from shared.quantity import QuantityError, Resources

ANNOTATION_CONFIG_SOURCE = "kubernetes.io/config.source"
LABEL_ZONE = "topology.kubernetes.io/zone"
DAEMON_SET = "DaemonSet"
_STATIC = "file"
_PENDING, _RUNNING = "Pending", "Running"
K = TypeVar("K")
T = TypeVar("T")
_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class GroupNode:
    """One node. `created_at` in Unix seconds; `no_delete` says why it must stay, if it must.

    `zone` is empty for a node without one. The peaks are the highest expected usage of its pods, and of its Mid pods; a
    `prod_peak` of None is unknown.
    """

    name: str
    created_at: float = 0.0
    allocatable: Resources = field(default_factory=Resources)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    ready: bool = True
    no_delete: str = ""
    provider_id: str = ""
    zone: str = ""
    prod_peak: Resources | None = None
    mid_peak: Resources = field(default_factory=Resources)


class GroupPod(msgspec.Struct, frozen=True, gc=False):
    """One pod, in a compact form, since there are tens of thousands.

    `node` is empty until the pod is bound; `of_node`: the pod comes with its node, as a DaemonSet pod does.
    `scheduled` is the pod's condition, which Escalator reads besides the node's name.
    """

    name: str
    requests: Resources = Resources()
    node: str = ""
    phase: str = "Running"
    scheduled: bool = False
    of_node: bool = False

    @property
    def is_pending(self) -> bool:
        return self.phase == _PENDING


# By node: the highest expected usage of its pods, and of its Mid pods.
Peaks: TypeAlias = Mapping[str, tuple[Resources, Resources]]


@dataclass(frozen=True, slots=True)
class CloudGroup:
    """The cloud's group: its target and its number of instances, None where that is unknown."""

    min_size: int = 0
    max_size: int = 0
    target_size: int = 0
    size: int | None = None

    @property
    def bounds(self) -> SizeBounds:
        return SizeBounds(self.min_size, self.max_size)


@dataclass(frozen=True)
class Observation:
    """One group at one time.

    `others` are pods on the group's nodes that are not demand on the group. `unlisted` says why the group cannot be
    observed.
    """

    nodes: tuple[GroupNode, ...] = ()
    pods: tuple[GroupPod, ...] = ()
    cloud: CloudGroup = field(default_factory=CloudGroup)
    others: tuple[GroupPod, ...] = ()
    unlisted: str = ""
    refused: Mapping[str, InvalidInput] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of running instances."""
        return len(self.nodes) if self.cloud.size is None else self.cloud.size

    @property
    def missing(self) -> int:
        return max(0, self.cloud.target_size - len(self.nodes))


@dataclass(slots=True)
class _Seen:
    """A pod as seen: whether it is demand on the group, and its node; `read` is filled when needed.

    A finished pod is not demand, and on no node.
    """

    pod: Pod
    is_counted: bool
    home: str
    read: GroupPod | InvalidInput | None = None


class Observer:
    """Selects a group from all nodes and pods. Reads an object again only after it has changed."""

    def __init__(self, rules: ScanRules) -> None:
        self.rules = rules
        self._nodes: dict[str, tuple[Node, GroupNode | InvalidInput]] = {}
        self._pods: dict[int, _Seen] = {}  # by the id of the object; a changed pod is another object

    def observe(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        cloud: CloudGroup,
        peaks: Peaks | None = None,
    ) -> Observation:
        """The present group; `peaks` holds, by node, those of all its pods and those of its Mid pods.

        Unreadable objects are in `refused`: such nodes are left out, such pods have no requests and keep their nodes.
        """
        refused: list[InvalidInput] = []
        expected = peaks or {}
        ours: list[GroupNode] = []
        for node in self._group_nodes(nodes):
            if isinstance(node, InvalidInput):
                refused.append(node)
            elif node.name in expected:
                prod, mid = expected[node.name]
                ours.append(replace(node, prod_peak=prod, mid_peak=mid))
            else:
                ours.append(node)
        names = {node.name for node in ours}
        counted: list[GroupPod] = []
        others: list[GroupPod] = []
        for seen in self._observe(pods):
            if not seen.is_counted and seen.home not in names:
                continue
            if seen.read is None:
                seen.read = _or_refused(self._read_pod, seen.pod)
            if isinstance(seen.read, InvalidInput):
                refused.append(seen.read)
                if seen.home in names:
                    others.append(GroupPod(seen.read.source, node=seen.home))
            elif seen.is_counted:
                counted.append(seen.read)
            else:
                others.append(seen.read)
        by_source = {error.source: error for error in refused}
        return Observation(tuple(ours), tuple(counted), cloud, tuple(others), refused=by_source)

    def _group_nodes(self, nodes: Iterable[Node]) -> Iterator[GroupNode | InvalidInput]:
        known, self._nodes = self._nodes, {}
        for node in nodes:
            if takes_node(self.rules, node.metadata.labels or {}):
                name = node.metadata.name
                before = known.get(name)
                found = before if before is not None and before[0] is node else (node, _or_refused(read_node, node))
                self._nodes[name] = found
                yield found[1]

    def _observe(self, pods: Iterable[Pod]) -> Iterator[_Seen]:
        known, self._pods = self._pods, {}
        for pod in pods:
            key = id(pod)
            found = known.get(key)  # the known entry holds its pod, so that no other object gets its id
            if found is None:
                is_over = pod.status.phase in _OVER
                found = _Seen(pod, not is_over and takes_pod(self.rules, pod), "" if is_over else pod.spec.node_name)
            self._pods[key] = found
            yield found

    def _read_pod(self, pod: Pod) -> GroupPod:
        return read_pod(pod)


class GroupObservers:
    """Observers by group. Each reads an object again only after it has changed."""

    def __init__(self) -> None:
        self._known: dict[str, Observer] = {}

    def of_group(self, rules: ScanRules) -> Observer:
        known = self._known.get(rules.group.name)
        if known is None or known.rules != rules:
            known = self._known[rules.group.name] = Observer(rules)
        return known


def _or_refused(read: Callable[[K], T], given: K) -> T | InvalidInput:
    try:
        return read(given)
    except InvalidInput as error:
        return error


def free(nodes: Iterable[GroupNode], pods: Iterable[GroupPod]) -> Iterator[Resources]:
    """The free amount on each node after its pods; may be negative."""
    taken: dict[str, list[Resources]] = {}
    for pod in pods:
        if pod.node and pod.scheduled and pod.phase in (_PENDING, _RUNNING):
            taken.setdefault(pod.node, []).append(pod.requests)
    return (node.allocatable.minus(quantity.total(taken.get(node.name, []))) for node in nodes)


def takes_node(rules: ScanRules, labels: Mapping[str, str]) -> bool:
    return labels.get(rules.group.label_key) == rules.group.label_value


def takes_pod(rules: ScanRules, pod: Pod) -> bool:
    """Whether the pod is demand on the group: it selects the group's nodes, or, in the default group, no nodes."""
    if _is_of_daemon_set(pod):
        return False
    selector, affinity = pod.spec.node_selector or {}, pod.spec.affinity or Affinity()
    if rules.group.name != DEFAULT_GROUP:
        return selector.get(rules.group.label_key) == rules.group.label_value or _requires(rules, affinity)
    if selector or pod.metadata.annotation(ANNOTATION_CONFIG_SOURCE) == _STATIC:
        return False
    return affinity.node_affinity is None or affinity.node_affinity.required is None


def _requires(rules: ScanRules, affinity: Affinity) -> bool:
    """Whether any expression of any required term names the group: terms are not judged as a whole."""
    required = affinity.node_affinity.required if affinity.node_affinity else None
    return any(
        expression.key == rules.group.label_key
        and expression.operator == "In"
        and rules.group.label_value in (expression.values or ())
        for term in (required.node_selector_terms if required else ())
        for expression in term.match_expressions or ()
    )


def read_node(node: Node) -> GroupNode:
    """Raises InvalidInput."""
    source = f"Node {node.metadata.name}"
    try:
        allocatable = node.allocatable
    except QuantityError as error:
        given = node.status.allocatable
        raise InvalidInput(source=source, field="status.allocatable", value=given, problem=str(error)) from error
    try:
        created_at = node.metadata.created_at
    except ValueError as error:
        when = node.metadata.creation_timestamp
        raise InvalidInput(source=source, field="metadata.creationTimestamp", value=when, problem=str(error)) from error
    return GroupNode(
        node.metadata.name,
        created_at,
        allocatable,
        node.spec.taints or (),
        cordoned=node.spec.unschedulable,
        ready=is_ready(node),
        no_delete=node.metadata.annotation(taints.ANNOTATION_NO_DELETE) or "",
        provider_id=node.spec.provider_id,
        zone=node.metadata.label(LABEL_ZONE) or "",
    )


def is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())


def read_pod(pod: Pod) -> GroupPod:
    """Raises InvalidInput."""
    try:
        requests = _requests(pod)
    except QuantityError as error:
        source, value = f"Pod {pod.metadata.key}", pod.metadata.name
        where = "spec.containers[].resources"
        raise InvalidInput(source=source, field=where, value=value, problem=str(error)) from error
    conditions = pod.status.conditions or ()
    is_mirror = pod.metadata.annotation(names.ANNOTATION_MIRROR) is not None
    return GroupPod(
        pod.metadata.key,
        requests.floored(),
        pod.spec.node_name,
        pod.status.phase,
        scheduled=("PodScheduled", "True") in [(each.type, each.status) for each in conditions],
        of_node=_is_of_daemon_set(pod) or is_mirror,
    )


def _requests(pod: Pod) -> Resources:
    """Raises QuantityError."""
    spec = pod.spec
    if len(spec.containers) == 1 and not (spec.init_containers or spec.overhead or spec.resources):
        found = spec.containers[0].resources
        if not found.limits:  # most pods are this simple, and there are many
            return _resources(found.requests)
    return pods.native_request(pod)


def _resources(quantities: Quantities | None) -> Resources:
    return Resources.parse(quantities or {})


def _is_of_daemon_set(pod: Pod) -> bool:
    return DAEMON_SET in [owner.kind for owner in pod.metadata.owner_references or ()]
