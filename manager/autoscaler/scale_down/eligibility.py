"""The candidates of scale-down: nodes whose state, annotations, group and utilization allow a removal.

Utilization is Cluster Autoscaler's measure: the requested share of a node.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from manager.autoscaler.expander.option import GPU_RESOURCES, has_gpu
from manager.autoscaler.scale_down.removal_status import (
    GroupRules,
    NodeRemovalStatus,
    NodeStanding,
    Objection,
    ScaleDownRules,
    UnremovableNode,
    UnremovableReason,
)
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext, ShrinkingGroup
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared.errors import InvalidInput
from shared.explanation import ScaleExplanation, Term
from shared.names import CPU, MEMORY
from shared.quantity import Amounts

Terms: TypeAlias = tuple[Term, ...]


class NodeUtilization(NamedTuple):
    """`share` is that of the most requested resource. `of_gpu`: the node has GPUs, so that only these count."""

    share: float
    resource: str
    of_gpu: bool = False

    @property
    def terms(self) -> "Terms":
        """None for a share without bound."""
        if not math.isfinite(self.share):
            return ()
        return (Term("utilization", round(self.share * 10_000), "basisPoints", f"requests of {self.resource}"),)


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


ANNOTATION_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

_OF_PODS = frozenset(
    {UnremovableReason.NO_PLACE, UnremovableReason.PEAKS, UnremovableReason.BLOCKED_BY_POD}
)  # these reasons do not apply to nodes without pods


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node to simulate, unneeded since `since` (Unix seconds) as of the last pass."""

    node: NodeInfo
    group: ShrinkingGroup
    used: NodeUtilization
    since: float | None
    is_empty: bool

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def group_id(self) -> str:
        return self.group.group.id

    @property
    def turn(self) -> tuple[bool, float, bool, float, str]:
        """The sort key of the simulation."""
        return self.since is None, self.since or 0.0, not self.is_empty, self.used.share, self.name


class NodeStatuses:
    """The verdicts of a pass as they are reached. A later verdict on a node replaces an earlier one.

    `used` is each node's utilization as found by the pass, `unremovable` the nodes that are not tried again soon.
    """

    def __init__(self, group_of: Mapping[str, str], retry_at: float) -> None:
        self._group_of = group_of
        self._retry_at = retry_at
        self.used: dict[str, NodeUtilization | InvalidInput] = {}
        self.unremovable: dict[str, UnremovableNode] = {}
        self.by_node: dict[str, NodeRemovalStatus] = {}

    def keep(self, node: NodeInfo, reason: UnremovableReason, detail: str, terms: Terms = ()) -> None:
        """The cluster needs the node, or the node may not go."""
        self._record(node, NodeStanding.NEEDED, ScaleExplanation(detail, terms, reason))

    def keep_for_a_while(self, node: NodeInfo, reason: UnremovableReason, detail: str) -> None:
        """The same for a node that is not tried again before the recheck time is over."""
        self.unremovable[node.name] = UnremovableNode(self._retry_at, reason, detail)
        self.keep(node, reason, detail)

    def delay(self, node: NodeInfo, why: Objection, *, since: float, ripe_at: float) -> None:
        """The node is unneeded, and does not go yet."""
        why_not = ScaleExplanation(why.detail, why.terms, why.reason)
        self._record(node, NodeStanding.UNNEEDED, why_not, since, ripe_at)

    def remove(self, node: NodeInfo, detail: str, *, since: float, ripe_at: float) -> None:
        """The node goes."""
        self._record(node, NodeStanding.GOES, ScaleExplanation(detail, result=-1), since, ripe_at)

    def _record(
        self,
        node: NodeInfo,
        standing: NodeStanding,
        why: ScaleExplanation,
        since: float | None = None,
        ripe_at: float | None = None,
    ) -> None:
        used, share = self.used.get(node.name), None
        if isinstance(used, NodeUtilization):
            share = used.share
            why = msgspec.structs.replace(why, terms=(*used.terms, *why.terms))
        group = self._group_of.get(node.name, "")
        self.by_node[node.name] = NodeRemovalStatus(node.name, group, standing, why, share, since, ripe_at)


