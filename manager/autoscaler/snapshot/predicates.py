"""A pod's requirements of a node, regardless of other pods: schedulable, taints, selector, affinity and volumes.

They are judged once for each kind of demands and each shape of node. Reasons are in kube-scheduler's words.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from manager.autoscaler.snapshot.cluster import TAKING, Flags, NodeInfo, NodeState
from manager.autoscaler.snapshot.devices import CANNOT_ALLOCATE, is_device_resource
from manager.autoscaler.snapshot.pod_info import ZONE_LABELS, NodeDemands
from manager.autoscaler.snapshot.volumes import Terms, UnboundClaim
from shared.api import placement
from shared.api.core import NodeSelectorTerm
from shared.api.placement import AFFINITY, UNSCHEDULABLE, UNSCHEDULABLE_TAINT, UNTOLERATED

PORTS = "node(s) didn't have free ports for the requested pod ports"
DISKS = "node(s) had no available disk"
VOLUMES = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_STORAGE = "node(s) did not have enough free storage"
VOLUME_ZONE = "node(s) had no available volume zone"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = f"{SPREAD} (missing required label)"
POD_AFFINITY = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
ALLOCATED_ELSEWHERE = "resourceclaim not available on the node"
FEATURES = "node(s) didn't match Pod's required features"
REFUSED = "node(s) were refused by the scheduler before"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


def insufficient(resource: str) -> str:
    return CANNOT_ALLOCATE if is_device_resource(resource) else f"Insufficient {resource}"


def refusal(demands: NodeDemands, node: NodeInfo) -> str | None:
    """Why the node does not fit such a pod, except for volumes, which come later in the scheduler's order."""
    if node.unschedulable and not placement.tolerated(UNSCHEDULABLE_TAINT, demands.tolerations):
        return UNSCHEDULABLE
    if not tolerates_taints(demands, node):
        return UNTOLERATED
    if not matches_affinity(demands, node):
        return AFFINITY
    if not demands.features <= node.features:
        return FEATURES
    return REFUSED if node.name in demands.refused else None


def matches_affinity(demands: NodeDemands, node: NodeInfo) -> bool:
    """Whether node selector and required node affinity match."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in demands.selector):
        return False
    return demands.terms is None or placement.matches_any_term(demands.terms, node.name, labels)


def tolerates_taints(demands: NodeDemands, node: NodeInfo) -> bool:
    return placement.all_tolerated(node.taints, demands.tolerations)


def volume_refusal(demands: NodeDemands, node: NodeInfo) -> str | None:
    """Why the pod's volumes cannot be reached from the node."""
    reachable = all(
        placement.matches_any_term(selector.node_selector_terms, node.name, node.labels) for selector in demands.volumes
    )
    if not reachable:
        return VOLUMES
    for each in demands.unbound:
        if refused := _unbound_refusal(each, node):
            return f'{refused} for claim "{each.claim}" of storage class "{each.storage_class}"'
    if not all(
        placement.matches_any_term(each.node_selector_terms, node.name, node.labels) for each in demands.allocated
    ):
        return ALLOCATED_ELSEWHERE
    return None if _is_in(demands.zones, node.labels) else VOLUME_ZONE


def _unbound_refusal(claim: UnboundClaim, node: NodeInfo) -> str | None:
    if _is_among(claim.existing, node):
        return None
    if not _is_among(claim.provisioned, node):
        return NO_VOLUME
    return None if _is_among(claim.roomy, node) else NO_STORAGE


def _is_among(terms: Terms | None, node: NodeInfo) -> bool:
    return terms is None or placement.matches_any_term(terms, node.name, node.labels)


def _is_in(zones: Iterable[tuple[str, tuple[str, ...]]], labels: Mapping[str, str]) -> bool:
    """Whether a node is in all of these zones and regions. A node without such labels counts as in all of them."""
    return not any(key in labels for key in ZONE_LABELS) or all(
        labels.get(key, labels.get(ZONE_LABELS[key])) in values for key, values in zones
    )


