"""What the autoscaler sees, decides and does (all under `headroom_autoscaler_`).

`theirs` are Cluster Autoscaler's own names for what it has, too, and `escalators` Escalator's, for dashboards and
alerts that exist already.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from manager.autoscaler import assessment, limits
from manager.autoscaler.cluster_state.health import Readiness
from manager.autoscaler.cluster_state.state import GroupStatus, Happening, Incident
from manager.autoscaler.cost import Cost
from manager.autoscaler.limits import CPU, MEMORY, Bounds
from manager.autoscaler.modes import Mode
from manager.autoscaler.reporting import metrics_errors, metrics_nodes, staying
from manager.autoscaler.reporting.metrics_escalator import Escalators, Named
from manager.autoscaler.rounds import Act, Round, Scanned, What
from manager.autoscaler.scale_down.verdict import Decision as ScaleDown
from manager.autoscaler.snapshot.cluster import NodeFacts
from manager.autoscaler.utilization.decisions import Decision as Scan
from manager.autoscaler.waiting import NOT_JUDGED

OURS = "headroom_autoscaler"
THEIRS = "cluster_autoscaler"

MAIN, SCALE_UP, SCALE_DOWN = "main", "scaleUp", "scaleDown"  # functions that others may be named beside
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)

_STATES: Mapping[str, Callable[[Readiness], int]] = {
    "ready": lambda found: found.ready,
    "unready": lambda found: found.unready,
    "notStarted": lambda found: found.not_started,
    "beingDeleted": lambda found: found.being_deleted,
    "suspended": lambda found: found.suspended,
    "unregistered": lambda found: found.unregistered,
    "longUnregistered": lambda found: found.long_unregistered,
}


@dataclass(frozen=True)
class Theirs:
    """What only Cluster Autoscaler's metrics tell: the bounds of the cluster, in whole cores and bytes."""

    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    max_nodes_total: int = 0
    autoprovisioning: bool = False
    per_group: bool = False


