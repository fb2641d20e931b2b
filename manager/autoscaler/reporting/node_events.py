"""The Kubernetes Events about nodes that go, in Cluster Autoscaler's words where it has any."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from manager.autoscaler.iteration import Action, ActionKind, Iteration
from manager.autoscaler.reporting import node_status
from manager.autoscaler.scale_down.deletions_in_progress import DeletionProgress, DeletionStage
from manager.autoscaler.scale_down.removal_status import NodeToRemove, ScaleDownReason
from shared.kube.events import NORMAL, WARNING

SCALE_DOWN, EMPTY, FAILED = "ScaleDown", "ScaleDownEmpty", "ScaleDownFailed"
TAINTED, UNTAINTED = "TaintedNodes", "UntaintedNodes"  # ours, like the next two: Escalator writes no Events
NOT_TAINTED, NOT_UNTAINTED = "FailedToTaintNodes", "FailedToUntaintNodes"

MOST_NAMES = 10  # of nodes or pods in one text

Said = tuple[Literal["Normal", "Warning"], str, str]  # type, reason and message of an Event


def action_events(action: Action, made: Iteration) -> Iterator[Said]:
    """The Events of an attempted removal or change of taints. Soft taints get none."""
    if node_status.is_soft_taint(action):
        return
    many = f"nodes {name_list(action.nodes)} of group {action.group}"
    match action.kind:
        case ActionKind.REMOVE_NODES if action.error:
            yield WARNING, FAILED, f"Scale-down: failed to remove {many}: {action.error}"
        case ActionKind.REMOVE_NODES:
            known = _removals(made)
            for node in action.nodes:
                yield _removing(node, action, known.get(node))
        case ActionKind.DELETE_NODES if not action.error and deletes_ripe_nodes(action, made):
            yield NORMAL, SCALE_DOWN, f"Scale-down: {many} removed: {action.reason}"
        case ActionKind.TAINT if action.error:
            yield WARNING, NOT_TAINTED, f"Utilization: failed to taint {many}: {action.error}"
        case ActionKind.TAINT:
            yield NORMAL, TAINTED, f"Utilization: tainted {many}: {action.reason}"
        case ActionKind.UNTAINT if action.error:
            yield WARNING, NOT_UNTAINTED, f"Utilization: failed to untaint {many}: {action.error}"
        case ActionKind.UNTAINT:
            yield NORMAL, UNTAINTED, f"Utilization: untainted {many}: {action.reason}"


def advice(action: Action, made: Iteration) -> Iterator[str]:
    """The same for recommendations."""
    if node_status.is_soft_taint(action):
        return
    many = f"nodes {name_list(action.nodes)} of group {action.group}"
    match action.kind:
        case ActionKind.REMOVE_NODES:
            known = _removals(made)
            for node in action.nodes:
                removal = known.get(node)
                if removal is None:
                    yield f"Scale-down: node {node} of group {action.group} would be removed: {action.reason}"
                elif removal.is_drained:
                    yield f"Scale-down: node {node} would be removed, {_rescheduled(removal)}"
                else:
                    yield f"Scale-down: empty node {node} would be removed"
        case ActionKind.TAINT:
            yield f"Utilization: {many} would be tainted: {action.reason}"
        case ActionKind.UNTAINT:
            yield f"Utilization: {many} would be untainted: {action.reason}"


def deletes_ripe_nodes(action: Action, made: Iteration) -> bool:
    """Whether it deletes nodes that the scan of their group found ripe, and not instances that never registered."""
    ripe = {node.name for scan in made.scans for node in scan.deletions}
    return action.kind is ActionKind.DELETE_NODES and bool(action.nodes) and ripe.issuperset(action.nodes)


def stage_changes(
    now: Iterable[DeletionProgress], before: Iterable[DeletionProgress]
) -> Iterator[tuple[DeletionProgress, DeletionStage | None]]:
    """Nodes that have reached a new stage of their deletion, with the stage that was reported before."""
    known = {(each.node, each.since): each.stage for each in before}
    for each in now:
        stage = known.get((each.node, each.since))
        if stage is not each.stage:
            yield each, stage


def node_events(going: DeletionProgress, before: DeletionStage | None) -> Iterator[Said]:
    """The Events on the node itself."""
    if going.stage not in (DeletionStage.MARKING, DeletionStage.FAILED) and before in (None, DeletionStage.MARKING):
        yield NORMAL, SCALE_DOWN, "marked the node as toBeDeleted/unschedulable"
    if going.stage is DeletionStage.GONE:
        yield NORMAL, SCALE_DOWN, "nodes removed by cluster autoscaler"
    elif going.stage is DeletionStage.FAILED:
        yield WARNING, FAILED, f"failed to remove the node: {going.error}"


def status_events(going: DeletionProgress) -> Iterator[Said]:
    """The Events on the status ConfigMap."""
    if going.stage is DeletionStage.FAILED:
        yield WARNING, FAILED, f"Scale-down: node {going.node} stays: {going.error}"
    elif going.stage is DeletionStage.GONE and going.kind is ScaleDownReason.EMPTY:
        yield NORMAL, EMPTY, f"Scale-down: empty node {going.node} removed"
    elif going.stage is DeletionStage.GONE:
        yield NORMAL, SCALE_DOWN, f"Scale-down: node {going.node} removed with drain"


def pod_events(going: DeletionProgress) -> Iterator[tuple[str, str, str]]:
    """Pod, reason and message, for the evicted pods."""
    if going.stage is DeletionStage.DRAINING:
        for pod in going.waits_for:
            yield pod, SCALE_DOWN, "deleting pod for node scale down"


def name_list(of: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(of) - MOST_NAMES
    return ", ".join(of[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _removing(node: str, action: Action, removal: NodeToRemove | None) -> Said:
    if removal is None:
        return NORMAL, SCALE_DOWN, f"Scale-down: removing node {node} of group {action.group}: {action.reason}"
    if removal.is_drained:
        return NORMAL, SCALE_DOWN, f"Scale-down: removing node {node}, {_rescheduled(removal)}"
    return NORMAL, EMPTY, f'Scale-down: removing empty node "{node}"'


def _rescheduled(removal: NodeToRemove) -> str:
    return f"utilization: {removal.utilization:.3g}, pods to reschedule: {name_list(removal.evicted)}"


def _removals(made: Iteration) -> Mapping[str, NodeToRemove]:
    return {} if made.scale_down is None else {each.node: each for each in made.scale_down.removals}