def admits(demands: NodeDemands, node: NodeInfo) -> bool:
    """Whether no predicate here excludes the node."""
    return refusal(demands, node) is None and volume_refusal(demands, node) is None


class NodeShapes:
    """The shapes of nodes: none of these demands, unless it names nodes, and no label of these `keys` distinguishes
    nodes of one shape.
    """

    def __init__(self, demands: Iterable[NodeDemands], keys: Iterable[str] = ()) -> None:
        self._keys = sorted({*keys, *(key for each in demands for key in _label_keys(each))})

    def shape(self, node: NodeInfo) -> Hashable:
        """The shape of a node."""
        labels = node.labels
        return tuple([labels.get(key) for key in self._keys]), node.taints, node.unschedulable, node.features


class Shapes:
    """Nodes grouped by shape, so that each demand is judged once per shape."""

    def __init__(self, nodes: Sequence[NodeInfo], demands: Iterable[NodeDemands]) -> None:
        self._nodes = nodes
        shapes = NodeShapes(demands)
        seen: dict[object, int] = {}
        self._representatives: list[NodeInfo] = []
        shape_of = []
        for node in nodes:
            shape = seen.setdefault(shapes.shape(node), len(seen))
            if shape == len(self._representatives):
                self._representatives.append(node)
            shape_of.append(shape)
        self._shape_of = np.array(shape_of, np.int64)
        self._taking = np.array([_takes_pods(node) for node in nodes], np.bool_)
        self._admitting: dict[NodeDemands, Flags] = {}
        self._counted: dict[tuple[NodeDemands, bool, bool], Flags] = {}

    def admitting(self, demands: NodeDemands) -> Flags:
        """Which nodes take new pods and admit such a pod."""
        if demands not in self._admitting:
            flags = [admits(demands, node) for node in self._judge(demands)]
            self._admitting[demands] = self._spread_out(flags) & self._taking
        return self._admitting[demands]

    def counted(self, demands: NodeDemands, honors_affinity: bool, honors_taints: bool) -> Flags:
        """Which nodes a spread constraint with these policies counts."""
        key = (demands, honors_affinity, honors_taints)
        if key not in self._counted:
            self._counted[key] = self._spread_out(
                [is_counted(demands, node, honors_affinity, honors_taints) for node in self._judge(demands)]
            )
        return self._counted[key]

    def _judge(self, demands: NodeDemands) -> Sequence[NodeInfo]:
        return self._nodes if names_nodes(demands) else self._representatives

    def _spread_out(self, flags: list[bool]) -> Flags:
        found = np.array(flags, np.bool_)
        return found if len(found) == len(self._nodes) else found[self._shape_of]


def _takes_pods(node: NodeInfo) -> bool:
    """Whether the node takes pods that it admits: a cordoned one admits those that tolerate its taint."""
    return node.state in TAKING or (node.state is NodeState.CORDONED and node.readiness is NodeState.READY)


def is_counted(demands: NodeDemands, node: NodeInfo, honors_affinity: bool, honors_taints: bool) -> bool:
    """Whether a spread constraint with these policies counts the node."""
    return (not honors_affinity or matches_affinity(demands, node)) and (
        not honors_taints or tolerates_taints(demands, node)
    )


def _all_terms(demands: NodeDemands) -> Iterable[NodeSelectorTerm]:
    yield from demands.terms or ()
    for selector in (*demands.volumes, *demands.allocated):
        yield from selector.node_selector_terms
    for claim in demands.unbound:
        yield from (*(claim.existing or ()), *(claim.provisioned or ()), *(claim.roomy or ()))


def _label_keys(demands: NodeDemands) -> Iterable[str]:
    for key, _ in demands.selector:
        yield key
    for term in _all_terms(demands):
        for requirement in term.match_expressions or ():
            yield requirement.key
    if demands.zones:
        yield from ZONE_LABELS


def names_nodes(demands: NodeDemands) -> bool:
    """Whether the demands distinguish nodes by name."""
    return bool(demands.refused) or any(term.match_fields for term in _all_terms(demands))
