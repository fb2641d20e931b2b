"""The gauges of the last iteration, computed at scrape time."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

from prometheus_client.core import Metric

from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.cluster_state.state import GroupStatus, Readiness
from manager.autoscaler.disruption.verdicts import ConsolidationDecision
from manager.autoscaler.estimator.limits import CPU, MEMORY
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pod_injection.buffer_planning import BufferPlan
from manager.autoscaler.scale_down.removal_status import DeletionStage, ScaleDownDecision
from manager.autoscaler.scale_up.scheduler_messages import PLUGINS
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.interruptions import InterruptionKind
from manager.autoscaler.utilization.decisions import ScanDecision
from shared.metric_families import GaugeFamily

Labels: TypeAlias = str | tuple[str, ...]
Values: TypeAlias = Iterable[tuple[Labels, float]] | float  # a number has no labels

_LAST_ACTIVITY_SECONDS = GaugeFamily(
    "headroom_autoscaler_last_activity_seconds", "Unix time of the last activity, by activity.", ("activity",)
)
_BLOCKED = GaugeFamily("headroom_autoscaler_blocked", "1 while the autoscaler cannot decide.")
_PENDING_PODS = GaugeFamily(
    "headroom_autoscaler_pending_pods",
    "Pending pods, by kind. `schedulable`: on existing or upcoming nodes; `reclaimed`: on Mid or Batch of the next "
    "reports; `triggered`: on new nodes; `left`: nowhere; `skipped`: not considered.",
    ("kind",),
)
_SCHEDULER_DISAGREEMENTS = GaugeFamily(
    "headroom_autoscaler_scheduler_disagreements",
    "Pods that fit by the autoscaler's predicates and that the scheduler rejects, by the scheduler's plug-in.",
    ("plugin",),
)
_BUFFER_CHUNKS = GaugeFamily(
    "headroom_autoscaler_buffer_chunks",
    "Chunks of CapacityBuffers, by where they have room. `triggered`: on new nodes; `unplaced`: nowhere.",
    ("namespace", "buffer", "kind"),
)
_PROVISIONING_REQUESTS = GaugeFamily(
    "headroom_autoscaler_provisioning_requests",
    "ProvisioningRequests, by class and state. `requested`: nodes are upcoming.",
    ("class", "state"),
)
_CLUSTER_HEALTHY = GaugeFamily(
    "headroom_autoscaler_cluster_healthy", "0 while too many nodes of the cluster are not ready."
)
_NODES = GaugeFamily("headroom_autoscaler_nodes", "Nodes of the cluster, by state.", ("state",))
_UNGROUPED_NODES = GaugeFamily("headroom_autoscaler_ungrouped_nodes", "Nodes without a node group.")
_UNMANAGED_GROUPS = GaugeFamily(
    "headroom_autoscaler_unmanaged_groups", "Node groups of the cloud that Headroom does not manage."
)
_GROUP_REFUSED = GaugeFamily("headroom_autoscaler_group_refused", "1 for a group that Headroom rejected.", ("group",))
_LEAVING_NODES = GaugeFamily("headroom_autoscaler_leaving_nodes", "Nodes that are being deleted, by stage.", ("stage",))
_INTERRUPTED_NODES = GaugeFamily(
    "headroom_autoscaler_interrupted_nodes", "Nodes with an announced interruption, by kind.", ("reason",)
)
_COST_PER_HOUR = GaugeFamily(
    "headroom_autoscaler_cost_per_hour", "Cost of all nodes per hour, in the currency of the prices."
)
_GROUP_COST_PER_HOUR = GaugeFamily(
    "headroom_autoscaler_group_cost_per_hour",
    "Cost of the nodes of a group per hour. The empty group has the nodes without a group.",
    ("group",),
)
_IDLE_COST_PER_HOUR = GaugeFamily(
    "headroom_autoscaler_idle_cost_per_hour", "Cost per hour of the capacity that no pod requests."
)
_RECLAIMED_COST_PER_HOUR = GaugeFamily(
    "headroom_autoscaler_reclaimed_cost_per_hour",
    "Cost per hour of reclaimed capacity. `used`: requested by Mid or Batch pods; `offered`: by none.",
    ("state",),
)
_UNPRICED_NODES = GaugeFamily("headroom_autoscaler_unpriced_nodes", "Nodes without a price, which costs omit.")
_GROUP_SIZE = GaugeFamily(
    "headroom_autoscaler_group_size", "Target, minimum and maximum size of a group, by bound.", ("group", "bound")
)
_GROUP_NODES = GaugeFamily("headroom_autoscaler_group_nodes", "Nodes of a group, by state.", ("group", "state"))
_GROUP_MODE = GaugeFamily("headroom_autoscaler_group_mode", "1 for the mode of a group.", ("group", "mode"))
_GROUP_HEALTHY = GaugeFamily(
    "headroom_autoscaler_group_healthy", "0 while too many nodes of a group are missing or not ready.", ("group",)
)
_GROUP_BACKOFF = GaugeFamily(
    "headroom_autoscaler_group_backoff",
    "1 while a node group backs off after a failure, by reason.",
    ("group", "reason"),
)
_UNNEEDED_NODES = GaugeFamily("headroom_autoscaler_unneeded_nodes", "Unneeded nodes, by group.", ("group",))
_UNREMOVABLE_NODES = GaugeFamily(
    "headroom_autoscaler_unremovable_nodes", "Nodes that scale-down does not delete, by reason.", ("reason",)
)
_SCALE_DOWN_IN_COOLDOWN = GaugeFamily(
    "headroom_autoscaler_scale_down_in_cooldown", "1 while scale-down waits after a change."
)
_SAVABLE_COST_PER_HOUR = GaugeFamily(
    "headroom_autoscaler_savable_cost_per_hour", "Cost per hour of unneeded nodes with a known price."
)
_REPLACED_NODES = GaugeFamily("headroom_autoscaler_replaced_nodes", "Nodes that a running replacement will delete.")
_UNREPLACEABLE_NODES = GaugeFamily(
    "headroom_autoscaler_unreplaceable_nodes", "Nodes that are not replaced, by reason.", ("reason",)
)
_DUE_NODES = GaugeFamily("headroom_autoscaler_due_nodes", "Nodes that are due for replacement, by reason.", ("reason",))
_SCAN_UTILIZATION_PERCENT = GaugeFamily(
    "headroom_autoscaler_scan_utilization_percent",
    "Requests of the group's pods in percent of its untainted nodes, by resource.",
    ("group", "resource"),
)
_SCAN_DELTA = GaugeFamily(
    "headroom_autoscaler_scan_delta", "Change of the number of nodes that the last scan decided.", ("group",)
)
_SCAN_NODES = GaugeFamily(
    "headroom_autoscaler_scan_nodes", "Nodes of a group that scales by utilization, by state.", ("group", "state")
)
_SCAN_LOCKED = GaugeFamily(
    "headroom_autoscaler_scan_locked", "1 while a scale-up of the group is in progress.", ("group",)
)
_SCAN_BREAKER_OPEN = GaugeFamily(
    "headroom_autoscaler_scan_breaker_open",
    "1 while the scan retries the cloud only rarely, because the last requests brought no node.",
    ("group",),
)
_SCAN_HEALTHY = GaugeFamily(
    "headroom_autoscaler_scan_healthy", "0 while too many new nodes of a group are unhealthy.", ("group",)
)


@dataclass(frozen=True)
class Latest:
    """The last iteration, and what was known with it; `scale_down` and `scans` are the last available ones.

    `active` says when something was last done, in Unix seconds.
    """

    iteration: Iteration
    active: Mapping[str, float] = field(default_factory=dict)
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


def _filled(family: GaugeFamily, values: Values) -> Metric:
    metric = family.scraped()
    for each, value in (((), values),) if isinstance(values, int | float) else values:
        metric.add_metric((each,) if isinstance(each, str) else each, value)
    return metric


def headroom_gauges(last: Latest) -> Iterator[Metric]:
    """Deleted groups disappear from them."""
    iteration, state = last.iteration, last.iteration.state

    yield _filled(_LAST_ACTIVITY_SECONDS, last.active.items())
    yield _filled(_BLOCKED, bool(iteration.blocked_reason))
    if iteration.cost != Cost():  # a blocked iteration does not make the cluster free
        yield from _costs(iteration.cost)

    yield _filled(_PENDING_PODS, _pending(iteration))
    disagreed = Tally(each.plugin for each in iteration.disagreements for _ in each.pods)
    yield _filled(_SCHEDULER_DISAGREEMENTS, [(each, disagreed[each]) for each in PLUGINS])
    if iteration.buffers is not None:
        yield _filled(_BUFFER_CHUNKS, _buffers(iteration.buffers))
    if iteration.requests is not None:
        yield _filled(_PROVISIONING_REQUESTS, iteration.requests.counts.items())
    yield _filled(_CLUSTER_HEALTHY, state.healthy)
    yield _filled(_NODES, _states(state.readiness).items())
    yield _filled(_UNGROUPED_NODES, len(state.ungrouped))
    yield _filled(_UNMANAGED_GROUPS, len(state.unmanaged))
    refused = ((group, 1) for group in sorted(state.refused))
    yield _filled(_GROUP_REFUSED, refused)
    yield from _groups(last)
    stages = Tally(each.stage for each in iteration.leaving)
    leaving = ((stage.value, stages[stage]) for stage in DeletionStage if not stage.is_over)
    yield _filled(_LEAVING_NODES, leaving)
    announced = Tally(each.kind for each in iteration.interruptions.values())
    interrupted = [(kind.value, announced[kind]) for kind in InterruptionKind]
    yield _filled(_INTERRUPTED_NODES, interrupted)
    if iteration.consolidation is not None:
        yield from _replacements(iteration.consolidation)
    if last.scale_down is not None:
        yield from _verdicts(iteration, last.scale_down)
    if last.scans:
        yield from _scans(last.scans)


def _costs(cost: Cost) -> Iterator[Metric]:
    yield _filled(_COST_PER_HOUR, cost.total)

    yield _filled(_GROUP_COST_PER_HOUR, cost.by_group.items())
    yield _filled(_IDLE_COST_PER_HOUR, cost.idle)

    yield _filled(_RECLAIMED_COST_PER_HOUR, [("offered", cost.offered), ("used", cost.used)])
    yield _filled(_UNPRICED_NODES, len(cost.unpriced))


def _pending(iteration: Iteration) -> Iterator[tuple[str, int]]:
    """While nothing is decided, only skipped pods are known."""
    yield "skipped", len(iteration.skipped_pods)
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
    yield _filled(_GROUP_SIZE, sizes)
    counts = ((name, {**_states(each.readiness), "upcoming": each.upcoming}) for name, each in last.groups)
    nodes = (((name, one), count) for name, found in counts for one, count in found.items())
    yield _filled(_GROUP_NODES, nodes)
    modes = (((name, mode.value), mode is each.mode) for name, each in last.groups for mode in Mode)
    yield _filled(_GROUP_MODE, modes)
    healthy = last.of_groups(lambda each: each.healthy)
    yield _filled(_GROUP_HEALTHY, healthy)
    yield _filled(_GROUP_BACKOFF, last.backoffs)


def _unremovable(decided: ScaleDownDecision) -> Values:
    """How many nodes stay for each reason."""
    reasons = Tally(each.reason for each in decided.statuses.values() if each.reason is not None)
    return sorted((reason.value, count) for reason, count in reasons.items())


def _verdicts(made: Iteration, decided: ScaleDownDecision) -> Iterator[Metric]:
    found = decided.unneeded_by_group
    unneeded = ((group, found[group]) for group in sorted({*found, *made.state.groups}))
    yield _filled(_UNNEEDED_NODES, unneeded)
    yield _filled(_UNREMOVABLE_NODES, _unremovable(decided))
    yield _filled(_SCALE_DOWN_IN_COOLDOWN, bool(decided.cooldown))
    savable = sum(made.cost.by_node.get(node, 0.0) for node in decided.unneeded)
    yield _filled(_SAVABLE_COST_PER_HOUR, savable)


def _replacements(decided: ConsolidationDecision) -> Iterator[Metric]:

    yield _filled(_REPLACED_NODES, 0 if decided.move is None else len(decided.move.removed))
    reasons = Tally(each.reason.value for each in decided.verdicts.values() if each.reason is not None)

    yield _filled(_UNREPLACEABLE_NODES, sorted(reasons.items()))
    due = Tally(each.disruption for each in decided.verdicts.values())
    counts = [(each.value, due[each]) for each in DisruptionReason if each is not DisruptionReason.UNDERUTILIZED]
    yield _filled(_DUE_NODES, counts)


def _scans(scans: Sequence[ScanDecision]) -> Iterator[Metric]:
    used = ((scan.group, each) for scan in scans if (each := scan.fullness.utilization) and not each.is_from_zero)
    percents = (
        ((name, resource), value)
        for name, each in used
        for resource, value in ((CPU, each.cpu_percent), (MEMORY, each.memory_percent))
    )
    yield _filled(_SCAN_UTILIZATION_PERCENT, percents)
    deltas = ((scan.group, scan.delta) for scan in scans)
    yield _filled(_SCAN_DELTA, deltas)
    # Force-tainted nodes are separate, as in Escalator's metrics.
    states = (("untainted", "untainted"), ("tainted", "tainted"), ("forceTainted", "force_tainted"))
    nodes = (
        ((scan.group, state), len(getattr(scan.classes, name)))
        for scan in scans
        for state, name in (*states, ("cordoned", "cordoned"))
    )
    yield _filled(_SCAN_NODES, nodes)
    locked = ((scan.group, scan.locked) for scan in scans)
    yield _filled(_SCAN_LOCKED, locked)
    is_open = ((scan.group, scan.breaker.is_open) for scan in scans)

    yield _filled(_SCAN_BREAKER_OPEN, is_open)
    healthy = ((scan.group, scan.healthy) for scan in scans if scan.healthy is not None)
    yield _filled(_SCAN_HEALTHY, healthy)
