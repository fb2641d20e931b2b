"""Object fields beyond those of a plan: why containers died, and what other autoscalers report about them."""

from typing import Any

import msgspec

from shared.api.core import Container, ContainerStatus, Pod, PodSpec, PodStatus
from shared.api.meta import ObjectMeta, Wire, prepared


class EnvironmentVariable(Wire, frozen=True):
    name: str = ""
    value: str = ""


class SeenContainer(Container, frozen=True):
    env: tuple[EnvironmentVariable, ...] | None = None


class ContainerEnd(Wire, frozen=True):
    reason: str = ""


class ContainerPhases(Wire, frozen=True):
    terminated: ContainerEnd | None = None


class SeenStatus(ContainerStatus, frozen=True):
    state: ContainerPhases | None = None
    last_state: ContainerPhases | None = None


class SeenPodSpec(PodSpec, frozen=True):
    containers: tuple[SeenContainer, ...] = ()
    init_containers: tuple[SeenContainer, ...] | None = None


class SeenPodStatus(PodStatus, frozen=True):
    container_statuses: tuple[SeenStatus, ...] | None = None
    init_container_statuses: tuple[SeenStatus, ...] | None = None


@prepared
class SeenPod(Pod, frozen=True):
    """A Pod with the ends of its containers and their environment."""

    spec: SeenPodSpec = SeenPodSpec()
    status: SeenPodStatus = SeenPodStatus()


class _TargetReference(Wire, frozen=True):
    kind: str = ""
    name: str = ""


class MetricTarget(Wire, frozen=True):
    type: str = ""
    average_utilization: int | None = None


class _ResourceMetric(Wire, frozen=True):
    name: str = ""
    container: str = ""
    target: MetricTarget = MetricTarget()


class MetricSpec(Wire, frozen=True):
    type: str = ""
    resource: _ResourceMetric | None = None
    container_resource: _ResourceMetric | None = None


class _AutoscalerSpec(Wire, frozen=True):
    scale_target_ref: _TargetReference = _TargetReference()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[MetricSpec, ...] | None = None
    target_cpu_utilization_percentage: int | None = msgspec.field(default=None, name="targetCPUUtilizationPercentage")


@prepared
class HorizontalPodAutoscaler(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _AutoscalerSpec = _AutoscalerSpec()

    def utilization_percent(self, resource: str) -> int | None:
        """The percentage of this resource's request at which it scales; None if it does not scale by that."""
        if resource == "cpu" and self.spec.target_cpu_utilization_percentage is not None:
            return self.spec.target_cpu_utilization_percentage
        for metric in self.spec.metrics or ():
            found = metric.resource or metric.container_resource
            if found is not None and found.name == resource and found.target.average_utilization is not None:
                return found.target.average_utilization
        return None


class _VpaSpec(Wire, frozen=True):
    target_ref: _TargetReference | None = None


@prepared
class VerticalPodAutoscaler(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _VpaSpec = _VpaSpec()


class CheckpointHistogram(Wire, frozen=True):
    reference_timestamp: str | None = None
    bucket_weights: dict[int, int] | None = None
    total_weight: float = 0.0


class _CheckpointSpec(Wire, frozen=True):
    vpa_object_name: str = ""
    container_name: str = ""


class _CheckpointStatus(Wire, frozen=True):
    version: str = ""
    cpu_histogram: CheckpointHistogram = CheckpointHistogram()
    memory_histogram: CheckpointHistogram = CheckpointHistogram()
    first_sample_start: str | None = None
    last_sample_start: str | None = None
    total_samples_count: int = 0


@prepared
class VerticalPodAutoscalerCheckpoint(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _CheckpointSpec = _CheckpointSpec()
    status: _CheckpointStatus = _CheckpointStatus()


ALSO: dict[str, type[Any]] = {
    "HorizontalPodAutoscaler": HorizontalPodAutoscaler,
    "VerticalPodAutoscaler": VerticalPodAutoscaler,
    "VerticalPodAutoscalerCheckpoint": VerticalPodAutoscalerCheckpoint,
}
