"""The candidates of scale-down: nodes whose state, annotations, group and utilization allow a removal."""

from dataclasses import dataclass

from manager.autoscaler.scale_down.inputs import ScaleDownContext
from manager.autoscaler.scale_down.node_utilization import NodeUtilization, node_utilization
from manager.autoscaler.scale_down.removal_status import NodeStatuses, UnremovableNode
from manager.autoscaler.scale_down.rules import GroupRules, ScaleDownRules, UnremovableReason
from manager.autoscaler.scale_down.size_limits import ShrinkingGroup
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared.errors import InvalidInput
from shared.quantity import Amounts

ANNOTATION_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

Objection = tuple[UnremovableReason, str]

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


def find_candidates(context: ScaleDownContext, statuses: NodeStatuses) -> list[Candidate]:
    """The nodes to simulate, in order; all others get their verdict."""
    inputs = context.inputs
    found = []
    for node in context.nodes:
        group = inputs.groups.get(context.group_of(node))
        if group is None:
            detail = inputs.kept.get(context.group_of(node), "it is of no group that may shrink")
            statuses.keep(node, UnremovableReason.NOT_AUTOSCALED, detail)
            continue
        used = statuses.used[node.name] = _utilization(context, node, group.rules)
        against = _objection(context, node, group, used)
        if against is not None or isinstance(used, InvalidInput):
            statuses.keep(node, *(against or (UnremovableReason.UNEXPECTED, str(used))))
            continue
        is_empty = not context.pods_that_need_places(node.name)
        known = inputs.memory.unremovable.get(node.name)
        if known is not None and _is_fresh(known, context) and not (is_empty and known.reason in _OF_PODS):
            statuses.unremovable[node.name] = known
            detail = f"a short while ago, {known.reason}: {known.detail}"
            statuses.keep(node, UnremovableReason.RECENTLY_UNREMOVABLE, detail)
            continue
        found.append(Candidate(node, group, used, inputs.memory.unneeded_since.get(node.name), is_empty))
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
        return UnremovableReason.STARTING, "it has not started yet"
    if node.annotations.get(ANNOTATION_DISABLED) == "true":
        return UnremovableReason.DISABLED, f"its annotation {ANNOTATION_DISABLED} is true"
    if not is_ready(node) and not rules.unready_enabled:
        return UnremovableReason.UNREADY_DISABLED, "it is unready, and unready nodes are left alone"
    if isinstance(used, InvalidInput):
        return UnremovableReason.UNEXPECTED, str(used)
    threshold = group.gpu_utilization_threshold if used.of_gpu else group.utilization_threshold
    if used.share > threshold:
        shown = f"{used.share:.1%} of its {used.resource} is requested, more than {threshold:.1%}"
        return UnremovableReason.NOT_UNDERUTILIZED, shown
    return None


def _readiness(node: NodeInfo) -> NodeState:
    return node.readiness or node.state


def at_minimum(group: ShrinkingGroup) -> Objection:
    """Why a group of minimum size keeps its nodes."""
    size, deleting = group.group.target_size, group.deleting
    going = f", {deleting} of which are going" if deleting else ""
    return (
        UnremovableReason.AT_MINIMUM,
        f"its group has {size} nodes{going}, and is to have at least {group.group.min_size}",
    )


def _utilization(context: ScaleDownContext, node: NodeInfo, rules: GroupRules) -> NodeUtilization | InvalidInput:
    counted: list[Amounts] = []
    ignored: list[Amounts] = []
    for each in context.pods_on(node.name):
        who = each.drain_info
        if who is not None and who.is_long_gone(context.now):
            continue
        is_ignored = who is not None and (
            (who.is_daemon and rules.ignores_daemons) or (who.is_mirror and context.rules.ignores_mirror_pods)
        )
        (ignored if is_ignored else counted).append(each.facts.requests)
    try:
        return node_utilization(node, counted, ignored, context.rules.gpu_label)
    except InvalidInput as problem:
        return problem


def _objection(
    context: ScaleDownContext, node: NodeInfo, group: ShrinkingGroup, used: NodeUtilization | InvalidInput
) -> Objection | None:
    if context.is_leaving(node):
        return UnremovableReason.BEING_DELETED, "it is being deleted"
    found = objection(node, used, context.rules, group.rules)
    if found is not None:
        return found
    if node.name in context.inputs.unreadable:
        return UnremovableReason.UNEXPECTED, context.inputs.unreadable[node.name]
    return at_minimum(group) if not group.spare else None


def _is_fresh(known: UnremovableNode, context: ScaleDownContext) -> bool:
    """An `until` further ahead than the recheck time comes from a clock that was set back since."""
    return context.now < known.until <= context.now + context.rules.recheck_seconds
