"""The autoscaler's metrics: Headroom's own, and where enabled those of Cluster Autoscaler and Escalator.

`counters` counts iterations, `gauges` shows the last one; `metrics_escalator` does both for scans.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.estimator import limits
from manager.autoscaler.iteration import Iteration, ScanResult
from manager.autoscaler.reporting import gauges
from manager.autoscaler.reporting.counters import Counters
from manager.autoscaler.reporting.gauges import OURS, THEIRS, ClusterAutoscalerOptions, Latest
from manager.autoscaler.reporting.metrics_escalator import EscalatorMetrics, EscalatorNames
from manager.autoscaler.snapshot.cluster import NodeInfo

MAIN, SCALE_UP, SCALE_DOWN = "main", "scaleUp", "scaleDown"  # function labels, also used by other modules

_ACTIVITIES = {
    ActionKind.INCREASE: SCALE_UP,
    ActionKind.CREATE_GROUP: SCALE_UP,
    ActionKind.REMOVE_NODES: SCALE_DOWN,
}
_STEP_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class AutoscalerMetrics(Collector):
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
        self._last: Latest | None = None
        self._options = cluster_autoscaler
        self._counters = Counters(registry, cluster_autoscaler=cluster_autoscaler is not None)
        self._seconds = [_steps(registry, OURS, "What a step took")]
        if cluster_autoscaler is not None:
            self._seconds.append(_steps(registry, THEIRS, "Time taken by various parts of the main loop"))
        self._escalators = None if escalators is None else EscalatorMetrics(registry, escalators)
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration computes nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        last = self._last
        if last is not None:
            yield from gauges.headroom_gauges(last)
            if self._options is not None:
                yield from gauges.cluster_autoscaler_gauges(last, self._options)
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
        for node in nodes if self._options is not None else ():
            usage.update(limits.usage_of(node.capacity))
        decided = iteration.scale_down
        if decided is None and iteration.state.groups:  # a scale-up iteration judges no node
            decided = last.scale_down
        self._last = Latest(
            iteration,
            {**last.active, **dict.fromkeys((MAIN, *active), iteration.time)},
            usage,
            decided,
            iteration.latest_scans(last.scans),
        )
        self._counters.note(iteration, failure)

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
