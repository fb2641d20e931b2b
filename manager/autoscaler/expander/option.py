"""One way to scale up: so many nodes of one group, for these pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from manager.autoscaler.pricing.model import NVIDIA_GPU, Machine
from shared.quantity import Amounts

# What makes a machine one with GPUs, beside the provider's label.
GPU_RESOURCES = (NVIDIA_GPU, "habana.ai/gaudi", "gpu.intel.com/xe", "amd.com/gpu", "microsoft.com/directx")


class PodClass(NamedTuple):
    """Pods of one kind: what each requests, and how many of them there are."""

    requests: Amounts
    pods: int


@dataclass(frozen=True, slots=True)
class Option:
    """`node_count` new nodes of `group` take all pods of `classes`; a group that does not `exist` would be created."""

    group: str
    node_count: int
    machine: Machine
    classes: tuple[PodClass, ...]
    exists: bool = True
    has_gpu: bool = False

    @property
    def pod_count(self) -> int:
        return sum(each.pods for each in self.classes)

    def requested(self, resource: str) -> int:
        """What all pods request of one resource."""
        return sum(each.pods * each.requests.get(resource, 0) for each in self.classes)


def has_gpu(labels: Mapping[str, str], allocatable: Amounts, gpu_label: str | None) -> bool:
    """Whether a node is one with GPUs: by the provider's label, even before the driver is ready, or by what it has."""
    if gpu_label is not None and gpu_label in labels:
        return True
    return any(allocatable.get(name, 0) > 0 for name in GPU_RESOURCES)
