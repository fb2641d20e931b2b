"""What the agent shows to Prometheus, read when it is scraped."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.metric_cache.series import Usage
from agent.predict_server.server import Prediction
from shared.quantity import MILLI_PER_CORE, Resources


@dataclass(frozen=True)
class Scrape:
    """The node at the instant of a scrape; None where nothing is known."""

    node: Usage | None
    system: Usage | None
    prediction: Prediction
    pods: int
    pods_measured: int
    models: int
    series: int
    metric_cache_bytes: int


class AgentCollector(Collector):
    """Gauges under headroom_agent_*, cpu in cores and memory in bytes under the label `resource`."""

    def __init__(self, scrape: Callable[[], Scrape]) -> None:
        self._scrape = scrape

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registration does not ask for values before there are any."""
        return ()

    def collect(self) -> Iterator[Metric]:
        scrape = self._scrape()
        answer = scrape.prediction.reclaimable
        yield _usage("node_usage", "Usage of the whole node, last sample", scrape.node)
        yield _usage("system_usage", "Usage of the node beyond its pods, last sample", scrape.system)
        yield _amount("prod_requested", "Requests of pods that lend", scrape.prediction.requests.requested)
        yield _amount(
            "prod_cold_requested", "Requests of pods with too short a history", scrape.prediction.requests.cold
        )
        yield _amount("prod_peak", "Predicted peak of prod pods and system", answer.peak if answer else None)
        yield _amount("prod_reclaimable", "Requests that can be lent", answer.result if answer else None)
        yield _amount("node_peak", "Predicted peak of the whole node", scrape.prediction.node_peak)
        yield _count("pods", "Pods of this node", scrape.pods)
        yield _count("pods_measured", "Pods of this node whose usage is read", scrape.pods_measured)
        yield _count("models", "Models in the bank", scrape.models)
        yield _count("series", "Series in the metric cache", scrape.series)
        yield _count("metric_cache_bytes", "Size of the metric cache when filled", scrape.metric_cache_bytes)


def _usage(name: str, help_text: str, usage: Usage | None) -> Metric:
    family = GaugeMetricFamily(f"headroom_agent_{name}", help_text, labels=["resource"])
    if usage is not None:
        family.add_metric(["cpu"], usage.cpu_cores)
        family.add_metric(["memory"], usage.memory_bytes)
    return family


def _amount(name: str, help_text: str, amount: Resources | None) -> Metric:
    in_cores = amount and Usage(amount.cpu_milli / MILLI_PER_CORE, float(amount.memory_bytes))
    return _usage(name, help_text, in_cores)


def _count(name: str, help_text: str, value: int) -> Metric:
    return GaugeMetricFamily(f"headroom_agent_{name}", help_text, value=value)
