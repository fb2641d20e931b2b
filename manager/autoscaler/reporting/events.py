"""The Kubernetes Events of an iteration, in Cluster Autoscaler's words where it has any.

Events about pods are on the pods, Events about a removed node are on the node, all others on the status ConfigMap. A
dry run writes none.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from manager.autoscaler.cluster_state.state import Incident, IncidentKind
from manager.autoscaler.expander import chain, priority
from manager.autoscaler.iteration import ActionKind, Iteration
from manager.autoscaler.modes import Mode
from manager.autoscaler.reporting.action_events import EMPTY, FAILED, RECOMMENDED, SCALE_DOWN, Said, action_events
from manager.autoscaler.scale_down.removal_status import DeletionProgress, DeletionStage, ScaleDownReason
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from shared import durations
from shared.kube.events import NORMAL, WARNING, ObjectRef

CONSOLIDATION = "Consolidation"  # ours: Cluster Autoscaler replaces no nodes
TRIGGERED = "TriggeredScaleUp"
NOT_TRIGGERED = "NotTriggerScaleUp"

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
    for going, stage in _stage_changes(iteration.leaving, before.leaving if before is not None else ()):
        told += [ReportedEvent(status, *each) for each in _of_deletion(going)]
        node = ObjectRef("v1", "Node", going.node, uid=going.node)  # as kubelets do, where kubectl looks for it
        told += [ReportedEvent(node, *each) for each in _of_node(going, stage)]
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
        yield from action_events(action, iteration)
    yield from _of_consolidation(iteration)
    yield from _of_priorities(iteration)
    if iteration.decision is not None and iteration.decision.outcome is ScaleUpOutcome.ALL_NODES:
        yield WARNING, "MaxNodesTotalReached", f"Max total nodes in cluster reached: {max_nodes_total}"


def _of_consolidation(iteration: Iteration) -> Iterator[Said]:
    """The beginning and the end of a replacement."""
    for action in iteration.actions:
        if action.kind is ActionKind.INCREASE and action.nodes and action.done:
            yield (
                NORMAL,
                CONSOLIDATION,
                f"Consolidation: {action.to_size - action.from_size} of {action.group} {action.reason}",
            )
    decided = iteration.consolidation
    if decided is not None and decided.ended:
        yield NORMAL if decided.is_done else WARNING, CONSOLIDATION, f"Consolidation: {decided.ended}"


def _stage_changes(
    now: Iterable[DeletionProgress], before: Iterable[DeletionProgress]
) -> Iterator[tuple[DeletionProgress, DeletionStage | None]]:
    """Nodes that have reached a new stage of their deletion, with the stage that was reported before."""
    known = {(each.node, each.since): each.stage for each in before}
    for each in now:
        stage = known.get((each.node, each.since))
        if stage is not each.stage:
            yield each, stage


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
        for each in iteration.decisions:
            yield from _of_triggered(iteration, each)
    elif decision.outcome in (ScaleUpOutcome.NO_OPTIONS, ScaleUpOutcome.ALL_NODES):
        for key, why in itertools.islice(_unhelped(iteration, decision), MOST_TOLD):
            yield key, NOT_TRIGGERED, f"pod didn't trigger scale-up: {why}"


def _of_triggered(iteration: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str, str]]:
    own = {each.group for each in decision.increases} | {each.group for each in decision.creations}
    growing = (ActionKind.INCREASE, ActionKind.CREATE_GROUP)
    actions = [action for action in iteration.actions if action.kind in growing and action.group in own]
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
