"""Mean and deviation are those of the weighted samples, however they came in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.predict_server import histogram
from agent.predict_server.bank import Bank
from agent.predict_server.moments import Moments

ROW = np.array([0])
BASE = 1_700_000_000.0

SAMPLES = st.lists(st.tuples(st.floats(0, 1e12), st.floats(1e-3, 1e3)), min_size=1, max_size=40)


def moments_of(samples: list[tuple[float, float]]) -> Moments:
    moments = Moments(rows=1)
    for value, weight in samples:
        moments.add(ROW, np.array([value]), np.array([weight]))
    return moments


@given(SAMPLES)
def test_incremental_moments_equal_the_direct_computation(samples: list[tuple[float, float]]) -> None:
    values, weights = np.array(samples).T
    moments = moments_of(samples)
    mean = np.average(values, weights=weights)
    assert moments.means[0] == pytest.approx(mean, rel=1e-9)
    direct = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    assert moments.stdevs(ROW)[0] == pytest.approx(direct, rel=1e-6, abs=1e-6 * values.max() + 1e-12)


def test_a_small_deviation_of_a_large_value_is_not_lost() -> None:
    bank = Bank(histogram.MEMORY, 86400, rows=1)
    for step in range(10_000):
        bank.add(ROW, np.array([1e11 + step % 2]), BASE + 30 * step)
    assert bank.moments.stdevs(ROW)[0] == pytest.approx(0.5, rel=1e-3)


def test_decayed_moments_weigh_a_sample_half_after_a_half_life() -> None:
    bank = Bank(histogram.CPU, 3600, rows=1)
    bank.add(ROW, np.array([4.0]), BASE)
    bank.add(ROW, np.array([1.0]), BASE + 3600)
    assert bank.moments.means[0] == pytest.approx((0.5 * 4 + 1) / 1.5)
    assert bank.moments.stdevs(ROW)[0] == pytest.approx(np.sqrt((0.5 * 2**2 + 1 * 1**2) / 1.5))


def test_an_empty_model_deviates_by_nothing() -> None:
    assert Moments(rows=1).stdevs(ROW).tolist() == [0.0]
