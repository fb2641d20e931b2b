"""The labels of a new group's nodes, from the selectors of pending pods.

"Node Auto-provisioning", Calculating best label set for nodes: the most popular selector, and every further one in
order of popularity that contradicts neither those before it nor the machine. Popularity is the number of pods. Cluster
Autoscaler weighs by requested cpu, and takes no infrastructure label from a later selector. A selector also contradicts
another if its labels violate the required affinity of either selector's pods.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeInfo
from manager.autoscaler.snapshot.pod_info import NodeDemands
from shared.api.core import NodeSelectorTerm

# The weight of a pod without a cpu request, so that many of them still count.
LEAST_CPU_MILLI = 50
_INFRASTRUCTURE = ("kubernetes.io", "cloud.google.com")
_OF_ONE_NODE = frozenset({LABEL_HOSTNAME})


class Popularity(enum.StrEnum):
    """What makes a selector popular."""

    PODS = "pods"
    CPU = "cpu"


class Selecting(NamedTuple):
    """Pods with the same node selector: their number, and the cpu request of each.

    With `demands`, their other requirements of a node's labels must hold, too.
    """

    selector: Mapping[str, str]
    pods: int
    cpu_milli: int
    demands: NodeDemands | None = None


class Selector(NamedTuple):
    """One selector and its weight. `demands` are those of its pods that have a required affinity."""

    labels: Mapping[str, str]
    weight: int
    demands: tuple[NodeDemands, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels satisfies the required affinity of the selector's pods."""
        return all(predicates.matches_affinity(each, NodeInfo("", labels=labels)) for each in self.demands)


def by_popularity(pods: Iterable[Selecting], popularity: Popularity) -> list[Selector]:
    """The distinct selectors, most popular first; equals in the order of their labels."""
    weights: dict[tuple[tuple[str, str], ...], int] = {}
    demands: dict[tuple[tuple[str, str], ...], dict[NodeDemands, None]] = {}
    for each in pods:
        key = tuple(sorted(each.selector.items()))
        weight = 1 if popularity is Popularity.PODS else each.cpu_milli or LEAST_CPU_MILLI
        weights[key] = weights.get(key, 0) + weight * each.pods
        if each.demands is not None and each.demands.terms is not None:
            demands.setdefault(key, {})[each.demands] = None
    ordered = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    return [Selector(dict(labels), weight, tuple(demands.get(labels, ()))) for labels, weight in ordered]


def best_label_set(
    selectors: Sequence[Selector], machine: Mapping[str, str], popularity: Popularity = Popularity.PODS
) -> dict[str, str]:
    """The labels for the nodes, in addition to the `machine`'s own."""
    chosen: dict[str, str] = {}
    taken_any = False
    bound: list[Selector] = []
    for selector in selectors:
        if not are_compatible(selector.labels, chosen) or not are_compatible(selector.labels, machine):
            continue
        new = selector.labels.keys() - chosen.keys() - machine.keys()
        if taken_any and popularity is Popularity.CPU and any(map(_is_infrastructure, new)):
            continue
        more = {key: selector.labels[key] for key in new}
        judges = [*bound, selector] if selector.demands else bound
        if judges and not all(each.holds({**machine, **chosen, **more}) for each in judges):
            continue
        chosen |= more
        taken_any, bound = True, judges
    return chosen


def wanted_labels(demands: NodeDemands, machine: Mapping[str, str]) -> dict[str, str] | None:
    """The labels that a machine needs for such a pod in addition to its own; None if none would do."""
    wanted = dict(demands.selector)
    if not are_compatible(wanted, machine):
        return None
    if demands.terms is not None:
        for term in demands.terms:
            more = _satisfying(term, {**machine, **wanted})
            if more is not None:
                wanted |= more
                break
        else:
            return None
    needed = {key: value for key, value in wanted.items() if key not in machine}
    return None if _OF_ONE_NODE & needed.keys() else needed


def _satisfying(term: NodeSelectorTerm, known: Mapping[str, str]) -> dict[str, str] | None:
    """The labels to add so that a term holds; None if no label does, or the term names nodes."""
    if term.match_fields or not term.match_expressions:
        return None
    added: dict[str, str] = {}
    for requirement in term.match_expressions:
        key, values = requirement.key, requirement.values or ()
        if key in known or key in added:
            continue
        if requirement.operator == "In" and values:
            added[key] = min(values)
        elif requirement.operator == "Exists":
            added[key] = "true"
    holds = predicates.matches_affinity(NodeDemands(terms=(term,)), NodeInfo("", labels={**known, **added}))
    return added if holds else None


def are_compatible(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether a node can satisfy both selectors: no label has two values."""
    return all(other.get(key, value) == value for key, value in one.items())


def _is_infrastructure(label: str) -> bool:
    return any(part in label for part in _INFRASTRUCTURE)
