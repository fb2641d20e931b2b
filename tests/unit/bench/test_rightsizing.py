"""The product's requests beside krr's rules, made anew: where they must agree, and where they must differ."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.quantity import Resources
from tests.bench import rightsizing
from tests.bench.rightsizing import RecordedContainer

DAY = 86_400.0
STEP = rightsizing.STEP_SECONDS
A_DAY = int(DAY / STEP)
MIB, GIB = 1 << 20, 1 << 30
LARGE = Resources(64_000, 512 * GIB)


def container(days: int, seed: int = 0) -> RecordedContainer:
    """Noise of its own, far below its size."""
    chance = np.random.default_rng(seed)
    count = days * A_DAY
    return RecordedContainer(
        np.arange(count, dtype=np.float64) * STEP,
        chance.gamma(2.0, 1.0, count),
        chance.uniform(1.0, 9.0, count) * GIB,
        LARGE,
    )


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_memory_is_krrs_and_cpu_is_never_below_krrs(seed: int) -> None:
    seen = container(3, seed)
    ours, krrs = rightsizing.headroom(seen), rightsizing.krr_simple(seen)
    assert abs(ours.memory_bytes - krrs.memory_bytes) <= MIB
    assert ours.cpu_milli >= krrs.cpu_milli, "the busiest of the days is no less than all of them"


def test_a_load_of_two_hours_on_one_day_counts_here_and_not_with_krr() -> None:
    seen = container(8)
    seen.cores[:] = 1.0
    seen.cores[5 * A_DAY : 5 * A_DAY + 24] = 10.0
    assert rightsizing.krr_simple(seen).cpu_milli == 1000
    assert rightsizing.headroom(seen).cpu_milli == 11_500
    assert rightsizing.vpa(seen).cpu_milli < 1300, "a tenth of all samples may be above VPA's target"


def test_only_what_came_before_the_last_week_decides_about_it() -> None:
    steady = container(21)
    steady.cores[:], steady.memory[:] = 1.0, 4.0 * GIB
    late = container(21)
    late.cores[:], late.memory[:] = 1.0, 4.0 * GIB
    late.cores[-A_DAY:], late.memory[-1] = 5.0, 6.0 * GIB
    for _, rule, days in rightsizing.RULES:
        found = rightsizing.week_outcome([steady, late], rule, days)
        assert found.cpu_requested == pytest.approx(100 / 64 * 1.1, rel=0.1)
        assert found.cpu_samples_above == pytest.approx(100 / 14, rel=0.01)
        assert found.cpu_vms_above == 50
        assert found.memory_vms_above == 50
