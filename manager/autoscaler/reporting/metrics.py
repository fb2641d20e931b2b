"""The autoscaler's metrics: observations, decisions and actions.

`metrics_headroom` has Headroom's own; `metrics_cluster_autoscaler` repeats them under Cluster Autoscaler's names,
`metrics_escalator` under Escalator's.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.estimator import limits
from manager.autoscaler.iteration import Iteration, ScanResult
from manager.autoscaler.reporting import metrics_cluster_autoscaler, metrics_headroom, node_status
from manager.autoscaler.reporting.metrics_cluster_autoscaler import ClusterAutoscalerCounters, ClusterAutoscalerOptions
from manager.autoscaler.reporting.metrics_escalator import EscalatorMetrics, EscalatorNames
from manager.autoscaler.reporting.metrics_headroom import HeadroomCounters
from manager.autoscaler.reporting.series import EndedDeletions, Latest
from manager.autoscaler.snapshot.cluster import NodeInfo

MAIN, SCALE_UP, SCALE_DOWN = "main", "scaleUp", "scaleDown"  # function labels, also used by other modules

_ACTIVITIES = {
    ActionKind.INCREASE: SCALE_UP,
    ActionKind.CREATE_GROUP: SCALE_UP,
    ActionKind.REMOVE_NODES: SCALE_DOWN,
}
_STEP_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)


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
            f"{metrics_headroom.OURS}_round_overdue_seconds",
            "How long the round under way has been going on, once that is three scan intervals; 0 before",
            registry=registry,
        )
        overdue.set_function(overdue_seconds)
        self._last: Latest | None = None
        self._ended = EndedDeletions()
        self._ours = HeadroomCounters(registry)
        self._seconds = [_steps(registry, metrics_headroom.OURS, "What a step took")]
        self._options = cluster_autoscaler
        self._cluster_autoscaler: ClusterAutoscalerCounters | None = None
        if cluster_autoscaler is not None:
            self._cluster_autoscaler = ClusterAutoscalerCounters(registry)
            self._seconds.append(
                _steps(registry, metrics_cluster_autoscaler.PREFIX, "Time taken by various parts of the main loop")
            )
        self._escalators = None if escalators is None else EscalatorMetrics(registry, escalators)
        registry.register(_Gauges(self._gauges))

    def _gauges(self) -> Iterator[Metric]:
        last = self._last
        if last is not None:
            yield from metrics_headroom.gauges(last)
            if self._options is not None:
                yield from metrics_cluster_autoscaler.gauges(last, self._options)
        if self._escalators is not None:
            yield from self._escalators.gauges(() if last is None else last.scans)

    def note(self, iteration: Iteration, nodes: Sequence[NodeInfo] = (), failure: Exception | None = None) -> None:
        """Counts a finished iteration, with the present nodes (Cluster Autoscaler's metrics sum their capacity) and its
        failure. Dry runs do not count.
        """
        if iteration.dry_run:
            return
        last = self._last or Latest(iteration)
        active = {
            _ACTIVITIES[action.kind] for action in iteration.actions if action.done and action.kind in _ACTIVITIES
        }
        usage: Tally[str] = Tally()
        for node in nodes if self._cluster_autoscaler is not None else ():
            usage.update(limits.usage_of(node.capacity))
        decided = iteration.scale_down
        if decided is None and iteration.state.groups:  # a scale-up iteration judges no node
            decided = last.scale_down
        self._last = Latest(
            iteration,
            {**last.active, **dict.fromkeys((MAIN, *active), iteration.time)},
            usage,
            decided,
            node_status.latest_scans(iteration, last.scans),
        )
        ended = tuple(self._ended.count(iteration))
        self._ours.note(iteration, ended)
        if self._cluster_autoscaler is not None:
            self._cluster_autoscaler.note(iteration, ended, failure)

    def scanned(self, found: ScanResult) -> None:
        """Counts a scan of all groups that scale by utilization."""
        if self._escalators is not None:
            self._escalators.note(found)

    def took(self, function: str, seconds: float) -> None:
        """Records the duration of one step of an iteration."""
        for each in self._seconds:
            each.labels(function).observe(seconds)


def _steps(registry: CollectorRegistry, prefix: str, about: str) -> Histogram:
    name = f"{prefix}_function_duration_seconds"
    return Histogram(name, about, ["function"], registry=registry, buckets=_STEP_SECONDS)


class _Gauges(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration computes nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        return self._collect()
