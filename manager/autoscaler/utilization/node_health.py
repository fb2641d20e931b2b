"""Whether nodes came up, and whether too many of the newest nodes did not."""

import math
from collections.abc import Iterable, Sequence

from manager.autoscaler.utilization import classes
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.rules import ScanRules


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
    ordered = nodes_past_grace(classes.newest_first(nodes), grace_seconds=grace_seconds, now=now)
    tested = newest(ordered, rules.group.health_check_newest_nodes_percent)
    if not tested:
        return True
    bad = len(unhealthy(tested, grace_seconds=grace_seconds, now=now))
    return bad * 100 // len(tested) <= rules.group.max_unhealthy_nodes_percent
