"""Which nodes are marked as ones that may go soon, so that the scheduler prefers others, and which no longer are."""

from collections.abc import Iterable
from dataclasses import dataclass

from manager.autoscaler.snapshot.cluster import NodeInfo
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE


@dataclass(frozen=True, slots=True)
class SoftTaints:
    """By node, what is to be done."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def soft_taints(nodes: Iterable[NodeInfo], unneeded: Iterable[str], at_once: int) -> SoftTaints:
    """At most so many changes at once. Nodes that are needed again come first: pods are waiting for nothing there."""
    wanted = list(unneeded)
    marked = {node.name for node in nodes if any(taint.key == TAINT_DELETION_CANDIDATE for taint in node.taints)}
    remove = sorted(marked - set(wanted))[:at_once]
    add = [name for name in wanted if name not in marked][: at_once - len(remove)]
    return SoftTaints(tuple(add), tuple(remove))
