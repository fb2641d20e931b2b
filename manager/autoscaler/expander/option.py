"""One scale-up option: a number of nodes of one group, for these pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from manager.autoscaler.pricing.model import NVIDIA_GPU, Machine
from shared.api.core import Taint, Toleration
from shared.quantity import Amounts

# Resources that mark a GPU machine, beside the provider's label.
GPU_RESOURCES = (NVIDIA_GPU, "habana.ai/gaudi", "gpu.intel.com/xe", "amd.com/gpu", "microsoft.com/directx")


class PodClass(NamedTuple):
    """Pods of one kind: the requests of each, their number, and their other common properties.

    `members` are all pods of the kind by "namespace/name"; those of the option begin at `first`.
    """

    requests: Amounts
    pods: int
    members: tuple[str, ...] = ()
    first: int = 0
    labels: Mapping[str, str] = MappingProxyType({})
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0

    @property
    def keys(self) -> tuple[str, ...]:
        """The pods, by "namespace/name"."""
        return self.members[self.first : self.first + self.pods]


@dataclass(frozen=True, slots=True)
class Option:
    """`node_count` new nodes of `group` take all pods of `classes`; a group that does not `exist` would be created.

    Each node is such a `machine`, with these `taints` and this much `allocatable`.
    """

    group: str
    node_count: int
    machine: Machine
    classes: tuple[PodClass, ...]
    exists: bool = True
    has_gpu: bool = False
    allocatable: Amounts = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

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
