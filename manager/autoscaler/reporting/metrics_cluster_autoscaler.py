"""Cluster Autoscaler's own metrics (all under `cluster_autoscaler_`), for existing dashboards and alerts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import Metric

from manager.autoscaler.cloudprovider.contract import InstanceError
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.state import IncidentKind
from manager.autoscaler.estimator.limits import CPU, MEMORY, ResourceBounds
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.reporting.series import Latest, Values, gauge, states, unremovable
from manager.autoscaler.scale_down.removal_status import (
    DeletionProgress,
    DeletionStage,
    ScaleDownDecision,
    ScaleDownReason,
)
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.scale_up.pending_pods import NOT_JUDGED
from shared.kube.errors import ApiError, InvalidResponse, Unreachable

PREFIX = "cluster_autoscaler"
MOST_CODES = 30
CLOUD, API, INTERNAL = "cloudProviderError", "apiCallError", "internalError"


@dataclass(frozen=True)
class ClusterAutoscalerOptions:
    """The settings that only Cluster Autoscaler's metrics show: the bounds of the cluster, in whole cores and bytes."""

    bounds: Mapping[str, ResourceBounds] = field(default_factory=dict)
    max_nodes_total: int = 0
    autoprovisioning: bool = False
    per_group: bool = False


def _gauge(name: str, about: str, values: Values, *labels: str) -> Metric:
    return gauge(f"{PREFIX}_{name}", about, values, *labels)


def gauges(last: Latest, options: ClusterAutoscalerOptions) -> Iterator[Metric]:
    """Computed at scrape time from the last iteration."""
    iteration, state = last.iteration, last.iteration.state
    yield _gauge("cluster_safe_to_autoscale", "Whether the cluster is healthy enough to autoscale", state.healthy)
    nodes = (each for each in states(state.readiness).items() if each[0] not in ("beingDeleted", "suspended"))
    yield _gauge("nodes_count", "Number of nodes in cluster", nodes, "state")
    created = sum(each.group.autoprovisioned for _, each in last.groups)
    groups = (("autoscaled", len(last.groups) - created), ("autoprovisioned", created))
    yield _gauge("node_groups_count", "Number of node groups managed", groups, "node_group_type")
    demands = () if iteration.decision is None else iteration.decision.demands
    unprocessed = sum(why == NOT_JUDGED for why in iteration.skipped_pods.values())
    pods = (("unschedulable", sum(len(each.pods) for each in demands)), ("scheduler_unprocessed", unprocessed))
    yield _gauge("unschedulable_pods_count", "Number of unschedulable pods in the cluster", pods, "type")
    yield _gauge("max_nodes_count", "Maximum number of nodes in all node groups", options.max_nodes_total)
    yield _gauge("cluster_cpu_current_cores", "Current number of cores", last.usage.get(CPU, 0))
    yield _gauge("cluster_memory_current_bytes", "Current number of bytes of memory", last.usage.get(MEMORY, 0))
    limits = "Minimum and maximum in the cluster"
    yield _gauge("cpu_limits_cores", limits, _bounds(options.bounds.get(CPU)), "direction")
    yield _gauge("memory_limits_bytes", limits, _bounds(options.bounds.get(MEMORY)), "direction")
    yield _gauge("nap_enabled", "Whether node autoprovisioning is enabled", options.autoprovisioning)
    yield _gauge("last_activity", "Last time certain part of the logic executed", last.active.items(), "activity")
    going = sum(not each.stage.is_over for each in iteration.leaving)
    yield _gauge("pending_node_deletions", "Number of nodes whose deletion is in progress", going)
    if last.scale_down is not None:
        yield from _verdicts(last.scale_down)
    if options.per_group:
        yield from _groups(last)


def _verdicts(found: ScaleDownDecision) -> Iterator[Metric]:
    unneeded = "Number of nodes currently considered unneeded by CA"
    yield _gauge("unneeded_nodes_count", unneeded, len(found.unneeded))
    staying = "Number of nodes currently considered unremovable by CA"
    yield _gauge("unremovable_nodes_count", staying, unremovable(found), "reason")
    yield _gauge("scale_down_in_cooldown", "Whether or not the scale down is in cooldown", bool(found.cooldown))


def _bounds(of: ResourceBounds | None) -> Iterator[tuple[str, int]]:
    for direction, value in () if of is None else (("minimum", of.low), ("maximum", of.high)):
        if value is not None:
            yield direction, value


def _groups(last: Latest) -> Iterator[Metric]:
    sizes = [(name, each.group) for name, each in last.groups]
    least, most = ((name, of.min_size) for name, of in sizes), ((name, of.max_size) for name, of in sizes)
    yield _gauge("node_group_min_count", "Minimum number of nodes in the node group", least, "node_group")
    yield _gauge("node_group_max_count", "Maximum number of nodes in the node group", most, "node_group")
    target = ((name, of.target_size) for name, of in sizes)
    yield _gauge("node_group_target_count", "Target number of nodes in the node group", target, "node_group")
    healthy = ((name, each.healthy) for name, each in last.groups)
    yield _gauge("node_group_healthiness", "Whether the node group is healthy", healthy, "node_group")
    backoff = "Whether the node group is backed off"
    yield _gauge("node_group_backoff_status", backoff, last.backoffs, "node_group", "reason")


