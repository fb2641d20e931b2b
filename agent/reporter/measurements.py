"""The usage in a report, from the metric cache."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metrics_advisor.numa import system_entity
from agent.reporter.policy import ReportPolicy

AGGREGATIONS = (Aggregation.AVG, Aggregation.P50, Aggregation.P90, Aggregation.P95, Aggregation.P99)
COLD_START_RATIO = 0.5
READABLE_SECONDS = 30  # a node without samples for this long is unreadable, regardless of its reports' window

_NODE_CPU = SeriesKey(Kind.NODE, "", Metric.CPU)


@dataclass(frozen=True)
class Aggregated:
    """Usage over one window by aggregate; an unknown aggregate is absent, and in a cold start all are."""

    seconds: int
    usages: Mapping[Aggregation, Usage]


@dataclass(frozen=True)
class NumaAverages:
    number: int
    node: Usage
    system: Usage | None


@dataclass(frozen=True)
class MeasuredAverages:
    """`averages` are by model key."""

    averages: Mapping[str, Usage]
    node: tuple[Aggregated, ...] = ()
    system: tuple[Aggregated, ...] = ()
    numa: tuple[NumaAverages, ...] = ()


def is_node_readable(cache: MetricCache, until: int) -> bool:
    """Whether the cache has current samples of the node."""
    return cache.aggregate_one(_NODE_CPU, Aggregation.COUNT, READABLE_SECONDS, until) is not None


def measure(cache: MetricCache, policy: ReportPolicy, until: int) -> MeasuredAverages:
    """Everything up to the cache's second `until`. Series without the policy's kind of memory count without cache."""
    seconds = policy.aggregate_seconds
    averages = cache.usages(Aggregation.AVG, seconds, until=until)
    if policy.memory is not Metric.MEMORY:
        for key, value in cache.aggregate(Aggregation.AVG, seconds, metric=policy.memory, until=until).items():
            name = series.model_key(key.kind, key.entity)
            if name in averages and name != series.SYSTEM:
                averages[name] = averages[name]._replace(memory_bytes=value)
    numa = cache.aggregate(Aggregation.AVG, seconds, kind=Kind.NUMA, until=until)
    return MeasuredAverages(
        averages=averages,
        node=_aggregates(cache, Kind.NODE, policy.memory, policy, until),
        system=_aggregates(cache, Kind.SYSTEM, Metric.MEMORY, policy, until),
        numa=numa_usages(numa, averages.get(series.SYSTEM)),
    )


def in_cold_start(covered_seconds: float, window_seconds: float, ratio: float = COLD_START_RATIO) -> bool:
    """Whether the time between the first and the last sample covers too little of a window."""
    return covered_seconds < window_seconds * ratio


def numa_usages(readings: Mapping[SeriesKey, float], system: Usage | None) -> tuple[NumaAverages, ...]:
    """The NUMA nodes with known CPU and memory; the system's CPU is divided in proportion to the nodes' own.

    Pure. No counter tells on which NUMA node a pod used its CPU time.
    """
    found: dict[str, dict[Metric, float]] = {}
    for key, value in readings.items():
        found.setdefault(key.entity, {})[key.metric] = value
    nodes = {
        int(entity): Usage(values[Metric.CPU], values[Metric.MEMORY])
        for entity, values in found.items()
        if entity.isdigit() and values.keys() >= {Metric.CPU, Metric.MEMORY}
    }
    cores = sum(usage.cpu_cores for usage in nodes.values())

    def systems(number: int) -> Usage | None:
        memory_bytes = found.get(system_entity(number), {}).get(Metric.MEMORY)
        if system is None or memory_bytes is None:
            return None
        share = nodes[number].cpu_cores / cores if cores else 0.0
        return Usage(system.cpu_cores * share, memory_bytes)

    return tuple(NumaAverages(number, nodes[number], systems(number)) for number in sorted(nodes))


def _aggregates(
    cache: MetricCache, kind: Kind, memory: Metric, policy: ReportPolicy, until: int
) -> tuple[Aggregated, ...]:
    def one(metric: Metric, how: Aggregation, seconds: int) -> float | None:
        return cache.aggregate_one(SeriesKey(kind, "", metric), how, seconds, until)

    def aggregated(seconds: int) -> Aggregated:
        usages = {}
        if not in_cold_start(_covered_seconds(cache, kind, seconds, until), seconds):
            for how in AGGREGATIONS:
                cpu_cores, memory_bytes = one(Metric.CPU, how, seconds), one(memory, how, seconds)
                if memory_bytes is None:
                    memory_bytes = one(Metric.MEMORY, how, seconds)
                if cpu_cores is not None and memory_bytes is not None:
                    usages[how] = Usage(cpu_cores, memory_bytes)
        return Aggregated(seconds, usages)

    return tuple(map(aggregated, policy.durations_seconds))


def _covered_seconds(cache: MetricCache, kind: Kind, seconds: int, until: int) -> int:
    """The time between the first and the last CPU sample of a window."""
    key = SeriesKey(kind, "", Metric.CPU)
    times, values = cache.range(key, until - seconds + 1, until, cache.tier(kind, seconds, until))
    known = times[~np.isnan(values)]
    return int(known[-1] - known[0]) if len(known) else 0
