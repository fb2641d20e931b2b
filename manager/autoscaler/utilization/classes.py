"""The classes of a group's nodes, and the order in which a scan takes nodes."""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from manager.autoscaler import taints
from manager.autoscaler.utilization.observation import GroupNode


@dataclass(frozen=True, slots=True)
class Classes:
    """Every node is in exactly one class. The scan leaves cordoned nodes alone, whatever their taints."""

    untainted: tuple[GroupNode, ...] = ()
    tainted: tuple[GroupNode, ...] = ()
    force_tainted: tuple[GroupNode, ...] = ()
    cordoned: tuple[GroupNode, ...] = ()


def classify(nodes: Iterable[GroupNode]) -> Classes:
    """Classifies by the taints and cordons of the nodes; taints of other components do not matter."""

    def class_of(node: GroupNode) -> str:
        if node.cordoned:
            return "cordoned"
        if taints.has_taint(node.taints, taints.FORCE):
            return "force_tainted"
        return "tainted" if taints.has_taint(node.taints, taints.TO_BE_REMOVED) else "untainted"

    return _sorted_into(nodes, class_of)


def classify_dry(nodes: Iterable[GroupNode], tainted: Collection[str], force_tainted: Collection[str] = ()) -> Classes:
    """Classifies only by what would have been done to the nodes so far."""

    def class_of(node: GroupNode) -> str:
        if node.name in force_tainted:
            return "force_tainted"
        return "tainted" if node.name in tainted else "untainted"

    return _sorted_into(nodes, class_of)


def oldest_first(nodes: Iterable[GroupNode]) -> tuple[GroupNode, ...]:
    return tuple(sorted(nodes, key=_age_and_name))


def newest_first(nodes: Iterable[GroupNode]) -> tuple[GroupNode, ...]:
    return tuple(sorted(nodes, key=_age_and_name, reverse=True))


def fullest_zones_first(nodes: Iterable[GroupNode]) -> tuple[GroupNode, ...]:
    """Takes each node from the zone with most remaining nodes, the oldest first, so that zones stay even."""
    by_zone: dict[str, deque[GroupNode]] = {}
    for node in oldest_first(nodes):
        by_zone.setdefault(node.zone, deque()).append(node)
    found: list[GroupNode] = []
    while by_zone:
        zone, left = min(by_zone.items(), key=lambda each: (-len(each[1]), _age_and_name(each[1][0])))
        found.append(left.popleft())
        if not left:
            del by_zone[zone]
    return tuple(found)


def _sorted_into(nodes: Iterable[GroupNode], class_of: Callable[[GroupNode], str]) -> Classes:
    found: dict[str, list[GroupNode]] = {"untainted": [], "tainted": [], "force_tainted": [], "cordoned": []}
    for node in nodes:
        found[class_of(node)].append(node)
    return Classes(**{name: tuple(each) for name, each in found.items()})


def _age_and_name(node: GroupNode) -> tuple[float, str]:
    return node.created_at, node.name
