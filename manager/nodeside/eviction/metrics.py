"""Metrics of shortfalls and of evictions for them (all under `headroom_manager_`)."""

import itertools
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from manager.nodeside.eviction.shortfall import Cause
from manager.nodeside.eviction.tracker import TrackedShortfall
from shared import names
from shared.names import Tier
from shared.quantity import MILLI_PER_CORE

Outcome: TypeAlias = Literal["evicted", "refused", "gone", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("evicted", "refused", "gone", "failed")


class EvictionCounters:
    """Counters since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._evictions = Counter(
            "headroom_manager_evictions",
            "Evictions of pods whose tier was short, by outcome; refused: by a disruption budget",
            ["tier", "outcome"],
            registry=registry,
        )
        self.rounds = Counter(
            "headroom_manager_eviction_rounds", "Rounds that looked for pods to evict", registry=registry
        )
        for tier, outcome in itertools.product(Tier, OUTCOMES):
            self._evictions.labels(tier.value, outcome)  # visible from the start, as 0

    def count(self, outcome: Outcome, tier: Tier) -> None:
        """Counts one attempt."""
        self._evictions.labels(tier.value, outcome).inc()


class PressureCounters:
    """Counters since the start, by the resource under pressure."""

    def __init__(self, registry: CollectorRegistry, pressed: Callable[[], int]) -> None:
        self._evictions = Counter(
            "headroom_manager_pressure_evictions",
            "Evictions of pods from nodes under pressure, by outcome; refused: by a disruption budget",
            ["resource", "tier", "outcome"],
            registry=registry,
        )
        Gauge(
            "headroom_manager_pressed_nodes", "Nodes under pressure whose pods may be evicted", registry=registry
        ).set_function(pressed)
        for resource, tier, outcome in itertools.product((names.MEMORY, names.CPU), Tier, OUTCOMES):
            self._evictions.labels(resource, tier.value, outcome)  # visible from the start, as 0

    def count(self, outcome: Outcome, tier: Tier | None, resource: str) -> None:
        """Counts one attempt."""
        self._evictions.labels(resource, "" if tier is None else tier.value, outcome).inc()


class ScrapedCollector(Collector):
    """Computes its metrics at scrape time, so that no state is kept twice."""

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration does not walk over the cluster."""
        return []


class ShortfallCollector(ScrapedCollector):
    """Gauges of all present shortfalls, computed at scrape time."""

    def __init__(self, shortfalls: Callable[[], Iterable[TrackedShortfall]], monotonic: Callable[[], float]) -> None:
        self._shortfalls = shortfalls
        self._monotonic = monotonic

    def collect(self) -> Iterator[Metric]:
        by_node = "node", "tier"
        cpu = family("shortfall_cpu_cores", "cpu that pods hold beyond what there is", *by_node)
        memory = family("shortfall_memory_bytes", "memory that pods hold beyond what there is", *by_node)
        lasted = family("shortfall_seconds", "For how long there has been a shortfall", *by_node)
        nodes = family(
            "shortfall_nodes",
            "Nodes whose pods hold more than there is, by cause; unknown: it is not known how much there is",
            "tier",
            "cause",
        )
        causes: Tally[tuple[Tier, Cause]] = Tally()
        now = self._monotonic()
        for each in self._shortfalls():
            labels, missing = [each.node, each.tier.value], each.shortfall.missing
            causes[each.tier, each.shortfall.cause] += 1
            cpu.add_metric(labels, missing.cpu_milli / MILLI_PER_CORE)
            memory.add_metric(labels, missing.memory_bytes)
            lasted.add_metric(labels, now - each.since)
        for tier in Tier:
            for cause in Cause:
                nodes.add_metric([tier.value, cause.value], causes[tier, cause])
        yield from (nodes, cpu, memory, lasted)


def gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headroom_manager_{name}", about, value=value)


def family(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headroom_manager_{name}", about, labels=labels)
