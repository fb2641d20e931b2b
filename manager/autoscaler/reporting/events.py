"""The Kubernetes Events of an iteration, in Cluster Autoscaler's words where it has any.

Events about pods are on the pods, Events about a removed node are on the node, all others on the status ConfigMap. A
dry run writes none.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from manager.autoscaler import reconciliation
from manager.autoscaler.cluster_state.state import Incident, IncidentKind
from manager.autoscaler.expander import chain, priority
from manager.autoscaler.iteration import Action, ActionKind, Iteration
from manager.autoscaler.modes import Mode
from manager.autoscaler.reporting import node_events
from manager.autoscaler.reporting.node_events import Said
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from shared import durations
from shared.kube.events import NORMAL, WARNING, ObjectRef

TRIGGERED = "TriggeredScaleUp"
NOT_TRIGGERED = "NotTriggerScaleUp"
RECOMMENDED = "RecommendedScaleUp"  # ours: a group in recommend mode would have grown
RECOMMENDED_DOWN = "RecommendedScaleDown"  # ours: nodes in recommend mode would have been removed
RECOMMENDED_CLEANUP = "RecommendedCleanup"  # ours: a correction in recommend mode would have been made

MOST_TOLD = 200  # pods by reason and iteration; a recorder permits no more, and later iterations report the others


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
    for going, stage in node_events.stage_changes(iteration.leaving, before.leaving if before is not None else ()):
        told += [ReportedEvent(status, *each) for each in node_events.status_events(going)]
        node = ObjectRef("v1", "Node", going.node, uid=going.node)  # as kubelets do, where kubectl looks for it
        told += [ReportedEvent(node, *each) for each in node_events.node_events(going, stage)]
        told += [
            ReportedEvent(_pod(key, {}), NORMAL, reason, message)
            for key, reason, message in itertools.islice(node_events.pod_events(going), MOST_TOLD)
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
        if action.done or action.error:
            yield from _of_act(action)
            yield from node_events.action_events(action, iteration)
        elif action.mode is Mode.RECOMMEND:
            is_scanned = node_events.deletes_ripe_nodes(action, iteration)
            reason = RECOMMENDED_DOWN if is_scanned else _RECOMMENDED.get(action.kind, RECOMMENDED_CLEANUP)
            for text in (*_advice(action), *node_events.advice(action, iteration)):
                yield NORMAL, reason, text
    yield from _of_priorities(iteration)
    if iteration.decision is not None and iteration.decision.outcome is ScaleUpOutcome.ALL_NODES:
        yield WARNING, "MaxNodesTotalReached", f"Max total nodes in cluster reached: {max_nodes_total}"


_GROWING = frozenset({ActionKind.INCREASE, ActionKind.CREATE_GROUP})
_RECOMMENDED = {
    **dict.fromkeys((*_GROWING, ActionKind.UNTAINT), RECOMMENDED),
    **dict.fromkeys((ActionKind.REMOVE_NODES, ActionKind.TAINT), RECOMMENDED_DOWN),
}


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


def _of_act(action: Action) -> Iterator[Said]:
    group, error = action.group, action.error
    sizes = f"{action.to_size} instead of {action.from_size} (max: {action.max_size})"
    match action.kind:
        case ActionKind.INCREASE:
            yield NORMAL, "ScaledUpGroup", f"Scale-up: setting group {group} size to {sizes}"
            if error:
                yield WARNING, "FailedToScaleUpGroup", f"Scale-up failed for group {group}: {error}"
            else:
                yield NORMAL, "ScaledUpGroup", f"Scale-up: group {group} size set to {sizes}"
        case ActionKind.CREATE_GROUP:
            if error:
                failed = f"NodeAutoprovisioning: attempt to create node group {group} failed: {error}"
                yield WARNING, "FailedToCreateNodeGroup", failed
            else:
                yield NORMAL, "CreatedNodeGroup", f"NodeAutoprovisioning: created new node group {group}"
        case ActionKind.DELETE_GROUP:
            if error:
                failed = f"NodeAutoprovisioning: attempt to delete node group {group} failed: {error}"
                yield WARNING, "FailedToDeleteNodeGroup", failed
            else:
                yield NORMAL, "DeletedNodeGroup", f"NodeAutoprovisioning: removed node group {group}"
        case ActionKind.DELETE_NODES if action.reason == reconciliation.UNREGISTERED:
            for node in action.nodes:
                if error:
                    yield WARNING, "DeleteUnregisteredFailed", f"Failed to remove node {node}: {error}"
                else:
                    yield NORMAL, "DeleteUnregistered", f"Removed unregistered node {node}"
        case ActionKind.DELETE_NODES:
            if error:
                failed = f"Failed to remove {len(action.nodes)} nodes of group {group} ({action.reason}): {error}"
                yield WARNING, "DeleteNodesFailed", failed
        case ActionKind.DECREASE_TARGET if error:
            failed = f"Failed to set group {group} size to {sizes}: {error}"
            reverting = action.reason == reconciliation.NEVER_CAME
            yield WARNING, "FailedToRevertScaleUp" if reverting else "FailedToFixNodeGroupSize", failed


def _advice(action: Action) -> Iterator[str]:
    match action.kind:
        case ActionKind.INCREASE:
            sizes = f"{action.to_size} instead of {action.from_size} (max: {action.max_size})"
            yield f"Scale-up: group {action.group} size would be set to {sizes}"
        case ActionKind.CREATE_GROUP:
            yield f"NodeAutoprovisioning: node group {action.group} would be created"
        case ActionKind.DELETE_GROUP:
            yield f"NodeAutoprovisioning: node group {action.group} would be removed"
        case ActionKind.DECREASE_TARGET:
            sizes = f"{action.to_size} instead of {action.from_size}"
            yield f"group {action.group} size would be set to {sizes}: {action.reason}"
        case ActionKind.DELETE_NODES:
            yield f"nodes {', '.join(action.nodes)} of group {action.group} would be removed: {action.reason}"


def _of_pods(iteration: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str, str]]:
    if decision.outcome is ScaleUpOutcome.GROW:
        for each in (decision, *iteration.further):
            yield from _of_triggered(iteration, each)
    elif decision.outcome in (ScaleUpOutcome.NO_OPTIONS, ScaleUpOutcome.ALL_NODES):
        for key, why in itertools.islice(_unhelped(iteration, decision), MOST_TOLD):
            yield key, NOT_TRIGGERED, f"pod didn't trigger scale-up: {why}"


def _of_triggered(iteration: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str, str]]:
    own = {each.group for each in decision.increases} | {each.group for each in decision.creations}
    actions = [action for action in iteration.actions if action.kind in _GROWING and action.group in own]
    actions = [action for action in actions if not decision.advice or action.mode is Mode.RECOMMEND]
    grown = [action for action in actions if action.kind is ActionKind.INCREASE and action.done]
    advised = [action for action in actions if action.mode is Mode.RECOMMEND and not (action.done or action.error)]
    for those, reason, verb in ((grown, TRIGGERED, "triggered"), (advised, RECOMMENDED, "would trigger")):
        if those:
            sizes = " ".join(
                f"{{{action.group} {action.from_size}->{action.to_size} (max: {action.max_size})}}" for action in those
            )
            for key in decision.triggered[:MOST_TOLD]:
                yield key, reason, f"pod {verb} scale-up: [{sizes}]"


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
    known = [group for group in reasons if group in existing] or list(reasons)
    count = Counter(reason for group in known for reason in reasons[group])
    return ", ".join(f"{many} {reason}" for reason, many in sorted(count.items()))


def _pod(key: str, uids: Mapping[str, str]) -> ObjectRef:
    namespace, _, name = key.rpartition("/")
    return ObjectRef("v1", "Pod", name, namespace, uids.get(key, ""))
