"""Metric families, each declared by the module that fills it, so that the reference lists all that are imported."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

DECLARED: dict[str, "Family"] = {}


@dataclass(frozen=True)
class Family:
    """A name without the suffix of its type, what it means, and the names of its labels."""

    type: ClassVar[str] = "untyped"
    suffix: ClassVar[str] = ""
    name: str
    about: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name in DECLARED:
            raise ValueError(f"metric {self.name} is declared twice")
        DECLARED[self.name] = self

    @property
    def exposed_name(self) -> str:
        """The name as it is scraped."""
        return self.name + self.suffix


class CounterFamily(Family):
    """What only grows."""

    type = "counter"
    suffix = "_total"

    def register(self, registry: CollectorRegistry | None) -> Counter:
        """A counter of this process; without a registry it counts and is not exposed."""
        return Counter(self.name, self.about, self.labels, registry=registry)

    def scraped(self, value: float | None = None) -> CounterMetricFamily:
        """For a collector. A `value` is the one of a family without labels."""
        found = CounterMetricFamily(self.name, self.about, labels=self.labels)
        if value is not None:
            found.add_metric((), value)
        return found


class GaugeFamily(Family):
    """What goes up and down."""

    type = "gauge"

    def register(self, registry: CollectorRegistry | None) -> Gauge:
        """A gauge of this process; without a registry it is not exposed."""
        return Gauge(self.name, self.about, self.labels, registry=registry)

    def scraped(self, value: float | None = None) -> GaugeMetricFamily:
        """For a collector. A `value` is the one of a family without labels."""
        found = GaugeMetricFamily(self.name, self.about, labels=self.labels)
        if value is not None:
            found.add_metric((), value)
        return found


class HistogramFamily(Family):
    """Durations, by buckets."""

    type = "histogram"

    def register(self, registry: CollectorRegistry | None, buckets: Sequence[float]) -> Histogram:
        """A histogram of this process, with upper bounds in seconds."""
        return Histogram(self.name, self.about, self.labels, registry=registry, buckets=buckets)


class InfoFamily(Family):
    """A text as a label; the value is 1. The labels are those of the value."""

    type = "info"
    suffix = "_info"

    def scraped(self, value: dict[str, str]) -> InfoMetricFamily:
        """For a collector."""
        return InfoMetricFamily(self.name, self.about, value=value)
