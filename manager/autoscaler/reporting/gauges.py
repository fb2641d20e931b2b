"""The gauges of the last iteration, computed at scrape time: Headroom's own (`headroom_autoscaler_`), and the same
facts under Cluster Autoscaler's names (`cluster_autoscaler_`), for existing dashboards and alerts.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

from prometheus_client.core import GaugeMetricFamily, Metric

from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.cluster_state.state import GroupStatus, Readiness
from manager.autoscaler.disruption.verdicts import ConsolidationDecision
from manager.autoscaler.estimator.limits import CPU, MEMORY, ResourceBounds
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.pod_injection.buffer_planning import BufferPlan
from manager.autoscaler.scale_down.removal_status import DeletionStage, ScaleDownDecision
from manager.autoscaler.scale_up.pending_pods import NOT_JUDGED
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.interruptions import InterruptionKind
from manager.autoscaler.utilization.decisions import ScanDecision

OURS, THEIRS = "headroom_autoscaler", "cluster_autoscaler"

Labels: TypeAlias = str | tuple[str, ...]
Values: TypeAlias = Iterable[tuple[Labels, float]] | float  # a number has no labels


@dataclass(frozen=True)
class Latest:
    """The last iteration, and what was known with it; `scale_down` and `scans` are the last available ones.

    `active` says when something was last done, in Unix seconds, `usage` what the present nodes have.
    """

    iteration: Iteration
    active: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    scale_down: ScaleDownDecision | None = None
    scans: tuple[ScanDecision, ...] = ()

    @property
    def groups(self) -> Sequence[tuple[str, GroupStatus]]:
        return sorted(self.iteration.state.groups.items())

    def of_groups(self, read: Callable[[GroupStatus], float]) -> Values:
        return [(name, read(group)) for name, group in self.groups]

    @property
    def backoffs(self) -> Values:
        return [((name, group.backoff.code), 1) for name, group in self.groups if group.backoff is not None]


@dataclass(frozen=True)
class ClusterAutoscalerOptions:
    """The settings that only Cluster Autoscaler's metrics show: the bounds of the cluster, in whole cores and bytes."""

    bounds: Mapping[str, ResourceBounds] = field(default_factory=dict)
    max_nodes_total: int = 0
    autoprovisioning: bool = False
    per_group: bool = False


def gauge(name: str, about: str, values: Values, *labels: str) -> Metric:
    metric = GaugeMetricFamily(name, about, labels=labels)
    for each, value in (((), values),) if isinstance(values, int | float) else values:
        metric.add_metric((each,) if isinstance(each, str) else each, value)
    return metric


def _ours(name: str, about: str, values: Values, *labels: str) -> Metric:
    return gauge(f"{OURS}_{name}", about, values, *labels)


def _theirs(name: str, about: str, values: Values, *labels: str) -> Metric:
    return gauge(f"{THEIRS}_{name}", about, values, *labels)


def headroom_gauges(last: Latest) -> Iterator[Metric]:
    """Deleted groups disappear from them."""
    iteration, state = last.iteration, last.iteration.state
    activity = "When something was last done, in Unix seconds"
    yield _ours("last_activity_seconds", activity, last.active.items(), "activity")
    yield _ours("held", "1 while nothing can be decided", bool(iteration.blocked_reason))
    if iteration.cost != Cost():  # a blocked iteration does not make the cluster free
        yield from _costs(iteration.cost)
    pending = (
        "Pending pods: schedulable on nodes there are or upcoming, reclaimed: on what reclaiming will give, triggered: "
        "on what is bought now, left: on nothing, aside: not counted"
    )
    yield _ours("pending_pods", pending, _pending(iteration), "kind")
    if iteration.buffers is not None:
        about = "Chunks of CapacityBuffers by where they have room; triggered: they get new nodes, unplaced: none"
        yield _ours("buffer_chunks", about, _buffers(iteration.buffers), "namespace", "buffer", "kind")
    if iteration.requests is not None:
        about = "ProvisioningRequests; requested: nodes are on their way"
        yield _ours("provisioning_requests", about, iteration.requests.counts.items(), "class", "state")
    yield _ours("cluster_healthy", "0 while too many nodes are not ready", state.healthy)
    yield _ours("nodes", "Nodes of the cluster by state", _states(state.readiness).items(), "state")
    yield _ours("ungrouped_nodes", "Nodes that are in no group", len(state.ungrouped))
    yield _ours("foreign_groups", "Groups of the cloud that are not ours", len(state.unmanaged))
    refused = ((group, 1) for group in sorted(state.refused))
    yield _ours("group_refused", "1 for a group that cannot be judged", refused, "group")
    yield from _groups(last)
    stages = Tally(each.stage for each in iteration.leaving)
    leaving = ((stage.value, stages[stage]) for stage in DeletionStage if not stage.is_over)
    yield _ours("leaving_nodes", "Nodes on their way out by how far they are", leaving, "stage")
    announced = Tally(each.kind for each in iteration.interruptions.values())
    interrupted = [(kind.value, announced[kind]) for kind in InterruptionKind]
    yield _ours("interrupted_nodes", "Nodes by what the cloud has announced for them", interrupted, "reason")
    if iteration.consolidation is not None:
        yield from _replacements(iteration.consolidation)
    if last.scale_down is not None:
        yield from _verdicts(iteration, last.scale_down)
    if last.scans:
        yield from _scans(last.scans)


