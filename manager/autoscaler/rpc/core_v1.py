"""Nodes and Pods in protocol buffers (k8s.io/api/core/v1), as far as templates, prices and expanders need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared import protobuf, quantity
from shared.api.core import Node, NodeSpec, NodeStatus, Quantities, Taint, Toleration
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


@dataclass(frozen=True, slots=True)
class PodSketch:
    """The facts of a Pod's spec that are sent."""

    requests: Amounts
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Toleration] = ()
    priority: int | None = None


def pod(requests: Amounts) -> bytes:
    """A Pod with one container of these requests."""
    return pod_metadata("pod", "default", {}) + pod_spec(PodSketch(requests))


def pod_metadata(name: str, namespace: str, labels: Mapping[str, str]) -> bytes:
    """The first part of a Pod."""
    return encoded(1, encoded(1, name) + encoded(3, namespace) + text_map(labels, 11))


def pod_spec(sketch: PodSketch) -> bytes:
    """The second part of a Pod with one container, which pods of one kind share."""
    container = encoded(1, "main") + encoded(8, _quantities(sketch.requests, 2))
    priority = b"" if sketch.priority is None else encoded(25, sketch.priority)
    tolerations = b"".join(encoded(22, _toleration(each)) for each in sketch.tolerations)
    return encoded(2, encoded(2, container) + text_map(sketch.node_selector, 7) + tolerations + priority)


@dataclass(frozen=True, slots=True)
class NodeSketch:
    """The facts of a Node that are sent."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: Sequence[Taint]
    capacity: Amounts
    allocatable: Amounts


def encode_node(sketch: NodeSketch) -> bytes:
    metadata = encoded(1, sketch.name) + text_map(sketch.labels, 11) + text_map(sketch.annotations, 12)
    spec = b"".join(
        encoded(5, encoded(1, taint.key) + encoded(2, taint.value) + encoded(3, taint.effect))
        for taint in sketch.taints
    )
    status = _quantities(sketch.capacity, 1) + _quantities(sketch.allocatable, 2)
    return encoded(1, metadata) + encoded(2, spec) + encoded(3, status)


def entry(key: str, value: str | bytes) -> bytes:
    """One pair of a map."""
    return encoded(1, key) + encoded(2, value)


def text_map(data: Mapping[str, str], number: int) -> bytes:
    """A map of texts as field `number`."""
    return b"".join(encoded(number, entry(key, value)) for key, value in data.items())


def _quantities(amounts: Amounts, number: int) -> bytes:
    return b"".join(
        encoded(number, entry(resource, encoded(1, _quantity(resource, amount))))
        for resource, amount in amounts.items()
    )


def _toleration(toleration: Toleration) -> bytes:
    texts = (toleration.key, toleration.operator, toleration.value, toleration.effect)
    return b"".join(encoded(number, text) for number, text in enumerate(texts, 1))


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
