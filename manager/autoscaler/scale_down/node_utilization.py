"""How much of a node is requested, as scale-down judges it (Cluster Autoscaler's measure)."""

from collections.abc import Iterable
from typing import NamedTuple

from manager.autoscaler.expander.option import GPU_RESOURCES, has_gpu
from manager.autoscaler.snapshot.cluster import NodeInfo
from shared.errors import InvalidInput
from shared.names import CPU, MEMORY
from shared.quantity import Amounts


class NodeUtilization(NamedTuple):
    """`share` is that of the most requested resource. `of_gpu`: the node has GPUs, and no other resource counts."""

    share: float
    resource: str
    of_gpu: bool = False


def node_utilization(
    node: NodeInfo, counted: Iterable[Amounts], ignored: Iterable[Amounts] = (), gpu_label: str | None = None
) -> NodeUtilization:
    """The utilization of one node, from its pods' requests. `ignored` requests are deducted from the allocatable.

    A node whose GPUs have not appeared yet is not utilized. Raises InvalidInput where cpu or memory is missing.
    """
    taken, apart = _total(counted), _total(ignored)
    if has_gpu(node.labels, node.allocatable, gpu_label):
        resource = next((name for name in GPU_RESOURCES if node.allocatable.get(name, 0) > 0), None)
        if resource is None:
            return NodeUtilization(0.0, GPU_RESOURCES[0], of_gpu=True)
        return NodeUtilization(_share(node, resource, taken, {}), resource, of_gpu=True)
    shares = [(_share(node, name, taken, apart), name) for name in (CPU, MEMORY)]
    return NodeUtilization(*max(shares, key=lambda each: each[0]))


def _share(node: NodeInfo, resource: str, taken: Amounts, apart: Amounts) -> float:
    there = node.allocatable.get(resource, 0)
    if there <= 0:
        raise InvalidInput(
            source=f"Node {node.name}",
            field=f"status.allocatable.{resource}",
            value=node.allocatable.get(resource),
            problem="utilization needs more than zero",
        )
    asked, left = taken.get(resource, 0), there - apart.get(resource, 0)
    if left > 0:
        return asked / left
    return float("inf") if asked else 0.0


def _total(requests: Iterable[Amounts]) -> Amounts:
    total: dict[str, int] = {}
    for each in requests:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount
    return total
