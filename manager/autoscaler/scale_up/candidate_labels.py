"""The labels of a new group's nodes, from the selectors of pending pods.

"Node Auto-provisioning", Calculating best label set for nodes: the most popular selector, and every further one in
order of popularity that contradicts neither those before it nor the machine. Popularity is the number of pods. Cluster
Autoscaler weighs by requested cpu, and takes no infrastructure label from a later selector. A selector also contradicts
another if its labels violate the required affinity of either selector's pods.

Groups for pods with GPUs are one candidate for each type and number of GPUs. Taints come from the pods' tolerations:
"Node Auto-provisioning" sets none, because a toleration is no requirement; yet two of its own test scenarios expect
tainted nodes for pods with tolerations, so it is an option.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import NVIDIA_GPU
from manager.autoscaler.settings.estimates import TaintRules
from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeInfo
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import NodeDemands
from manager.autoscaler.snapshot.templates import belongs_to_group
from shared.api.core import NodeSelectorTerm, Taint, Toleration
from shared.errors import InvalidInput

NO_SCHEDULE = "NoSchedule"
_SYSTEM_PREFIXES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/")


class TolerationMode(enum.StrEnum):
    """`separate`: a toleration makes a tainted group if the pod also selects the label of the same key and value, that
    is, asks for dedicated nodes. `never`: none does. `always`: every toleration of a specific taint does.
    """

    SEPARATE = "separate"
    NEVER = "never"
    ALWAYS = "always"


def taints_for(demands: NodeDemands, mode: TolerationMode, rules: TaintRules | None = None) -> tuple[Taint, ...]:
    """The taints, in order, of the group made for such pods, which tolerate all of them.

    If they tolerate several values of one key and effect, it is the value that they also select, else the first: a node
    has only one.
    """
    if mode is TolerationMode.NEVER:
        return ()
    wanted = _wanted(demands)
    found: dict[tuple[str, str], set[str]] = {}
    for toleration in demands.tolerations:
        value = _value(toleration)
        if not _is_own(toleration) or value is None:
            continue
        if mode is TolerationMode.SEPARATE or (value == "" and toleration.operator == "Exists"):
            same = sorted(
                each for each in wanted.get(toleration.key, ()) if toleration.operator == "Exists" or each == value
            )
            if same:
                value = same[0]
            elif mode is TolerationMode.SEPARATE:
                continue
        effect = toleration.effect or NO_SCHEDULE
        if belongs_to_group(Taint(toleration.key, value, effect), rules or TaintRules()):
            found.setdefault((toleration.key, effect), set()).add(value)
    return tuple(
        Taint(key, min(values & wanted.get(key, set()) or values), effect)
        for (key, effect), values in sorted(found.items())
    )


def _value(toleration: Toleration) -> str | None:
    """The value of the tolerated taint; empty if any value does."""
    match toleration.operator or "Equal":
        case "Equal":
            return toleration.value
        case "Exists":
            return ""
        case _:
            return None


def _is_own(toleration: Toleration) -> bool:
    """Whether the toleration is for a group of nodes, and not for a node condition, a device, or any taint at all."""
    key = toleration.key
    return bool(key) and not key.startswith(_SYSTEM_PREFIXES) and key not in GPU_RESOURCES


def _wanted(demands: NodeDemands) -> dict[str, set[str]]:
    """The labels that selector and required affinity require, with their values."""
    found: dict[str, set[str]] = {}
    for key, value in demands.selector:
        found.setdefault(key, set()).add(value)
    for key, values in _asked_by_affinity(demands):
        found.setdefault(key, set()).update(values)
    return found


def _asked_by_affinity(demands: NodeDemands) -> Iterable[tuple[str, tuple[str, ...]]]:
    terms = demands.terms or ()
    for term in terms if len(terms) == 1 else ():  # with several terms, another one may hold instead
        for requirement in term.match_expressions or ():
            if requirement.operator == "In":
                yield requirement.key, requirement.values or ()


@dataclass(frozen=True)
class GpuRules:
    """`label` holds a node's GPU type; pods that require none get `default_type`."""

    label: str = LABEL_ACCELERATOR
    default_type: str = gke.DEFAULT_ACCELERATOR
    resource: str = NVIDIA_GPU


@dataclass(frozen=True)
class GpuDemand:
    """A number of GPUs of one type, and the pods that ask for that type and at most that number."""

    kind: str
    count: int
    classes: tuple[EquivalenceGroup, ...]


def gpu_demands(classes: Iterable[EquivalenceGroup], rules: GpuRules) -> Sequence[GpuDemand]:
    """The demands by type and number, in order. An impossible number does not exclude the others."""
    found: dict[str, list[EquivalenceGroup]] = {}
    for each in classes:
        if each.facts.requests.get(rules.resource, 0) > 0:
            required = wanted_labels(each.facts.demands, {}) or {}
            found.setdefault(required.get(rules.label) or rules.default_type, []).append(each)
    return [
        GpuDemand(kind, count, tuple(each for each in members if _count(each, rules) <= count))
        for kind, members in sorted(found.items())
        for count in sorted({_count(each, rules) for each in members})
    ]


def _count(pending: EquivalenceGroup, rules: GpuRules) -> int:
    """The number of GPUs of the machine that such a pod needs; a number beyond all machines is left for the cloud to
    refuse.
    """
    asked = pending.facts.requests[rules.resource]
    try:
        return gke.normalized_gpus(asked)
    except InvalidInput:
        return asked


# The weight of a pod without a cpu request, so that many of them still count.
LEAST_CPU_MILLI = 50
_INFRASTRUCTURE = ("kubernetes.io", "cloud.google.com")
_OF_ONE_NODE = frozenset({LABEL_HOSTNAME})


class Popularity(enum.StrEnum):
    """The measure of a selector's popularity."""

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
