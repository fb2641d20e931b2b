"""Nodes and Pods in protocol buffers (k8s.io/api/core/v1), as far as templates, prices and expanders need them."""

from collections.abc import Mapping, Sequence

from manager.autoscaler.pricing.model import Machine
from shared import protobuf, quantity
from shared.api.core import Node, NodeSpec, NodeStatus, Quantities, Taint, Toleration
from shared.api.meta import ObjectMeta
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
    return pod_metadata("pod", "default", {}) + pod_spec(requests)


def pod_metadata(name: str, namespace: str, labels: Mapping[str, str]) -> bytes:
    """The first part of a Pod."""
    return encoded(1, encoded(1, name) + encoded(3, namespace) + text_map(labels, 11))


def pod_spec(
    requests: Amounts,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
    priority: int | None = None,
) -> bytes:
    """The second part of a Pod with one container, which pods of one kind share."""
    container = encoded(1, "main") + encoded(8, _quantities(requests, 2))
    tolerated = b"".join(encoded(22, _toleration(each)) for each in tolerations)
    ranked = b"" if priority is None else encoded(25, priority)
    return encoded(2, encoded(2, container) + text_map(node_selector or {}, 7) + tolerated + ranked)


def encode_node(name: str, machine: Machine, taints: Sequence[Taint], allocatable: Amounts) -> bytes:
    metadata = encoded(1, name) + text_map(machine.labels, 11) + text_map(machine.annotations, 12)
    spec = b"".join(
        encoded(5, encoded(1, taint.key) + encoded(2, taint.value) + encoded(3, taint.effect)) for taint in taints
    )
    status = _quantities(machine.capacity, 1) + _quantities(allocatable, 2)
    return encoded(1, metadata) + encoded(2, spec) + encoded(3, status)


def entry(key: str, value: str | bytes) -> bytes:
    """One pair of a map."""
    return encoded(1, key) + encoded(2, value)


def text_map(data: Mapping[str, str], number: int) -> bytes:
    """A map of texts as field `number`."""
    return b"".join(encoded(number, entry(key, value)) for key, value in data.items())


def _quantities(amounts: Amounts, number: int) -> bytes:
    found = quantity.format_amounts(amounts)
    return b"".join(encoded(number, entry(resource, encoded(1, text))) for resource, text in found.items())


def _toleration(toleration: Toleration) -> bytes:
    texts = (toleration.key, toleration.operator, toleration.value, toleration.effect)
    return b"".join(encoded(number, text) for number, text in enumerate(texts, 1))


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
