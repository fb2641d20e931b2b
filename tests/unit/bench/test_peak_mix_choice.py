"""What chooses the constants of `peak-mix`: the score of an hour, what is held out, and which gain counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.predict_server.decay import Floats
from tests.bench import peak_mix_choice
from tests.bench.peak_mix_choice import GROUPS, WEEKS, Kept, choice, hourly_points

FOLDS = (GROUPS, len(WEEKS))
HOURS = 48


def test_what_is_in_use_is_among_the_values_that_are_tried() -> None:
    assert set(peak_mix_choice.VALUES) == set(peak_mix_choice.IN_USE)
    assert all(peak_mix_choice.IN_USE[name] in values for name, values in peak_mix_choice.VALUES.items())


def points(promised: Floats, came: float, target_percent: float = 1.0) -> list[float]:
    found = hourly_points(promised, np.full((HOURS, 1), came), np.ones((HOURS, 1)), target_percent)
    return [float(value) for value in found[: HOURS - 24, 0]]


def test_what_is_withdrawn_within_a_day_is_not_counted_as_lent() -> None:
    promised = np.full((HOURS, 1), 0.2)
    promised[-1] = 0.5
    assert points(promised, came=0.1) == pytest.approx([0.8] * 23 + [0.5])


def test_what_is_used_beyond_the_promise_costs_more_the_stricter_the_target() -> None:
    promised = np.full((HOURS, 1), 0.2)
    assert points(promised, came=0.21, target_percent=1.0) == pytest.approx([0.8 - 1.0] * 24)
    assert points(promised, came=0.21, target_percent=5.0) == pytest.approx([0.8 - 0.2] * 24)


@given(st.sampled_from([1.0, 5.0, 20.0]), st.integers(0, 1000))
def test_the_quantile_of_the_target_scores_best(target_percent: float, seed: int) -> None:
    came = np.random.default_rng(seed).gamma(2.0, 0.1, 1000)

    def expected(peak: float) -> float:
        requested = np.ones((25, 1000))
        promised = np.full((25, 1000), peak)
        return float(hourly_points(promised, came * requested, requested, target_percent)[0].mean())

    quantile = float(np.quantile(came, 1 - target_percent / 100, method="higher"))
    assert expected(quantile) >= max(expected(quantile * 0.8), expected(quantile * 1.2)) - 1e-9


def test_a_gain_in_every_fold_is_beyond_noise_and_is_held_out_as_well() -> None:
    used = np.random.default_rng(1).normal(50, 5, FOLDS)
    found = choice({1.0: used, 2.0: used + 1, 3.0: used - 1}, in_use=1.0)
    assert found.best == 2.0
    assert found.gain == pytest.approx(1)
    assert found.best_held_out == pytest.approx(used.mean() + 1)
    assert found.is_better


def test_a_gain_in_one_fold_is_noise() -> None:
    used = np.full(FOLDS, 50.0)
    other = used - 0.1
    other[0, 0] += 10
    found = choice({1.0: used, 2.0: other}, in_use=1.0)
    assert found.best == 2.0
    assert not found.is_better


@given(st.lists(st.floats(0, 100), min_size=12, max_size=12))
def test_a_fold_has_no_say_in_what_is_held_out_for_it(values: list[float]) -> None:
    used = np.array(values).reshape(FOLDS)
    other = used - 1
    other[0, 0] += 1000  # the best by its mean, by one fold alone
    found = choice({1.0: used, 2.0: other}, in_use=1.0)
    assert found.best == 2.0
    # Folds of the same VMs or week do not see it either; all others choose by it.
    seeing = (GROUPS - 1) * (len(WEEKS) - 1)
    assert found.best_held_out == pytest.approx(used.mean() - seeing / used.size)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (Kept({0.1: 0.2, 1.0: 2.0, 5.0: 10.0}, first_week=3.0, withdrawn_per_day=5.0), True),
        (Kept({0.1: 0.3, 1.0: 1.0, 5.0: 5.0}, first_week=1.0, withdrawn_per_day=1.0), False),
        (Kept({1.0: 1.0}, first_week=3.1, withdrawn_per_day=1.0), False),
        (Kept({1.0: 1.0}, first_week=1.0, withdrawn_per_day=5.1), False),
    ],
)
def test_a_promise_is_kept_within_twice_its_target_in_the_first_week_too(kept: Kept, expected: bool) -> None:
    assert kept.is_kept is expected
