"""Marks on Nodes, and what goes with them: written one node at a time, and only to the node that was decided about."""

from collections.abc import Callable

from manager.autoscaler.actuation import node_writes
from manager.autoscaler.utilization.observation import GroupNode
from shared.api.core import Node, Pod, Taint
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import NODES, PODS

Marking = Callable[[tuple[Taint, ...]], tuple[Taint, ...] | None]


class PassedOver(HeadroomError):
    """The node is not what it was when it was decided about, and is left alone."""


def fresh(client: Client, node: GroupNode) -> Node:
    """The node as it is now. Raises PassedOver where it is gone, another one, or cordoned; and what the client raises.

    Cordoned nodes are nobody's business but theirs who cordoned them.
    """
    try:
        found = client.get(NODES, node.name, into=Node)
    except NotFound as error:
        raise PassedOver(f"{node.name}: it is gone") from error
    if found.spec.provider_id != node.provider_id:
        raise PassedOver(f"{node.name}: it is another machine by now")
    if found.spec.unschedulable:
        raise PassedOver(f"{node.name}: it is cordoned")
    return found


def retaint(client: Client, node: GroupNode, marking: Marking) -> None:
    """Changes the node's taints, unless `marking` says that they are as they are to be (None).

    Raises PassedOver, and what the client raises: Conflict where others keep writing.
    """

    def change(found: Node) -> dict[str, dict[str, object]] | None:
        taints = marking(found.spec.taints or ())
        return None if taints is None else {"spec": {"taints": taints}}

    try:
        node_writes.changed(client, lambda: fresh(client, node), change)
    except NotFound as error:
        raise PassedOver(f"{node.name}: it is gone") from error


def pods_on(client: Client, node: str) -> tuple[Pod, ...]:
    """All that are bound to it now. Raises PassedOver where some cannot be read; and what the client raises."""
    found = client.list(PODS, into=Pod, field_selector=f"spec.nodeName={node}")
    if found.refused:
        raise PassedOver(f"{node}: a pod on it cannot be read: {found.refused[0]}")
    return tuple(found.items)