def _costs(cost: Cost) -> Iterator[Metric]:
    yield _ours("cost_per_hour", "What all nodes cost, in the price model's currency", cost.total)
    by_group = "What the nodes of a group cost; of none: the empty name"
    yield _ours("group_cost_per_hour", by_group, cost.by_group.items(), "group")
    yield _ours("idle_cost_per_hour", "What the part of all nodes costs that no pod requests", cost.idle)
    reclaimed = (
        "What the part of all nodes costs that is reclaimed; used: held by pods as Mid and Batch, offered: by none yet"
    )
    yield _ours("reclaimed_cost_per_hour", reclaimed, [("offered", cost.offered), ("used", cost.used)], "state")
    yield _ours("unpriced_nodes", "Nodes without a price, which no cost has in it", len(cost.unpriced))


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


def _states(of: Readiness) -> dict[str, int]:
    """The number of nodes by the state's label."""
    return {
        "ready": of.ready,
        "unready": of.unready,
        "notStarted": of.not_started,
        "beingDeleted": of.being_deleted,
        "suspended": of.suspended,
        "unregistered": of.unregistered,
        "longUnregistered": of.long_unregistered,
    }


def _groups(last: Latest) -> Iterator[Metric]:
    bounds = (("min", attrgetter("min_size")), ("target", attrgetter("target_size")), ("max", attrgetter("max_size")))
    sizes = (((name, bound), size(each.group)) for name, each in last.groups for bound, size in bounds)
    yield _ours("group_size", "Nodes a group is to have, and may have", sizes, "group", "bound")
    counts = ((name, {**_states(each.readiness), "upcoming": each.upcoming}) for name, each in last.groups)
    nodes = (((name, one), count) for name, found in counts for one, count in found.items())
    yield _ours("group_nodes", "Nodes of a group by state", nodes, "group", "state")
    modes = (((name, mode.value), mode is each.mode) for name, each in last.groups for mode in Mode)
    yield _ours("group_mode", "1 for the mode a group is in", modes, "group", "mode")
    healthy = last.of_groups(lambda each: each.healthy)
    yield _ours("group_healthy", "0 while too many nodes of a group are missing or not ready", healthy, "group")
    yield _ours("group_backoff", "1 while a group is left alone after a failure", last.backoffs, "group", "reason")


def _unremovable(decided: ScaleDownDecision) -> Values:
    """How many nodes stay for each reason."""
    reasons = Tally(each.reason for each in decided.statuses.values() if each.reason is not None)
    return sorted((reason.value, count) for reason, count in reasons.items())


def _verdicts(made: Iteration, decided: ScaleDownDecision) -> Iterator[Metric]:
    found = decided.unneeded_by_group
    unneeded = ((group, found[group]) for group in sorted({*found, *made.state.groups}))
    yield _ours("unneeded_nodes", "Nodes that the cluster could do without", unneeded, "group")
    yield _ours("unremovable_nodes", "Nodes that stay, by what keeps them", _unremovable(decided), "reason")
    yield _ours("scale_down_in_cooldown", "1 while nothing is deleted for a while", bool(decided.cooldown))
    savable = sum(made.cost.by_node.get(node, 0.0) for node in decided.unneeded)
    yield _ours("savable_cost_per_hour", "What the nodes cost that the cluster could do without, where known", savable)


def _replacements(decided: ConsolidationDecision) -> Iterator[Metric]:
    about = "Nodes that a replacement under way removes in the end"
    yield _ours("replaced_nodes", about, 0 if decided.move is None else len(decided.move.removed))
    reasons = Tally(each.reason.value for each in decided.verdicts.values() if each.reason is not None)
    kept = "Nodes that are not replaced, by what keeps them"
    yield _ours("unreplaceable_nodes", kept, sorted(reasons.items()), "reason")
    due = Tally(each.disruption for each in decided.verdicts.values())
    counts = [(each.value, due[each]) for each in DisruptionReason if each is not DisruptionReason.UNDERUTILIZED]
    yield _ours("due_nodes", "Nodes that have to go for another reason than their price, by reason", counts, "reason")


