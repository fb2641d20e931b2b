"""Groups with GPUs for the pods that ask for some: one kind of group for each type of GPU asked for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.podclasses import PendingClass
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import NVIDIA_GPU


@dataclass(frozen=True)
class GpuRules:
    """`label` says which type of GPU a node has; pods that select none get `default_type`."""

    label: str = LABEL_ACCELERATOR
    default_type: str = gke.DEFAULT_ACCELERATOR
    resource: str = NVIDIA_GPU


@dataclass(frozen=True)
class GpuDemand:
    """Pods that ask for one type, and the most that one of them asks for."""

    kind: str
    most: int
    classes: tuple[PendingClass, ...]


def demands(classes: Iterable[PendingClass], rules: GpuRules) -> Sequence[GpuDemand]:
    """By type, in order."""
    found: dict[str, list[PendingClass]] = {}
    for each in classes:
        if each.facts.requests.get(rules.resource, 0) > 0:
            kind = dict(each.facts.demands.selector).get(rules.label) or rules.default_type
            found.setdefault(kind, []).append(each)
    return [
        GpuDemand(kind, max(each.facts.requests[rules.resource] for each in members), tuple(members))
        for kind, members in sorted(found.items())
    ]
