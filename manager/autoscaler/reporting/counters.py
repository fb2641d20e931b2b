"""The counters since the start: one walk over an iteration says what it adds to all of them."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry

from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.state import Incident, IncidentKind
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.scale_down.removal_status import DeletionProgress, DeletionStage
from shared.metric_families import CounterFamily

Count: TypeAlias = tuple[str, tuple[str, ...], float]  # a counter's name, its labels' values, and what is added

_FAMILIES = {
    "iterations": CounterFamily("headroom_autoscaler_iterations", "Iterations, by result.", ("result",)),
    "decisions": CounterFamily("headroom_autoscaler_decisions", "Scale-up decisions, by outcome.", ("outcome",)),
    "acts": CounterFamily(
        "headroom_autoscaler_acts",
        "Actions on node groups, by result. `advised`: only recommended.",
        ("what", "result"),
    ),
    "nodes_added": CounterFamily("headroom_autoscaler_nodes_added", "Nodes that the autoscaler requested.", ("group",)),
    "nodes_removed": CounterFamily(
        "headroom_autoscaler_nodes_removed",
        "Nodes that were deleted, or given up before they registered, by reason.",
        ("reason",),
    ),
    "groups_created": CounterFamily("headroom_autoscaler_groups_created", "Node groups that the autoscaler created."),
    "groups_deleted": CounterFamily("headroom_autoscaler_groups_deleted", "Node groups that the autoscaler deleted."),
    "failures": CounterFamily(
        "headroom_autoscaler_failures", "Nodes that the cloud failed to launch, by reason.", ("reason",)
    ),
    "node_removals": CounterFamily(
        "headroom_autoscaler_node_removals", "Node deletions, by result.", ("kind", "result")
    ),
    "evicted_pods": CounterFamily(
        "headroom_autoscaler_evicted_pods", "Evictions of pods from nodes that are deleted, by result.", ("result",)
    ),
    "node_taints": CounterFamily(
        "headroom_autoscaler_node_taints", "Taints that scans added to nodes and removed.", ("group", "what", "result")
    ),
    "replacements": CounterFamily(
        "headroom_autoscaler_replacements", "Finished replacements of nodes, by outcome.", ("reason", "result")
    ),
    "scans": CounterFamily(
        "headroom_autoscaler_scans", "Scans of groups that scale by utilization.", ("group", "result")
    ),
}


class Counters:
    """For the loop's thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {name: family.register(registry) for name, family in _FAMILIES.items()}
        self._evicted: dict[str, int] = {}  # by node under deletion, the pods to evict

    def note(self, made: Iteration) -> None:
        """Counts an iteration."""
        for name, labels, amount in self._counts(made):
            counter = self._counters[name]
            (counter.labels(*labels) if labels else counter).inc(amount)
        for action in made.actions:
            if action.kind is ActionKind.DELETE_GROUP and action.done:
                self._counters["nodes_added"].remove(action.group)  # created groups get ever new names

    def _counts(self, made: Iteration) -> Iterator[Count]:
        yield "iterations", ("blocked" if made.blocked_reason else "decided",), 1
        for decision in made.decisions:
            yield "decisions", (decision.outcome.value,), 1
        for action in made.actions:
            yield from _of_action(action)
        for incident in made.incidents:
            yield from _of_incident(incident)
        for going, evicted in self._ended(made):
            yield from _of_deletion(going, evicted)
        if made.consolidation is not None and made.consolidation.ended:
            result = "done" if made.consolidation.is_done else "failed"
            yield "replacements", (made.consolidation.reason.value, result), 1
        for scan in made.scans:
            yield "scans", (scan.group, "failed" if scan.error else "decided"), 1

    def _ended(self, made: Iteration) -> Sequence[tuple[DeletionProgress, int]]:
        """The ended deletions, each once, with the number of pods evicted from the node."""
        if made.scale_down is not None:
            self._evicted |= {each.node: len(each.evicted) for each in made.scale_down.removals}
        over = [each for each in made.leaving if each.stage.is_over]
        ended = [(each, max(0, self._evicted.pop(each.node, 0) - len(each.waits_for))) for each in over]
        begun = (each.nodes for each in made.actions if each.kind is ActionKind.REMOVE_NODES and each.done)
        known = {each.node for each in made.leaving if not each.stage.is_over}.union(*begun)
        self._evicted = {node: pods for node, pods in self._evicted.items() if node in known}
        return ended


def _of_incident(incident: Incident) -> Iterator[Count]:
    """A cloud's own codes are unbounded, so that they are no labels."""
    if incident.kind is IncidentKind.TIMED_OUT:
        yield "failures", (reconciliation.TIMEOUT,), incident.nodes
    elif incident.kind is IncidentKind.CREATION_FAILED and incident.error is not None:
        yield "failures", (incident.error.kind.value,), incident.nodes


def _of_action(action: Action) -> Iterator[Count]:
    kind, group, change, result = action.kind, action.group, action.change, action.result
    yield "acts", (kind.value, result), 1
    if action.error and kind is ActionKind.INCREASE:
        yield "failures", ("refused",), change
    if kind in (ActionKind.TAINT, ActionKind.UNTAINT) and (action.done or action.error) and not action.is_soft_taint:
        yield "node_taints", (group, kind.value, result), len(action.nodes)
    if not action.done:
        return
    match kind:
        case ActionKind.INCREASE:
            yield "nodes_added", (group,), change
        case ActionKind.CREATE_GROUP:
            yield "groups_created", (), 1
        case ActionKind.DELETE_GROUP:
            yield "groups_deleted", (), 1
        case ActionKind.DECREASE_TARGET | ActionKind.DELETE_NODES:
            yield "nodes_removed", (action.reason,), -change


def _of_deletion(going: DeletionProgress, evicted: int) -> Iterator[Count]:
    is_gone, left = going.stage is DeletionStage.GONE, len(going.waits_for)
    yield "node_removals", (going.kind.value, "done" if is_gone else "failed"), 1
    for result, pods in (("done", evicted), ("failed", left)):
        yield "evicted_pods", (result,), pods
