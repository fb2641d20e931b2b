"""What the cluster says of one node, checked and in integers: the input of every formula.

Here text becomes numbers, so here a NodeMetric that only looks right is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from shared import durations, names, quantity
from shared.api import pods
from shared.api.core import Node, Pod, Quantities
from shared.api.meta import Wire, prepared
from shared.api.nodemetric import HostApplicationMetricInfo, NodeMetric, ReclaimableMetric, ResourceMap
from shared.errors import InvalidInput
from shared.names import PriorityClass
from shared.quantity import QuantityError, Resources

NOTHING = Resources()


@dataclass(frozen=True)
class Requested:
    """Sums of native requests of the pods that hold them: of all, and of those Mid must make way for."""

    total: Resources = NOTHING
    prod: Resources = NOTHING

    def plus(self, other: "Requested") -> "Requested":
        return Requested(self.total.plus(other.total), self.prod.plus(other.prod))

    def minus(self, other: "Requested") -> "Requested":
        return Requested(self.total.minus(other.total), self.prod.minus(other.prod))


@dataclass(frozen=True)
class Situation:
    """One node at one moment. `None` is what nobody has said. Instants are Unix seconds.

    `system_usage` includes host applications of class prod; `reserved` is the larger, per resource, of what the
    kubelet withholds and what the node's annotation reserves.
    """

    node: str
    capacity: Resources
    allocatable: Resources
    reserved: Resources
    requested: Requested
    created_at: float | None = None
    update_time: float | None = None
    updated: str | None = None
    usage: Resources | None = None
    system_usage: Resources = NOTHING
    peak: Resources | None = None
    reclaimable: Resources | None = None


@prepared
class _Reservation(Wire, frozen=True):
    resources: Quantities | None = None
    reserved_cpus: Annotated[str, msgspec.Meta(max_length=4096)] = msgspec.field(default="", name="reservedCPUs")


def observe(node: Node, metric: NodeMetric | None, requested: Requested) -> Situation:
    """The situation of `node`. Raises InvalidInput naming object, field and value."""
    source = f"Node {node.metadata.name}"
    capacity = _amount(node.status.capacity, source=source, field="status.capacity") or NOTHING
    allocatable = _amount(node.status.allocatable, source=source, field="status.allocatable") or NOTHING
    reserved = capacity.minus(allocatable).floored().most(_annotated_reservation(node))
    created_at = _instant(node.metadata.creation_timestamp, source=source, field="metadata.creationTimestamp")
    if metric is None:
        return Situation(node.metadata.name, capacity, allocatable, reserved, requested, created_at)
    status, source = metric.status, f"NodeMetric {metric.metadata.name}"
    info = status.node_metric
    return Situation(
        node=node.metadata.name,
        capacity=capacity,
        allocatable=allocatable,
        reserved=reserved,
        requested=requested,
        created_at=created_at,
        update_time=_instant(status.update_time, source=source, field="status.updateTime"),
        updated=status.update_time,
        usage=_complete(info.node_usage if info else None, source=source, field="status.nodeMetric.nodeUsage"),
        system_usage=_system_usage(info.system_usage if info else None, status.host_application_metric or (), source),
        peak=_reported(status.prod_peak_metric, source=source, field="status.prodPeakMetric"),
        reclaimable=_reported(status.prod_reclaimable_metric, source=source, field="status.prodReclaimableMetric"),
    )


def requested_by(pod: Pod) -> Requested:
    """What one pod adds. Raises InvalidInput."""
    if not pods.is_active(pod):
        return Requested()
    try:
        amount = pods.native_request(pod)
    except QuantityError as error:
        raise InvalidInput(
            source=f"Pod {pod.metadata.key}", field="spec.containers", value=pod.spec.containers, problem=str(error)
        ) from error
    return Requested(amount, amount if pods.is_reclaimable(pod) else NOTHING)


def requested_by_all(running: Iterable[Pod]) -> Requested:
    """What all pods of a node add up to. Raises InvalidInput."""
    sums = Requested()
    for pod in running:
        sums = sums.plus(requested_by(pod))
    return sums


def reserved_cpu_count(cpu_set: str) -> int:
    """How many cpus a set such as "0-3,8" names. Raises ValueError."""
    cpus: set[int] = set()
    for part in cpu_set.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < 1 << 16:
            raise ValueError(f"not a range of cpus: {part!r}")
        cpus.update(range(low, high + 1))
    return len(cpus)


def _annotated_reservation(node: Node) -> Resources:
    """The reservation annotation, in which a set of cpus outranks an amount; one that means nothing is none."""
    text = node.metadata.annotation(names.ANNOTATION_NODE_RESERVATION)
    if not text:
        return NOTHING
    try:
        reservation = msgspec.json.decode(text, type=_Reservation)
        amount = Resources.parse(reservation.resources or {})
        if reservation.reserved_cpus:
            return amount._replace(cpu_milli=quantity.MILLI_PER_CORE * reserved_cpu_count(reservation.reserved_cpus))
        return amount
    except ValueError:
        return NOTHING


def _system_usage(
    system: ResourceMap | None, applications: Iterable[HostApplicationMetricInfo], source: str
) -> Resources:
    """System usage and that of the host applications above Mid, of which there is the class prod alone."""
    used = _listed(system, source=source, field="status.nodeMetric.systemUsage") or NOTHING
    for application in applications:
        if application.priority == PriorityClass.PROD:
            field = f"status.hostApplicationMetric[{application.name}].usage"
            used = used.plus(_listed(application.usage, source=source, field=field) or NOTHING)
    return used


def _complete(usage: ResourceMap | None, *, source: str, field: str) -> Resources | None:
    """A usage that lacks one resource is none: half of it is not known."""
    if usage is None or not {names.CPU, names.MEMORY} <= (usage.resources or {}).keys():
        return None
    return _listed(usage, source=source, field=field)


def _reported(metric: ReclaimableMetric | None, *, source: str, field: str) -> Resources | None:
    return None if metric is None else _listed(metric.resource, source=source, field=f"{field}.resource")


def _listed(resources: ResourceMap | None, *, source: str, field: str) -> Resources | None:
    return None if resources is None else _amount(resources.resources or {}, source=source, field=field)


def _amount(listed: Mapping[str, str | int | float] | None, *, source: str, field: str) -> Resources | None:
    if listed is None:
        return None
    try:
        return Resources.parse(listed)
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        native = {name: listed[name] for name in (names.CPU, names.MEMORY) if name in listed}
        raise InvalidInput(source=source, field=field, value=native, problem=str(error)) from error


def _instant(text: str | None, *, source: str, field: str) -> float | None:
    if text is None:
        return None
    try:
        return durations.instant(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(source=source, field=field, value=text, problem=str(error)) from error
