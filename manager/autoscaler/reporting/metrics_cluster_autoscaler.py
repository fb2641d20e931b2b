"""Cluster Autoscaler's own metrics (all under `cluster_autoscaler_`), for existing dashboards and alerts."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from manager.autoscaler import reconciliation
from manager.autoscaler.cluster_state.health import Readiness
from manager.autoscaler.cluster_state.state import GroupStatus, IncidentKind
from manager.autoscaler.iteration import ActionKind, Iteration
from manager.autoscaler.limits import CPU, MEMORY, ResourceBounds
from manager.autoscaler.pending_pods import NOT_JUDGED
from manager.autoscaler.reporting import metrics_errors, node_metrics
from manager.autoscaler.scale_down.removal_status import ScaleDownDecision as ScaleDown
from manager.autoscaler.utilization.decisions import ScanDecision as Scan

PREFIX = "cluster_autoscaler"

STEP_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)

STATES: Mapping[str, Callable[[Readiness], int]] = {
    "ready": lambda found: found.ready,
    "unready": lambda found: found.unready,
    "notStarted": lambda found: found.not_started,
    "beingDeleted": lambda found: found.being_deleted,
    "suspended": lambda found: found.suspended,
    "unregistered": lambda found: found.unregistered,
    "longUnregistered": lambda found: found.long_unregistered,
}


@dataclass(frozen=True)
class ClusterAutoscalerOptions:
    """The settings that only Cluster Autoscaler's metrics show: the bounds of the cluster, in whole cores and bytes."""

    bounds: Mapping[str, ResourceBounds] = field(default_factory=dict)
    max_nodes_total: int = 0
    autoprovisioning: bool = False
    per_group: bool = False


@dataclass(frozen=True)
class Latest:
    """The values of the gauges: the last iteration, and what was known with it."""

    iteration: Iteration | None = None
    active: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    scale_down: ScaleDown | None = None
    scans: tuple[Scan, ...] = ()


