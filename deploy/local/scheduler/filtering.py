"""Which nodes a pod fits on, and kube-scheduler's message if it does not.

Pure: takes a snapshot of the nodes, returns reasons. The checks run in kube-scheduler's default order. The first check
that refuses a node is the last one for that node; only the resource check reports all shortages together.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shared.api import placement, pods
from shared.api.core import Node, Pod
from shared.api.placement import AFFINITY, TOO_MANY_PODS, UNSCHEDULABLE, UNSCHEDULABLE_TAINT, UNTOLERATED

PODS = "pods"
NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True)
class SchedulableNode:
    """A node and what its pods use of it, per resource: cpu in milli, all others in whole units."""

    node: Node
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    pod_count: int

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def free(self, resource: str) -> int:
        return self.allocatable.get(resource, 0) - self.requested.get(resource, 0)


def node_state(node: Node, placed: Sequence[Pod]) -> SchedulableNode:
    """The state of `node` with the active pods `placed` on it. Raises QuantityError."""
    requested: Counter[str] = Counter()
    for pod in placed:
        requested.update(pods.requests(pod))
    return SchedulableNode(node, pods.amounts(node.status.allocatable or {}), requested, len(placed))


def fitting(pod: Pod, states: Iterable[SchedulableNode]) -> tuple[list[SchedulableNode], dict[str, list[str]]]:
    """The nodes `pod` fits on, and the reasons against each of the others by name. Raises QuantityError."""
    asked = pods.requests(pod)
    fits: list[SchedulableNode] = []
    refusals: dict[str, list[str]] = {}
    for state in states:
        if reasons := _reasons_against(pod, asked, state):
            refusals[state.name] = reasons
        else:
            fits.append(state)
    return fits, refusals


def fit_error(refusals: Mapping[str, Sequence[str]]) -> str:
    """kube-scheduler's FitError: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable."."""
    if not refusals:
        return NO_NODES
    counts = Counter(reason for reasons in refusals.values() for reason in reasons)
    counted = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{len(refusals)} nodes are available: {', '.join(counted)}."


def _reasons_against(pod: Pod, asked: Mapping[str, int], state: SchedulableNode) -> list[str]:
    tolerations = pod.spec.tolerations or ()
    if state.node.spec.unschedulable and not placement.tolerated(UNSCHEDULABLE_TAINT, tolerations):
        return [UNSCHEDULABLE]
    if not placement.all_tolerated(state.node.spec.taints or (), tolerations):
        return [UNTOLERATED]
    if not _matches_selector_and_affinity(pod, state.node):
        return [AFFINITY]
    return _shortages(asked, state)


def _shortages(asked: Mapping[str, int], state: SchedulableNode) -> list[str]:
    reasons = [TOO_MANY_PODS] if state.pod_count + 1 > state.allocatable.get(PODS, 0) else []
    return reasons + [
        f"Insufficient {resource}" for resource, amount in asked.items() if amount > 0 and amount > state.free(resource)
    ]


def _matches_selector_and_affinity(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if not affinity or not affinity.required:
        return True
    return placement.matches_any_term(affinity.required.node_selector_terms, node.metadata.name, labels)
