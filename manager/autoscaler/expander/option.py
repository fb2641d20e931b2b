"""One scale-up option: a number of nodes of one group, for these pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from manager.autoscaler.pricing.model import NVIDIA_GPU, Machine
from shared.quantity import Amounts

# Resources that mark a GPU machine, beside the provider's label.
GPU_RESOURCES = (NVIDIA_GPU, "habana.ai/gaudi", "gpu.intel.com/xe", "amd.com/gpu", "microsoft.com/directx")


class PodClass(NamedTuple):
    """Pods of one kind: the requests of each, and their number."""

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
        """The sum of all pods' requests of one resource."""
        return sum(each.pods * each.requests.get(resource, 0) for each in self.classes)


def has_gpu(labels: Mapping[str, str], allocatable: Amounts, gpu_label: str | None) -> bool:
    """Whether a node has GPUs: by the provider's label, even before the driver is ready, or by its allocatable."""
    if gpu_label is not None and gpu_label in labels:
        return True
    return any(allocatable.get(name, 0) > 0 for name in GPU_RESOURCES)
