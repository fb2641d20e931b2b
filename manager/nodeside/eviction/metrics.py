"""Metrics of shortfalls and of evictions for them (all under `headroom_manager_`)."""

import itertools
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from manager.nodeside.eviction.shortfall import Cause
from manager.nodeside.eviction.tracker import TrackedShortfall
from shared import names
from shared.metric_families import CounterFamily, GaugeFamily
from shared.names import Tier
from shared.quantity import MILLI_PER_CORE

Outcome: TypeAlias = Literal["evicted", "refused", "gone", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("evicted", "refused", "gone", "failed")

_EVICTIONS = CounterFamily(
    "headroom_manager_evictions",
    "Evictions of pods of a tier with a shortfall, by outcome. `refused`: by a disruption budget.",
    ("tier", "outcome"),
)
_EVICTION_PASSES = CounterFamily("headroom_manager_eviction_passes", "Searches for pods to evict.")
_PRESSURE_EVICTIONS = CounterFamily(
    "headroom_manager_pressure_evictions",
    "Evictions of pods from nodes under pressure, by outcome. `refused`: by a disruption budget.",
    ("resource", "tier", "outcome"),
)
_PRESSED_NODES = GaugeFamily("headroom_manager_pressed_nodes", "Nodes under pressure whose pods may be evicted.")


_BY_NODE = ("node", "tier")
_SHORT_CPU = GaugeFamily(
    "headroom_manager_shortfall_cpu_cores", "CPU that pods of the tier request beyond the offer, in cores.", _BY_NODE
)
_SHORT_MEMORY = GaugeFamily(
    "headroom_manager_shortfall_memory_bytes",
    "Memory that pods of the tier request beyond the offer, in bytes.",
    _BY_NODE,
)
_SHORT_SECONDS = GaugeFamily("headroom_manager_shortfall_seconds", "Duration of the shortfall in seconds.", _BY_NODE)
_SHORT_NODES = GaugeFamily(
    "headroom_manager_shortfall_nodes",
    "Nodes whose pods request more than the offer, by cause. `unknown`: the offer is unknown; `beyond`: no "
    "capacity is missing, but a pod was bound to the node that requests more than was on offer.",
    ("tier", "cause"),
)


class EvictionCounters:
    """Counters since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._evictions = _EVICTIONS.register(registry)
        self.passes = _EVICTION_PASSES.register(registry)
        for tier, outcome in itertools.product(Tier, OUTCOMES):
            self._evictions.labels(tier.value, outcome)  # visible from the start, as 0

    def count(self, outcome: Outcome, tier: Tier) -> None:
        """Counts one attempt."""
        self._evictions.labels(tier.value, outcome).inc()


class PressureCounters:
    """Counters since the start, by the resource under pressure."""

    def __init__(self, registry: CollectorRegistry, pressed: Callable[[], int]) -> None:
        self._evictions = _PRESSURE_EVICTIONS.register(registry)
        _PRESSED_NODES.register(registry).set_function(pressed)
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
        cpu, memory, lasted = _SHORT_CPU.scraped(), _SHORT_MEMORY.scraped(), _SHORT_SECONDS.scraped()
        nodes = _SHORT_NODES.scraped()
        causes: Tally[tuple[Tier, Cause]] = Tally()
        now = self._monotonic()
        for each in self._shortfalls():
            labels, missing = [each.node, each.tier.value], each.shortfall.missing
            causes[each.tier, each.shortfall.cause] += 1
            if each.shortfall.cause is Cause.BEYOND:
                continue  # nothing is missing
            cpu.add_metric(labels, missing.cpu_milli / MILLI_PER_CORE)
            memory.add_metric(labels, missing.memory_bytes)
            lasted.add_metric(labels, now - each.since)
        for tier in Tier:
            for cause in Cause:
                nodes.add_metric([tier.value, cause.value], causes[tier, cause])
        yield from (nodes, cpu, memory, lasted)
