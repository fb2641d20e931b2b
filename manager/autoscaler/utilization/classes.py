"""The classes of a group's nodes, the order in which a scan takes them, and whether too many did not come up."""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.rules import ScanRules


@dataclass(frozen=True, slots=True)
class Classes:
    """Every node is in exactly one class. The scan leaves cordoned nodes alone, regardless of their taints."""

    untainted: tuple[GroupNode, ...] = ()
    tainted: tuple[GroupNode, ...] = ()
    force_tainted: tuple[GroupNode, ...] = ()
    cordoned: tuple[GroupNode, ...] = ()

    @property
    def all(self) -> tuple[GroupNode, ...]:
        return (*self.untainted, *self.tainted, *self.force_tainted, *self.cordoned)


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
    """Classifies only by what a dry run would have done to the nodes so far."""

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


def is_unhealthy(node: GroupNode, *, grace_seconds: float, now: float) -> bool:
    """Whether it is not ready although its grace period is over. Cordoned nodes never count."""
    return not node.cordoned and not node.ready and node.created_at + grace_seconds <= now


def unhealthy(nodes: Iterable[GroupNode], *, grace_seconds: float, now: float) -> tuple[GroupNode, ...]:
    return tuple(node for node in nodes if is_unhealthy(node, grace_seconds=grace_seconds, now=now))


def nodes_past_grace(nodes: Iterable[GroupNode], *, grace_seconds: float, now: float) -> tuple[GroupNode, ...]:
    return tuple(node for node in nodes if node.created_at + grace_seconds < now)


def newest(nodes_newest_first: Sequence[GroupNode], percent: int) -> Sequence[GroupNode]:
    """The first `percent` percent of the nodes, rounded up."""
    return nodes_newest_first[: math.ceil(percent / 100 * len(nodes_newest_first))]


def is_group_healthy(rules: ScanRules, nodes: Iterable[GroupNode], *, now: float) -> bool:
    """Whether few enough of the newest nodes are unhealthy; a group without nodes is healthy."""
    grace_seconds = rules.unhealthy_grace_seconds
    ordered = nodes_past_grace(newest_first(nodes), grace_seconds=grace_seconds, now=now)
    tested = newest(ordered, rules.group.health_check_newest_nodes_percent)
    if not tested:
        return True
    bad = len(unhealthy(tested, grace_seconds=grace_seconds, now=now))
    return bad * 100 // len(tested) <= rules.group.max_unhealthy_nodes_percent


def _sorted_into(nodes: Iterable[GroupNode], class_of: Callable[[GroupNode], str]) -> Classes:
    found: dict[str, list[GroupNode]] = {"untainted": [], "tainted": [], "force_tainted": [], "cordoned": []}
    for node in nodes:
        found[class_of(node)].append(node)
    return Classes(**{name: tuple(each) for name, each in found.items()})


def _age_and_name(node: GroupNode) -> tuple[float, str]:
    return node.created_at, node.name
