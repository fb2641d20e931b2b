"""Groups whose nodes are so similar that one may grow instead of the other (Cluster Autoscaler's comparison)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, PODS, NodeTemplate
from shared.names import LABEL_NODE_GROUP
from shared.quantity import Amounts

MEMORY = "memory"
IGNORED_LABELS = frozenset(
    {
        LABEL_HOSTNAME,
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "beta.kubernetes.io/fluentd-ds-ready",
        "kops.k8s.io/instancegroup",
        LABEL_NODE_GROUP,
    }
)


@dataclass(frozen=True)
class SimilarityRules:
    """How far two nodes may differ, each as a share of the larger amount. All other resources must be equal.

    With `compared_labels` these labels alone decide, regardless of resources (`--balancing-label`).
    """

    memory_capacity: float = 0.015
    allocatable: float = 0.05
    free: float = 0.05
    ignored_labels: frozenset[str] = IGNORED_LABELS
    compared_labels: frozenset[str] = frozenset()

    def are_similar(self, first: NodeTemplate, second: NodeTemplate) -> bool:
        """Whether new nodes of both templates are interchangeable."""
        if self.compared_labels:
            return all(
                key in first.node.labels and first.node.labels[key] == second.node.labels.get(key)
                for key in self.compared_labels
            )
        return (
            self._have_equal_capacity(first.node.capacity, second.node.capacity)
            and _agree_within(first.node.allocatable, second.node.allocatable, self.allocatable)
            and _agree_within(_free_after_daemons(first), _free_after_daemons(second), self.free)
            and self._labels_agree(first.node.labels, second.node.labels)
        )

    def _have_equal_capacity(self, first: Amounts, second: Amounts) -> bool:
        return first.keys() == second.keys() and all(
            _close(first[name], second[name], self.memory_capacity) if name == MEMORY else first[name] == second[name]
            for name in first
        )

    def _labels_agree(self, first: Mapping[str, str], second: Mapping[str, str]) -> bool:
        return {key: value for key, value in first.items() if key not in self.ignored_labels} == {
            key: value for key, value in second.items() if key not in self.ignored_labels
        }


def similar_for_option(
    classes: Collection[object],
    similar: Mapping[str, Collection[object]],
    *,
    balance_similar: bool = True,
    is_zero_or_max: bool = False,
) -> list[str]:
    """The similar groups that may share an option's nodes: those that take all of its classes.

    `similar` holds, for each healthy similar group, the classes that would fit there.
    """
    if not balance_similar or is_zero_or_max or not classes:
        return []
    return [group for group, taken in similar.items() if all(each in taken for each in classes)]


def _free_after_daemons(template: NodeTemplate) -> dict[str, int]:
    """What a new node's own pods leave free, of cpu, memory and any other resource that they request."""
    taken = template.overhead
    names = {"cpu", MEMORY, *taken} - {PODS}
    return {name: template.node.allocatable.get(name, 0) - taken.get(name, 0) for name in names}


def _agree_within(first: Amounts, second: Amounts, share: float) -> bool:
    return first.keys() == second.keys() and all(_close(first[name], second[name], share) for name in first)


def _close(first: int, second: int, share: float) -> bool:
    larger, smaller = max(first, second), min(first, second)
    return larger - smaller <= larger * share
