"""Whatever the counters do, no rate is negative or beyond what the machine can do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metrics_advisor import rates
from agent.metrics_advisor.rates import Reading

COUNTERS = st.floats(0, 1e12)


@given(COUNTERS, COUNTERS, COUNTERS, COUNTERS, st.integers(1, 256))
def test_a_rate_is_plausible_or_absent(a: float, b: float, at_a: float, at_b: float, cpu_count: int) -> None:
    rate = rates.cores(Reading(a, at_a), Reading(b, at_b), cpu_count)
    assert rate is None or 0 <= rate <= cpu_count * rates.PLAUSIBLE_EXCESS


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (Reading(10, 100), Reading(11, 102), 0.5),
        (Reading(10, 100), Reading(10, 101), 0.0),
        (Reading(10, 100), Reading(9, 101), None),
        (Reading(10, 100), Reading(1000, 101), None),
        (Reading(10, 100), Reading(11, 100), None),
        (Reading(10, 100), Reading(11, 99), None),
    ],
    ids=["half a core", "idle", "counter reset", "counter leap", "no time passed", "time went back"],
)
def test_rates_of_known_readings(before: Reading, now: Reading, expected: float | None) -> None:
    assert rates.cores(before, now, 4) == expected
