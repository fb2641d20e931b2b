"""What Kubernetes Events tell of a round, in Cluster Autoscaler's words where it has any.

Those about pods stand on the pods, those about a node that goes on the node, all others on the status ConfigMap. A dry
run tells nothing.
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
from manager.autoscaler.reporting import telling_nodes
from manager.autoscaler.reporting.telling_nodes import Said
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from shared import durations
from shared.kube.events import NORMAL, WARNING, ObjectRef

TRIGGERED = "TriggeredScaleUp"
NOT_TRIGGERED = "NotTriggerScaleUp"
RECOMMENDED = "RecommendedScaleUp"  # ours: a group that is only advised on would have grown
RECOMMENDED_DOWN = "RecommendedScaleDown"  # ours: the same of nodes that would go
RECOMMENDED_CLEANUP = "RecommendedCleanup"  # ours: the same of what would have been put right

MOST_TOLD = 200  # pods by reason and round; a recorder lets no more through, and tells the others in later rounds


class Told(NamedTuple):
    """The arguments of `Recorder.event`."""

    regarding: ObjectRef
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def events(
    made: Iteration,
    status: ObjectRef,
    *,
    uids: Mapping[str, str] | None = None,
    max_nodes_total: int = 0,
    before: Iteration | None = None,
) -> list[Told]:
    """Everything worth telling of one round, after it was acted upon. `uids` are those of pods by "namespace/name";
    `before` is the round that was told last.
    """
    if made.dry_run:
        return []
    told = [Told(status, *each) for each in _of_cluster(made, max_nodes_total)]
    if made.decision is not None:
        told += [
            Told(_pod(key, uids or {}), NORMAL, reason, message)
            for key, reason, message in _of_pods(made, made.decision)
        ]
    for going, stage in telling_nodes.changed(made.leaving, before.leaving if before is not None else ()):
        told += [Told(status, *each) for each in telling_nodes.on_status(going)]
        node = ObjectRef("v1", "Node", going.node, uid=going.node)  # as kubelets do, where kubectl looks for it
        told += [Told(node, *each) for each in telling_nodes.on_node(going, stage)]
        told += [
            Told(_pod(key, {}), NORMAL, reason, message)
            for key, reason, message in itertools.islice(telling_nodes.on_pods(going), MOST_TOLD)
        ]
    return told


def _of_cluster(made: Iteration, max_nodes_total: int) -> Iterator[Said]:
    if not made.state.healthy:
        yield WARNING, "ClusterUnhealthy", f"Cluster is unhealthy: {made.held}" if made.held else "Cluster is unhealthy"
    for incident in made.incidents:
        yield from _of_incident(incident)
    for act in made.acts:
        if act.done or act.error:
            yield from _of_act(act)
            yield from telling_nodes.of_act(act, made)
        elif act.mode is Mode.RECOMMEND:
            is_scanned = telling_nodes.is_scanned(act, made)
            reason = RECOMMENDED_DOWN if is_scanned else _RECOMMENDED.get(act.what, RECOMMENDED_CLEANUP)
            for text in (*_advice(act), *telling_nodes.advice(act, made)):
                yield NORMAL, reason, text
    yield from _of_priorities(made)
    if made.decision is not None and made.decision.outcome is ScaleUpOutcome.ALL_NODES:
        yield WARNING, "MaxNodesTotalReached", f"Max total nodes in cluster reached: {max_nodes_total}"


_GROWING = frozenset({ActionKind.INCREASE, ActionKind.CREATE_GROUP})
_RECOMMENDED = {
    **dict.fromkeys((*_GROWING, ActionKind.UNTAINT), RECOMMENDED),
    **dict.fromkeys((ActionKind.REMOVE_NODES, ActionKind.TAINT), RECOMMENDED_DOWN),
}


def _of_priorities(made: Iteration) -> Iterator[Said]:
    wrong = made.unread.get(priority.SOURCE)
    if wrong is not None:
        yield WARNING, "PriorityConfigMapInvalid", f"Wrong configuration for priority expander: {wrong}. Ignoring it."
    if made.decision is None or not made.decision.unmatched:
        return
    unmatched = made.decision.unmatched
    for group in unmatched[:MOST_TOLD]:
        yield WARNING, "PriorityConfigMapNotMatchedGroup", f"Priority expander: no priority is given to group {group}"
    kept = next((step.groups for step in made.decision.steps if step.expander == chain.PRIORITY), ())
    if set(kept) <= set(unmatched):
        yield (
            WARNING,
            "PriorityConfigMapNoGroupMatched",
            "Priority expander: no group has a priority, so all are left in",
        )


def _of_incident(incident: Incident) -> Iterator[Said]:
    group = incident.group
    match incident.what:
        case IncidentKind.TIMED_OUT:
            waited = durations.render(round(incident.seconds))
            yield WARNING, "ScaleUpTimedOut", f"Nodes added to group {group} failed to register within {waited}"
        case IncidentKind.CREATION_FAILED:
            error = incident.error
            why = f"{error.kind}.{error.code}; source errors: {error.message}" if error is not None else "unknown"
            yield WARNING, "ScaleUpFailed", f"Failed adding {incident.nodes} nodes to group {group} due to {why}"


def _of_act(act: Action) -> Iterator[Said]:
    group, error = act.group, act.error
    sizes = f"{act.to_size} instead of {act.from_size} (max: {act.max_size})"
    match act.what:
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
        case ActionKind.DELETE_NODES if act.reason == reconciliation.UNREGISTERED:
            for node in act.nodes:
                if error:
                    yield WARNING, "DeleteUnregisteredFailed", f"Failed to remove node {node}: {error}"
                else:
                    yield NORMAL, "DeleteUnregistered", f"Removed unregistered node {node}"
        case ActionKind.DELETE_NODES:
            if error:
                failed = f"Failed to remove {len(act.nodes)} nodes of group {group} ({act.reason}): {error}"
                yield WARNING, "DeleteNodesFailed", failed
        case ActionKind.DECREASE_TARGET if error:
            failed = f"Failed to set group {group} size to {sizes}: {error}"
            reverting = act.reason == reconciliation.NEVER_CAME
            yield WARNING, "FailedToRevertScaleUp" if reverting else "FailedToFixNodeGroupSize", failed


def _advice(act: Action) -> Iterator[str]:
    match act.what:
        case ActionKind.INCREASE:
            sizes = f"{act.to_size} instead of {act.from_size} (max: {act.max_size})"
            yield f"Scale-up: group {act.group} size would be set to {sizes}"
        case ActionKind.CREATE_GROUP:
            yield f"NodeAutoprovisioning: node group {act.group} would be created"
        case ActionKind.DELETE_GROUP:
            yield f"NodeAutoprovisioning: node group {act.group} would be removed"
        case ActionKind.DECREASE_TARGET:
            yield f"group {act.group} size would be set to {act.to_size} instead of {act.from_size}: {act.reason}"
        case ActionKind.DELETE_NODES:
            yield f"nodes {', '.join(act.nodes)} of group {act.group} would be removed: {act.reason}"


def _of_pods(made: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str, str]]:
    if decision.outcome is ScaleUpOutcome.GROW:
        for each in (decision, *made.further):
            yield from _of_triggered(made, each)
    elif decision.outcome in (ScaleUpOutcome.NO_OPTIONS, ScaleUpOutcome.ALL_NODES):
        for key, why in itertools.islice(_unhelped(made, decision), MOST_TOLD):
            yield key, NOT_TRIGGERED, f"pod didn't trigger scale-up: {why}"


def _of_triggered(made: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str, str]]:
    own = {each.group for each in decision.increases} | {each.group for each in decision.creations}
    acts = [act for act in made.acts if act.what in _GROWING and act.group in own]
    acts = [act for act in acts if not decision.advice or act.mode is Mode.RECOMMEND]
    grown = [act for act in acts if act.what is ActionKind.INCREASE and act.done]
    advised = [act for act in acts if act.mode is Mode.RECOMMEND and not (act.done or act.error)]
    for those, reason, verb in ((grown, TRIGGERED, "triggered"), (advised, RECOMMENDED, "would trigger")):
        if those:
            sizes = " ".join(f"{{{act.group} {act.from_size}->{act.to_size} (max: {act.max_size})}}" for act in those)
            for key in decision.triggered[:MOST_TOLD]:
                yield key, reason, f"pod {verb} scale-up: [{sizes}]"


def _unhelped(made: Iteration, decision: ScaleUpDecision) -> Iterator[tuple[str, str]]:
    """Pods that stay as they are, with the reason. One of every kind comes before the second of any."""
    texts: dict[int, str] = {}
    for alike in itertools.zip_longest(*(left.pods for left in decision.left)):
        for left, key in zip(decision.left, alike, strict=True):
            if key is None:
                continue
            if left.position not in texts:
                all_nodes = decision.outcome is ScaleUpOutcome.ALL_NODES
                texts[left.position] = (
                    ScaleUpOutcome.ALL_NODES.value if all_nodes else counted(decision.reasons(left), made.state.groups)
                )
            yield key, texts[left.position]


def counted(reasons: Mapping[str, tuple[str, ...]], existing: Mapping[str, object]) -> str:
    """Every reason with the number of groups it holds for. Groups that could be created only count where there are no
    others: they would drown those that exist.
    """
    known = [group for group in reasons if group in existing] or list(reasons)
    count = Counter(reason for group in known for reason in reasons[group])
    return ", ".join(f"{many} {reason}" for reason, many in sorted(count.items()))


def _pod(key: str, uids: Mapping[str, str]) -> ObjectRef:
    namespace, _, name = key.rpartition("/")
    return ObjectRef("v1", "Pod", name, namespace, uids.get(key, ""))
