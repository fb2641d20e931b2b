"""Which model is recommended: the one that lends most among those that kept the target, and why."""

from hypothesis import given
from hypothesis import strategies as st

from shared.recommendation import LEAST_OUTCOMES, ModelRecommendation, Row, recommend

PERCENT = st.integers(0, 10_000).map(lambda hundredths: hundredths / 100)
PERCENTS = st.tuples(PERCENT, PERCENT)
ROWS = st.lists(st.builds(Row, st.text("abc", min_size=1), st.integers(0, 672), PERCENTS, PERCENTS), min_size=1)


def row(model: str, violated: float, lent: float, outcomes: int = 600) -> Row:
    return Row(model, outcomes, (violated, 0.0), (lent, lent))


def test_the_one_that_lends_most_among_those_that_kept_the_target() -> None:
    rows = [row("a", 0.2, 30.0), row("b", 0.9, 50.0), row("c", 4.0, 60.0)]
    assert recommend(rows, 1.0) == ModelRecommendation(
        "b",
        "Use b: b was wrong in 0.9 % of 600 outcomes and lent 50 % of cpu and 50 % of memory, with a target of 1 %; "
        "a was wrong in 0.2 % of 600 outcomes and lent 30 % of cpu and 30 % of memory.",
    )
    assert recommend(rows, 5.0).model == "c"


def test_the_one_in_force_stays_for_less_than_a_point_and_while_little_is_known() -> None:
    assert recommend([row("a", 0.2, 49.5), row("b", 0.0, 50.0)], 1.0).model == "a"
    told = recommend([row("a", 0.0, 10.0, outcomes=LEAST_OUTCOMES - 1), row("b", 0.0, 50.0)], 1.0)
    assert told == ModelRecommendation("a", "Keep a: a has 167 outcomes of the 168 that it takes to judge it.")


def test_where_none_keeps_the_target_the_one_that_is_wrong_least() -> None:
    told = recommend([row("a", 9.0, 30.0), row("b", 3.0, 20.0)], 1.0)
    assert told.model == "b"
    assert "no model was wrong in at most 1 % of outcomes" in told.sentence


@given(ROWS, st.floats(0.01, 50))
def test_nothing_is_recommended_that_breaks_the_target_while_the_one_in_force_keeps_it(
    rows: list[Row], target: float
) -> None:
    told = recommend(rows, target)
    assert told.model in {one.model for one in rows}
    active = rows[0]
    if active.outcomes >= LEAST_OUTCOMES and active.violation_percent <= target:
        chosen = [one for one in rows if one.model == told.model]
        assert any(one.violation_percent <= target and one.lent_percent >= active.lent_percent for one in chosen)
