"""Whatever the counters do, no rate is negative or beyond what the machine can do."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metrics_advisor import rates
from agent.metrics_advisor.rates import CounterReading

COUNTERS = st.floats(0, 1e12)
COUNTS = st.integers(0, 2**64)


@given(COUNTERS, COUNTERS, COUNTERS, COUNTERS, st.integers(1, 256))
def test_a_rate_is_plausible_or_absent(a: float, b: float, at_a: float, at_b: float, cpu_count: int) -> None:
    rate = rates.cores(CounterReading(a, at_a), CounterReading(b, at_b), cpu_count)
    assert rate is None or 0 <= rate <= cpu_count


@given(st.lists(st.tuples(COUNTERS, COUNTERS, COUNTERS, COUNTERS)), st.integers(1, 256))
def test_many_rates_at_once_are_what_each_is_alone(
    readings: list[tuple[float, float, float, float]], cpu_count: int
) -> None:
    alone = [rates.cores(CounterReading(a, at_a), CounterReading(b, at_b), cpu_count) for a, b, at_a, at_b in readings]
    a, b, at_a, at_b = np.array(readings).reshape(-1, 4).T
    together = rates.cores_of_many(b - a, at_b - at_a, cpu_count).tolist()
    assert [None if math.isnan(rate) else rate for rate in together] == alone


@pytest.mark.parametrize("unknown", [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)])
def test_no_rate_follows_from_what_is_not_known(unknown: tuple[float, float]) -> None:
    cpu_seconds, period_seconds = np.array([unknown, (0.5, 1.0)]).T
    found = rates.cores_of_many(cpu_seconds, period_seconds, 4)
    assert found.tolist() == pytest.approx([math.nan, 0.5], nan_ok=True)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_a_share_is_one_or_absent(part: int, whole: int, part_now: int, whole_now: int) -> None:
    share = rates.share((part, whole), (part_now, whole_now))
    assert share is None or 0 <= share <= 1


@given(COUNTS, COUNTS, st.floats(-1e6, 1e6), st.floats(1, 1e12))
def test_growth_per_second_is_plausible_or_absent(before: int, now: int, period: float, most: float) -> None:
    rate = rates.per_second(before, now, period, most)
    assert rate is None or 0 <= rate <= most


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [((0, 0), (5, 10), 0.5), ((3, 7), (3, 7), 0.0), ((3, 7), (2, 9), None), ((3, 7), (0, 0), None)],
    ids=["half", "nothing happened", "went back", "began anew"],
)
def test_shares_of_known_readings(before: tuple[int, int], now: tuple[int, int], expected: float | None) -> None:
    assert rates.share(before, now) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (CounterReading(10, 100), CounterReading(11, 102), 0.5),
        (CounterReading(10, 100), CounterReading(10, 101), 0.0),
        (CounterReading(10, 100), CounterReading(14.2, 101), 4.0),
        (CounterReading(10, 100), CounterReading(9, 101), None),
        (CounterReading(10, 100), CounterReading(1000, 101), None),
        (CounterReading(10, 100), CounterReading(11, 100), None),
        (CounterReading(10, 100), CounterReading(11, 99), None),
    ],
    ids=[
        "half a core",
        "idle",
        "a tick of the scheduler too much",
        "counter reset",
        "counter leap",
        "no time passed",
        "time went back",
    ],
)
def test_rates_of_known_readings(before: CounterReading, now: CounterReading, expected: float | None) -> None:
    assert rates.cores(before, now, 4) == expected