class ClusterAutoscalerCounters:
    """Counters since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}_{name}", about, labels, registry=registry)

        self.seconds = Histogram(
            f"{PREFIX}_function_duration_seconds",
            "Time taken by various parts of the main loop",
            ["function"],
            registry=registry,
            buckets=STEP_SECONDS,
        )
        self._errors = counter("errors", "The number of loops failed due to an error", "type")
        gpu = ("gpu_resource_name", "gpu_name")
        self._scaled_up = counter("scaled_up_nodes", "Number of nodes added", *gpu)
        self._failed = counter("failed_scale_ups", "Number of times scale-up has failed", "reason", *gpu)
        self._failed_nodes = counter("failed_node_creations", "Number of nodes that failed to be created", "reason")
        self._created = counter("created_node_groups", "Number of node groups created", "group_type")
        self._deleted = counter("deleted_node_groups", "Number of node groups deleted", "group_type")
        # These two are counters without the suffix that this library requires of its counters.
        self.skipped: Tally[tuple[str, str]] = Tally()
        self.removed = 0
        self._nodes = node_metrics.ClusterAutoscalerNodeCounters(PREFIX, registry)
        self._codes = metrics_errors.Codes()

    def note(self, iteration: Iteration, failure: Exception | None) -> None:
        self._nodes.note(iteration)
        if failure is not None:
            self._errors.labels(metrics_errors.kind(failure)).inc()
        for action in iteration.actions:
            if action.error:
                self._errors.labels(metrics_errors.CLOUD).inc()
            nodes = action.to_size - action.from_size
            match action.kind:
                case ActionKind.INCREASE if action.done:
                    self._scaled_up.labels("", "").inc(nodes)
                case ActionKind.INCREASE if action.error:
                    self._failed.labels(metrics_errors.CLOUD, "", "").inc()
                case ActionKind.CREATE_GROUP if action.done:
                    self._created.labels("autoprovisioned").inc()
                case ActionKind.DELETE_GROUP if action.done:
                    self._deleted.labels("autoprovisioned").inc()
                case ActionKind.DELETE_NODES if action.done and action.reason == reconciliation.UNREGISTERED:
                    self.removed += len(action.nodes)
        for incident in iteration.incidents:
            if incident.kind is IncidentKind.TIMED_OUT:
                self._failed.labels("timeout", "", "").inc()
                self._failed_nodes.labels("timeout").inc(incident.nodes)
            elif incident.kind is IncidentKind.CREATION_FAILED and incident.error is not None:
                code = self._codes.code(incident.error)
                self._failed.labels(code, "", "").inc()
                self._failed_nodes.labels(code).inc(incident.nodes)
        for resource, reason in ((CPU, "CPULimitReached"), (MEMORY, "MemoryLimitReached")):
            if iteration.decision is not None and any(
                _exceeds(each.reason, resource) for each in iteration.decision.skipped
            ):
                self.skipped["up", reason] += 1
            if resource in node_metrics.resources_below_limits(iteration):
                self.skipped["down", reason] += 1


class Gauges(Collector):
    """Gauges from the last iteration."""

    def __init__(
        self, last: Callable[[], Latest], configured: ClusterAutoscalerOptions, counters: ClusterAutoscalerCounters
    ) -> None:
        self._last = last
        self._configured = configured
        self._counters = counters

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration computes nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        last, configured = self._last(), self._configured
        iteration = last.iteration
        if iteration is None:
            return
        state = iteration.state
        yield _gauge("cluster_safe_to_autoscale", "Whether the cluster is healthy enough to autoscale", state.healthy)
        nodes = _family("nodes_count", "Number of nodes in cluster", "state")
        for name in ("ready", "unready", "notStarted", "longUnregistered", "unregistered"):
            nodes.add_metric([name], STATES[name](state.readiness))
        yield nodes
        groups = _family("node_groups_count", "Number of node groups managed", "node_group_type")
        created = sum(group.group.autoprovisioned for group in state.groups.values())
        groups.add_metric(["autoscaled"], len(state.groups) - created)
        groups.add_metric(["autoprovisioned"], created)
        yield groups
        pods = _family("unschedulable_pods_count", "Number of unschedulable pods in the cluster", "type")
        demands = iteration.decision.demands if iteration.decision is not None else ()
        pods.add_metric(["unschedulable"], sum(len(each.pods) for each in demands))
        pods.add_metric(["scheduler_unprocessed"], sum(why == NOT_JUDGED for why in iteration.skipped_pods.values()))
        yield pods
        yield _gauge("max_nodes_count", "Maximum number of nodes in all node groups", configured.max_nodes_total)
        yield _gauge("cluster_cpu_current_cores", "Current number of cores", last.usage.get(CPU, 0))
        yield _gauge("cluster_memory_current_bytes", "Current number of bytes of memory", last.usage.get(MEMORY, 0))
        for name, resource in (("cpu_limits_cores", CPU), ("memory_limits_bytes", MEMORY)):
            family = _family(name, "Minimum and maximum in the cluster", "direction")
            bounds = configured.bounds.get(resource, ResourceBounds())
            for direction, value in (("minimum", bounds.low), ("maximum", bounds.high)):
                if value is not None:
                    family.add_metric([direction], value)
            yield family
        yield _gauge("nap_enabled", "Whether node autoprovisioning is enabled", configured.autoprovisioning)
        activity = _family("last_activity", "Last time certain part of the logic executed", "activity")
        for name, time in last.active.items():
            activity.add_metric([name], time)
        yield activity
        skipped = _family(
            "skipped_scale_events_count", "Count of scaling events skipped for a limit", "direction", "reason"
        )
        for (direction, reason), count in sorted(self._counters.skipped.items()):
            skipped.add_metric([direction, reason], count)
        yield skipped
        removed = "Number of unregistered nodes removed by CA"
        yield _gauge("old_unregistered_nodes_removed_count", removed, self._counters.removed)
        yield from node_metrics.cluster_autoscaler_families(_family, iteration, last.scale_down)
        if configured.per_group:
            yield from _groups(state.groups)


def _groups(groups: Mapping[str, GroupStatus]) -> Iterator[Metric]:
    least = _family("node_group_min_count", "Minimum number of nodes in the node group", "node_group")
    most = _family("node_group_max_count", "Maximum number of nodes in the node group", "node_group")
    target = _family("node_group_target_count", "Target number of nodes in the node group", "node_group")
    healthy = _family("node_group_healthiness", "Whether the node group is healthy", "node_group")
    backoff = _family("node_group_backoff_status", "Whether the node group is backed off", "node_group", "reason")
    for name, group in sorted(groups.items()):
        least.add_metric([name], group.group.min_size)
        most.add_metric([name], group.group.max_size)
        target.add_metric([name], group.group.target_size)
        healthy.add_metric([name], group.healthy)
        if group.backoff is not None:
            backoff.add_metric([name, group.backoff.code], 1)
    yield from (least, most, target, healthy, backoff)


def _exceeds(reason: str, resource: str) -> bool:
    """Whether a group was skipped because of a quota (see `limits.Exceeded`) of this resource."""
    quotas = [each for each in reason.split("; ") if each.startswith("exceeded quota")]
    return any(resource in each.rpartition("resources: ")[2].split(", ") for each in quotas)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", about, value=value)


def _family(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", about, labels=labels)
