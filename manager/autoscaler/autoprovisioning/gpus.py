"""Groups with GPUs for the pods that ask for some: one candidate for each type and number of GPUs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from manager.autoscaler.autoprovisioning import labels
from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import NVIDIA_GPU
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.errors import InvalidInput


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
    """By type and number, in order. An impossible number does not exclude the others."""
    found: dict[str, list[EquivalenceGroup]] = {}
    for each in classes:
        if each.facts.requests.get(rules.resource, 0) > 0:
            required = labels.wanted_labels(each.facts.demands, {}) or {}
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
