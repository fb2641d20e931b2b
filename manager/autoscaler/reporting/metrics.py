"""The autoscaler's metrics: observations, decisions and actions (all under `headroom_autoscaler_`).

`metrics_cluster_autoscaler` repeats them under Cluster Autoscaler's names, `metrics_escalator` under Escalator's.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from manager.autoscaler import limits, reconciliation
from manager.autoscaler.cluster_state.state import Incident, IncidentKind
from manager.autoscaler.cost import Cost
from manager.autoscaler.iteration import Action, ActionKind, Iteration, ScanResult
from manager.autoscaler.modes import Mode
from manager.autoscaler.reporting import metrics_cluster_autoscaler, node_metrics, node_status
from manager.autoscaler.reporting.metrics_cluster_autoscaler import (
    STATES,
    STEP_SECONDS,
    ClusterAutoscalerOptions,
    Latest,
)
from manager.autoscaler.reporting.metrics_escalator import EscalatorNames, Escalators
from manager.autoscaler.snapshot.cluster import NodeInfo

OURS = "headroom_autoscaler"

MAIN, SCALE_UP, SCALE_DOWN = "main", "scaleUp", "scaleDown"  # function labels, also used by other modules


class AutoscalerMetrics:
    """Counts finished iterations; the gauges show the last one. For the loop's thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        cluster_autoscaler: ClusterAutoscalerOptions | None = None,
        escalators: EscalatorNames | None = None,
        *,
        overdue_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`cluster_autoscaler` and `escalators` enable metrics under those systems' names; None leaves them out."""
        overdue = Gauge(
            f"{OURS}_round_overdue_seconds",
            "How long the round under way has been going on, once that is three scan intervals; 0 before",
            registry=registry,
        )
        overdue.set_function(overdue_seconds)
        self._ours = _Ours(registry)
        self._cluster_autoscaler: metrics_cluster_autoscaler.ClusterAutoscalerCounters | None = None
        self._last = Latest()
        registry.register(_Gauges(lambda: self._last))
        if cluster_autoscaler is not None:
            self._cluster_autoscaler = metrics_cluster_autoscaler.ClusterAutoscalerCounters(registry)
            registry.register(
                metrics_cluster_autoscaler.Gauges(lambda: self._last, cluster_autoscaler, self._cluster_autoscaler)
            )
        self._escalators: Escalators | None = None
        if escalators is not None:
            self._escalators = Escalators(registry, escalators, lambda: self._last.scans)

    def note(self, iteration: Iteration, nodes: Sequence[NodeInfo] = (), failure: Exception | None = None) -> None:
        """Counts a finished iteration, with the present nodes (Cluster Autoscaler's metrics sum their capacity) and its
        failure. Dry runs do not count.
        """
        if iteration.dry_run:
            return
        active = {MAIN: iteration.time}
        if any(
            action.done and action.kind in (ActionKind.INCREASE, ActionKind.CREATE_GROUP)
            for action in iteration.actions
        ):
            active[SCALE_UP] = iteration.time
        if any(action.done and action.kind is ActionKind.REMOVE_NODES for action in iteration.actions):
            active[SCALE_DOWN] = iteration.time
        usage: Tally[str] = Tally()
        if self._cluster_autoscaler is not None:
            for node in nodes:
                usage.update(limits.usage_of(node.capacity))
        last = self._last
        decided = iteration.scale_down
        if decided is None and iteration.state.groups:  # a scale-up iteration judges no node
            decided = last.scale_down
        self._last = Latest(
            iteration, {**last.active, **active}, usage, decided, node_status.latest_scans(iteration, last.scans)
        )
        self._ours.note(iteration)
        if self._cluster_autoscaler is not None:
            self._cluster_autoscaler.note(iteration, failure)

    def scanned(self, found: ScanResult) -> None:
        """Counts a scan of all groups that scale by utilization."""
        if self._escalators is not None:
            self._escalators.note(found)

    def took(self, function: str, seconds: float) -> None:
        """Records the duration of one step of an iteration."""
        self._ours.seconds.labels(function).observe(seconds)
        if self._cluster_autoscaler is not None:
            self._cluster_autoscaler.seconds.labels(function).observe(seconds)