def _scans(scans: Sequence[ScanDecision]) -> Iterator[Metric]:
    used = ((scan.group, each) for scan in scans if (each := scan.fullness.utilization) and not each.is_from_zero)
    percents = (
        ((name, resource), value)
        for name, each in used
        for resource, value in ((CPU, each.cpu_percent), (MEMORY, each.memory_percent))
    )
    yield _ours("scan_utilization_percent", "Demand on untainted nodes", percents, "group", "resource")
    deltas = ((scan.group, scan.delta) for scan in scans)
    yield _ours("scan_delta", "Nodes more, or fewer, that the last scan wanted", deltas, "group")
    # Force-tainted nodes are separate, as in Escalator's own metrics.
    states = (("untainted", "untainted"), ("tainted", "tainted"), ("forceTainted", "force_tainted"))
    nodes = (
        ((scan.group, state), len(getattr(scan.classes, name)))
        for scan in scans
        for state, name in (*states, ("cordoned", "cordoned"))
    )
    yield _ours("scan_nodes", "Nodes of a group by what is on them", nodes, "group", "state")
    locked = ((scan.group, scan.locked) for scan in scans)
    yield _ours("scan_locked", "1 while a scale-up is under way", locked, "group")
    is_open = ((scan.group, scan.breaker.is_open) for scan in scans)
    breaker = "1 while the cloud is not asked for more, as the last times brought none"
    yield _ours("scan_breaker_open", breaker, is_open, "group")
    healthy = ((scan.group, scan.healthy) for scan in scans if scan.healthy is not None)
    yield _ours("scan_healthy", "0 while too many new nodes of a group are unhealthy", healthy, "group")


def cluster_autoscaler_gauges(last: Latest, options: ClusterAutoscalerOptions) -> Iterator[Metric]:
    """The same facts, as Cluster Autoscaler names and counts them."""
    iteration, state = last.iteration, last.iteration.state
    yield _theirs("cluster_safe_to_autoscale", "Whether the cluster is healthy enough to autoscale", state.healthy)
    nodes = (each for each in _states(state.readiness).items() if each[0] not in ("beingDeleted", "suspended"))
    yield _theirs("nodes_count", "Number of nodes in cluster", nodes, "state")
    created = sum(each.group.autoprovisioned for _, each in last.groups)
    groups = (("autoscaled", len(last.groups) - created), ("autoprovisioned", created))
    yield _theirs("node_groups_count", "Number of node groups managed", groups, "node_group_type")
    demands = () if iteration.decision is None else iteration.decision.demands
    unprocessed = sum(why == NOT_JUDGED for why in iteration.skipped_pods.values())
    pods = (("unschedulable", sum(len(each.pods) for each in demands)), ("scheduler_unprocessed", unprocessed))
    yield _theirs("unschedulable_pods_count", "Number of unschedulable pods in the cluster", pods, "type")
    yield _theirs("max_nodes_count", "Maximum number of nodes in all node groups", options.max_nodes_total)
    yield _theirs("cluster_cpu_current_cores", "Current number of cores", last.usage.get(CPU, 0))
    yield _theirs("cluster_memory_current_bytes", "Current number of bytes of memory", last.usage.get(MEMORY, 0))
    limits = "Minimum and maximum in the cluster"
    yield _theirs("cpu_limits_cores", limits, _bounds(options.bounds.get(CPU)), "direction")
    yield _theirs("memory_limits_bytes", limits, _bounds(options.bounds.get(MEMORY)), "direction")
    yield _theirs("nap_enabled", "Whether node autoprovisioning is enabled", options.autoprovisioning)
    yield _theirs("last_activity", "Last time certain part of the logic executed", last.active.items(), "activity")
    going = sum(not each.stage.is_over for each in iteration.leaving)
    yield _theirs("pending_node_deletions", "Number of nodes whose deletion is in progress", going)
    if last.scale_down is not None:
        yield from _their_verdicts(last.scale_down)
    if options.per_group:
        yield from _their_groups(last)


def _their_verdicts(found: ScaleDownDecision) -> Iterator[Metric]:
    unneeded = "Number of nodes currently considered unneeded by CA"
    yield _theirs("unneeded_nodes_count", unneeded, len(found.unneeded))
    staying = "Number of nodes currently considered unremovable by CA"
    yield _theirs("unremovable_nodes_count", staying, _unremovable(found), "reason")
    yield _theirs("scale_down_in_cooldown", "Whether or not the scale down is in cooldown", bool(found.cooldown))


def _bounds(of: ResourceBounds | None) -> Values:
    bounds = () if of is None else (("minimum", of.low), ("maximum", of.high))
    return [(direction, value) for direction, value in bounds if value is not None]


def _their_groups(last: Latest) -> Iterator[Metric]:
    least, most = last.of_groups(lambda each: each.group.min_size), last.of_groups(lambda each: each.group.max_size)
    yield _theirs("node_group_min_count", "Minimum number of nodes in the node group", least, "node_group")
    yield _theirs("node_group_max_count", "Maximum number of nodes in the node group", most, "node_group")
    target = last.of_groups(lambda each: each.target)
    yield _theirs("node_group_target_count", "Target number of nodes in the node group", target, "node_group")
    healthy = last.of_groups(lambda each: each.healthy)
    yield _theirs("node_group_healthiness", "Whether the node group is healthy", healthy, "node_group")
    backoff = "Whether the node group is backed off"
    yield _theirs("node_group_backoff_status", backoff, last.backoffs, "node_group", "reason")
