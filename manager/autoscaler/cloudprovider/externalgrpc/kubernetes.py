"""Nodes and Pods in protocol buffers (k8s.io/api/core/v1), as far as templates and prices need them."""

from collections.abc import Mapping

from shared import protobuf, quantity
from shared.api.core import Node, NodeSpec, NodeStatus, Quantities, Taint
from shared.api.meta import ObjectMeta
from shared.names import CPU
from shared.protobuf import as_bytes, as_text, encoded, fields
from shared.quantity import Amounts


def node(data: bytes) -> Node:
    """Raises protobuf.Malformed."""
    metadata, spec, status = ObjectMeta(), NodeSpec(), NodeStatus()
    for number, raw in fields(data):
        if number == 1:
            metadata = _metadata(as_bytes(raw))
        elif number == 2:
            spec = _node_spec(as_bytes(raw))
        elif number == 3:
            status = _node_status(as_bytes(raw))
    return Node(metadata=metadata, spec=spec, status=status)


def pod(requests: Amounts) -> bytes:
    """A Pod with one container of these requests."""
    listed = b"".join(
        encoded(2, entry(resource, encoded(1, _quantity(resource, amount)))) for resource, amount in requests.items()
    )
    container = encoded(1, "main") + encoded(8, listed)
    return encoded(1, encoded(1, "pod") + encoded(3, "default")) + encoded(2, encoded(2, container))


def entry(key: str, value: str | bytes) -> bytes:
    """One pair of a map."""
    return encoded(1, key) + encoded(2, value)


def text_map(data: Mapping[str, str], number: int) -> bytes:
    """A map of texts as field `number`."""
    return b"".join(encoded(number, entry(key, value)) for key, value in data.items())


def _quantity(resource: str, amount: int) -> str:
    return quantity.format_milli(amount) if resource == CPU else str(amount)


def _metadata(data: bytes) -> ObjectMeta:
    name = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for number, raw in fields(data):
        if number == 1:
            name = as_text(raw)
        elif number in (11, 12):
            key, value = _pair(as_bytes(raw))
            (labels if number == 11 else annotations)[key] = as_text(value)
    return ObjectMeta(name=name, labels=labels, annotations=annotations)


def _node_spec(data: bytes) -> NodeSpec:
    provider_id, unschedulable = "", False
    taints: list[Taint] = []
    for number, raw in fields(data):
        if number == 3:
            provider_id = as_text(raw)
        elif number == 4:
            unschedulable = bool(raw)
        elif number == 5:
            parts = dict(fields(as_bytes(raw)))
            taints.append(Taint(*(as_text(parts.get(part, b"")) for part in (1, 2, 3))))
    return NodeSpec(taints=tuple(taints), unschedulable=unschedulable, provider_id=provider_id)


def _node_status(data: bytes) -> NodeStatus:
    capacity: Quantities = {}
    allocatable: Quantities = {}
    for number, raw in fields(data):
        if number in (1, 2):
            resource, amount = _pair(as_bytes(raw))
            text = as_text(dict(fields(as_bytes(amount))).get(1, b"")) or "0"
            (capacity if number == 1 else allocatable)[resource] = text
    return NodeStatus(capacity=capacity, allocatable=allocatable)


def _pair(data: bytes) -> tuple[str, protobuf.Raw]:
    parts = dict(fields(data))
    return as_text(parts.get(1, b"")), parts.get(2, b"")