def find_candidates(context: ScaleDownContext, statuses: NodeStatuses) -> list[Candidate]:
    """The nodes to simulate, in order; all others get their verdict."""
    found = []
    for node in context.registered:
        group = context.groups.get(context.group_id(node))
        if group is None:
            detail = context.kept.get(context.group_id(node), "it belongs to no node group that may shrink")
            statuses.keep(node, UnremovableReason.NOT_AUTOSCALED, detail)
            continue
        used = statuses.used[node.name] = _utilization(context, node, group.rules)
        against = _objection(context, node, group, used)
        if against is not None or isinstance(used, InvalidInput):
            statuses.keep(node, *(against or Objection(UnremovableReason.UNEXPECTED, str(used))))
            continue
        is_empty = not context.pods_that_need_places(node.name)
        known = context.memory.unremovable.get(node.name)
        if known is not None and _is_fresh(known, context) and not (is_empty and known.reason in _OF_PODS):
            statuses.unremovable[node.name] = known
            detail = f"a short while ago, {known.reason}: {known.detail}"
            statuses.keep(node, UnremovableReason.RECENTLY_UNREMOVABLE, detail)
            continue
        found.append(Candidate(node, group, used, context.memory.unneeded_since.get(node.name), is_empty))
    return sorted(found, key=lambda each: each.turn)


def is_ready(node: NodeInfo) -> bool:
    """A cordoned node may be ready, too."""
    return _readiness(node) not in (NodeState.UNREADY, NodeState.NOT_STARTED)


def objection(
    node: NodeInfo, used: NodeUtilization | InvalidInput, rules: ScaleDownRules, group: GroupRules
) -> Objection | None:
    """Why a node cannot be unneeded, regardless of its pods; None for one that can.

    A node that is still starting was bought for pods that cannot be on it yet.
    """
    if _readiness(node) is NodeState.NOT_STARTED:
        return Objection(UnremovableReason.STARTING, "it has not started yet")
    if node.annotations.get(ANNOTATION_DISABLED) == "true":
        return Objection(UnremovableReason.DISABLED, f"its annotation {ANNOTATION_DISABLED} is true")
    if not is_ready(node) and not rules.removal.scale_down_unready_enabled:
        return Objection(UnremovableReason.UNREADY_DISABLED, "it is unready, and scale-down of these is disabled")
    if isinstance(used, InvalidInput):
        return Objection(UnremovableReason.UNEXPECTED, str(used))
    threshold = group.scale_down_gpu_utilization_threshold if used.of_gpu else group.scale_down_utilization_threshold
    if used.share > threshold:
        shown = f"{used.share:.1%} of its {used.resource} is requested, more than {threshold:.1%}"
        limit = Term("utilizationThreshold", round(threshold * 10_000), "basisPoints", "options of the group")
        return Objection(UnremovableReason.NOT_UNDERUTILIZED, shown, (limit,))
    return None


def _readiness(node: NodeInfo) -> NodeState:
    return node.readiness or node.state


def at_minimum(group: ShrinkingGroup) -> Objection:
    """Why a group of minimum size keeps its nodes."""
    size, deleting = group.group.target_size, group.deleting
    going = f", {deleting} of them being deleted" if deleting else ""
    detail = f"its group has {size} nodes{going}, and its minimum is {group.group.min_size}"
    values = (("targetSize", size), ("deleting", deleting), ("minSize", group.group.min_size))
    terms = tuple(Term(name, value, "nodes", f"node group {group.group.id}") for name, value in values)
    return Objection(UnremovableReason.AT_MINIMUM, detail, terms)


def _utilization(context: ScaleDownContext, node: NodeInfo, rules: GroupRules) -> NodeUtilization | InvalidInput:
    counted: list[Amounts] = []
    ignored: list[Amounts] = []
    for each in context.pods_on(node.name):
        who = each.drain_info
        if who is not None and who.is_long_gone(context.now):
            continue
        is_ignored = who is not None and who.is_daemon and rules.ignore_daemonsets_utilization
        (ignored if is_ignored else counted).append(each.facts.requests)
    try:
        return node_utilization(node, counted, ignored, context.rules.gpu_label)
    except InvalidInput as problem:
        return problem


def _objection(
    context: ScaleDownContext, node: NodeInfo, group: ShrinkingGroup, used: NodeUtilization | InvalidInput
) -> Objection | None:
    if node.name in context.replacing:
        return Objection(UnremovableReason.REPLACEMENT, context.replacing[node.name])
    if context.is_leaving(node):
        return context.why_leaving(node)
    found = objection(node, used, context.rules, group.rules)
    if found is not None:
        return found
    if node.name in context.unreadable:
        return Objection(UnremovableReason.UNEXPECTED, context.unreadable[node.name])
    return at_minimum(group) if not group.spare else None


def _is_fresh(known: UnremovableNode, context: ScaleDownContext) -> bool:
    """An `until` further ahead than the recheck time comes from a clock that was set back since."""
    return context.now < known.until <= context.now + context.rules.removal.unremovable_node_recheck_timeout_seconds
