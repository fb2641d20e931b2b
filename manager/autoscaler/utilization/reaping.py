"""Which tainted nodes are deleted now, and why each of the others stays."""

import enum
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import classes
from manager.autoscaler.utilization.observation import GroupNode, GroupPod, Observation
from manager.autoscaler.utilization.rules import ScanRules
from shared.errors import InvalidInput


class TaintedNodeReason(enum.StrEnum):
    """The fate of a tainted node, and the reason."""

    EMPTY = "empty for long enough"
    OVERDUE = "past its hard deadline"
    DRAINING = "past its hard deadline, its pods are evicted first"
    FORCED = "forced, and empty"
    HEALTHY = "healthy, in a group that is not"
    PROTECTED = "protected from deletion"
    NO_TIME = "no time on its taint"
    TOO_EARLY = "within its soft grace period"
    HOLDS_PODS = "holds pods"
    AT_MINIMUM = "the cloud's minimum"
    AWAITS_OTHERS = "the group's minimum, until others are there"
    PASSED_OVER = "it could not be done now"


DELETED = frozenset({TaintedNodeReason.EMPTY, TaintedNodeReason.OVERDUE, TaintedNodeReason.FORCED})


@dataclass(frozen=True, slots=True)
class TaintedNodeStatus:
    """The verdict on one tainted node. `tainted_at` in Unix seconds; `pods` counts those still on it."""

    node: GroupNode
    why: TaintedNodeReason
    pods: int = 0
    tainted_at: float | None = None

    @property
    def goes(self) -> bool:
        return self.why in DELETED

    @property
    def drains(self) -> bool:
        return self.why is TaintedNodeReason.DRAINING


@dataclass(frozen=True, slots=True)
class Reaping:
    """Nodes to delete in one cloud call, and nodes to drain, which a later call deletes."""

    statuses: tuple[TaintedNodeStatus, ...] = ()

    @property
    def nodes(self) -> tuple[GroupNode, ...]:
        return tuple(each.node for each in self.statuses if each.goes)

    @property
    def draining(self) -> tuple[GroupNode, ...]:
        return tuple(each.node for each in self.statuses if each.drains)

    def pass_over(self, passed_over: Container[str]) -> "Reaping":
        """The reaping as carried out, without these nodes."""
        return replace(
            self,
            statuses=tuple(
                replace(each, why=TaintedNodeReason.PASSED_OVER)
                if (each.goes or each.drains) and each.node.name in passed_over
                else each
                for each in self.statuses
            ),
        )

    @property
    def pods_evicted(self) -> int:
        return sum(each.pods for each in self.statuses if each.goes)


@dataclass(frozen=True)
class PodsByNode:
    """The pods on a group's nodes; pods on other nodes are left out."""

    by_node: Mapping[str, tuple[GroupPod, ...]] = field(default_factory=dict)

    @classmethod
    def group(cls, nodes: Iterable[GroupNode], pods: Iterable[GroupPod]) -> "PodsByNode":
        found: dict[str, list[GroupPod]] = {node.name: [] for node in nodes}
        for pod in pods:
            if pod.node in found:
                found[pod.node].append(pod)
        return cls({name: tuple(each) for name, each in found.items()})

    def remaining(self, node: str) -> int | None:
        """The number of pods that the node's deletion would lose; None if unknown."""
        pods = self.by_node.get(node)
        return None if pods is None else sum(not pod.of_node for pod in pods)

    def is_empty(self, node: str) -> bool:
        """Whether its deletion loses no pod; an unknown node is not empty."""
        return self.remaining(node) == 0


def pods_that_keep_nodes(seen: Observation) -> PodsByNode:
    """The pods that keep a node until its hard deadline."""
    return PodsByNode.group(seen.nodes, (*seen.pods, *seen.others))


def force_tainted_statuses(nodes: Iterable[GroupNode], pods: PodsByNode) -> tuple[TaintedNodeStatus, ...]:
    """The verdicts on force-tainted nodes: only pods keep them, and without a deadline."""
    return tuple(
        TaintedNodeStatus(
            node,
            TaintedNodeReason.FORCED if pods.is_empty(node.name) else TaintedNodeReason.HOLDS_PODS,
            pods.remaining(node.name) or 0,
        )
        for node in nodes
    )


def tainted_statuses(
    rules: ScanRules, nodes: Iterable[GroupNode], pods: PodsByNode, *, healthy_may_go: bool, now: float
) -> tuple[TaintedNodeStatus, ...]:
    """The verdicts on nodes that the scan has tainted."""
    return tuple(_verdict(rules, node, pods, healthy_may_go=healthy_may_go, now=now) for node in nodes)


def _verdict(
    rules: ScanRules, node: GroupNode, pods: PodsByNode, *, healthy_may_go: bool, now: float
) -> TaintedNodeStatus:
    count = pods.remaining(node.name) or 0
    try:
        since = taints.tainted_at(node.taints, node=node.name)
    except InvalidInput:
        since = None
    is_unhealthy = classes.is_unhealthy(node, grace_seconds=rules.unhealthy_grace_seconds, now=now)
    if rules.checks_health and not healthy_may_go and not is_unhealthy:
        why = TaintedNodeReason.HEALTHY
    elif node.no_delete:
        why = TaintedNodeReason.PROTECTED
    elif since is None:
        why = TaintedNodeReason.NO_TIME
    elif now - since <= rules.soft_seconds:
        why = TaintedNodeReason.TOO_EARLY
    elif pods.is_empty(node.name):
        why = TaintedNodeReason.EMPTY
    elif now - since > rules.hard_seconds:
        drains = rules.group.drain_before_termination and now - since <= 2 * rules.hard_seconds
        why = TaintedNodeReason.DRAINING if drains else TaintedNodeReason.OVERDUE
    else:
        why = TaintedNodeReason.HOLDS_PODS
    return TaintedNodeStatus(node, why, count, since)


def within_minimum(verdicts: Sequence[TaintedNodeStatus], *, target_size: int, min_size: int, spare: int) -> Reaping:
    """Lets at most `spare` nodes go, and no more than the cloud's minimum allows."""
    kept = tuple(_kept_to(verdicts, max(0, spare), TaintedNodeReason.AWAITS_OTHERS))
    return Reaping(tuple(_kept_to(kept, max(0, target_size - min_size), TaintedNodeReason.AT_MINIMUM)))


def _kept_to(verdicts: Sequence[TaintedNodeStatus], most: int, why: TaintedNodeReason) -> Iterator[TaintedNodeStatus]:
    """Lets at most `most` nodes go; nodes to drain count after all others."""
    most_drained = most - sum(each.goes for each in verdicts)
    for each in verdicts:
        most -= each.goes
        most_drained -= each.drains
        is_too_many = (each.goes and most < 0) or (each.drains and most_drained < 0)
        yield replace(each, why=why) if is_too_many else each
