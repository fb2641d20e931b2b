"""What chooses the constants of `peak-mix`: the score of a fold, what is held out, and which gain counts."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backtest import metrics
from agent.predict_server.peak_mix import WEIGHTS
from tests.bench import peak_mix_choice
from tests.bench.peak_mix_choice import GROUPS, WEEKS, choice, points

FOLDS = (GROUPS, len(WEEKS))


def scores(violation_percent: float, kept_percent: float = 100.0) -> metrics.Scores:
    day = np.ones((48, 1))
    perfect = metrics.scores(day / 2, day / 2, day)
    return dataclasses.replace(perfect, violation_percent=violation_percent, kept_24h_percent=kept_percent)


def test_every_constant_is_tried_beside_the_value_in_use() -> None:
    assert set(peak_mix_choice.OTHERS) == {*dataclasses.asdict(WEIGHTS), peak_mix_choice.HELD}
    assert all(peak_mix_choice.IN_USE[name] not in others for name, others in peak_mix_choice.OTHERS.items())


@pytest.mark.parametrize(("violations", "expected"), [(0.0, 50.0), (2.0, 50.0), (4.0, 45.0), (8.0, 40.0)])
def test_each_doubling_beyond_twice_the_target_costs_points(violations: float, expected: float) -> None:
    assert points(scores(violations), 1.0) == pytest.approx(expected)


def test_what_is_withdrawn_within_a_day_is_not_counted_as_lent() -> None:
    assert points(scores(0.0, kept_percent=80), 1.0) == pytest.approx(40)


def test_a_gain_in_every_fold_is_beyond_noise_and_is_held_out_as_well() -> None:
    used = np.random.default_rng(1).normal(50, 5, FOLDS)
    found = choice({1.0: used, 2.0: used + 1, 3.0: used - 1}, in_use=1.0)
    assert found.best == 2.0
    assert found.gain == pytest.approx(1)
    assert found.best_held_out == pytest.approx(used.mean() + 1)
    assert found.beyond_noise


def test_a_gain_in_one_fold_is_noise() -> None:
    used = np.full(FOLDS, 50.0)
    other = used - 0.1
    other[0, 0] += 10
    found = choice({1.0: used, 2.0: other}, in_use=1.0)
    assert found.best == 2.0
    assert not found.beyond_noise


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
