"""How often to report and over how long to average, as the NodeMetric's spec says; else as we were started."""

from dataclasses import dataclass

import msgspec

from agent.reporter.schedule import Intervals
from agent.settings import LARGEST, AgentSettings
from shared.api.nodemetric import MetricCollectPolicy
from shared.errors import InvalidInput

DEFAULT_AGGREGATE_SECONDS = 300
SOURCE = "NodeMetric spec.metricCollectPolicy"


@dataclass(frozen=True)
class ReportPolicy:
    intervals: Intervals
    aggregate_seconds: int


def from_settings(settings: AgentSettings) -> ReportPolicy:
    return ReportPolicy(
        Intervals(
            report=settings.reporting_interval_seconds,
            check=settings.check_prediction_interval_seconds,
            force=settings.force_update_interval_seconds,
        ),
        DEFAULT_AGGREGATE_SECONDS,
    )


def overridden(base: ReportPolicy, raw: object) -> ReportPolicy:
    """`base` with what `raw`, a spec.metricCollectPolicy as it came, says otherwise. Raises InvalidInput."""
    try:
        wire = msgspec.convert({} if raw is None else raw, MetricCollectPolicy)
    except msgspec.ValidationError as error:
        raise InvalidInput(source=SOURCE, field="metricCollectPolicy", value=raw, problem=str(error)) from error
    report = _positive("reportIntervalSeconds", wire.report_interval_seconds)
    aggregate = _positive("aggregateDurationSeconds", wire.aggregate_duration_seconds)
    return ReportPolicy(
        Intervals(report or base.intervals.report, base.intervals.check, base.intervals.force),
        aggregate or base.aggregate_seconds,
    )


def _positive(field: str, value: int | None) -> int | None:
    if value is not None and not 1 <= value <= LARGEST:
        raise InvalidInput(source=SOURCE, field=field, value=value, problem=f"must be from 1 to {LARGEST}")
    return value
