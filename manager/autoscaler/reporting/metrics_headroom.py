"""Headroom's own metrics of the autoscaler (all under `headroom_autoscaler_`)."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.cluster_state.state import Incident, IncidentKind
from manager.autoscaler.disruption.verdicts import ConsolidationDecision
from manager.autoscaler.estimator.limits import CPU, MEMORY
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.pod_injection.buffer_planning import BufferPlan
from manager.autoscaler.reporting.node_status import is_soft_taint
from manager.autoscaler.reporting.series import Labels, Latest, Values, gauge, states, unremovable
from manager.autoscaler.scale_down.removal_status import DeletionProgress, DeletionStage, ScaleDownDecision
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.interruptions import InterruptionKind
from manager.autoscaler.utilization.decisions import ScanDecision

OURS = "headroom_autoscaler"


def _gauge(name: str, about: str, values: Values, *labels: str) -> Metric:
    return gauge(f"{OURS}_{name}", about, values, *labels)


def gauges(last: Latest) -> Iterator[Metric]:
    """Computed at scrape time from the last iteration, so that deleted groups disappear."""
    iteration, state, groups = last.iteration, last.iteration.state, last.groups
    activity = "When something was last done, in Unix seconds"
    yield _gauge("last_activity_seconds", activity, last.active.items(), "activity")
    yield _gauge("held", "1 while nothing can be decided", bool(iteration.blocked_reason))
    if iteration.cost != Cost():  # a blocked iteration does not make the cluster free
        yield from _costs(iteration.cost)
    pending = (
        "Pending pods: schedulable on nodes there are or upcoming, reclaimed: on what reclaiming will give, triggered: "
        "on what is bought now, left: on nothing, aside: not counted"
    )
    yield _gauge("pending_pods", pending, _pending(iteration), "kind")
    if iteration.buffers is not None:
        about = "Chunks of CapacityBuffers by where they have room; triggered: they get new nodes, unplaced: none"
        yield _gauge("buffer_chunks", about, _buffers(iteration.buffers), "namespace", "buffer", "kind")
    if iteration.requests is not None:
        about = "ProvisioningRequests; requested: nodes are on their way"
        yield _gauge("provisioning_requests", about, iteration.requests.counts.items(), "class", "state")
    yield _gauge("cluster_healthy", "0 while too many nodes are not ready", state.healthy)
    yield _gauge("nodes", "Nodes of the cluster by state", states(state.readiness).items(), "state")
    yield _gauge("ungrouped_nodes", "Nodes that are in no group", len(state.ungrouped))
    yield _gauge("foreign_groups", "Groups of the cloud that are not ours", len(state.unmanaged))
    refused = ((group, 1) for group in sorted(state.refused))
    yield _gauge("group_refused", "1 for a group that cannot be judged", refused, "group")
    bounds = (("min", attrgetter("min_size")), ("target", attrgetter("target_size")), ("max", attrgetter("max_size")))
    sizes = (((name, bound), size(each.group)) for name, each in groups for bound, size in bounds)
    yield _gauge("group_size", "Nodes a group is to have, and may have", sizes, "group", "bound")
    counts = ((name, {**states(each.readiness), "upcoming": each.upcoming}) for name, each in groups)
    nodes = (((name, one), count) for name, found in counts for one, count in found.items())
    yield _gauge("group_nodes", "Nodes of a group by state", nodes, "group", "state")
    modes = (((name, mode.value), mode is each.mode) for name, each in groups for mode in Mode)
    yield _gauge("group_mode", "1 for the mode a group is in", modes, "group", "mode")
    healthy = ((name, each.healthy) for name, each in groups)
    yield _gauge("group_healthy", "0 while too many nodes of a group are missing or not ready", healthy, "group")
    yield _gauge("group_backoff", "1 while a group is left alone after a failure", last.backoffs, "group", "reason")
    stages = Tally(each.stage for each in iteration.leaving)
    leaving = ((stage.value, stages[stage]) for stage in DeletionStage if not stage.is_over)
    yield _gauge("leaving_nodes", "Nodes on their way out by how far they are", leaving, "stage")
    announced = Tally(each.kind for each in iteration.interruptions.values())
    interrupted = [(kind.value, announced[kind]) for kind in InterruptionKind]
    yield _gauge("interrupted_nodes", "Nodes by what the cloud has announced for them", interrupted, "reason")
    if iteration.consolidation is not None:
        yield from _replacements(iteration.consolidation)
    if last.scale_down is not None:
        yield from _verdicts(iteration, last.scale_down)
    if last.scans:
        yield from _scans(last.scans)


def _costs(cost: Cost) -> Iterator[Metric]:
    yield _gauge("cost_per_hour", "What all nodes cost, in the price model's currency", cost.total)
    by_group = "What the nodes of a group cost; of none: the empty name"
    yield _gauge("group_cost_per_hour", by_group, cost.by_group.items(), "group")
    yield _gauge("idle_cost_per_hour", "What the part of all nodes costs that no pod requests", cost.idle)
    reclaimed = (
        "What the part of all nodes costs that is reclaimed; used: held by pods as Mid and Batch, offered: by none yet"
    )
    yield _gauge("reclaimed_cost_per_hour", reclaimed, [("offered", cost.offered), ("used", cost.used)], "state")
    yield _gauge("unpriced_nodes", "Nodes without a price, which no cost has in it", len(cost.unpriced))


def _pending(iteration: Iteration) -> Iterator[tuple[str, int]]:
    """While nothing is decided, only skipped pods are known."""
    yield "aside", len(iteration.skipped_pods)
    if iteration.decision is not None:
        demands, decisions = iteration.decision.demands, iteration.for_pods
        yield "schedulable", sum(each.schedulable for each in demands)
        yield "reclaimed", sum(each.reclaimed for each in demands)
        yield "triggered", sum(len(each.triggered) for each in decisions)
        yield "left", sum(len(left.pods) for left in decisions[-1].left)


def _buffers(plan: BufferPlan) -> Iterator[tuple[tuple[str, str, str], int]]:
    for each in plan.buffers:
        namespace, _, name = each.key.partition("/")
        for kind in ("on_nodes", "on_mid", "triggered", "unplaced"):
            yield (namespace, name, kind), getattr(each, kind)


def _verdicts(made: Iteration, decided: ScaleDownDecision) -> Iterator[Metric]:
    found = Tally(decided.statuses[node].group for node in decided.unneeded)
    unneeded = ((group, found[group]) for group in sorted({*found, *made.state.groups}))
    yield _gauge("unneeded_nodes", "Nodes that the cluster could do without", unneeded, "group")
    yield _gauge("unremovable_nodes", "Nodes that stay, by what keeps them", unremovable(decided), "reason")
    yield _gauge("scale_down_in_cooldown", "1 while nothing is deleted for a while", bool(decided.cooldown))
    savable = sum(made.cost.by_node.get(node, 0.0) for node in decided.unneeded)
    yield _gauge("savable_cost_per_hour", "What the nodes cost that the cluster could do without, where known", savable)


def _replacements(decided: ConsolidationDecision) -> Iterator[Metric]:
    about = "Nodes that a replacement under way removes in the end"
    yield _gauge("replaced_nodes", about, 0 if decided.move is None else len(decided.move.removed))
    reasons = Tally(each.reason.value for each in decided.verdicts.values() if each.reason is not None)
    yield _gauge(
        "unreplaceable_nodes",
        "Nodes that are not replaced, by what keeps them",
        sorted(reasons.items()),
        "reason",
    )
    due = Tally(each.disruption for each in decided.verdicts.values())
    counts = [(each.value, due[each]) for each in DisruptionReason if each is not DisruptionReason.UNDERUTILIZED]
    yield _gauge("due_nodes", "Nodes that have to go for another reason than their price, by reason", counts, "reason")


def _scans(scans: Iterable[ScanDecision]) -> Iterator[Metric]:
    used = ((scan.group, each) for scan in scans if (each := scan.fullness.utilization) and not each.is_from_zero)
    percents = (
        ((name, resource), value)
        for name, each in used
        for resource, value in ((CPU, each.cpu_percent), (MEMORY, each.memory_percent))
    )
    yield _gauge("scan_utilization_percent", "Demand on untainted nodes", percents, "group", "resource")
    deltas = ((scan.group, scan.delta) for scan in scans)
    yield _gauge("scan_delta", "Nodes more, or fewer, that the last scan wanted", deltas, "group")
    nodes = (each for scan in scans for each in _nodes(scan))
    yield _gauge("scan_nodes", "Nodes of a group by what is on them", nodes, "group", "state")
    locked = ((scan.group, scan.locked) for scan in scans)
    yield _gauge("scan_locked", "1 while a scale-up is under way", locked, "group")
    is_open = ((scan.group, scan.breaker.is_open) for scan in scans)
    breaker = "1 while the cloud is not asked for more, as the last times brought none"
    yield _gauge("scan_breaker_open", breaker, is_open, "group")
    healthy = ((scan.group, scan.healthy) for scan in scans if scan.healthy is not None)
    yield _gauge("scan_healthy", "0 while too many new nodes of a group are unhealthy", healthy, "group")


def _nodes(scan: ScanDecision) -> Iterator[tuple[Labels, float]]:
    """Force-tainted nodes are separate, as in Escalator's own metrics."""
    yield (scan.group, "untainted"), len(scan.classes.untainted)
    yield (scan.group, "tainted"), len(scan.classes.tainted)
    yield (scan.group, "forceTainted"), len(scan.classes.force_tainted)
    yield (scan.group, "cordoned"), len(scan.classes.cordoned)


