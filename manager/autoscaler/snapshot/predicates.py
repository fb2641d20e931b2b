"""A pod's requirements of a node, regardless of other pods: schedulable, taints, selector, affinity and volumes.

They are judged once for each kind of demands and each shape of node. Reasons are in kube-scheduler's words.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from manager.autoscaler.snapshot.cluster import TAKING, Flags, NodeInfo
from manager.autoscaler.snapshot.pod_info import ZONE_LABELS, NodeDemands
from shared.api import placement
from shared.api.core import NodeSelectorTerm
from shared.api.placement import AFFINITY, UNSCHEDULABLE, UNSCHEDULABLE_TAINT, UNTOLERATED

PORTS = "node(s) didn't have free ports for the requested pod ports"
VOLUMES = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_ZONE = "node(s) had no available volume zone"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = f"{SPREAD} (missing required label)"
POD_AFFINITY = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


def insufficient(resource: str) -> str:
    return f"Insufficient {resource}"


def refusal(demands: NodeDemands, node: NodeInfo) -> str | None:
    """Why the node does not fit such a pod, except for volumes, which come later in the scheduler's order."""
    if node.unschedulable and not placement.tolerated(UNSCHEDULABLE_TAINT, demands.tolerations):
        return UNSCHEDULABLE
    if not tolerates_taints(demands, node):
        return UNTOLERATED
    return None if matches_affinity(demands, node) else AFFINITY


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
    return None if _is_in(demands.zones, node.labels) else VOLUME_ZONE


def _is_in(zones: Iterable[tuple[str, tuple[str, ...]]], labels: Mapping[str, str]) -> bool:
    """Whether a node is in all of these zones and regions. A node without such labels counts as in all of them."""
    return not any(key in labels for key in ZONE_LABELS) or all(
        labels.get(key, labels.get(ZONE_LABELS[key])) in values for key, values in zones
    )


def admits(demands: NodeDemands, node: NodeInfo) -> bool:
    """Whether no predicate here excludes the node."""
    return refusal(demands, node) is None and volume_refusal(demands, node) is None


class Shapes:
    """Nodes grouped by shape: no demand distinguishes nodes of one shape, so each demand is judged once per shape."""

    def __init__(self, nodes: Sequence[NodeInfo], demands: Iterable[NodeDemands]) -> None:
        self._nodes = nodes
        keys = sorted({key for each in demands for key in _label_keys(each)})
        seen: dict[object, int] = {}
        self._representatives: list[NodeInfo] = []
        shape_of = []
        for node in nodes:
            labels = node.labels
            signature = (tuple([labels.get(key) for key in keys]), node.taints, node.unschedulable)
            shape = seen.setdefault(signature, len(seen))
            if shape == len(self._representatives):
                self._representatives.append(node)
            shape_of.append(shape)
        self._shape_of = np.array(shape_of, np.int64)
        self._taking = np.array([node.state in TAKING and not node.unschedulable for node in nodes], np.bool_)
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
        return self._nodes if _names_nodes(demands) else self._representatives

    def _spread_out(self, flags: list[bool]) -> Flags:
        found = np.array(flags, np.bool_)
        return found if len(found) == len(self._nodes) else found[self._shape_of]


def is_counted(demands: NodeDemands, node: NodeInfo, honors_affinity: bool, honors_taints: bool) -> bool:
    """Whether a spread constraint with these policies counts the node."""
    return (not honors_affinity or matches_affinity(demands, node)) and (
        not honors_taints or tolerates_taints(demands, node)
    )


def _all_terms(demands: NodeDemands) -> Iterable[NodeSelectorTerm]:
    yield from demands.terms or ()
    for selector in demands.volumes:
        yield from selector.node_selector_terms


def _label_keys(demands: NodeDemands) -> Iterable[str]:
    for key, _ in demands.selector:
        yield key
    for term in _all_terms(demands):
        for requirement in term.match_expressions or ():
            yield requirement.key
    if demands.zones:
        yield from ZONE_LABELS


def _names_nodes(demands: NodeDemands) -> bool:
    return any(term.match_fields for term in _all_terms(demands))
