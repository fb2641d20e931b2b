"""The Kubernetes Events of an iteration, in Cluster Autoscaler's words where it has any.

Events about pods, CapacityBuffers and ProvisioningRequests are on these, Events about a removed node are on the node,
all others on the status ConfigMap. A dry run writes none.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

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
from shared.kube.events import NORMAL, WARNING, EventReason, EventType, ObjectRef, Said
from shared.kube.resources import CAPACITYBUFFERS, PROVISIONINGREQUESTS, Resource

# Reasons that are not Cluster Autoscaler's are ours: it replaces no nodes, does not read what a cloud announces, and
# has no groups in recommend mode, and Escalator writes no Events.
CLUSTER_UNHEALTHY = EventReason("ClusterUnhealthy", WARNING, "Cluster is unhealthy{why}")
MAX_NODES_REACHED = EventReason(
    "MaxNodesTotalReached", WARNING, "Max total nodes in cluster reached: {max_nodes_total}"
)
TIMED_OUT = EventReason("ScaleUpTimedOut", WARNING, "Nodes added to group {group} failed to register within {waited}")
CREATION_FAILED = EventReason("ScaleUpFailed", WARNING, "Failed adding {nodes} nodes to group {group} due to {why}")
DELETED_BY_OTHERS = EventReason("NodeDeletedByOthers", WARNING, "Group {group}: {message}")
DELAYED = EventReason("ScaleUpDelayed", NORMAL, "Group {group}: {message}")

TRIGGERED = EventReason("TriggeredScaleUp", NORMAL, "{about} triggered scale-up: [{sizes}]")
WOULD_TRIGGER = EventReason("RecommendedScaleUp", NORMAL, "{about} would trigger scale-up: [{sizes}]")
NOT_TRIGGERED = EventReason("NotTriggerScaleUp", NORMAL, "{about} didn't trigger scale-up: {why}")
SETS_SIZE = EventReason("ScaledUpGroup", NORMAL, "Scale-up: setting group {group} size to {sizes}")
_REFUSED = "the scheduler rejects the pod where it fits by the autoscaler's predicates: {refusal}"
DISAGREES = EventReason("SchedulerDisagrees", WARNING, _REFUSED)

_NOT_SET = "Failed to set group {group} size to {sizes}: {error}"
NOT_REVERTED = EventReason("FailedToRevertScaleUp", WARNING, _NOT_SET)
NOT_CORRECTED = EventReason("FailedToFixNodeGroupSize", WARNING, _NOT_SET)
# A correction would have been made.
WOULD_CORRECT = EventReason("RecommendedCleanup", NORMAL, "group {group} size would be set to {change}: {reason}")
WOULD_CLEAN_UP = EventReason("RecommendedCleanup", NORMAL, "nodes {names} of group {group} would be removed: {reason}")
UNREGISTERED_DELETED = EventReason("DeleteUnregistered", NORMAL, "Removed unregistered node {node}")
UNREGISTERED_KEPT = EventReason("DeleteUnregisteredFailed", WARNING, "Failed to remove node {node}: {error}")
_NOT_REMOVED = "Failed to remove {nodes} nodes of group {group} ({reason}): {error}"
DELETE_FAILED = EventReason("DeleteNodesFailed", WARNING, _NOT_REMOVED)

SCALE_DOWN = EventReason("ScaleDown", NORMAL, "Scale-down: removing {going}{why}")
EMPTY = EventReason("ScaleDownEmpty", NORMAL, 'Scale-down: removing empty node "{node}"')
FAILED = EventReason("ScaleDownFailed", WARNING, "Scale-down: failed to remove {many}: {error}")
SCAN_REMOVED = EventReason("ScaleDown", NORMAL, "Scale-down: {many} removed: {reason}")
SCAN_WOULD_REMOVE = EventReason(
    "RecommendedScaleDown", NORMAL, "nodes {names} of group {group} would be removed: {reason}"
)
WOULD_REMOVE = EventReason("RecommendedScaleDown", NORMAL, "Scale-down: {going} would be removed{why}")
EMPTY_GONE = EventReason("ScaleDownEmpty", NORMAL, "Scale-down: empty node {node} removed")
DRAINED_GONE = EventReason("ScaleDown", NORMAL, "Scale-down: node {node} removed with drain")
NOT_DELETED = EventReason("ScaleDownFailed", WARNING, "Scale-down: node {node} is not deleted: {error}")
NODE_MARKED = EventReason("ScaleDown", NORMAL, "marked the node as toBeDeleted/unschedulable")
NODE_REMOVED = EventReason("ScaleDown", NORMAL, "nodes removed by cluster autoscaler")
NODE_KEPT = EventReason("ScaleDownFailed", WARNING, "failed to remove the node: {error}")
POD_MOVES = EventReason("ScaleDown", NORMAL, "deleting pod for node scale down")
INTERRUPTED = EventReason("NodeInterrupted", WARNING, "the cloud {follows}: {announced}")

CONSOLIDATION = EventReason("Consolidation", NORMAL, "Consolidation: {what}")
CONSOLIDATION_FAILED = EventReason("Consolidation", WARNING, CONSOLIDATION.message)
DISRUPTION = EventReason("Disruption", NORMAL, "Disruption: {what}")  # replacements for another reason than the price
DISRUPTION_FAILED = EventReason("Disruption", WARNING, DISRUPTION.message)

_WRONG = "Wrong configuration for priority expander: {wrong}. Ignoring it."
PRIORITIES_INVALID = EventReason("PriorityConfigMapInvalid", WARNING, _WRONG)
_UNMATCHED = "Priority expander: no priority is given to group {group}"
GROUP_UNMATCHED = EventReason("PriorityConfigMapNotMatchedGroup", WARNING, _UNMATCHED)
_ALL_LEFT = "Priority expander: no group has a priority, so all remain"
NO_GROUP_MATCHED = EventReason("PriorityConfigMapNoGroupMatched", WARNING, _ALL_LEFT)

_NOTHING = Iteration(0, 0.0)
MOST_NAMES = 10  # of nodes or pods in one text
MOST_TOLD = 200  # pods by reason and iteration; a recorder permits no more, and later iterations report the others


_NEW_GROUP, _SIZE = "NodeAutoprovisioning: ", "Scale-up: group {group} size "
# An action that is done, one that failed, and one that is only recommended.
_TEXTS: dict[ActionKind, tuple[EventReason, EventReason, EventReason]] = {
    ActionKind.INCREASE: (
        EventReason("ScaledUpGroup", NORMAL, _SIZE + "set to {sizes}"),
        EventReason("FailedToScaleUpGroup", WARNING, "Scale-up failed for group {group}: {error}"),
        EventReason("RecommendedScaleUp", NORMAL, _SIZE + "would be set to {sizes}"),
    ),
    ActionKind.CREATE_GROUP: (
        EventReason("CreatedNodeGroup", NORMAL, _NEW_GROUP + "created new node group {group}"),
        EventReason(
            "FailedToCreateNodeGroup", WARNING, _NEW_GROUP + "attempt to create node group {group} failed: {error}"
        ),
        EventReason("RecommendedScaleUp", NORMAL, _NEW_GROUP + "node group {group} would be created"),
    ),
    ActionKind.DELETE_GROUP: (
        EventReason("DeletedNodeGroup", NORMAL, _NEW_GROUP + "removed node group {group}"),
        EventReason(
            "FailedToDeleteNodeGroup", WARNING, _NEW_GROUP + "attempt to delete node group {group} failed: {error}"
        ),
        EventReason("RecommendedCleanup", NORMAL, _NEW_GROUP + "node group {group} would be removed"),
    ),
    ActionKind.TAINT: (
        EventReason("TaintedNodes", NORMAL, "Utilization: tainted {many}: {reason}"),
        EventReason("FailedToTaintNodes", WARNING, "Utilization: failed to taint {many}: {error}"),
        EventReason("RecommendedScaleDown", NORMAL, "Utilization: {many} would be tainted: {reason}"),
    ),
    ActionKind.UNTAINT: (
        EventReason("UntaintedNodes", NORMAL, "Utilization: untainted {many}: {reason}"),
        EventReason("FailedToUntaintNodes", WARNING, "Utilization: failed to untaint {many}: {error}"),
        EventReason("RecommendedScaleUp", NORMAL, "Utilization: {many} would be untainted: {reason}"),
    ),
}


class ReportedEvent(NamedTuple):
    """The arguments of `Recorder.event`."""

    regarding: ObjectRef
    type: EventType
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
        yield CLUSTER_UNHEALTHY.say(why=why)
    for incident in iteration.incidents:
        yield from _of_incident(incident)
    for action in iteration.actions:
        yield from _of_action(action, iteration)
    yield from _of_consolidation(iteration)
    yield from _of_priorities(iteration)
    if iteration.decision is not None and iteration.decision.outcome is ScaleUpOutcome.ALL_NODES:
        yield MAX_NODES_REACHED.say(max_nodes_total=max_nodes_total)


def _of_incident(incident: Incident) -> Iterator[Said]:
    group, error = incident.group, incident.error
    if incident.kind is IncidentKind.TIMED_OUT:
        waited = durations.render(round(incident.seconds))
        yield TIMED_OUT.say(group=group, waited=waited)
    elif incident.kind is IncidentKind.CREATION_FAILED:
        why = f"{error.kind}.{error.code}; source errors: {error.message}" if error is not None else "unknown"
        yield CREATION_FAILED.say(nodes=incident.nodes, group=group, why=why)
    elif incident.kind is IncidentKind.DELETED_BY_OTHERS:
        yield DELETED_BY_OTHERS.say(group=group, message=incident.message)
    elif incident.kind is IncidentKind.DELAYED:
        yield DELAYED.say(group=group, message=incident.message)


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
        yield SETS_SIZE.say(group=group, sizes=sizes)
    match action.kind:
        case kind if kind in _TEXTS:
            done, failed, advised = _TEXTS[kind]
            kind_of = failed if error else done if action.done else advised
            yield kind_of.say(group=group, error=error, reason=action.reason, many=many, sizes=sizes)
        case ActionKind.DECREASE_TARGET if error:
            failure = NOT_REVERTED if action.reason == reconciliation.NEVER_CAME else NOT_CORRECTED
            yield failure.say(group=group, sizes=sizes, error=error)
        case ActionKind.DECREASE_TARGET if not action.done:
            yield WOULD_CORRECT.say(group=group, change=change, reason=action.reason)
        case ActionKind.DELETE_NODES:
            yield from _of_deleted_nodes(action, iteration, many)
        case ActionKind.REMOVE_NODES if error:
            yield FAILED.say(many=many, error=error)
        case ActionKind.REMOVE_NODES:
            yield from _of_removals(action, iteration)


def _of_deleted_nodes(action: Action, iteration: Iteration, many: str) -> Iterator[Said]:
    """Of nodes that the scan of their group found ripe, or of instances that never registered."""
    group, error = action.group, action.error
    is_scanned = bool(action.nodes) and iteration.deleted_by_scans.issuperset(action.nodes)
    if not (action.done or error):
        advised = SCAN_WOULD_REMOVE if is_scanned else WOULD_CLEAN_UP
        yield advised.say(names=", ".join(action.nodes), group=group, reason=action.reason)
    elif action.reason == reconciliation.UNREGISTERED:
        for node in action.nodes:
            if error:
                yield UNREGISTERED_KEPT.say(node=node, error=error)
            else:
                yield UNREGISTERED_DELETED.say(node=node)
    elif error:
        yield DELETE_FAILED.say(nodes=len(action.nodes), group=group, reason=action.reason, error=error)
    if is_scanned and action.done and not error:
        yield SCAN_REMOVED.say(many=many, reason=action.reason)


def _of_removals(action: Action, iteration: Iteration) -> Iterator[Said]:
    """Of nodes that the cluster can do without."""
    known = {} if iteration.scale_down is None else {each.node: each for each in iteration.scale_down.removals}
    for node in action.nodes:
        removal = known.get(node)
        if removal is not None and not removal.is_drained:
            yield EMPTY.say(node=node) if action.done else WOULD_REMOVE.say(going=f"empty node {node}", why="")
            continue
        going, why = f"node {node} of group {action.group}", f": {action.reason}"
        if removal is not None:
            pods = first_names(removal.evicted, MOST_NAMES)
            going, why = f"node {node}", f", utilization: {removal.utilization:.3g}, pods to reschedule: {pods}"
        yield (SCALE_DOWN if action.done else WOULD_REMOVE).say(going=going, why=why)


def _of_consolidation(iteration: Iteration) -> Iterator[Said]:
    """The beginning and the end of a replacement."""
    decided = iteration.consolidation
    if decided is None:
        return
    is_by_price = decided.reason is DisruptionReason.UNDERUTILIZED
    event, failed = (CONSOLIDATION, CONSOLIDATION_FAILED) if is_by_price else (DISRUPTION, DISRUPTION_FAILED)
    for action in iteration.actions:
        if action.kind is ActionKind.INCREASE and action.nodes and action.done:
            yield event.say(what=f"{action.change} of {action.group} {action.reason}")
    if decided.move is not None and decided.option is not None and not decided.option.added:
        yield event.say(what=f"{', '.join(decided.option.removed)} is deleted, {decided.option}")
    if decided.ended:
        yield (event if decided.is_done else failed).say(what=decided.ended)


def _of_priorities(iteration: Iteration) -> Iterator[Said]:
    wrong = iteration.invalid_objects.get(priority.SOURCE)
    if wrong is not None:
        yield PRIORITIES_INVALID.say(wrong=wrong)
    if iteration.decision is None or not iteration.decision.unmatched:
        return
    unmatched = iteration.decision.unmatched
    for group in unmatched[:MOST_TOLD]:
        yield GROUP_UNMATCHED.say(group=group)
    kept = next((step.groups for step in iteration.decision.steps if step.expander == chain.PRIORITY), ())
    if set(kept) <= set(unmatched):
        yield NO_GROUP_MATCHED.say()


def _growth(iteration: Iteration, decision: ScaleUpDecision, about: str) -> Iterator[Said]:
    """What the decision has grown, and what it would grow."""
    own = {each.group for each in decision.increases} | {each.group for each in decision.creations}
    growing = (ActionKind.INCREASE, ActionKind.CREATE_GROUP)
    actions = [action for action in iteration.actions if action.kind in growing and action.group in own]
    actions = [action for action in actions if not decision.advice or action.mode is Mode.RECOMMEND]
    grown = [action for action in actions if action.kind is ActionKind.INCREASE and action.done]
    advised = [action for action in actions if action.mode is Mode.RECOMMEND and not (action.done or action.error)]
    for those, event in ((grown, TRIGGERED), (advised, WOULD_TRIGGER)):
        if those:
            increases = (Increase(each.group, each.from_size, each.to_size, each.max_size) for each in those)
            sizes = " ".join(f"{{{each}}}" for each in increases)
            yield event.say(about=about, sizes=sizes)


def _of_pods(iteration: Iteration, uids: Mapping[str, str]) -> Iterator[ReportedEvent]:
    decision = iteration.decision
    if decision is None:
        return
    if decision.outcome is ScaleUpOutcome.GROW:
        for each in iteration.for_pods:
            for said in _growth(iteration, each, "pod"):
                for key in each.triggered[:MOST_TOLD]:
                    yield ReportedEvent(_pod(key, uids), *said)
    elif decision.outcome in (ScaleUpOutcome.NO_OPTIONS, ScaleUpOutcome.ALL_NODES):
        for key, why in itertools.islice(_unhelped(iteration, decision), MOST_TOLD):
            yield ReportedEvent(_pod(key, uids), *NOT_TRIGGERED.say(about="pod", why=why))


def _of_disagreements(iteration: Iteration, before: Iteration, uids: Mapping[str, str]) -> Iterator[ReportedEvent]:
    """Refusals by the scheduler that are new, or of more groups, on each of the pods."""
    known = {(each.pods[0], each.since): each.groups for each in before.disagreements}
    for each in iteration.disagreements:
        if known.get((each.pods[0], each.since)) != each.groups:
            for key in each.pods:
                yield ReportedEvent(_pod(key, uids), *DISAGREES.say(refusal=each))


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
    growth: dict[str, Said] = {}
    for decision in plan.decisions:
        for said in _growth(iteration, decision, "buffer"):
            growth |= dict.fromkeys((plan.buffer_of[chunk] for chunk in decision.triggered), said)
    for each in plan.buffers:
        buffer = _custom(CAPACITYBUFFERS, "CapacityBuffer", each.key, each.uid)
        if each.key in growth:
            yield ReportedEvent(buffer, *growth[each.key])
        elif each.unplaced and each.key not in waited:
            yield ReportedEvent(buffer, *NOT_TRIGGERED.say(about="buffer", why=each))


def _of_requests(iteration: Iteration, plan: RequestPlan, before: RequestPlan) -> Iterator[ReportedEvent]:
    """The Events on the requests themselves: of nodes that were bought, and of each change of the conditions."""
    kind = "ProvisioningRequest"
    refs = {each.key: _custom(PROVISIONINGREQUESTS, kind, each.key, each.uid) for each in plan.requests}
    known = {each.key: (each.stage, each.reason) for each in before.requests}
    for decision in plan.decisions:
        for said in _growth(iteration, decision, "request"):
            yield ReportedEvent(refs[plan.request_of[decision.triggered[0]]], *said)
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
            yield ReportedEvent(_node(name), *INTERRUPTED.say(follows=follows, announced=each))


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
            yield ReportedEvent(status, *NOT_DELETED.say(node=going.node, error=going.error))
        elif stage is DeletionStage.GONE and going.kind is ScaleDownReason.EMPTY:
            yield ReportedEvent(status, *EMPTY_GONE.say(node=going.node))
        elif stage is DeletionStage.GONE:
            yield ReportedEvent(status, *DRAINED_GONE.say(node=going.node))
        if is_marked and last in (None, DeletionStage.MARKING):
            yield ReportedEvent(node, *NODE_MARKED.say())
        if stage is DeletionStage.GONE:
            yield ReportedEvent(node, *NODE_REMOVED.say())
        elif stage is DeletionStage.FAILED:
            yield ReportedEvent(node, *NODE_KEPT.say(error=going.error))
        elif stage is DeletionStage.DRAINING:
            for pod in going.waits_for[:MOST_TOLD]:
                yield ReportedEvent(_pod(pod, {}), *POD_MOVES.say())


def _node(name: str) -> ObjectRef:
    return ObjectRef("v1", "Node", name, uid=name)  # as kubelets do, where kubectl looks for it


def _pod(key: str, uids: Mapping[str, str]) -> ObjectRef:
    namespace, _, name = key.rpartition("/")
    return ObjectRef("v1", "Pod", name, namespace, uids.get(key, ""))


def _custom(resource: Resource, kind: str, key: str, uid: str) -> ObjectRef:
    namespace, _, name = key.partition("/")
    return ObjectRef(resource.api_version, kind, name, namespace, uid)