class HeadroomCounters:
    """Counters since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"{OURS}_{name}", about, labels, registry=registry)

        self._rounds = counter("rounds", "Rounds by whether anything could be decided", "result")
        self._decisions = counter("decisions", "Decisions by what came of them", "outcome")
        self._acts = counter("acts", "What was done to groups; advised: it was only recommended", "what", "result")
        self._added = counter("nodes_added", "Nodes that were asked for", "group")
        self._removed = counter("nodes_removed", "Nodes that were deleted, or not waited for any more", "reason")
        self._created = counter("groups_created", "Groups that were created")
        self._deleted = counter("groups_deleted", "Groups that were deleted")
        self._failures = counter("failures", "Nodes that failed to come, by reason", "reason")
        self._removals = counter("node_removals", "Nodes that were drained and deleted", "kind", "result")
        self._evictions = counter("evicted_pods", "Pods that were evicted, or not, so that nodes go", "result")
        self._taints = counter("node_taints", "Taints of scans put on nodes and taken off", "group", "what", "result")
        self._replacements = counter("replacements", "Replacements of nodes that ended", "reason", "result")
        self._scans = counter("scans", "Scans of groups that scale by utilization", "group", "result")

    def note(self, made: Iteration, ended: Iterable[tuple[DeletionProgress, int]]) -> None:
        self._rounds.labels("held" if made.blocked_reason else "decided").inc()
        for decision in made.decisions:
            self._decisions.labels(decision.outcome.value).inc()
        for action in made.actions:
            self._note_action(action)
        for incident in made.incidents:
            reason = _failure(incident)
            if reason:
                self._failures.labels(reason).inc(incident.nodes)
        for going, evicted in ended:
            self._removals.labels(going.kind.value, "done" if going.stage is DeletionStage.GONE else "failed").inc()
            self._evictions.labels("done").inc(evicted)
            self._evictions.labels("failed").inc(len(going.waits_for))
        if made.consolidation is not None and made.consolidation.ended:
            result = "done" if made.consolidation.is_done else "failed"
            self._replacements.labels(made.consolidation.reason.value, result).inc()
        for scan in made.scans:
            self._scans.labels(scan.group, "failed" if scan.error else "decided").inc()

    def _note_action(self, action: Action) -> None:
        kind, nodes = action.kind, action.to_size - action.from_size
        untried = "left" if action.mode is Mode.ENFORCE else "advised"
        result = "done" if action.done else "failed" if action.error else untried
        self._acts.labels(kind.value, result).inc()
        if action.error and kind is ActionKind.INCREASE:
            self._failures.labels("refused").inc(nodes)
        match kind:
            case ActionKind.TAINT | ActionKind.UNTAINT if (action.done or action.error) and not is_soft_taint(action):
                self._taints.labels(action.group, kind.value, result).inc(len(action.nodes))
            case ActionKind.INCREASE if action.done:
                self._added.labels(action.group).inc(nodes)
            case ActionKind.CREATE_GROUP if action.done:
                self._created.inc()
            case ActionKind.DELETE_GROUP if action.done:
                self._deleted.inc()
                self._added.remove(action.group)  # created groups get ever new names
            case ActionKind.DELETE_NODES | ActionKind.DECREASE_TARGET if action.done:
                self._removed.labels(action.reason).inc(-nodes)


def _failure(incident: Incident) -> str:
    """The reason label of a failure; empty without one. A cloud's own codes are unbounded, and so no labels."""
    if incident.kind is IncidentKind.TIMED_OUT:
        return reconciliation.TIMEOUT
    if incident.kind is IncidentKind.CREATION_FAILED and incident.error is not None:
        return incident.error.kind.value
    return ""
