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
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pod_injection.buffer_planning import BufferPlan
from manager.autoscaler.pod_injection.request_planning import RequestPlan
from manager.autoscaler.pod_injection.request_states import RequestStage
from manager.autoscaler.scale_down.removal_status import DeletionProgress, DeletionStage, ScaleDownReason
from manager.autoscaler.scale_up.decisions import ALLOWED, ScaleUpDecision, ScaleUpOutcome, count_groups
from manager.autoscaler.settings.modes import Mode
from shared import durations
from shared.explanation import first_names
from shared.kube.events import NORMAL, WARNING, ObjectRef
from shared.kube.resources import CAPACITYBUFFERS, PROVISIONINGREQUESTS, Resource

TRIGGERED = "TriggeredScaleUp"
DISAGREES = "SchedulerDisagrees"  # ours
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

_NOTHING = Iteration(0, 0.0)
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
    last = before or _NOTHING
    return [
        *(ReportedEvent(status, *each) for each in _of_cluster(iteration, max_nodes_total)),
        *_of_pods(iteration, uids or {}),
        *itertools.islice(_of_disagreements(iteration, last, uids or {}), MOST_TOLD),
        *_of_buffers(iteration, iteration.buffers or BufferPlan(), last.buffers or BufferPlan()),
        *_of_requests(iteration, iteration.requests or RequestPlan(), last.requests or RequestPlan()),
        *itertools.islice(_of_interruptions(iteration, last), MOST_TOLD),
        *_of_deletions(iteration.leaving, last.leaving, status),
    ]


def _of_cluster(iteration: Iteration, max_nodes_total: int) -> Iterator[Said]:
    if not iteration.state.healthy:
        why = f": {iteration.blocked_reason}" if iteration.blocked_reason else ""
        yield WARNING, "ClusterUnhealthy", f"Cluster is unhealthy{why}"
    for incident in iteration.incidents:
        yield from _of_incident(incident)
    for action in iteration.actions:
        yield from _of_action(action, iteration)
    yield from _of_consolidation(iteration)
    yield from _of_priorities(iteration)
    if iteration.decision is not None and iteration.decision.outcome is ScaleUpOutcome.ALL_NODES:
        yield WARNING, "MaxNodesTotalReached", f"Max total nodes in cluster reached: {max_nodes_total}"


def _of_incident(incident: Incident) -> Iterator[Said]:
    group, error = incident.group, incident.error
    if incident.kind is IncidentKind.TIMED_OUT:
        waited = durations.render(round(incident.seconds))
        yield WARNING, "ScaleUpTimedOut", f"Nodes added to group {group} failed to register within {waited}"
    elif incident.kind is IncidentKind.CREATION_FAILED:
        why = f"{error.kind}.{error.code}; source errors: {error.message}" if error is not None else "unknown"
        yield WARNING, "ScaleUpFailed", f"Failed adding {incident.nodes} nodes to group {group} due to {why}"
    elif incident.kind is IncidentKind.DELETED_BY_OTHERS:
        yield WARNING, "NodeDeletedByOthers", f"Group {group}: {incident.message}"
    elif incident.kind is IncidentKind.DELAYED:
        yield NORMAL, "ScaleUpDelayed", f"Group {group}: {incident.message}"


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
            reason = "FailedToRevertScaleUp" if reverting else "FailedToFixNodeGroupSize"
            yield WARNING, reason, f"Failed to set group {group} size to {sizes}: {error}"
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
    is_scanned = bool(action.nodes) and iteration.deleted_by_scans.issuperset(action.nodes)
    if not (action.done or error):
        advised = f"nodes {', '.join(action.nodes)} of group {group} would be removed: {action.reason}"
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
        removal = known.get(node)
        reason, removing, going, why = EMPTY, f'empty node "{node}"', f"empty node {node}", ""
        if removal is None:
            removing = going = f"node {node} of group {action.group}"
            reason, why = SCALE_DOWN, f": {action.reason}"
        elif removal.is_drained:
            pods = first_names(removal.evicted, MOST_NAMES)
            removing = going = f"node {node}"
            reason, why = SCALE_DOWN, f", utilization: {removal.utilization:.3g}, pods to reschedule: {pods}"
        if action.done:
            yield NORMAL, reason, f"Scale-down: removing {removing}{why}"
        else:
            yield NORMAL, RECOMMENDED_DOWN, f"Scale-down: {going} would be removed{why}"


