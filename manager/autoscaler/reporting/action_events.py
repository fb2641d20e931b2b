"""What the Events on the status ConfigMap say of an action: that it was done, that it failed, or would be done.

They are in Cluster Autoscaler's words where it has any.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from manager.autoscaler import reconciliation
from manager.autoscaler.iteration import Action, ActionKind, Iteration
from manager.autoscaler.modes import Mode
from manager.autoscaler.reporting import node_status
from manager.autoscaler.scale_down.removal_status import NodeToRemove
from shared.explanation import first_names
from shared.kube.events import NORMAL, WARNING

SCALE_DOWN, EMPTY, FAILED = "ScaleDown", "ScaleDownEmpty", "ScaleDownFailed"
# Ours: Escalator writes no Events, and Cluster Autoscaler has no groups in recommend mode.
TAINTED, NOT_TAINTED = "TaintedNodes", "FailedToTaintNodes"
UNTAINTED, NOT_UNTAINTED = "UntaintedNodes", "FailedToUntaintNodes"
RECOMMENDED, RECOMMENDED_DOWN = "RecommendedScaleUp", "RecommendedScaleDown"
RECOMMENDED_CLEANUP = "RecommendedCleanup"  # a correction would have been made

MOST_NAMES = 10  # of nodes or pods in one text

Said: TypeAlias = tuple[Literal["Normal", "Warning"], str, str]  # type, reason and message of an Event


def action_events(action: Action, made: Iteration) -> Iterator[Said]:
    """The Events of an action that was tried or is recommended. Soft taints get none."""
    if not (action.done or action.error or action.mode is Mode.RECOMMEND) or node_status.is_soft_taint(action):
        return
    group, error = action.group, action.error
    many = f"nodes {first_names(action.nodes, MOST_NAMES)} of group {group}"
    change = f"{action.to_size} instead of {action.from_size}"
    sizes = f"{change} (max: {action.max_size})"
    match action.kind:
        case ActionKind.INCREASE:
            if action.done or error:
                yield NORMAL, "ScaledUpGroup", f"Scale-up: setting group {group} size to {sizes}"
            yield _outcome(
                action,
                (NORMAL, "ScaledUpGroup", f"Scale-up: group {group} size set to {sizes}"),
                (WARNING, "FailedToScaleUpGroup", f"Scale-up failed for group {group}: {error}"),
                (NORMAL, RECOMMENDED, f"Scale-up: group {group} size would be set to {sizes}"),
            )
        case ActionKind.CREATE_GROUP:
            failed = f"NodeAutoprovisioning: attempt to create node group {group} failed: {error}"
            yield _outcome(
                action,
                (NORMAL, "CreatedNodeGroup", f"NodeAutoprovisioning: created new node group {group}"),
                (WARNING, "FailedToCreateNodeGroup", failed),
                (NORMAL, RECOMMENDED, f"NodeAutoprovisioning: node group {group} would be created"),
            )
        case ActionKind.DELETE_GROUP:
            failed = f"NodeAutoprovisioning: attempt to delete node group {group} failed: {error}"
            yield _outcome(
                action,
                (NORMAL, "DeletedNodeGroup", f"NodeAutoprovisioning: removed node group {group}"),
                (WARNING, "FailedToDeleteNodeGroup", failed),
                (NORMAL, RECOMMENDED_CLEANUP, f"NodeAutoprovisioning: node group {group} would be removed"),
            )
        case ActionKind.DECREASE_TARGET if error:
            failed = f"Failed to set group {group} size to {sizes}: {error}"
            reverting = action.reason == reconciliation.NEVER_CAME
            yield WARNING, "FailedToRevertScaleUp" if reverting else "FailedToFixNodeGroupSize", failed
        case ActionKind.DECREASE_TARGET if not action.done:
            yield NORMAL, RECOMMENDED_CLEANUP, f"group {group} size would be set to {change}: {action.reason}"
        case ActionKind.DELETE_NODES:
            yield from _deletion(action, made, many)
        case ActionKind.REMOVE_NODES if error:
            yield WARNING, FAILED, f"Scale-down: failed to remove {many}: {error}"
        case ActionKind.REMOVE_NODES:
            yield from _removals(action, made)
        case ActionKind.TAINT:
            yield _outcome(
                action,
                (NORMAL, TAINTED, f"Utilization: tainted {many}: {action.reason}"),
                (WARNING, NOT_TAINTED, f"Utilization: failed to taint {many}: {error}"),
                (NORMAL, RECOMMENDED_DOWN, f"Utilization: {many} would be tainted: {action.reason}"),
            )
        case ActionKind.UNTAINT:
            yield _outcome(
                action,
                (NORMAL, UNTAINTED, f"Utilization: untainted {many}: {action.reason}"),
                (WARNING, NOT_UNTAINTED, f"Utilization: failed to untaint {many}: {error}"),
                (NORMAL, RECOMMENDED, f"Utilization: {many} would be untainted: {action.reason}"),
            )


def _outcome(action: Action, done: Said, failed: Said, advised: Said) -> Said:
    return failed if action.error else done if action.done else advised


def _deletion(action: Action, made: Iteration, many: str) -> Iterator[Said]:
    """Of nodes that the scan of their group found ripe, or of instances that never registered."""
    group, error = action.group, action.error
    advised = f"nodes {', '.join(action.nodes)} of group {group} would be removed: {action.reason}"
    is_scanned = bool(action.nodes) and made.deleted_by_scans.issuperset(action.nodes)
    if not (action.done or error):
        yield NORMAL, RECOMMENDED_DOWN if is_scanned else RECOMMENDED_CLEANUP, advised
    elif action.reason == reconciliation.UNREGISTERED:
        for node in action.nodes:
            if error:
                yield WARNING, "DeleteUnregisteredFailed", f"Failed to remove node {node}: {error}"
            else:
                yield NORMAL, "DeleteUnregistered", f"Removed unregistered node {node}"
    elif error:
        failed = f"Failed to remove {len(action.nodes)} nodes of group {group} ({action.reason}): {error}"
        yield WARNING, "DeleteNodesFailed", failed
    if is_scanned and action.done and not error:
        yield NORMAL, SCALE_DOWN, f"Scale-down: {many} removed: {action.reason}"


def _removals(action: Action, made: Iteration) -> Iterator[Said]:
    """Of nodes that the cluster can do without."""
    known = {} if made.scale_down is None else {each.node: each for each in made.scale_down.removals}
    for node in action.nodes:
        removal, in_group = known.get(node), f"node {node} of group {action.group}"
        if removal is None and action.done:
            yield NORMAL, SCALE_DOWN, f"Scale-down: removing {in_group}: {action.reason}"
        elif removal is None:
            yield NORMAL, RECOMMENDED_DOWN, f"Scale-down: {in_group} would be removed: {action.reason}"
        elif removal.is_drained and action.done:
            yield NORMAL, SCALE_DOWN, f"Scale-down: removing node {node}, {_drain(removal)}"
        elif removal.is_drained:
            yield NORMAL, RECOMMENDED_DOWN, f"Scale-down: node {node} would be removed, {_drain(removal)}"
        elif action.done:
            yield NORMAL, EMPTY, f'Scale-down: removing empty node "{node}"'
        else:
            yield NORMAL, RECOMMENDED_DOWN, f"Scale-down: empty node {node} would be removed"


def _drain(removal: NodeToRemove) -> str:
    return f"utilization: {removal.utilization:.3g}, pods to reschedule: {first_names(removal.evicted, MOST_NAMES)}"