class ClusterAutoscalerCounters:
    """Counters since the start, as Cluster Autoscaler counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}_{name}", about, labels, registry=registry)

        self._errors = counter("errors", "The number of loops failed due to an error", "type")
        gpu = ("gpu_resource_name", "gpu_name")
        self._scaled_up = counter("scaled_up_nodes", "Number of nodes added", *gpu)
        self._scaled_down = counter("scaled_down_nodes", "Number of nodes removed by CA", "reason", *gpu)
        self._failed = counter("failed_scale_ups", "Number of times scale-up has failed", "reason", *gpu)
        self._failed_nodes = counter("failed_node_creations", "Number of nodes that failed to be created", "reason")
        self._created = counter("created_node_groups", "Number of node groups created", "group_type")
        self._deleted = counter("deleted_node_groups", "Number of node groups deleted", "group_type")
        self._evicted = counter("evicted_pods", "Number of pods evicted by CA", "eviction_result")
        # Counters there without the suffix that this library requires of its counters.
        self._skipped = Gauge(
            f"{PREFIX}_skipped_scale_events_count",
            "Count of scaling events skipped for a limit",
            ["direction", "reason"],
            registry=registry,
        )
        self._unregistered = Gauge(
            f"{PREFIX}_old_unregistered_nodes_removed_count",
            "Number of unregistered nodes removed by CA",
            registry=registry,
        )
        self._codes: set[str] = set()

    def note(self, made: Iteration, ended: Iterable[tuple[DeletionProgress, int]], failure: Exception | None) -> None:
        if failure is not None:
            self._errors.labels(error_type(failure)).inc()
        ripe = made.deleted_by_scans
        for action in made.actions:
            self._note_action(action, is_ripe=ripe.issuperset(action.nodes))
        for incident in made.incidents:
            reason = "timeout" if incident.kind is IncidentKind.TIMED_OUT else ""
            if incident.kind is IncidentKind.CREATION_FAILED and incident.error is not None:
                reason = self._code(incident.error)
            if reason:
                self._failed.labels(reason, "", "").inc()
                self._failed_nodes.labels(reason).inc(incident.nodes)
        for going, evicted in ended:
            if going.stage is DeletionStage.GONE:
                self._scaled_down.labels(going.kind.value, "", "").inc()
            self._evicted.labels("succeeded").inc(evicted)
            self._evicted.labels("failed").inc(len(going.waits_for))
        below = resources_below_limits(made)
        skipped = () if made.decision is None else made.decision.skipped
        for resource, reason in ((CPU, "CPULimitReached"), (MEMORY, "MemoryLimitReached")):
            if any(_exceeds(each.reason, resource) for each in skipped):
                self._skipped.labels("up", reason).inc()
            if resource in below:
                self._skipped.labels("down", reason).inc()

    def _note_action(self, action: Action, *, is_ripe: bool) -> None:
        if action.error:
            self._errors.labels(CLOUD).inc()
        match action.kind:
            case ActionKind.INCREASE if action.done:
                self._scaled_up.labels("", "").inc(action.to_size - action.from_size)
            case ActionKind.INCREASE if action.error:
                self._failed.labels(CLOUD, "", "").inc()
            case ActionKind.CREATE_GROUP if action.done:
                self._created.labels("autoprovisioned").inc()
            case ActionKind.DELETE_GROUP if action.done:
                self._deleted.labels("autoprovisioned").inc()
            case ActionKind.DELETE_NODES if action.done:
                if action.reason == reconciliation.UNREGISTERED:
                    self._unregistered.inc(len(action.nodes))
                if is_ripe:
                    self._scaled_down.labels(ScaleDownReason.UNDERUTILIZED.value, "", "").inc(len(action.nodes))

    def _code(self, error: InstanceError) -> str:
        """A cloud's own code; after too many different ones, only the kind of the error."""
        if error.code not in self._codes and len(self._codes) >= MOST_CODES:
            return error.kind.value
        self._codes.add(error.code)
        return error.code


def error_type(error: Exception) -> str:
    """Cluster Autoscaler's word for the cause of a failed iteration."""
    if isinstance(error, ProviderError):
        return CLOUD
    return API if isinstance(error, ApiError | InvalidResponse | Unreachable) else INTERNAL


def resources_below_limits(made: Iteration) -> frozenset[str]:
    """The resources in which the cluster would fall below its bounds without some node."""
    statuses = () if made.scale_down is None else made.scale_down.statuses.values()
    details = [each.detail for each in statuses if each.reason is UnremovableReason.BELOW_LIMIT]
    return frozenset((CPU, MEMORY)).intersection(" ".join(details).replace(",", "").split())


def _exceeds(reason: str, resource: str) -> bool:
    """Whether a group was skipped because of a quota (see `limits.Exceeded`) of this resource."""
    quotas = [each for each in reason.split("; ") if each.startswith("exceeded quota")]
    return any(resource in each.rpartition("resources: ")[2].split(", ") for each in quotas)
