"""What was promised is held against what came: by model, in sums and percentages, over restarts and set clocks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from agent.backtest import metrics
from agent.metric_cache.series import Usage
from agent.predict_server.calibration import WINDOW_HOURS
from agent.predict_server.decay import Floats
from agent.predict_server.prediction import NodePrediction
from agent.predict_server.records import Loans, withdrawn_percents_per_day
from agent.predict_server.truth import Truth
from agent.states_informer.informer import LocalNode
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.quantity import Resources
from tests.unit.agent.models import Life, entities
from tests.unit.agent.pods import NOW, pod

HOUR, DAY = 3600.0, 86400.0
BEGIN = NOW - NOW % DAY
PODS = [pod("a", cpu="8", memory="8Gi", age_seconds=10**7)]
REQUESTED = np.array([4.0, 8.0])


class Watched:
    """A truth of two models for an hour ahead, a quarter of an hour at a time; both see one pod."""

    def __init__(self) -> None:
        self.truth = Truth("n", [HOUR])
        self.truth.follow("active", ["shadow"], [HOUR])
        self.time = BEGIN

    def live(self, hours: int, used: float, promised: tuple[float, float]) -> None:
        for _ in range(4 * hours):
            self.truth.observe(np.full((1, 2), used), np.zeros(1), self.time)
            if self.truth.is_due(self.time):
                active, shadow = (np.full((1, 2), each) for each in promised)
                self.truth.promise({"active": active, "shadow": shadow}, REQUESTED, self.time)
            self.time += 900.0


def test_each_model_answers_for_its_own_promises() -> None:
    watched = Watched()
    watched.live(11, used=2.0, promised=(2.5, 1.5))
    (active,), (shadow,) = watched.truth.kept("active"), watched.truth.kept("shadow")
    assert (active.outcomes, active.violation_percents) == (10, (0.0, 0.0))
    assert (shadow.outcomes, shadow.violation_percents) == (10, (100.0, 100.0))
    assert shadow.severity_percents == pytest.approx((25.0, 25.0))
    assert active.over_estimate_percents == pytest.approx((25.0, 25.0))
    assert active.lent_percents == pytest.approx((37.5, 68.75))
    assert active.coverage_percent == pytest.approx(100 * 10 / WINDOW_HOURS)
    (totals,) = watched.truth.totals
    assert (totals.outcomes, totals.violations) == (10, (0, 0))
    assert (totals.promised, totals.realised) == ((25.0, 25.0), (20.0, 20.0))


def test_a_rate_above_all_that_a_node_has_breaks_no_promise_of_all_of_it() -> None:
    """The clock by which a rate is measured may be off, and counters are not read in the same instant."""
    truth = Truth("n", [HOUR])
    truth.follow("all", ["less"], [HOUR])
    truth.observe(np.zeros((1, 2)), np.zeros(1), BEGIN)
    truth.promise({"all": np.array([[16.0, 64.0]]), "less": np.array([[15.9, 64.0]])}, REQUESTED, BEGIN)
    found = truth.observe(np.array([[15.0, 1.0], [1.2, 1.0]]), np.zeros(2), BEGIN + 900, (16.0, 64.0))
    assert found.keys() == {"less"}
    assert found["less"].broken[0].reached.tolist() == [[[16.0, 2.0]]]
    assert truth.observe(np.array([[17.0, 1.0]]), np.zeros(1), BEGIN + 1800).keys() == {"all", "less"}


def test_a_model_that_comes_into_force_has_the_record_of_its_shadow_and_one_that_goes_leaves_none() -> None:
    watched = Watched()
    watched.live(11, used=2.0, promised=(2.5, 1.5))
    watched.truth.follow("shadow", [], [HOUR])
    assert watched.truth.kept("shadow")[0].violation_percents == (100.0, 100.0)
    watched.truth.follow("active", [], [HOUR])
    assert watched.truth.kept("active")[0].outcomes == 0
    assert watched.truth.totals[0].outcomes == 10  # a counter never goes back


@pytest.mark.parametrize("seconds", [0.0, 1000 * DAY, -2 * HOUR, 1800.0])
def test_a_restart_and_a_clock_that_is_set_cost_no_promise(seconds: float) -> None:
    watched, other = Watched(), Watched()
    for one in (watched, other):
        one.live(5, used=2.0, promised=(2.5, 1.5))
    restored = Truth("n", [HOUR])
    restored.restore(watched.truth.state())
    restored.follow("active", ["shadow"], [HOUR])
    watched.truth = restored
    watched.truth.set_clock(seconds)
    watched.time += seconds
    watched.live(5, used=2.0, promised=(2.5, 1.5))
    other.live(5, used=2.0, promised=(2.5, 1.5))
    assert abs(watched.truth.kept("shadow")[0].outcomes - other.truth.kept("shadow")[0].outcomes) <= bool(seconds)
    assert watched.truth.kept("shadow")[0].violation_percents == (100.0, 100.0)


def test_outcomes_of_more_than_four_weeks_ago_are_forgotten() -> None:
    watched = Watched()
    watched.live(48, used=2.0, promised=(1.5, 1.5))
    watched.live(WINDOW_HOURS + 2, used=2.0, promised=(2.5, 2.5))
    (kept,) = watched.truth.kept("active")
    assert kept.outcomes <= WINDOW_HOURS
    assert kept.violation_percents == (0.0, 0.0)
    assert len(watched.truth.state()) < 100_000


@pytest.mark.parametrize("state", [b"?", b"\x80", b"\x81\xb3record 3600.0 active\x80", b"\x81\xa5loans\x80"])
def test_a_state_that_means_nothing_is_refused(state: bytes) -> None:
    truth = Truth("n", [HOUR])
    if state != b"\x80":
        with pytest.raises(ValueError, match=r"."):
            truth.restore(state)
    truth.follow("active", [], [HOUR])
    assert truth.kept("active")[0].outcomes == 0


LENT = arrays.arrays(np.float64, st.tuples(st.integers(2, 60), st.just(2)), elements=st.floats(1, 100, width=32))


@given(LENT)
def test_what_was_withdrawn_is_what_a_backtest_would_say(lent: Floats) -> None:
    requested = np.full((len(lent), 1), 200.0)
    for place, percent in enumerate(withdrawn_percents_per_day(lent[::-1].astype(np.float32))):
        peaks = requested - lent[:, [place]]
        scores = metrics.scores(peaks, np.zeros_like(peaks), requested)
        assert percent == pytest.approx(scores.withdrawn_percent_per_day, rel=1e-4, abs=1e-3)


def test_the_least_of_an_hour_counts_and_what_is_not_known_is_no_withdrawal() -> None:
    loans = Loans()
    for minute, cores in ((0, 8.0), (59, 6.0), (60, 8.0), (180, 1.0)):
        loans.lend(np.array([cores, 1.0]), BEGIN + 60.0 * minute)
    day, month = loans.withdrawn()
    assert (day.window_seconds, month.window_seconds) == (86400, 28 * 86400)
    assert day.percents_per_day == month.percents_per_day == (0.0, 0.0)  # nobody knows the third hour
    loans.lend(np.array([0.5, 1.0]), BEGIN + 60.0 * 240)
    assert loans.withdrawn()[0].percents_per_day == pytest.approx((100 * 24 * 0.5 / 7.0, 0.0))


class Quarters(Life):
    """A predict server that lends by n-sigma-v2, with shadows, a quarter of an hour at a time."""

    def __init__(self, directory: Path, clock: ManualClock | None = None, **settings: Any) -> None:
        given = {"predictor": "n-sigma-v2", "warm_up_samples": 1, "cold_start_seconds": 0}
        super().__init__(directory, clock or ManualClock(BEGIN), checkpoint_interval_seconds=1e9, **given | settings)

    def live(self, hours: float) -> NodePrediction:
        """With a pod that uses two cores."""
        found = self.predict(*PODS)
        for _ in range(int(4 * hours)):
            self.learn(entities(a=Usage(2.0, 2.0**30)), PODS, 900)
            found = self.predict(*PODS)
        return found


def shadows(found: NodePrediction) -> dict[str, int]:
    return {shadow.model: shadow.kept.outcomes for shadow in found.shadows}


def test_a_node_is_judged_by_no_more_than_it_has(tmp_path: Path) -> None:
    node = Quarters(tmp_path)
    node.node = LocalNode(Resources(1_900, 2**34), capacity=Resources(1_900, 2**34))
    (totals,) = (promise.totals for promise in node.live(30).promises[:1])
    assert totals.outcomes > 0
    assert totals.realised[0] == pytest.approx(1.9 * totals.outcomes)


def test_shadows_lend_nothing_and_are_judged_beside_the_model_in_force(tmp_path: Path) -> None:
    alone, beside = Quarters(tmp_path / "a", shadow_predictors=()), Quarters(tmp_path / "b")
    without, found = alone.live(30), beside.live(30)
    assert (without.reclaimable, without.shadows, without.recommended) == (found.reclaimable, (), None)
    assert shadows(found) == {"percentile": 7}  # the other shadow is in force
    assert found.promises[0].kept.outcomes == 7
    lent = found.shadows[0].kept.lent_percents
    assert 0 < lent[0] < 75
    assert found.recommended is not None
    assert found.recommended.sentence.startswith("Keep n-sigma-v2: n-sigma-v2 has 7 outcomes of the 168")


def test_a_policy_that_changes_the_model_takes_up_what_it_did_in_the_shadow(tmp_path: Path) -> None:
    node = Quarters(tmp_path, shadow_predictors=("peak-mix", "n-sigma-v2"))
    assert shadows(node.live(30)) == {"peak-mix": 7}
    node.server.apply({"predictPolicy": {"predictor": "peak-mix"}})
    changed = node.live(1)
    assert (changed.model, shadows(changed)) == ("peak-mix", {"n-sigma-v2": 8})
    assert changed.promises[0].kept.outcomes == 8
    assert changed.promises[1].kept.outcomes == 0  # shadows promise for the first horizon alone
    node.server.apply({"predictPolicy": {"predictor": "peak-mix", "targetViolationPercent": 5}})
    looser = node.live(1)
    assert looser.promises[0].kept.outcomes == 0  # those were promises for another target
    assert shadows(looser) == {"n-sigma-v2": 9}


def test_a_restart_before_the_policy_is_read_loses_neither_record_nor_state(tmp_path: Path) -> None:
    first = Quarters(tmp_path)
    spec: dict[str, object] = {"predictPolicy": {"predictor": "peak-mix"}}
    first.server.apply(spec)
    before = first.live(30)
    first.server.save()
    again = Quarters(tmp_path, first.clock)
    again.live(0.5)
    again.server.save()
    third = Quarters(tmp_path, first.clock)
    third.server.apply(spec)
    after = third.live(1)
    assert (before.model, after.model) == ("peak-mix", "peak-mix")
    assert after.promises[0].kept.outcomes > before.promises[0].kept.outcomes == 7


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("no-such-one",), "no predictor 'no-such-one'"),
        (("max(percentile)",), "expected the name of one predictor"),
        (("percentile",) * 9, "more than 8"),
    ],
)
def test_shadows_that_cannot_be_are_refused_with_their_names(
    tmp_path: Path, names: Sequence[str], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Quarters(tmp_path, shadow_predictors=names)