def _of_consolidation(iteration: Iteration) -> Iterator[Said]:
    """The beginning and the end of a replacement."""
    decided = iteration.consolidation
    if decided is None:
        return
    reason = CONSOLIDATION if decided.reason is DisruptionReason.UNDERUTILIZED else DISRUPTION
    for action in iteration.actions:
        if action.kind is ActionKind.INCREASE and action.nodes and action.done:
            yield NORMAL, reason, f"{reason}: {action.change} of {action.group} {action.reason}"
    if decided.move is not None and decided.option is not None and not decided.option.added:
        yield NORMAL, reason, f"{reason}: {', '.join(decided.option.removed)} is deleted, {decided.option}"
    if decided.ended:
        yield NORMAL if decided.is_done else WARNING, reason, f"{reason}: {decided.ended}"


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
        all_left = "Priority expander: no group has a priority, so all remain"
        yield WARNING, "PriorityConfigMapNoGroupMatched", all_left


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


def _of_pods(iteration: Iteration, uids: Mapping[str, str]) -> Iterator[ReportedEvent]:
    decision = iteration.decision
    if decision is None:
        return
    if decision.outcome is ScaleUpOutcome.GROW:
        for each in iteration.for_pods:
            for reason, text in _growth(iteration, each):
                for key in each.triggered[:MOST_TOLD]:
                    yield ReportedEvent(_pod(key, uids), NORMAL, reason, f"pod {text}")
    elif decision.outcome in (ScaleUpOutcome.NO_OPTIONS, ScaleUpOutcome.ALL_NODES):
        for key, why in itertools.islice(_unhelped(iteration, decision), MOST_TOLD):
            yield ReportedEvent(_pod(key, uids), NORMAL, NOT_TRIGGERED, f"pod didn't trigger scale-up: {why}")


def _of_disagreements(iteration: Iteration, before: Iteration, uids: Mapping[str, str]) -> Iterator[ReportedEvent]:
    """Refusals by the scheduler that are new, or of more groups, on each of the pods."""
    known = {(each.pods[0], each.since): each.groups for each in before.disagreements}
    for each in iteration.disagreements:
        if known.get((each.pods[0], each.since)) != each.groups:
            for key in each.pods:
                yield ReportedEvent(
                    _pod(key, uids),
                    WARNING,
                    DISAGREES,
                    f"the scheduler rejects the pod where it fits by the autoscaler's predicates: {each}",
                )


def _unhelped(iteration: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str]]:
    """Pods that get no node, with the reason. One pod of every class comes before the second of any."""
    texts: dict[int, str] = {}
    for alike in itertools.zip_longest(*(left.pods for left in decision.left)):
        for left, key in zip(decision.left, alike, strict=True):
            if key is None:
                continue
            if left.position not in texts:
                reasons = decision.reasons_or_limit(left)
                texts[left.position] = count_reasons(reasons, iteration.state.groups)
            yield key, texts[left.position]


def count_reasons(reasons: Mapping[str, tuple[str, ...]], existing: Mapping[str, object]) -> str:
    """Every reason with the number of groups it applies to.

    Groups that could be created count only if there are no others: they would drown existing groups.
    """
    known = {group: those for group, those in reasons.items() if group in existing}
    return count_groups(known or reasons)


def _of_buffers(iteration: Iteration, plan: BufferPlan, before: BufferPlan) -> Iterator[ReportedEvent]:
    """The Events on the buffers themselves, one for all chunks of each."""
    waited = {each.key for each in before.buffers if each.unplaced}
    growth: dict[str, tuple[str, str]] = {}
    for decision in plan.decisions:
        for reason, text in _growth(iteration, decision):
            growth |= dict.fromkeys((plan.buffer_of[chunk] for chunk in decision.triggered), (reason, f"buffer {text}"))
    for each in plan.buffers:
        buffer = _custom(CAPACITYBUFFERS, "CapacityBuffer", each.key, each.uid)
        if each.key in growth:
            yield ReportedEvent(buffer, NORMAL, *growth[each.key])
        elif each.unplaced and each.key not in waited:
            yield ReportedEvent(buffer, NORMAL, NOT_TRIGGERED, f"buffer didn't trigger scale-up: {each}")


