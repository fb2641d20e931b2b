"""How often to report and over which windows to aggregate, from the NodeMetric's spec, else from the settings."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from agent.metric_cache.series import Metric
from agent.reporter.schedule import Intervals
from agent.settings import AgentSettings
from shared import durations
from shared.api.nodemetric_spec import (
    LONGEST_REPORT_INTERVAL_SECONDS,
    LONGEST_WINDOW_SECONDS,
    MOST_WINDOWS,
    MetricCollectPolicy,
)
from shared.errors import InvalidInput

DEFAULT_AGGREGATE_SECONDS = 300
SHORTEST_AGGREGATE_SECONDS = 60  # Koordinator's floor
DEFAULT_DURATIONS_SECONDS = (300, 600, 1800)
SOURCE = "NodeMetric spec.metricCollectPolicy"

_MEMORY = {
    "usageWithoutPageCache": Metric.MEMORY,
    "usageWithHotPageCache": Metric.MEMORY_WITH_HOT_PAGE_CACHE,
    "usageWithPageCache": Metric.MEMORY_WITH_PAGE_CACHE,
}


@dataclass(frozen=True)
class ReportPolicy:
    """`aggregate_seconds` is the window of averages, `durations_seconds` those of the aggregates beside them.

    `memory` selects which memory node and pods count; the system's never includes page cache.
    """

    intervals: Intervals
    aggregate_seconds: int = DEFAULT_AGGREGATE_SECONDS
    durations_seconds: tuple[int, ...] = DEFAULT_DURATIONS_SECONDS
    memory: Metric = Metric.MEMORY
    shortest_interval_seconds: float = 1.0


def from_settings(settings: AgentSettings) -> ReportPolicy:
    return ReportPolicy(
        Intervals(
            report=settings.reporting_interval_seconds,
            check=settings.check_prediction_interval_seconds,
            force=settings.force_update_interval_seconds,
        ),
    )


def overridden(base: ReportPolicy, raw: object) -> ReportPolicy:
    """`base` overridden by `raw`, an undecoded spec.metricCollectPolicy. Raises InvalidInput."""
    try:
        wire = msgspec.convert({} if raw is None else raw, MetricCollectPolicy)
    except msgspec.ValidationError as error:
        raise InvalidInput(source=SOURCE, field="metricCollectPolicy", value=raw, problem=str(error)) from error
    interval = _positive("reportIntervalSeconds", wire.report_interval_seconds, LONGEST_REPORT_INTERVAL_SECONDS)
    report = interval or base.intervals.report
    aggregate = _positive("aggregateDurationSeconds", wire.aggregate_duration_seconds, LONGEST_WINDOW_SECONDS)
    wanted = wire.node_aggregate_policy.durations if wire.node_aggregate_policy else None
    return ReportPolicy(
        Intervals(max(report, base.shortest_interval_seconds), base.intervals.check, base.intervals.force),
        max(aggregate or base.aggregate_seconds, SHORTEST_AGGREGATE_SECONDS),
        base.durations_seconds if wanted is None else _durations(wanted),
        base.memory if wire.node_memory_collect_policy is None else _memory(wire.node_memory_collect_policy),
        base.shortest_interval_seconds,
    )


def _positive(field: str, value: int | None, most: int) -> int | None:
    if value is not None and not 1 <= value <= most:
        raise InvalidInput(source=SOURCE, field=field, value=value, problem=f"must be from 1 to {most}")
    return value


def _durations(texts: Sequence[str]) -> tuple[int, ...]:
    field = "nodeAggregatePolicy.durations"
    if len(texts) > MOST_WINDOWS:
        raise InvalidInput(source=SOURCE, field=field, value=texts, problem=f"has more than {MOST_WINDOWS} windows")
    return tuple(_duration(f"{field}[{place}]", text) for place, text in enumerate(texts))


def _duration(field: str, text: str) -> int:
    try:
        seconds = durations.parse(text)
    except ValueError as error:
        raise InvalidInput(source=SOURCE, field=field, value=text, problem=str(error)) from error
    if not 1 <= seconds <= LONGEST_WINDOW_SECONDS:
        problem = f"must be from 1s to {durations.render(LONGEST_WINDOW_SECONDS)}"
        raise InvalidInput(source=SOURCE, field=field, value=text, problem=problem)
    return int(seconds)


def _memory(name: str) -> Metric:
    if name not in _MEMORY:
        problem = f"expected one of {', '.join(_MEMORY)}"
        raise InvalidInput(source=SOURCE, field="nodeMemoryCollectPolicy", value=name, problem=problem)
    return _MEMORY[name]
