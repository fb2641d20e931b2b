"""The ring holds exactly what was appended, whoever comes and goes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import aggregate
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.ring import BLOCK_COLUMNS, Ring
from agent.metric_cache.series import Usage

NAN = float("nan")


def row(ring: Ring, value: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.full(ring.columns, value, np.float32)


def test_a_window_is_in_order_and_leaves_out_seconds_never_written() -> None:
    ring = Ring(seconds=10)
    ring.extend()
    for second in (1, 2, 4):
        ring.append(second, row(ring, second))
    assert ring.window(4)[:, 0].tolist() == [1, 2, 4]


def test_a_second_overwritten_by_a_later_lap_is_gone() -> None:
    ring = Ring(seconds=3)
    ring.extend()
    for second in range(7):
        ring.append(second, row(ring, second))
    assert ring.window(100)[:, 0].tolist() == [4, 5, 6]


def test_a_long_pause_leaves_nothing_of_the_lap_before() -> None:
    ring = Ring(seconds=3)
    ring.extend()
    ring.append(1, row(ring, 1))
    ring.append(100, row(ring, 100))
    assert ring.window(3)[:, 0].tolist() == [100]


def test_a_second_gone_by_is_refused() -> None:
    ring = Ring(seconds=3)
    ring.extend()
    ring.append(5, row(ring, 5))
    with pytest.raises(ValueError, match="before"):
        ring.append(4, row(ring, 4))


def test_adding_series_moves_no_sample() -> None:
    ring = Ring(seconds=3)
    ring.extend()
    before = ring._blocks[0]
    ring.extend()
    assert ring._blocks[0] is before


def test_a_series_of_a_new_owner_shows_nothing_of_the_old_one() -> None:
    cache = MetricCache(retention_seconds=10)
    cache.append(0, {"old": Usage(1.0, 1.0)})
    cache.retain(set())
    cache.append(1, {"new": Usage(2.0, 2.0)})
    cache.append(2, {"new": Usage(4.0, 6.0)})
    assert cache.aggregate(Aggregation.AVG, 10) == {"new": Usage(3.0, 4.0)}
    assert cache.aggregate(Aggregation.COUNT, 10)["new"] == Usage(2.0, 2.0)


def test_an_entity_without_a_sample_in_the_window_is_absent() -> None:
    cache = MetricCache(retention_seconds=10)
    cache.append(0, {"a": Usage(1.0, 1.0), "b": Usage(1.0, 1.0)})
    cache.append(1, {"a": Usage(3.0, 3.0)})
    assert cache.aggregate(Aggregation.LAST, 1) == {"a": Usage(3.0, 3.0)}
    assert cache.aggregate(Aggregation.LAST, 2) == {"a": Usage(3.0, 3.0), "b": Usage(1.0, 1.0)}


def test_a_window_ends_now_and_not_with_the_last_sample() -> None:
    cache = MetricCache(retention_seconds=100)
    cache.append(10, {"a": Usage(1.0, 1.0)})
    assert cache.aggregate(Aggregation.LAST, 5, until=14) == {"a": Usage(1.0, 1.0)}
    assert cache.aggregate(Aggregation.LAST, 5, until=15) == {}


def test_a_window_ends_where_it_is_asked_to_though_samples_came_since() -> None:
    cache = MetricCache(retention_seconds=100)
    for second in range(5):
        cache.append(second, {"a": Usage(second, second)})
    assert cache.aggregate(Aggregation.MAX, 2, until=3) == {"a": Usage(3.0, 3.0)}
    assert cache.aggregate(Aggregation.COUNT, 2, until=3) == {"a": Usage(2.0, 2.0)}


def test_an_empty_cache_answers_nothing() -> None:
    assert MetricCache(10).aggregate(Aggregation.P95, 5) == {}


@given(
    st.lists(
        st.dictionaries(st.sampled_from([f"pod-{n}" for n in range(BLOCK_COLUMNS)]), st.floats(0, 100, width=32)),
        min_size=1,
        max_size=12,
    )
)
def test_the_last_value_of_every_entity_is_the_last_one_appended(ticks: list[dict[str, float]]) -> None:
    cache = MetricCache(retention_seconds=20)
    last: dict[str, Usage] = {}
    for second, tick in enumerate(ticks):
        usages = {entity: Usage(value, value + 1) for entity, value in tick.items()}
        cache.append(second, usages)
        last |= usages
    got = cache.aggregate(Aggregation.LAST, 20)
    assert got.keys() == last.keys()
    for entity, usage in last.items():
        assert got[entity] == pytest.approx(usage, rel=1e-6)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Aggregation.AVG, 2.0),
        (Aggregation.MAX, 4.0),
        (Aggregation.LAST, 1.0),
        (Aggregation.COUNT, 3.0),
        (Aggregation.P50, 1.0),
        (Aggregation.P99, 1.0),
    ],
)
def test_gaps_are_no_samples(how: Aggregation, expected: float) -> None:
    samples = np.array([[1.0], [NAN], [4.0], [1.0], [NAN]], np.float32)
    assert aggregate.aggregate(samples, how).tolist() == [expected]


@given(st.lists(st.floats(0, 1000, width=32), min_size=1, max_size=60), st.integers(0, 20))
def test_percentiles_pick_koordinators_sample_with_and_without_gaps(values: list[float], gaps: int) -> None:
    full = np.array(values, np.float32)[:, np.newaxis]
    gapped = np.concatenate([full, np.full((gaps, 1), NAN, np.float32)])
    ordered = sorted(full[:, 0].tolist())
    for how, p in ((Aggregation.P50, 0.5), (Aggregation.P90, 0.9), (Aggregation.P95, 0.95), (Aggregation.P99, 0.99)):
        expected = ordered[aggregate.percentile_index(len(values), p)]
        assert aggregate.aggregate(full, how).tolist() == [expected]
        assert aggregate.aggregate(gapped, how).tolist() == [expected]
