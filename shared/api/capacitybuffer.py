"""CapacityBuffer, `autoscaling.x-k8s.io/v1beta1`: room that a cluster keeps free, in chunks of the size of one pod."""

from typing import NamedTuple

import msgspec

from shared.api.core import PodTemplate
from shared.api.meta import ObjectMeta, Wire, prepared

ACTIVE_CAPACITY = "buffer.x-k8s.io/active-capacity"  # the default strategy: nodes are bought for the chunks

# The conditions, and Cluster Autoscaler's reasons.
READY_FOR_PROVISIONING = "ReadyForProvisioning"
PROVISIONING = "Provisioning"
LIMITED_BY_QUOTAS = "LimitedByQuotas"
ATTRIBUTES_SET, ERROR, QUOTAS_ALLOCATED = "AttributesSetSuccessfully", "error", "ResourceQuotasAllocated"


class NamedPodTemplate(Wire, frozen=True):
    name: str = ""


class ScalableRef(Wire, frozen=True):
    """An empty group is the core group."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class CapacityBufferSpec(Wire, frozen=True):
    """One of `pod_template_ref` and `scalable_ref` says what a chunk looks like; see `capacity_buffers.reading`."""

    provisioning_strategy: str | None = None
    pod_template_ref: NamedPodTemplate | None = None
    scalable_ref: ScalableRef | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: dict[str, str | int | float] | None = None


class CapacityBufferStatus(Wire, frozen=True):
    """Conditions as the server has them; a writer keeps the conditions of others."""

    pod_template_ref: NamedPodTemplate | None = None
    replicas: int | None = None
    pod_template_generation: int | None = None
    conditions: tuple[dict[str, object], ...] | None = None
    provisioning_strategy: str | None = None


@prepared
class CapacityBuffer(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CapacityBufferSpec = msgspec.field(default_factory=CapacityBufferSpec)
    status: CapacityBufferStatus = msgspec.field(default_factory=CapacityBufferStatus)


class ChunkSourceRef(NamedTuple):
    """The object that says what the chunks of a buffer look like."""

    api_group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ChunkSourceSpec(Wire, frozen=True):
    """A Job has `parallelism` in place of `replicas`."""

    replicas: int | None = None
    parallelism: int | None = None
    template: PodTemplate | None = None


class ChunkSourceStatus(Wire, frozen=True):
    replicas: int = 0


@prepared
class ChunkSource(Wire, frozen=True):
    """A PodTemplate, whose `template` it is, or a workload with one in its spec."""

    metadata: ObjectMeta = ObjectMeta()
    template: PodTemplate | None = None
    spec: ChunkSourceSpec = ChunkSourceSpec()
    status: ChunkSourceStatus = ChunkSourceStatus()
