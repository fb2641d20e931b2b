"""Whether a node is considered for scale-down: its own state and annotations, and how much of it is requested."""

from manager.autoscaler.scale_down.node_utilization import NodeUtilization
from manager.autoscaler.scale_down.rules import GroupRules, ScaleDownRules, UnremovableReason
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED, NodeInfo, NodeState
from shared.errors import InvalidInput

ANNOTATION_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

Objection = tuple[UnremovableReason, str]


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


def is_being_deleted(node: NodeInfo, rules: ScaleDownRules, now: float) -> bool:
    """Whether it was tainted a short while ago.

    A taint without a readable time counts, and so does one with a future time.
    """
    for taint in node.taints:
        if taint.key == TAINT_TO_BE_DELETED:
            return not taint.value.isdecimal() or now - int(taint.value) < rules.deletion_seconds
    return False
