"""The Kubernetes Events of an iteration, in Cluster Autoscaler's words where it has any.

Events about pods, CapacityBuffers and ProvisioningRequests are on these, Events about a removed node are on the node,
all others on the status ConfigMap. A dry run writes none.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.cluster_state.state import Incident, IncidentKind, Increase
from manager.autoscaler.expander import chain, priority
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.pod_injection.buffer_planning import BufferPlan, BufferState
from manager.autoscaler.pod_injection.request_planning import RequestPlan
from manager.autoscaler.pod_injection.request_states import RequestStage, RequestState
from manager.autoscaler.scale_down.removal_status import DeletionProgress, DeletionStage, NodeToRemove, ScaleDownReason
from manager.autoscaler.scale_up.decisions import ALLOWED, ScaleUpDecision, ScaleUpOutcome, count_groups
from manager.autoscaler.settings.modes import Mode
from shared import durations
from shared.explanation import first_names
from shared.kube.events import NORMAL, WARNING, ObjectRef
from shared.kube.resources import CAPACITYBUFFERS, PROVISIONINGREQUESTS

TRIGGERED = "TriggeredScaleUp"
NOT_TRIGGERED = "NotTriggerScaleUp"
SCALE_DOWN, EMPTY, FAILED = "ScaleDown", "ScaleDownEmpty", "ScaleDownFailed"
# Ours: Cluster Autoscaler replaces no nodes, does not read what a cloud announces, and has no groups in recommend mode,
# and Escalator writes no Events.
INTERRUPTED = "NodeInterrupted"
CONSOLIDATION = "Consolidation"
DISRUPTION = "Disruption"  # the same of nodes that are replaced for another reason than their price
TAINTED, NOT_TAINTED = "TaintedNodes", "FailedToTaintNodes"
UNTAINTED, NOT_UNTAINTED = "UntaintedNodes", "FailedToUntaintNodes"
RECOMMENDED, RECOMMENDED_DOWN = "RecommendedScaleUp", "RecommendedScaleDown"
RECOMMENDED_CLEANUP = "RecommendedCleanup"  # a correction would have been made

MOST_NAMES = 10  # of nodes or pods in one text
MOST_TOLD = 200  # pods by reason and iteration; a recorder permits no more, and later iterations report the others


Said: TypeAlias = tuple[Literal["Normal", "Warning"], str, str]  # type, reason and message of an Event


_NEW_GROUP, _SIZE = "NodeAutoprovisioning: ", "Scale-up: group {group} size "
# An action that is done, one that failed, and one that is only recommended.
_TEXTS: dict[ActionKind, tuple[Said, Said, Said]] = {
    ActionKind.INCREASE: (
        (NORMAL, "ScaledUpGroup", _SIZE + "set to {sizes}"),
        (WARNING, "FailedToScaleUpGroup", "Scale-up failed for group {group}: {error}"),
        (NORMAL, RECOMMENDED, _SIZE + "would be set to {sizes}"),
    ),
    ActionKind.CREATE_GROUP: (
        (NORMAL, "CreatedNodeGroup", _NEW_GROUP + "created new node group {group}"),
        (WARNING, "FailedToCreateNodeGroup", _NEW_GROUP + "attempt to create node group {group} failed: {error}"),
        (NORMAL, RECOMMENDED, _NEW_GROUP + "node group {group} would be created"),
    ),
    ActionKind.DELETE_GROUP: (
        (NORMAL, "DeletedNodeGroup", _NEW_GROUP + "removed node group {group}"),
        (WARNING, "FailedToDeleteNodeGroup", _NEW_GROUP + "attempt to delete node group {group} failed: {error}"),
        (NORMAL, RECOMMENDED_CLEANUP, _NEW_GROUP + "node group {group} would be removed"),
    ),
    ActionKind.TAINT: (
        (NORMAL, TAINTED, "Utilization: tainted {many}: {reason}"),
        (WARNING, NOT_TAINTED, "Utilization: failed to taint {many}: {error}"),
        (NORMAL, RECOMMENDED_DOWN, "Utilization: {many} would be tainted: {reason}"),
    ),
    ActionKind.UNTAINT: (
        (NORMAL, UNTAINTED, "Utilization: untainted {many}: {reason}"),
        (WARNING, NOT_UNTAINTED, "Utilization: failed to untaint {many}: {error}"),
        (NORMAL, RECOMMENDED, "Utilization: {many} would be untainted: {reason}"),
    ),
}


class ReportedEvent(NamedTuple):
    """The arguments of `Recorder.event`."""

    regarding: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def events(
    iteration: Iteration,
    status: ObjectRef,
    *,
    uids: Mapping[str, str] | None = None,
    max_nodes_total: int = 0,
    before: Iteration | None = None,
) -> list[ReportedEvent]:
    """The Events of one iteration after its actions.

    `uids` are those of pods by "namespace/name"; `before` is the last reported iteration.
    """
    if iteration.dry_run:
        return []
    told = [ReportedEvent(status, *each) for each in _of_cluster(iteration, max_nodes_total)]
    if iteration.decision is not None:
        told += [
            ReportedEvent(_pod(key, uids or {}), NORMAL, reason, message)
            for key, reason, message in _of_pods(iteration, iteration.decision)
        ]
    if iteration.buffers is not None:
        told += list(_of_buffers(iteration, iteration.buffers, before))
    if iteration.requests is not None:
        told += list(_of_requests(iteration, iteration.requests, before))
    told += itertools.islice(_of_interruptions(iteration, before), MOST_TOLD)
    for going, stage in _stage_changes(iteration.leaving, before.leaving if before is not None else ()):
        told += [ReportedEvent(status, *each) for each in _of_deletion(going)]
        told += [ReportedEvent(_node(going.node), *each) for each in _of_node(going, stage)]
        told += [
            ReportedEvent(_pod(key, {}), NORMAL, reason, message)
            for key, reason, message in itertools.islice(_of_evicted(going), MOST_TOLD)
        ]
    return told


def _of_cluster(iteration: Iteration, max_nodes_total: int) -> Iterator[Said]:
    if not iteration.state.healthy:
        yield (
            WARNING,
            "ClusterUnhealthy",
            f"Cluster is unhealthy: {iteration.blocked_reason}" if iteration.blocked_reason else "Cluster is unhealthy",
        )
    for incident in iteration.incidents:
        yield from _of_incident(incident)
    for action in iteration.actions:
        yield from _of_action(action, iteration)
    yield from _of_consolidation(iteration)
    yield from _of_priorities(iteration)
    if iteration.decision is not None and iteration.decision.outcome is ScaleUpOutcome.ALL_NODES:
        yield WARNING, "MaxNodesTotalReached", f"Max total nodes in cluster reached: {max_nodes_total}"


def _of_action(action: Action, iteration: Iteration) -> Iterator[Said]:
    """The Events of an action that was tried or is recommended. Soft taints get none."""
    if not (action.done or action.error or action.mode is Mode.RECOMMEND) or action.is_soft_taint:
        return
    group, error = action.group, action.error
    many = f"nodes {first_names(action.nodes, MOST_NAMES)} of group {group}"
    change = f"{action.to_size} instead of {action.from_size}"
    cut = f": {action.reason}" if action.explanation.bound == ALLOWED else ""
    sizes = f"{change} (max: {action.max_size}){cut}"
    if action.kind is ActionKind.INCREASE and (action.done or error):
        yield NORMAL, "ScaledUpGroup", f"Scale-up: setting group {group} size to {sizes}"
    match action.kind:
        case kind if kind in _TEXTS:
            done, failed, advised = _TEXTS[kind]
            type_, reason, message = failed if error else done if action.done else advised
            said = {"group": group, "error": error, "reason": action.reason, "many": many, "sizes": sizes}
            yield type_, reason, message.format_map(said)
        case ActionKind.DECREASE_TARGET if error:
            reverting = action.reason == reconciliation.NEVER_CAME
            yield (
                WARNING,
                "FailedToRevertScaleUp" if reverting else "FailedToFixNodeGroupSize",
                f"Failed to set group {group} size to {sizes}: {error}",
            )
        case ActionKind.DECREASE_TARGET if not action.done:
            yield NORMAL, RECOMMENDED_CLEANUP, f"group {group} size would be set to {change}: {action.reason}"
        case ActionKind.DELETE_NODES:
            yield from _of_deleted_nodes(action, iteration, many)
        case ActionKind.REMOVE_NODES if error:
            yield WARNING, FAILED, f"Scale-down: failed to remove {many}: {error}"
        case ActionKind.REMOVE_NODES:
            yield from _of_removals(action, iteration)


def _of_deleted_nodes(action: Action, iteration: Iteration, many: str) -> Iterator[Said]:
    """Of nodes that the scan of their group found ripe, or of instances that never registered."""
    group, error = action.group, action.error
    advised = f"nodes {', '.join(action.nodes)} of group {group} would be removed: {action.reason}"
    is_scanned = bool(action.nodes) and iteration.deleted_by_scans.issuperset(action.nodes)
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


def _of_removals(action: Action, iteration: Iteration) -> Iterator[Said]:
    """Of nodes that the cluster can do without."""
    known = {} if iteration.scale_down is None else {each.node: each for each in iteration.scale_down.removals}
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


def _of_consolidation(iteration: Iteration) -> Iterator[Said]:
    """The beginning and the end of a replacement."""
    decided = iteration.consolidation
    if decided is None:
        return
    reason = CONSOLIDATION if decided.reason is DisruptionReason.UNDERUTILIZED else DISRUPTION
    for action in iteration.actions:
        if action.kind is ActionKind.INCREASE and action.nodes and action.done:
            yield (
                NORMAL,
                reason,
                f"{reason}: {action.to_size - action.from_size} of {action.group} {action.reason}",
            )
    if decided.move is not None and decided.option is not None and not decided.option.added:
        yield NORMAL, reason, f"{reason}: {', '.join(decided.option.removed)} goes, {decided.option}"
    if decided.ended:
        yield NORMAL if decided.is_done else WARNING, reason, f"{reason}: {decided.ended}"


def _stage_changes(
    now: Iterable[DeletionProgress], before: Iterable[DeletionProgress]
) -> Iterator[tuple[DeletionProgress, DeletionStage | None]]:
    """Nodes that have reached a new stage of their deletion, with the stage that was reported before."""
    known = {(each.node, each.since): each.stage for each in before}
    for each in now:
        stage = known.get((each.node, each.since))
        if stage is not each.stage:
            yield each, stage


def _of_interruptions(iteration: Iteration, before: Iteration | None) -> Iterator[ReportedEvent]:
    """What the cloud has announced since, on the nodes themselves."""
    known = {} if before is None else before.interruptions
    for name, each in sorted(iteration.interruptions.items()):
        if name not in known or known[name].kind is not each.kind:
            follows = "takes the node within minutes" if each.is_imminent else "may interrupt the node"
            yield ReportedEvent(_node(name), WARNING, INTERRUPTED, f"the cloud {follows}: {each}")


def _of_node(going: DeletionProgress, before: DeletionStage | None) -> Iterator[Said]:
    """The Events on the node itself."""
    if going.stage not in (DeletionStage.MARKING, DeletionStage.FAILED) and before in (None, DeletionStage.MARKING):
        yield NORMAL, SCALE_DOWN, "marked the node as toBeDeleted/unschedulable"
    if going.stage is DeletionStage.GONE:
        yield NORMAL, SCALE_DOWN, "nodes removed by cluster autoscaler"
    elif going.stage is DeletionStage.FAILED:
        yield WARNING, FAILED, f"failed to remove the node: {going.error}"


def _of_deletion(going: DeletionProgress) -> Iterator[Said]:
    """The Events on the status ConfigMap."""
    if going.stage is DeletionStage.FAILED:
        yield WARNING, FAILED, f"Scale-down: node {going.node} stays: {going.error}"
    elif going.stage is DeletionStage.GONE and going.kind is ScaleDownReason.EMPTY:
        yield NORMAL, EMPTY, f"Scale-down: empty node {going.node} removed"
    elif going.stage is DeletionStage.GONE:
        yield NORMAL, SCALE_DOWN, f"Scale-down: node {going.node} removed with drain"


def _of_evicted(going: DeletionProgress) -> Iterator[tuple[str, str, str]]:
    """Pod, reason and message, for the evicted pods."""
    if going.stage is DeletionStage.DRAINING:
        for pod in going.waits_for:
            yield pod, SCALE_DOWN, "deleting pod for node scale down"


def _of_priorities(iteration: Iteration) -> Iterator[Said]:
    wrong = iteration.invalid_objects.get(priority.SOURCE)
    if wrong is not None:
        yield WARNING, "PriorityConfigMapInvalid", f"Wrong configuration for priority expander: {wrong}. Ignoring it."
    if iteration.decision is None or not iteration.decision.unmatched:
        return
    unmatched = iteration.decision.unmatched
    for group in unmatched[:MOST_TOLD]:
        yield WARNING, "PriorityConfigMapNotMatchedGroup", f"Priority expander: no priority is given to group {group}"
    kept = next((step.groups for step in iteration.decision.steps if step.expander == chain.PRIORITY), ())
    if set(kept) <= set(unmatched):
        yield (
            WARNING,
            "PriorityConfigMapNoGroupMatched",
            "Priority expander: no group has a priority, so all are left in",
        )


def _of_incident(incident: Incident) -> Iterator[Said]:
    group = incident.group
    match incident.kind:
        case IncidentKind.TIMED_OUT:
            waited = durations.render(round(incident.seconds))
            yield WARNING, "ScaleUpTimedOut", f"Nodes added to group {group} failed to register within {waited}"
        case IncidentKind.CREATION_FAILED:
            error = incident.error
            why = f"{error.kind}.{error.code}; source errors: {error.message}" if error is not None else "unknown"
            yield WARNING, "ScaleUpFailed", f"Failed adding {incident.nodes} nodes to group {group} due to {why}"


def _of_pods(iteration: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str, str]]:
    if decision.outcome is ScaleUpOutcome.GROW:
        for each in iteration.for_pods:
            yield from _of_triggered(iteration, each)
    elif decision.outcome in (ScaleUpOutcome.NO_OPTIONS, ScaleUpOutcome.ALL_NODES):
        for key, why in itertools.islice(_unhelped(iteration, decision), MOST_TOLD):
            yield key, NOT_TRIGGERED, f"pod didn't trigger scale-up: {why}"


def _of_triggered(iteration: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str, str]]:
    for reason, text in _growth(iteration, decision):
        for key in decision.triggered[:MOST_TOLD]:
            yield key, reason, f"pod {text}"


def _growth(iteration: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str]]:
    """Reason and text of what the decision has grown, and of what it would grow."""
    own = {each.group for each in decision.increases} | {each.group for each in decision.creations}
    growing = (ActionKind.INCREASE, ActionKind.CREATE_GROUP)
    actions = [action for action in iteration.actions if action.kind in growing and action.group in own]
    actions = [action for action in actions if not decision.advice or action.mode is Mode.RECOMMEND]
    grown = [action for action in actions if action.kind is ActionKind.INCREASE and action.done]
    advised = [action for action in actions if action.mode is Mode.RECOMMEND and not (action.done or action.error)]
    for those, reason, verb in ((grown, TRIGGERED, "triggered"), (advised, RECOMMENDED, "would trigger")):
        if those:
            increases = (Increase(each.group, each.from_size, each.to_size, each.max_size) for each in those)
            sizes = " ".join(f"{{{each}}}" for each in increases)
            yield reason, f"{verb} scale-up: [{sizes}]"


def _of_buffers(iteration: Iteration, plan: BufferPlan, before: Iteration | None) -> Iterator[ReportedEvent]:
    """The Events on the buffers themselves, one for all chunks of each."""
    known = {} if before is None or before.buffers is None else {each.key: each for each in before.buffers.buffers}
    growth: dict[str, tuple[str, str]] = {}
    for decision in plan.decisions:
        for reason, text in _growth(iteration, decision):
            growth |= dict.fromkeys((plan.buffer_of[chunk] for chunk in decision.triggered), (reason, f"buffer {text}"))
    for each in plan.buffers:
        if each.key in growth:
            yield ReportedEvent(_buffer(each), NORMAL, *growth[each.key])
        elif each.unplaced and (each.key not in known or not known[each.key].unplaced):
            yield ReportedEvent(_buffer(each), NORMAL, NOT_TRIGGERED, f"buffer didn't trigger scale-up: {each}")


def _buffer(of: BufferState) -> ObjectRef:
    namespace, _, name = of.key.partition("/")
    return ObjectRef(CAPACITYBUFFERS.api_version, "CapacityBuffer", name, namespace, of.uid)


def _of_requests(iteration: Iteration, plan: RequestPlan, before: Iteration | None) -> Iterator[ReportedEvent]:
    """The Events on the requests themselves: of nodes that were bought, and of each change of the conditions."""
    known = {} if before is None or before.requests is None else {each.key: each for each in before.requests.requests}
    for decision in plan.decisions:
        key = plan.request_of[decision.triggered[0]]
        state = next(each for each in plan.requests if each.key == key)
        for reason, text in _growth(iteration, decision):
            yield ReportedEvent(_request(state), NORMAL, reason, f"request {text}")
    for each in plan.requests:
        last = known.get(each.key)
        if each.said and (last is None or (last.stage, last.reason) != (each.stage, each.reason)):
            kind = WARNING if each.stage is RequestStage.FAILED else NORMAL
            yield ReportedEvent(_request(each), kind, each.reason, each.message)


def _request(of: RequestState) -> ObjectRef:
    namespace, _, name = of.key.partition("/")
    return ObjectRef(PROVISIONINGREQUESTS.api_version, "ProvisioningRequest", name, namespace, of.uid)


def _unhelped(iteration: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str]]:
    """Pods that get no node, with the reason. One pod of every class comes before the second of any."""
    texts: dict[int, str] = {}
    for alike in itertools.zip_longest(*(left.pods for left in decision.left)):
        for left, key in zip(decision.left, alike, strict=True):
            if key is None:
                continue
            if left.position not in texts:
                all_nodes = decision.outcome is ScaleUpOutcome.ALL_NODES
                texts[left.position] = (
                    ScaleUpOutcome.ALL_NODES.value
                    if all_nodes
                    else count_reasons(decision.reasons(left), iteration.state.groups)
                )
            yield key, texts[left.position]


def count_reasons(reasons: Mapping[str, tuple[str, ...]], existing: Mapping[str, object]) -> str:
    """Every reason with the number of groups it applies to.

    Groups that could be created count only if there are no others: they would drown existing groups.
    """
    known = {group: those for group, those in reasons.items() if group in existing}
    return count_groups(known or reasons)


def _node(name: str) -> ObjectRef:
    return ObjectRef("v1", "Node", name, uid=name)  # as kubelets do, where kubectl looks for it


def _pod(key: str, uids: Mapping[str, str]) -> ObjectRef:
    namespace, _, name = key.rpartition("/")
    return ObjectRef("v1", "Pod", name, namespace, uids.get(key, ""))
