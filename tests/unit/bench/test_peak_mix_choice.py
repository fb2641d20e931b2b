"""What chooses the constants of `peak-mix`: the score of folds, and what is held out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import peak_mix_choice
from tests.bench.peak_mix_choice import ALLOWED, BROKEN_COSTS, GROUPS, WEEKS, Folds, choice, score
from tests.bench.recorded import COLUMNS

KINDS = 2
SHAPE = (KINDS, GROUPS, len(WEEKS))
ONE_PERCENT = np.ones(KINDS)


def test_what_is_in_use_is_among_the_values_that_are_tried() -> None:
    tried = peak_mix_choice.VALUES.items()
    assert all(peak_mix_choice.IN_USE[name] in values for name, values in tried)


def test_every_kind_of_node_is_a_column_of_the_table() -> None:
    assert set(ALLOWED) <= {column.name for column in COLUMNS} | {"hostile"}


def folds(*, lent: float, broken: float) -> Folds:
    return Folds(np.full(SHAPE, broken), np.full(SHAPE, lent))


def test_what_breaks_beyond_the_allowed_costs_and_what_is_allowed_does_not() -> None:
    def of(broken: float) -> float:
        found = folds(lent=60, broken=broken)
        return score(found.broken, found.lent, ONE_PERCENT)

    assert of(0.0) == of(1.0) == pytest.approx(60)
    assert of(1.5) == pytest.approx(60 - BROKEN_COSTS / 2)


def test_a_bad_week_is_judged_by_the_month_as_a_target_is() -> None:
    found = folds(lent=60, broken=0)
    found.broken[..., 0] = 3
    assert score(found.broken, found.lent, ONE_PERCENT) == pytest.approx(60)


def test_a_value_that_lends_more_everywhere_is_taken() -> None:
    found = choice({1.0: folds(lent=50, broken=1), 2.0: folds(lent=51, broken=1)}, 1.0, ONE_PERCENT)
    assert found.best == 2.0
    assert found.gain == pytest.approx(1)
    assert found.best_held_out == pytest.approx(51)
    assert found.is_better


def test_a_gain_in_one_fold_is_not_held_out() -> None:
    other = folds(lent=49.9, broken=1)
    other.lent[0, 0, 0] += 10
    found = choice({1.0: folds(lent=50, broken=1), 2.0: other}, 1.0, ONE_PERCENT)
    assert found.best == 2.0
    assert found.gain > 0
    assert not found.is_better


@given(st.floats(-1000, 1000))
def test_a_fold_has_no_say_in_what_is_held_out_for_it(lent: float) -> None:
    used, other = folds(lent=50, broken=1), folds(lent=49, broken=1)
    other.lent[0] = lent  # only folds of the second kind choose for the first one
    found = choice({1.0: used, 2.0: other}, 1.0, ONE_PERCENT)
    chosen = 50 if lent <= 50 else 49  # of the second kind, by the first
    assert found.best_held_out == pytest.approx((50 + chosen) / 2)
