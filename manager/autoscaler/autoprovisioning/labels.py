"""The labels a new group's nodes should have, out of what pending pods select.

"Node Auto-provisioning", Calculating best label set for nodes: the most popular selector, and every further one in
order of popularity that contradicts neither those before it nor the machine. Popularity is the number of pods.
Cluster Autoscaler weighs by requested cpu, and takes no label of the infrastructure over from a later selector.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# A pod that requests no cpu weighs this much, so that many of them count for something.
LEAST_CPU_MILLI = 50
_INFRASTRUCTURE = ("kubernetes.io", "cloud.google.com")


class Popularity(enum.StrEnum):
    """What makes a selector popular."""

    PODS = "pods"
    CPU = "cpu"


class Selecting(NamedTuple):
    """Pods with the same node selector, how many, and how much cpu each requests."""

    selector: Mapping[str, str]
    pods: int
    cpu_milli: int


class Selector(NamedTuple):
    """One selector and its weight."""

    labels: Mapping[str, str]
    weight: int


def by_popularity(pods: Iterable[Selecting], popularity: Popularity) -> list[Selector]:
    """The different selectors, most popular first; equals in the order of their labels."""
    weights: dict[tuple[tuple[str, str], ...], int] = {}
    for each in pods:
        key = tuple(sorted(each.selector.items()))
        weight = 1 if popularity is Popularity.PODS else each.cpu_milli or LEAST_CPU_MILLI
        weights[key] = weights.get(key, 0) + weight * each.pods
    ordered = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    return [Selector(dict(labels), weight) for labels, weight in ordered]


def best_label_set(
    selectors: Sequence[Selector], machine: Mapping[str, str], popularity: Popularity = Popularity.PODS
) -> dict[str, str]:
    """What to label the nodes with, beside the labels that the `machine` has of itself."""
    chosen: dict[str, str] = {}
    taken_any = False
    for selector in selectors:
        if not are_compatible(selector.labels, chosen) or not are_compatible(selector.labels, machine):
            continue
        new = selector.labels.keys() - chosen.keys() - machine.keys()
        if taken_any and popularity is Popularity.CPU and any(map(_is_infrastructure, new)):
            continue
        chosen |= {key: selector.labels[key] for key in new}
        taken_any = True
    return chosen


def are_compatible(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether a node can satisfy both selectors: no label has two values."""
    return all(other.get(key, value) == value for key, value in one.items())


def _is_infrastructure(label: str) -> bool:
    return any(part in label for part in _INFRASTRUCTURE)
