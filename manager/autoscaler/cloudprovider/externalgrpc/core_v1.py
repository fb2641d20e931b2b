"""Nodes and Pods in protocol buffers (k8s.io/api/core/v1), as far as templates, prices and expanders need them."""

from collections.abc import Mapping, Sequence

from manager.autoscaler.cloudprovider.externalgrpc.wire import core_v1_pb2 as core
from manager.autoscaler.pricing.model import Machine
from shared import quantity
from shared.api.core import Node, NodeSpec, NodeStatus, Quantities, Taint, Toleration
from shared.api.meta import ObjectMeta
from shared.quantity import Amounts


def node(data: bytes) -> Node:
    """Raises DecodeError."""
    found = core.Node.FromString(data)
    metadata, spec, status = found.metadata, found.spec, found.status
    return Node(
        metadata=ObjectMeta(name=metadata.name, labels=dict(metadata.labels), annotations=dict(metadata.annotations)),
        spec=NodeSpec(
            taints=tuple(Taint(each.key, each.value, each.effect) for each in spec.taints),
            unschedulable=spec.unschedulable,
            provider_id=spec.providerID,
        ),
        status=NodeStatus(capacity=_read(status.capacity), allocatable=_read(status.allocatable)),
    )


def pod(requests: Amounts) -> bytes:
    """A Pod with one container of these requests."""
    return pod_metadata("pod", "default", {}) + pod_spec(requests)


def pod_metadata(name: str, namespace: str, labels: Mapping[str, str]) -> bytes:
    """The first part of a Pod: the bytes of both parts together are the Pod's."""
    return core.Pod(metadata=core.ObjectMeta(name=name, namespace=namespace, labels=labels)).SerializeToString()


def pod_spec(
    requests: Amounts,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
    priority: int | None = None,
) -> bytes:
    """The second part of a Pod with one container, which pods of one kind share."""
    resources = core.ResourceRequirements(requests=_quantities(requests))
    tolerated = (
        core.Toleration(key=each.key, operator=each.operator, value=each.value, effect=each.effect)
        for each in tolerations
    )
    spec = core.PodSpec(
        containers=[core.Container(name="main", resources=resources)],
        nodeSelector=node_selector,
        tolerations=tolerated,
        priority=priority,
    )
    return core.Pod(spec=spec).SerializeToString()


def encode_node(name: str, machine: Machine, taints: Sequence[Taint], allocatable: Amounts) -> bytes:
    marks = (core.Taint(key=each.key, value=each.value, effect=each.effect) for each in taints)
    return core.Node(
        metadata=core.ObjectMeta(name=name, labels=machine.labels, annotations=machine.annotations),
        spec=core.NodeSpec(taints=marks),
        status=core.NodeStatus(capacity=_quantities(machine.capacity), allocatable=_quantities(allocatable)),
    ).SerializeToString()


def _quantities(amounts: Amounts) -> dict[str, core.Quantity]:
    return {resource: core.Quantity(string=str(text)) for resource, text in quantity.format_amounts(amounts).items()}


def _read(quantities: Mapping[str, core.Quantity]) -> Quantities:
    return {resource: found.string or "0" for resource, found in quantities.items()}
