"""The running parts of an agent that its endpoints read."""

from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, SeriesKey, Usage
from agent.metrics_advisor.advisor import MetricsAdvisor
from agent.predict_server.server import PredictServer
from agent.reporter.reporter import Reporter
from agent.states_informer.informer import StatesInformer
from shared import durations
from shared.clock import Clock
from shared.telemetry import Loops

FRESH_SECONDS = 10  # an older sample is not current usage
READING_SECONDS = 60  # the values that are read less often come every 30 s at the latest


@dataclass(frozen=True)
class Rooms:
    """Safe to read from any thread."""

    node_name: str
    clock: Clock
    registry: CollectorRegistry
    loops: Loops
    states: StatesInformer
    cache: MetricCache
    advisor: MetricsAdvisor
    predict_server: PredictServer
    reporter: Reporter
    enforcer_status: Path | None = None  # the folder in which an enforcer writes its status

    def usages(self) -> dict[str, Usage]:
        """Every entity's last sample, if it is at most `FRESH_SECONDS` old."""
        return self.cache.usages(Aggregation.LAST, FRESH_SECONDS, until=self.advisor.second)

    def readings(self, kind: Kind) -> dict[SeriesKey, float]:
        """The last value of every series of a kind, if it is at most `READING_SECONDS` old."""
        return self.cache.aggregate(Aggregation.LAST, READING_SECONDS, kind=kind, until=self.advisor.second)

    @property
    def time(self) -> str:
        return durations.timestamp(self.clock.now())
