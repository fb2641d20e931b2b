"""What a report says of usage is what the samples of its windows say."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metrics_advisor.numa import system_entity
from agent.reporter import measurements, policy
from agent.reporter.measurements import MeasuredAverages, NumaAverages
from agent.reporter.policy import ReportPolicy
from agent.settings import AgentSettings
from shared.clock import ManualClock

BASE = policy.from_settings(AgentSettings())
GIB = float(2**30)


class Past:
    """A cache into which seconds are written one after the other."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cache = MetricCache(clock=self.clock)

    def live(self, seconds: int, node: Usage, readings: dict[SeriesKey, float] | None = None, **more: Usage) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            usages = {series.NODE: node, series.SYSTEM: Usage(node.cpu_cores / 10, GIB), **more}
            self.cache.append(self.cache.second(), usages, readings)

    def measured(self, given: ReportPolicy = BASE) -> MeasuredAverages:
        return measurements.measure(self.cache, given, self.cache.second())


@pytest.fixture
def past() -> Iterator[Past]:
    made = Past()
    yield made
    made.cache.close()


def test_averages_are_over_the_aggregate_duration_and_no_longer(past: Past) -> None:
    past.live(300, Usage(8.0, 8 * GIB))
    past.live(300, Usage(2.0, 2 * GIB), web=Usage(1.0, GIB))
    averages = past.measured().averages
    assert averages[series.NODE] == pytest.approx(Usage(2.0, 2 * GIB))
    assert averages["web"] == Usage(1.0, GIB)
    wider = past.measured(policy.overridden(BASE, {"aggregateDurationSeconds": 600})).averages
    assert wider[series.NODE] == pytest.approx(Usage(5.0, 5 * GIB))


def test_each_window_has_its_own_aggregates_of_node_and_system(past: Past) -> None:
    past.live(300, Usage(8.0, 8 * GIB))
    past.live(300, Usage(2.0, 2 * GIB))
    measured = past.measured()
    assert [one.seconds for one in measured.node] == [300, 600, 1800]
    short, middle, long = (one.usages for one in measured.node)
    assert short[Aggregation.P99] == Usage(2.0, 2 * GIB)
    assert middle[Aggregation.AVG] == pytest.approx(Usage(5.0, 5 * GIB))
    assert middle[Aggregation.P50] == Usage(2.0, 2 * GIB)
    assert middle[Aggregation.P90] == Usage(8.0, 8 * GIB)
    assert long == {}  # ten minutes are less than half of thirty
    assert [one.usages.keys() for one in measured.system] == [one.usages.keys() for one in measured.node]
    assert measured.system[0].usages[Aggregation.AVG].cpu_cores == pytest.approx(0.2)


@pytest.mark.parametrize(("covered", "cold"), [(149, True), (150, False), (151, False)])
def test_a_window_is_cold_until_half_of_it_is_covered(past: Past, covered: int, cold: bool) -> None:
    past.live(covered + 1, Usage(1.0, GIB))
    assert (past.measured().node[0].usages == {}) is cold


def test_a_window_beyond_single_seconds_is_answered_from_five_minute_means(past: Past) -> None:
    past.live(7500, Usage(1.0, GIB))
    (found,) = past.measured(policy.overridden(BASE, {"nodeAggregatePolicy": {"durations": ["2h"]}})).node
    assert found.seconds == 7200
    assert found.usages[Aggregation.AVG] == pytest.approx(Usage(1.0, GIB))


def test_memory_is_counted_as_the_policy_says_but_never_the_systems(past: Past) -> None:
    cached = {
        SeriesKey(Kind.NODE, "", Metric.MEMORY_WITH_PAGE_CACHE): 6 * GIB,
        SeriesKey(Kind.POD, "web", Metric.MEMORY_WITH_PAGE_CACHE): 3 * GIB,
    }
    past.live(200, Usage(2.0, 4 * GIB), cached, web=Usage(1.0, GIB), job=Usage(1.0, GIB))
    plain = past.measured()
    assert plain.averages[series.NODE].memory_bytes == 4 * GIB
    whole = past.measured(policy.overridden(BASE, {"nodeMemoryCollectPolicy": "usageWithPageCache"}))
    assert whole.averages[series.NODE] == Usage(2.0, 6 * GIB)
    assert whole.averages["web"].memory_bytes == 3 * GIB
    assert whole.averages["job"].memory_bytes == GIB  # not read with its page cache
    assert whole.averages[series.SYSTEM].memory_bytes == GIB
    assert whole.node[0].usages[Aggregation.P95].memory_bytes == 6 * GIB
    assert whole.system[0].usages[Aggregation.P95].memory_bytes == GIB


def test_a_node_without_samples_is_not_readable_and_says_nothing(past: Past) -> None:
    assert not measurements.is_node_readable(past.cache, past.cache.second())
    assert past.measured().averages == {}
    past.live(1, Usage(1.0, GIB))
    assert measurements.is_node_readable(past.cache, past.cache.second())
    past.clock.advance(measurements.READABLE_SECONDS)
    assert not measurements.is_node_readable(past.cache, past.cache.second())


def readings(*nodes: tuple[int, float | None, float | None, float | None]) -> dict[SeriesKey, float]:
    """Per NUMA node: cores, memory, and the system's memory; None for what is not read."""
    found = {}
    for number, cores, memory, system in nodes:
        for entity, metric, value in (
            (str(number), Metric.CPU, cores),
            (str(number), Metric.MEMORY, memory),
            (system_entity(number), Metric.MEMORY, system),
        ):
            if value is not None:
                found[SeriesKey(Kind.NUMA, entity, metric)] = value
    return found


def test_numa_nodes_are_reported_by_number_and_only_when_both_amounts_are_known() -> None:
    found = measurements.numa_usages(
        readings((10, 3.0, 2048, 128), (2, 1.0, 1024, None), (3, None, 1, 1), (4, 1.0, None, 1)), Usage(0.8, 1)
    )
    assert found == (
        NumaAverages(2, Usage(1.0, 1024), None),
        NumaAverages(10, Usage(3.0, 2048), Usage(0.8 * 0.75, 128)),
    )
    assert measurements.numa_usages(readings((0, 1.0, 1, 1)), None)[0].system is None
    assert measurements.numa_usages(readings((0, 0.0, 1, 1)), Usage(0.8, 1))[0].system == Usage(0.0, 1)
    assert measurements.numa_usages({}, Usage(1, 1)) == ()


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=8), st.floats(0, 1000))
def test_the_systems_cpu_is_shared_out_whole(cores: list[float], system: float) -> None:
    nodes = readings(*((number, one, 1.0, 1.0) for number, one in enumerate(cores)))
    shares = [one.system.cpu_cores for one in measurements.numa_usages(nodes, Usage(system, 0)) if one.system]
    assert sum(shares) == pytest.approx(system)
    assert all(share >= 0 for share in shares)
