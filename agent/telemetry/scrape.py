"""The node at the instant of a scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.metric_cache.series import Usage
from agent.predict_server.prediction import NodePrediction
from agent.states_informer.pods import NodePod
from shared.metric_families import GaugeFamily
from shared.quantity import MILLI_PER_CORE, Resources

RESOURCE_LABELS = ("resource", "unit")
RESOURCES = (("cpu", "core"), ("memory", "byte"))


@dataclass(frozen=True)
class Scrape:
    """Unknown values are absent. `usages` are by model key."""

    usages: Mapping[str, Usage]
    pods: Sequence[NodePod]
    prediction: NodePrediction
    allocatable: Resources | None
    models: int
    series: int
    metric_cache_bytes: int


class ScrapeCollector(Collector):
    """Exposes a scrape through `families`."""

    def __init__(self, scrape: Callable[[], Scrape], families: Callable[[Scrape], Iterator[Metric]]) -> None:
        self._scrape = scrape
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration does not read values before there are any."""
        return ()

    def collect(self) -> Iterator[Metric]:
        return self._families(self._scrape())


class ResourceGauge:
    """One gauge with a sample of cpu in cores and one of memory in bytes for each set of labels."""

    def __init__(self, family: GaugeFamily) -> None:
        """The labels of the family end with `RESOURCE_LABELS`."""
        self.family = family.scraped()

    def add(self, usage: Usage | None, *labels: str) -> "ResourceGauge":
        """Adds no sample for unknown usage."""
        if usage is not None:
            self.family.add_metric((*labels, *RESOURCES[0]), usage.cpu_cores)
            self.family.add_metric((*labels, *RESOURCES[1]), usage.memory_bytes)
        return self


def in_cores(amount: Resources | None) -> Usage | None:
    return None if amount is None else Usage(amount.cpu_milli / MILLI_PER_CORE, float(amount.memory_bytes))