class _Ours:
    """Counters since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"{OURS}_{name}", about, labels, registry=registry)

        self.seconds = Histogram(
            f"{OURS}_function_duration_seconds",
            "What a step took",
            ["function"],
            registry=registry,
            buckets=STEP_SECONDS,
        )
        self._rounds = counter("rounds", "Rounds by whether anything could be decided", "result")
        self._decisions = counter("decisions", "Decisions by what came of them", "outcome")
        self._acts = counter("acts", "What was done to groups; advised: it was only recommended", "what", "result")
        self._added = counter("nodes_added", "Nodes that were asked for", "group")
        self._removed = counter("nodes_removed", "Nodes that were deleted, or not waited for any more", "reason")
        self._created = counter("groups_created", "Groups that were created")
        self._deleted = counter("groups_deleted", "Groups that were deleted")
        self._failures = counter("failures", "Nodes that failed to come, by reason", "reason")
        self._nodes = node_metrics.HeadroomNodeCounters(OURS, registry)

    def note(self, iteration: Iteration) -> None:
        self._nodes.note(iteration)
        self._rounds.labels("held" if iteration.blocked_reason else "decided").inc()
        for decision in (iteration.decision, *iteration.further):
            if decision is not None:
                self._decisions.labels(decision.outcome.value).inc()
        for action in iteration.actions:
            self._acts.labels(action.kind.value, _result(action)).inc()
            if action.error and action.kind is ActionKind.INCREASE:
                self._failures.labels("refused").inc(action.to_size - action.from_size)
            if not action.done:
                continue
            match action.kind:
                case ActionKind.INCREASE:
                    self._added.labels(action.group).inc(action.to_size - action.from_size)
                case ActionKind.CREATE_GROUP:
                    self._created.inc()
                case ActionKind.DELETE_GROUP:
                    self._deleted.inc()
                    self._added.remove(action.group)  # created groups get ever new names
                case ActionKind.DELETE_NODES | ActionKind.DECREASE_TARGET:
                    self._removed.labels(action.reason).inc(action.from_size - action.to_size)
        for incident in iteration.incidents:
            reason = _failure(incident)
            if reason:
                self._failures.labels(reason).inc(incident.nodes)


class _Gauges(Collector):
    """Computed at scrape time from the last iteration, so that deleted groups disappear."""

    def __init__(self, last: Callable[[], Latest]) -> None:
        self._last = last

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration computes nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        last = self._last()
        iteration = last.iteration
        if iteration is None:
            return
        activity = _family("last_activity_seconds", "When something was last done, in Unix seconds", "activity")
        for name, time in last.active.items():
            activity.add_metric([name], time)
        yield activity
        yield _gauge("held", "1 while nothing can be decided", bool(iteration.blocked_reason))
        if iteration.cost != Cost():  # a blocked iteration does not make the cluster free
            yield from _costs(iteration)
        yield _pending(iteration)
        yield from _cluster(iteration)
        yield from _groups(iteration)
        yield from node_metrics.headroom_families(_family, iteration, last.scale_down, last.scans)


def _costs(iteration: Iteration) -> Iterator[Metric]:
    cost = iteration.cost
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


def _pending(iteration: Iteration) -> Metric:
    """Pending pods by their result. While nothing is decided, only skipped pods are known."""
    pods = _family(
        "pending_pods",
        "Pending pods: schedulable on nodes there are or upcoming, reclaimed: on what reclaiming will give, triggered: "
        "on what is bought now, left: on nothing, aside: not counted",
        "kind",
    )
    pods.add_metric(["aside"], len(iteration.skipped_pods))
    if iteration.decision is not None:
        demands, decisions = iteration.decision.demands, (iteration.decision, *iteration.further)
        pods.add_metric(["schedulable"], sum(each.schedulable for each in demands))
        pods.add_metric(["reclaimed"], sum(each.reclaimed for each in demands))
        pods.add_metric(["triggered"], sum(len(each.triggered) for each in decisions))
        pods.add_metric(["left"], sum(len(left.pods) for left in decisions[-1].left))
    return pods


def _cluster(iteration: Iteration) -> Iterator[Metric]:
    state = iteration.state
    yield _gauge("cluster_healthy", "0 while too many nodes are not ready", state.healthy)
    nodes = _family("nodes", "Nodes of the cluster by state", "state")
    for name, count in STATES.items():
        nodes.add_metric([name], count(state.readiness))
    yield nodes
    yield _gauge("ungrouped_nodes", "Nodes that are in no group", len(state.ungrouped))
    yield _gauge("foreign_groups", "Groups of the cloud that are not ours", len(state.unmanaged))
    refused = _family("group_refused", "1 for a group that cannot be judged", "group")
    for group in sorted(state.refused):
        refused.add_metric([group], 1)
    yield refused


def _groups(iteration: Iteration) -> Iterator[Metric]:
    size = _family("group_size", "Nodes a group is to have, and may have", "group", "bound")
    nodes = _family("group_nodes", "Nodes of a group by state", "group", "state")
    mode = _family("group_mode", "1 for the mode a group is in", "group", "mode")
    healthy = _family("group_healthy", "0 while too many nodes of a group are missing or not ready", "group")
    backoff = _family("group_backoff", "1 while a group is left alone after a failure", "group", "reason")
    for name, group in sorted(iteration.state.groups.items()):
        for bound, value in (
            ("min", group.group.min_size),
            ("target", group.group.target_size),
            ("max", group.group.max_size),
        ):
            size.add_metric([name, bound], value)
        for state, count in STATES.items():
            nodes.add_metric([name, state], count(group.readiness))
        nodes.add_metric([name, "upcoming"], group.upcoming)
        for each in Mode:
            mode.add_metric([name, each.value], each is group.mode)
        healthy.add_metric([name], group.healthy)
        if group.backoff is not None:
            backoff.add_metric([name, group.backoff.code], 1)
    yield from (size, nodes, mode, healthy, backoff)


def _result(action: Action) -> str:
    if action.done:
        return "done"
    if action.error:
        return "failed"
    return "left" if action.mode is Mode.ENFORCE else "advised"


def _failure(incident: Incident) -> str:
    """The reason label of a failure; empty without one. A cloud's own codes are unbounded, and so no labels."""
    if incident.kind is IncidentKind.TIMED_OUT:
        return reconciliation.TIMEOUT
    if incident.kind is IncidentKind.CREATION_FAILED and incident.error is not None:
        return incident.error.kind.value
    return ""


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{OURS}_{name}", about, value=value)


def _family(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{OURS}_{name}", about, labels=labels)