class Metrics:
    """Counts rounds as they are over; the last one is what the gauges show. For the thread that makes the rounds."""

    def __init__(
        self,
        registry: CollectorRegistry,
        theirs: Theirs | None = None,
        escalators: Named | None = None,
        *,
        overdue_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`theirs` and `escalators` are what names of others tell of, None where those are not served."""
        overdue = Gauge(
            f"{OURS}_round_overdue_seconds",
            "How long the round under way has been going on, once that is three scan intervals; 0 before",
            registry=registry,
        )
        overdue.set_function(overdue_seconds)
        self._ours = _Ours(registry)
        self._theirs: _TheirCounters | None = None
        self._last = _Last()
        registry.register(_Gauges(lambda: self._last))
        if theirs is not None:
            self._theirs = _TheirCounters(registry)
            registry.register(_TheirGauges(lambda: self._last, theirs, self._theirs))
        self._escalators: Escalators | None = None
        if escalators is not None:
            self._escalators = Escalators(registry, escalators, lambda: self._last.scans)

    def note(self, made: Round, nodes: Sequence[NodeFacts] = (), failure: Exception | None = None) -> None:
        """A round that is over, with the nodes there are (their capacity is what Cluster Autoscaler's metrics sum up),
        and what it failed of. Dry runs count as nothing.
        """
        if made.dry_run:
            return
        active = {MAIN: made.time}
        if any(act.done and act.what in (What.INCREASE, What.CREATE_GROUP) for act in made.acts):
            active[SCALE_UP] = made.time
        if any(act.done and act.what is What.REMOVE_NODES for act in made.acts):
            active[SCALE_DOWN] = made.time
        usage: Tally[str] = Tally()
        if self._theirs is not None:
            for node in nodes:
                usage.update(limits.usage_of(node.capacity))
        last = self._last
        decided = made.scale_down
        if decided is None and made.state.groups:  # none goes in a round that has groups grow, and all stays known
            decided = last.scale_down
        self._last = _Last(made, {**last.active, **active}, usage, decided, staying.latest_scans(made, last.scans))
        self._ours.note(made)
        if self._theirs is not None:
            self._theirs.note(made, failure)

    def scanned(self, found: Scanned) -> None:
        """A scan of all groups that scale by how full they are."""
        if self._escalators is not None:
            self._escalators.note(found)

    def took(self, function: str, seconds: float) -> None:
        """What one step of a round took."""
        self._ours.seconds.labels(function).observe(seconds)
        if self._theirs is not None:
            self._theirs.seconds.labels(function).observe(seconds)


@dataclass(frozen=True)
class _Last:
    made: Round | None = None
    active: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    scale_down: ScaleDown | None = None
    scans: tuple[Scan, ...] = ()


class _Ours:
    """What has happened since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"{OURS}_{name}", about, labels, registry=registry)

        self.seconds = Histogram(
            f"{OURS}_function_duration_seconds", "What a step took", ["function"], registry=registry, buckets=_SECONDS
        )
        self._rounds = counter("rounds", "Rounds by whether anything could be decided", "result")
        self._decisions = counter("decisions", "Decisions by what came of them", "outcome")
        self._acts = counter("acts", "What was done to groups; advised: it was only recommended", "what", "result")
        self._added = counter("nodes_added", "Nodes that were asked for", "group")
        self._removed = counter("nodes_removed", "Nodes that were deleted, or not waited for any more", "reason")
        self._created = counter("groups_created", "Groups that were created")
        self._deleted = counter("groups_deleted", "Groups that were deleted")
        self._failures = counter("failures", "Nodes that failed to come, by reason", "reason")
        self._nodes = metrics_nodes.Ours(OURS, registry)

    def note(self, made: Round) -> None:
        self._nodes.note(made)
        self._rounds.labels("held" if made.held else "decided").inc()
        for decision in (made.decision, *made.further):
            if decision is not None:
                self._decisions.labels(decision.outcome.value).inc()
        for act in made.acts:
            self._acts.labels(act.what.value, _result(act)).inc()
            if act.error and act.what is What.INCREASE:
                self._failures.labels("refused").inc(act.to_size - act.from_size)
            if not act.done:
                continue
            match act.what:
                case What.INCREASE:
                    self._added.labels(act.group).inc(act.to_size - act.from_size)
                case What.CREATE_GROUP:
                    self._created.inc()
                case What.DELETE_GROUP:
                    self._deleted.inc()
                    self._added.remove(act.group)  # created ones come under ever new names
                case What.DELETE_NODES | What.DECREASE_TARGET:
                    self._removed.labels(act.reason).inc(act.from_size - act.to_size)
        for incident in made.incidents:
            reason = _failure(incident)
            if reason:
                self._failures.labels(reason).inc(incident.nodes)


class _Gauges(Collector):
    """Computed at scrape time from the last round, so that groups that are gone are not shown."""

    def __init__(self, last: Callable[[], _Last]) -> None:
        self._last = last

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering computes nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        last = self._last()
        made = last.made
        if made is None:
            return
        activity = _family("last_activity_seconds", "When something was last done, in Unix seconds", "activity")
        for name, time in last.active.items():
            activity.add_metric([name], time)
        yield activity
        yield _gauge("held", "1 while nothing can be decided", bool(made.held))
        if made.cost != Cost():  # a round that saw nothing does not make the cluster free
            yield from _costs(made)
        yield _pending(made)
        yield from _cluster(made)
        yield from _groups(made)
        yield from metrics_nodes.ours(_family, made, last.scale_down, last.scans)


def _costs(made: Round) -> Iterator[Metric]:
    cost = made.cost
    yield _gauge("cost_per_hour", "What all nodes cost, in the price model's currency", cost.total)
    by_group = _family("group_cost_per_hour", "What the nodes of a group cost; of none: the empty name", "group")
    for group, price in sorted(cost.by_group.items()):
        by_group.add_metric([group], price)
    yield by_group
    yield _gauge("idle_cost_per_hour", "What the part of all nodes costs that no pod requests", cost.idle)
    reclaimed = _family(
        "reclaimed_cost_per_hour",
        "What the part of all nodes costs that is reclaimed; used: held by pods as Mid and Batch, offered: by none yet",
        "state",
    )
    reclaimed.add_metric(["offered"], cost.offered)
    reclaimed.add_metric(["used"], cost.used)
    yield reclaimed
    yield _gauge("unpriced_nodes", "Nodes without a price, which no cost has in it", len(cost.unpriced))


def _pending(made: Round) -> Metric:
    """By what becomes of them. Only what is aside is known while nothing is decided."""
    pods = _family(
        "pending_pods",
        "Pending pods: schedulable on nodes there are or upcoming, reclaimed: on what reclaiming will give, triggered: "
        "on what is bought now, left: on nothing, aside: not counted",
        "kind",
    )
    pods.add_metric(["aside"], len(made.aside))
    if made.decision is not None:
        demands, decisions = made.decision.demands, (made.decision, *made.further)
        pods.add_metric(["schedulable"], sum(each.schedulable for each in demands))
        pods.add_metric(["reclaimed"], sum(each.reclaimed for each in demands))
        pods.add_metric(["triggered"], sum(len(each.triggered) for each in decisions))
        pods.add_metric(["left"], sum(len(left.pods) for left in decisions[-1].left))
    return pods


def _cluster(made: Round) -> Iterator[Metric]:
    state = made.state
    yield _gauge("cluster_healthy", "0 while too many nodes are not ready", state.healthy)
    nodes = _family("nodes", "Nodes of the cluster by state", "state")
    for name, count in _STATES.items():
        nodes.add_metric([name], count(state.readiness))
    yield nodes
    yield _gauge("ungrouped_nodes", "Nodes that are in no group", len(state.ungrouped))
    yield _gauge("foreign_groups", "Groups of the cloud that are not ours", len(state.foreign))
    refused = _family("group_refused", "1 for a group that cannot be judged", "group")
    for group in sorted(state.refused):
        refused.add_metric([group], 1)
    yield refused


def _groups(made: Round) -> Iterator[Metric]:
    size = _family("group_size", "Nodes a group is to have, and may have", "group", "bound")
    nodes = _family("group_nodes", "Nodes of a group by state", "group", "state")
    mode = _family("group_mode", "1 for the mode a group is in", "group", "mode")
    healthy = _family("group_healthy", "0 while too many nodes of a group are missing or not ready", "group")
    backoff = _family("group_backoff", "1 while a group is left alone after a failure", "group", "reason")
    for name, group in sorted(made.state.groups.items()):
        for bound, value in (
            ("min", group.group.min_size),
            ("target", group.group.target_size),
            ("max", group.group.max_size),
        ):
            size.add_metric([name, bound], value)
        for state, count in _STATES.items():
            nodes.add_metric([name, state], count(group.readiness))
        nodes.add_metric([name, "upcoming"], group.upcoming)
        for each in Mode:
            mode.add_metric([name, each.value], each is group.mode)
        healthy.add_metric([name], group.healthy)
        if group.backoff is not None:
            backoff.add_metric([name, group.backoff.code], 1)
    yield from (size, nodes, mode, healthy, backoff)


class _TheirCounters:
    """Cluster Autoscaler's, of scale-up."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"{THEIRS}_{name}", about, labels, registry=registry)

        self.seconds = Histogram(
            f"{THEIRS}_function_duration_seconds",
            "Time taken by various parts of the main loop",
            ["function"],
            registry=registry,
            buckets=_SECONDS,
        )
        self._errors = counter("errors", "The number of loops failed due to an error", "type")
        gpu = ("gpu_resource_name", "gpu_name")
        self._scaled_up = counter("scaled_up_nodes", "Number of nodes added", *gpu)
        self._failed = counter("failed_scale_ups", "Number of times scale-up has failed", "reason", *gpu)
        self._failed_nodes = counter("failed_node_creations", "Number of nodes that failed to be created", "reason")
        self._created = counter("created_node_groups", "Number of node groups created", "group_type")
        self._deleted = counter("deleted_node_groups", "Number of node groups deleted", "group_type")
        # These two are counters whose names do not end as such, which this library's own cannot be.
        self.skipped: Tally[tuple[str, str]] = Tally()
        self.removed = 0
        self._nodes = metrics_nodes.Theirs(THEIRS, registry)
        self._codes = metrics_errors.Codes()

    def note(self, made: Round, failure: Exception | None) -> None:
        self._nodes.note(made)
        if failure is not None:
            self._errors.labels(metrics_errors.kind(failure)).inc()
        for act in made.acts:
            if act.error:
                self._errors.labels(metrics_errors.CLOUD).inc()
            nodes = act.to_size - act.from_size
            match act.what:
                case What.INCREASE if act.done:
                    self._scaled_up.labels("", "").inc(nodes)
                case What.INCREASE if act.error:
                    self._failed.labels(metrics_errors.CLOUD, "", "").inc()
                case What.CREATE_GROUP if act.done:
                    self._created.labels("autoprovisioned").inc()
                case What.DELETE_GROUP if act.done:
                    self._deleted.labels("autoprovisioned").inc()
                case What.DELETE_NODES if act.done and act.reason == assessment.UNREGISTERED:
                    self.removed += len(act.nodes)
        for incident in made.incidents:
            if incident.what is Happening.TIMED_OUT:
                self._failed.labels("timeout", "", "").inc()
                self._failed_nodes.labels("timeout").inc(incident.nodes)
            elif incident.what is Happening.CREATION_FAILED and incident.error is not None:
                code = self._codes.of(incident.error)
                self._failed.labels(code, "", "").inc()
                self._failed_nodes.labels(code).inc(incident.nodes)
        for resource, reason in ((CPU, "CPULimitReached"), (MEMORY, "MemoryLimitReached")):
            if made.decision is not None and any(_exceeds(each.reason, resource) for each in made.decision.skipped):
                self.skipped["up", reason] += 1
            if resource in metrics_nodes.below_limits(made):
                self.skipped["down", reason] += 1


class _TheirGauges(Collector):
    """Cluster Autoscaler's, from the last round."""

    def __init__(self, last: Callable[[], _Last], configured: Theirs, counters: _TheirCounters) -> None:
        self._last = last
        self._configured = configured
        self._counters = counters

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering computes nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        last, configured = self._last(), self._configured
        made = last.made
        if made is None:
            return
        state = made.state
        yield _their("cluster_safe_to_autoscale", "Whether the cluster is healthy enough to autoscale", state.healthy)
        nodes = _their_family("nodes_count", "Number of nodes in cluster", "state")
        for name in ("ready", "unready", "notStarted", "longUnregistered", "unregistered"):
            nodes.add_metric([name], _STATES[name](state.readiness))
        yield nodes
        groups = _their_family("node_groups_count", "Number of node groups managed", "node_group_type")
        created = sum(group.group.autoprovisioned for group in state.groups.values())
        groups.add_metric(["autoscaled"], len(state.groups) - created)
        groups.add_metric(["autoprovisioned"], created)
        yield groups
        pods = _their_family("unschedulable_pods_count", "Number of unschedulable pods in the cluster", "type")
        demands = made.decision.demands if made.decision is not None else ()
        pods.add_metric(["unschedulable"], sum(len(each.pods) for each in demands))
        pods.add_metric(["scheduler_unprocessed"], sum(why == NOT_JUDGED for why in made.aside.values()))
        yield pods
        yield _their("max_nodes_count", "Maximum number of nodes in all node groups", configured.max_nodes_total)
        yield _their("cluster_cpu_current_cores", "Current number of cores", last.usage.get(CPU, 0))
        yield _their("cluster_memory_current_bytes", "Current number of bytes of memory", last.usage.get(MEMORY, 0))
        for name, resource in (("cpu_limits_cores", CPU), ("memory_limits_bytes", MEMORY)):
            family = _their_family(name, "Minimum and maximum in the cluster", "direction")
            bounds = configured.bounds.get(resource, Bounds())
            for direction, value in (("minimum", bounds.low), ("maximum", bounds.high)):
                if value is not None:
                    family.add_metric([direction], value)
            yield family
        yield _their("nap_enabled", "Whether node autoprovisioning is enabled", configured.autoprovisioning)
        activity = _their_family("last_activity", "Last time certain part of the logic executed", "activity")
        for name, time in last.active.items():
            activity.add_metric([name], time)
        yield activity
        skipped = _their_family(
            "skipped_scale_events_count", "Count of scaling events skipped for a limit", "direction", "reason"
        )
        for (direction, reason), count in sorted(self._counters.skipped.items()):
            skipped.add_metric([direction, reason], count)
        yield skipped
        removed = "Number of unregistered nodes removed by CA"
        yield _their("old_unregistered_nodes_removed_count", removed, self._counters.removed)
        yield from metrics_nodes.theirs(_their_family, made, last.scale_down)
        if configured.per_group:
            yield from _their_groups(state.groups)


def _their_groups(groups: Mapping[str, GroupStatus]) -> Iterator[Metric]:
    least = _their_family("node_group_min_count", "Minimum number of nodes in the node group", "node_group")
    most = _their_family("node_group_max_count", "Maximum number of nodes in the node group", "node_group")
    target = _their_family("node_group_target_count", "Target number of nodes in the node group", "node_group")
    healthy = _their_family("node_group_healthiness", "Whether the node group is healthy", "node_group")
    backoff = _their_family("node_group_backoff_status", "Whether the node group is backed off", "node_group", "reason")
    for name, group in sorted(groups.items()):
        least.add_metric([name], group.group.min_size)
        most.add_metric([name], group.group.max_size)
        target.add_metric([name], group.group.target_size)
        healthy.add_metric([name], group.healthy)
        if group.backoff is not None:
            backoff.add_metric([name, group.backoff.code], 1)
    yield from (least, most, target, healthy, backoff)


def _result(act: Act) -> str:
    if act.done:
        return "done"
    if act.error:
        return "failed"
    return "left" if act.mode is Mode.ENFORCE else "advised"


def _failure(incident: Incident) -> str:
    """The reason a failure counts under; empty where nothing failed. A cloud's own codes may be of any number."""
    if incident.what is Happening.TIMED_OUT:
        return assessment.TIMEOUT
    if incident.what is Happening.CREATION_FAILED and incident.error is not None:
        return incident.error.kind.value
    return ""


def _exceeds(reason: str, resource: str) -> bool:
    """Whether a group was skipped for a quota (see `limits.Exceeded`) of this resource."""
    quotas = [each for each in reason.split("; ") if each.startswith("exceeded quota")]
    return any(resource in each.rpartition("resources: ")[2].split(", ") for each in quotas)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{OURS}_{name}", about, value=value)


def _family(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{OURS}_{name}", about, labels=labels)


def _their(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{THEIRS}_{name}", about, value=value)


def _their_family(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{THEIRS}_{name}", about, labels=labels)
