"""The autoscaler's metrics: `counters` counts iterations, `gauges` shows the last one."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import gauges
from manager.autoscaler.reporting.counters import Counters
from manager.autoscaler.reporting.gauges import Latest
from shared.metric_families import GaugeFamily, HistogramFamily

MAIN, SCALE_UP, SCALE_DOWN = "main", "scaleUp", "scaleDown"  # function labels, also used by other modules

_ACTIVITIES = {
    ActionKind.INCREASE: SCALE_UP,
    ActionKind.CREATE_GROUP: SCALE_UP,
    ActionKind.REMOVE_NODES: SCALE_DOWN,
}
_STEP_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)

_ITERATION_OVERDUE_SECONDS = GaugeFamily(
    "headroom_autoscaler_iteration_overdue_seconds",
    "Seconds that the current iteration has run, once it exceeds three scan intervals; 0 before.",
)
_FUNCTION_DURATION_SECONDS = HistogramFamily(
    "headroom_autoscaler_function_duration_seconds", "Duration of a step of an iteration in seconds.", ("function",)
)


class AutoscalerMetrics(Collector):
    """Counts finished iterations; the gauges show the last one. For the loop's thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        overdue_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        overdue = _ITERATION_OVERDUE_SECONDS.register(registry)
        overdue.set_function(overdue_seconds)
        self._last: Latest | None = None
        self._counters = Counters(registry)
        self._seconds = _FUNCTION_DURATION_SECONDS.register(registry, _STEP_SECONDS)
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration computes nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        if self._last is not None:
            yield from gauges.headroom_gauges(self._last)

    def note(self, iteration: Iteration) -> None:
        """Counts a finished iteration. Dry runs do not count."""
        if iteration.dry_run:
            return
        last = self._last or Latest(iteration)
        active = {
            _ACTIVITIES[action.kind] for action in iteration.actions if action.done and action.kind in _ACTIVITIES
        }
        decided = iteration.scale_down
        if decided is None and iteration.state.groups:  # a scale-up iteration judges no node
            decided = last.scale_down
        self._last = Latest(
            iteration,
            {**last.active, **dict.fromkeys((MAIN, *active), iteration.time)},
            decided,
            iteration.latest_scans(last.scans),
        )
        self._counters.note(iteration)

    def took(self, function: str, seconds: float) -> None:
        """Records the duration of one step of an iteration."""
        self._seconds.labels(function).observe(seconds)
