"""The cluster's data about one node, checked and in integers: the input of every formula."""

import re
from collections.abc import Container
from typing import Annotated

import msgspec

from manager.nodeside.noderesource.report import NodeReport
from manager.pods import NOTHING, NodeRequests
from shared import durations, names, quantity
from shared.api.core import Node, Quantities
from shared.api.meta import Wire, prepared
from shared.errors import InvalidInput
from shared.quantity import Resources

_CPU_RANGE = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?")


class NodeFacts(msgspec.Struct, frozen=True):
    """The facts of one version of a Node. `created_at` is in Unix seconds, None if absent.

    `reserved` is the larger, per resource, of the kubelet's reservation and that of the node's annotation.
    """

    node: str
    capacity: Resources
    allocatable: Resources
    reserved: Resources
    created_at: float | None = None


class NodeSituation(NodeFacts, frozen=True, kw_only=True):
    """One node at one moment. `prod_requested_lately` is the recent maximum of the requests of pods above Mid."""

    requested: NodeRequests
    report: NodeReport | None = None
    prod_requested_lately: Resources = NOTHING

    @property
    def most_requested(self) -> Resources:
        """The requests of pods above Mid, now or when the report was made, whichever is larger; see `plausibility`."""
        return self.requested.prod.most(self.prod_requested_lately)

    def lacks_system_usage(self, where: int, host_applications: Container[str]) -> bool:
        """Whether there is a report that lacks one resource of what `system_usage` sums up; `where` is its position."""
        if self.report is None:
            return False
        counted = [each.parts for each in self.report.host_applications if each.priority_class in host_applications]
        return any(used[where] is None for used in (self.report.system_usage, *counted))

    def system_usage(self, host_applications: Container[str]) -> Resources:
        """The usage of the system, and of the host applications of these priority classes; unreported usage is 0."""
        if self.report is None:
            return NOTHING
        used = Resources(*(amount or 0 for amount in self.report.system_usage))
        for application in self.report.host_applications:
            if application.priority_class in host_applications:
                used = used.plus(application.usage)
        return used


@prepared
class _Reservation(Wire, frozen=True):
    resources: Quantities | None = None
    reserved_cpus: Annotated[str, msgspec.Meta(max_length=4096)] = msgspec.field(default="", name="reservedCPUs")


def facts(node: Node) -> NodeFacts:
    """Raises InvalidInput that names object, field and value of an invalid Node."""
    capacity = _amount(node, "capacity", node.status.capacity)
    allocatable = _amount(node, "allocatable", node.status.allocatable)
    reserved = capacity.minus(allocatable).floored().most(_reservation_or_none(node))
    return NodeFacts(node.metadata.name, capacity, allocatable, reserved, _created_at(node))


def observe(
    known: NodeFacts, report: NodeReport | None, requested: NodeRequests, prod_requested_lately: Resources = NOTHING
) -> NodeSituation:
    """The situation of a node."""
    facts = msgspec.structs.astuple(known)
    return NodeSituation(*facts, requested=requested, report=report, prod_requested_lately=prod_requested_lately)


def reserved_cpu_count(cpu_set: str) -> int:
    """The number of cpus that a set such as "0-3,8" names. Raises ValueError."""
    cpus: set[int] = set()
    for part in cpu_set.split(","):
        first, _, last = part.partition("-")
        if not _CPU_RANGE.fullmatch(part) or not (low := int(first)) <= (high := int(last or first)) < 1 << 16:
            raise ValueError(f"not a range of cpus: {part!r}")
        cpus.update(range(low, high + 1))
    return len(cpus)


def reservation(node: Node) -> Resources:
    """The reservation of the annotation, in which a set of cpus overrides an amount. Raises InvalidInput."""
    text = node.metadata.annotation(names.ANNOTATION_NODE_RESERVATION)
    if not text:
        return NOTHING
    try:
        said = msgspec.json.decode(text, type=_Reservation)
        amount = Resources.parse_amount(said.resources or {})
        if said.reserved_cpus:
            return amount._replace(cpu_milli=quantity.MILLI_PER_CORE * reserved_cpu_count(said.reserved_cpus))
        return amount
    except (ValueError, RecursionError) as error:
        source, field = f"Node {node.metadata.name} annotation", names.ANNOTATION_NODE_RESERVATION
        raise InvalidInput(source=source, field=field, value=text, problem=str(error)) from error


def problems(node: Node) -> tuple[InvalidInput, ...]:
    """The Node's invalid annotations."""
    try:
        reservation(node)
    except InvalidInput as problem:
        return (problem,)
    return ()


def _reservation_or_none(node: Node) -> Resources:
    """An invalid annotation reserves nothing."""
    try:
        return reservation(node)
    except InvalidInput:
        return NOTHING


def _amount(node: Node, part: str, listed: Quantities | None) -> Resources:
    if not listed:
        return NOTHING
    try:
        return Resources.parse_amount(listed)
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        native = {name: listed[name] for name in (names.CPU, names.MEMORY) if name in listed}
        raise InvalidInput(
            source=f"Node {node.metadata.name}", field=f"status.{part}", value=native, problem=str(error)
        ) from error


def _created_at(node: Node) -> float | None:
    text = node.metadata.creation_timestamp
    if text is None:
        return None
    try:
        return durations.instant(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            source=f"Node {node.metadata.name}", field="metadata.creationTimestamp", value=text, problem=str(error)
        ) from error