def _of_requests(iteration: Iteration, plan: RequestPlan, before: RequestPlan) -> Iterator[ReportedEvent]:
    """The Events on the requests themselves: of nodes that were bought, and of each change of the conditions."""
    kind = "ProvisioningRequest"
    refs = {each.key: _custom(PROVISIONINGREQUESTS, kind, each.key, each.uid) for each in plan.requests}
    known = {each.key: (each.stage, each.reason) for each in before.requests}
    for decision in plan.decisions:
        for reason, text in _growth(iteration, decision):
            yield ReportedEvent(refs[plan.request_of[decision.triggered[0]]], NORMAL, reason, f"request {text}")
    for each in plan.requests:
        if each.said and known.get(each.key) != (each.stage, each.reason):
            type_ = WARNING if each.stage is RequestStage.FAILED else NORMAL
            yield ReportedEvent(refs[each.key], type_, each.reason, each.message)


def _of_interruptions(iteration: Iteration, before: Iteration) -> Iterator[ReportedEvent]:
    """What the cloud has announced since, on the nodes themselves."""
    known = {name: each.kind for name, each in before.interruptions.items()}
    for name, each in sorted(iteration.interruptions.items()):
        if known.get(name) is not each.kind:
            follows = "deletes the node within minutes" if each.is_imminent else "may interrupt the node"
            yield ReportedEvent(_node(name), WARNING, INTERRUPTED, f"the cloud {follows}: {each}")


def _of_deletions(
    now: Iterable[DeletionProgress], before: Iterable[DeletionProgress], status: ObjectRef
) -> Iterator[ReportedEvent]:
    """Of nodes that have reached a new stage of their deletion: on the status ConfigMap, the node, and evicted pods."""
    known = {(each.node, each.since): each.stage for each in before}
    for going in now:
        last, stage, node = known.get((going.node, going.since)), going.stage, _node(going.node)
        if stage is last:
            continue
        is_marked = stage in (DeletionStage.DRAINING, DeletionStage.DELETING, DeletionStage.GONE)
        if stage is DeletionStage.FAILED:
            text = f"Scale-down: node {going.node} is not deleted: {going.error}"
            yield ReportedEvent(status, WARNING, FAILED, text)
        elif stage is DeletionStage.GONE and going.kind is ScaleDownReason.EMPTY:
            yield ReportedEvent(status, NORMAL, EMPTY, f"Scale-down: empty node {going.node} removed")
        elif stage is DeletionStage.GONE:
            yield ReportedEvent(status, NORMAL, SCALE_DOWN, f"Scale-down: node {going.node} removed with drain")
        if is_marked and last in (None, DeletionStage.MARKING):
            yield ReportedEvent(node, NORMAL, SCALE_DOWN, "marked the node as toBeDeleted/unschedulable")
        if stage is DeletionStage.GONE:
            yield ReportedEvent(node, NORMAL, SCALE_DOWN, "nodes removed by cluster autoscaler")
        elif stage is DeletionStage.FAILED:
            yield ReportedEvent(node, WARNING, FAILED, f"failed to remove the node: {going.error}")
        elif stage is DeletionStage.DRAINING:
            for pod in going.waits_for[:MOST_TOLD]:
                yield ReportedEvent(_pod(pod, {}), NORMAL, SCALE_DOWN, "deleting pod for node scale down")


def _node(name: str) -> ObjectRef:
    return ObjectRef("v1", "Node", name, uid=name)  # as kubelets do, where kubectl looks for it


def _pod(key: str, uids: Mapping[str, str]) -> ObjectRef:
    namespace, _, name = key.rpartition("/")
    return ObjectRef("v1", "Pod", name, namespace, uids.get(key, ""))


def _custom(resource: Resource, kind: str, key: str, uid: str) -> ObjectRef:
    namespace, _, name = key.partition("/")
    return ObjectRef(resource.api_version, kind, name, namespace, uid)
