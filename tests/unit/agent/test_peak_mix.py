"""`peak-mix` for any pods, nodes and targets: what must hold, however they are drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backtest import packing, study
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.backtest.study import RecordedFleet, Trial
from agent.predict_server import calibration, peak_mix, policy
from agent.predict_server.calibration import HOUR_SECONDS, FittedTail
from agent.predict_server.daily import DAY_SECONDS, DailyMeans
from agent.predict_server.decay import Floats
from agent.predict_server.maxima import Maxima
from agent.predict_server.outcomes import Outcomes
from agent.predict_server.peak_mix import Held, NodeArrays, PodArrays
from agent.settings import AgentSettings
from shared.api.predictionprior import BUILT_IN
from tests.support import hostile

amounts = st.floats(0.0, 64.0)
POD = st.tuples(amounts, amounts, st.floats(0.0, 20.0))
NODE = st.tuples(amounts, amounts, amounts, st.floats(0.0, 20.0))
MONDAY = 1_760_313_600.0


def pod_facts(pods: list[tuple[float, float, float]]) -> PodArrays:
    columns = np.array(pods, np.float64).reshape(-1, 3)
    return PodArrays(np.zeros(len(columns), np.intp), columns[:, 0], columns[:, 1], columns[:, 2])


def node_facts(node: tuple[float, float, float, float]) -> NodeArrays:
    week, more, mean, age = (np.array([value]) for value in node)
    return NodeArrays(week, week + more, week + more, mean, age)


def peak(pods: list[tuple[float, float, float]], node: tuple[float, float, float, float], margin: float) -> float:
    facts = pod_facts(pods)
    ceilings = np.array([np.maximum(facts.requests, facts.own).sum()])
    found = peak_mix.forecast(facts, node_facts(node)).peaks(np.array([margin]), np.zeros(1), np.zeros(1), ceilings)
    return float(found[0])


class TestForecast:
    @given(st.lists(POD, max_size=8), POD, NODE, st.floats(0.0, 5.0))
    def test_another_pod_lowers_the_peak_by_a_tenth_at_most_as_pods_that_do_not_peak_together(
        self,
        pods: list[tuple[float, float, float]],
        another: tuple[float, float, float],
        node: tuple[float, float, float, float],
        margin: float,
    ) -> None:
        assert peak([*pods, another], node, margin) >= peak(pods, node, margin) * 0.9 * (1 - 1e-12)

    @given(st.lists(POD, min_size=1, max_size=8), NODE, st.floats(0.0, 5.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
    def test_a_larger_debt_never_lowers_the_peak_and_one_of_one_is_all_that_can_be_used(
        self,
        pods: list[tuple[float, float, float]],
        node: tuple[float, float, float, float],
        margin: float,
        one: float,
        other: float,
    ) -> None:
        facts = pod_facts(pods)
        ceilings, forecast = np.array([facts.requests.sum()]), peak_mix.forecast(facts, node_facts(node))

        def with_debt(debt: float) -> float:
            return float(forecast.peaks(np.array([margin]), np.array([debt]), np.zeros(1), ceilings)[0])

        small, large = sorted((one, other))
        assert with_debt(small) <= with_debt(large) + 1e-9
        assert with_debt(1.0) == with_debt(2.0) == ceilings[0]

    def test_replicas_are_expected_to_peak_together_as_they_have(self) -> None:
        replicas, others = (
            peak_mix.forecast(pod_facts([(4.0, 1.0, 9.0)] * 10), node_facts((week, 0.0, 1.0, 9.0)))
            for week in (10.0, 6.0)
        )
        assert replicas.base[0] == pytest.approx(10.0)
        assert others.base[0] == pytest.approx(0.96 * (0.25 * 10 + 0.75 * 6))

    @given(st.lists(POD, max_size=8), NODE, st.floats(0.0, 1e6))
    def test_the_peak_is_never_above_what_all_pods_may_use(
        self, pods: list[tuple[float, float, float]], node: tuple[float, float, float, float], margin: float
    ) -> None:
        assert peak(pods, node, margin) <= sum(max(request, own) for request, own, _ in pods) + 1e-9

    def test_usage_of_now_is_not_below_the_peak(self) -> None:
        forecast = peak_mix.forecast(pod_facts([(4.0, 1.0, 9.0)]), node_facts((1.0, 0.0, 0.5, 9.0)))
        assert forecast.peaks(np.zeros(1), np.zeros(1), np.array([3.0]), np.array([4.0])).tolist() == [3.0]

    def test_idle_pods_add_nothing_to_what_is_likely(self) -> None:
        idle = peak_mix.forecast(pod_facts([(1.0, 0.0, 9.0)] * 100), node_facts((0.0, 0.0, 0.0, 9.0)))
        assert idle.base.tolist() == [0.0]

    def test_few_large_pods_have_a_wider_margin_than_many_small_ones(self) -> None:
        node = node_facts((4.0, 0.0, 1.0, 9.0))
        few = peak_mix.forecast(pod_facts([(8.0, 2.0, 9.0)] * 2), node)
        many = peak_mix.forecast(pod_facts([(0.5, 0.125, 9.0)] * 32), node)
        assert few.base == pytest.approx(many.base)
        assert few.scale == pytest.approx(many.scale * 4)

    def test_nodes_do_not_see_one_another(self) -> None:
        pods = [(4.0, 1.0, 9.0), (2.0, 2.0, 1.0)]
        both = peak_mix.forecast(
            PodArrays(np.array([0, 1]), *(np.array(column) for column in zip(*pods, strict=True))),
            NodeArrays(*(np.array([value, value]) for value in (3.0, 3.0, 3.0, 1.0, 9.0))),
        )
        for index, pod in enumerate(pods):
            alone = peak_mix.forecast(pod_facts([pod]), node_facts((3.0, 0.0, 1.0, 9.0)))
            assert (both.base[index], both.scale[index]) == (alone.base[0], alone.scale[0])


tails = st.tuples(st.floats(-3.0, 3.0), st.floats(0.0, 3.0))


class TestMargins:
    @given(tails, st.floats(0.0, 28.0), st.floats(0.01, 50.0), st.floats(0.01, 50.0))
    def test_a_stricter_target_never_has_a_smaller_margin(
        self, tail: tuple[float, float], days: float, one: float, other: float
    ) -> None:
        of = FittedTail(*(np.array([value]) for value in tail))
        strict, loose = (calibration.margins(of, np.array([days]), t) for t in sorted((one, other)))
        assert strict >= loose >= 0

    def test_without_outcomes_the_prior_decides(self) -> None:
        wild = FittedTail(np.array([1e9]), np.array([1e9]))
        assert calibration.margins(wild, np.zeros(1), 10.0).tolist() == [BUILT_IN.quantile]


class TestMaxima:
    row = np.array([0])

    def observed(self, samples: dict[float, float]) -> Maxima:
        maxima = Maxima(1, resources=1)
        for day, value in samples.items():
            maxima.add(self.row, np.array([[value]]), MONDAY + day * DAY_SECONDS)
        return maxima

    def test_a_maximum_is_kept_for_a_week_and_then_forgotten(self) -> None:
        assert self.observed({0: 5.0, 7: 1.0}).over(self.row, 7) == [[5.0]]
        assert self.observed({0: 5.0, 8: 1.0}).over(self.row, 7) == [[1.0]]
        assert self.observed({0: 5.0, 1: 1.0}).over(self.row, 0) == [[1.0]]

    def test_a_clock_that_goes_back_forgets_nothing(self) -> None:
        assert self.observed({5: 5.0, 2: 1.0, 6: 2.0}).over(self.row, 7) == [[5.0]]

    def test_what_was_long_ago_is_gone_after_a_long_gap(self) -> None:
        assert self.observed({0: 5.0, 300: 1.0}).over(self.row, 14) == [[1.0]]

    def test_a_node_that_has_changed_keeps_its_last_days_alone(self) -> None:
        maxima = self.observed({0: 5.0, 3: 2.0, 4: 1.0})
        maxima.keep(self.row, 2)
        assert maxima.over(self.row, 14) == [[2.0]]
        maxima.keep(self.row, 1)
        assert maxima.over(self.row, 14) == [[1.0]]

    def test_new_rows_are_empty_and_cleared_ones_too(self) -> None:
        maxima = self.observed({0: 5.0})
        maxima.resize(2)
        maxima.clear(0)
        assert maxima.over(np.arange(2), 7).tolist() == [[0.0], [0.0]]


class TestOutcomes:
    node, since = np.zeros(2, np.intp), np.array([MONDAY, MONDAY])

    def played(self, usages: list[tuple[float, float]], *, base: float = 1.0, step: float = 300.0) -> Outcomes:
        """A prediction at the first sample, and what two pods use until an hour has passed."""
        outcomes = Outcomes(1)
        for index, usage in enumerate(usages):
            time = MONDAY + index * step
            outcomes.observe(self.node, np.array(usage), self.since, time)
            outcomes.judge(time)
            if index == 0:
                outcomes.predict(np.array([base]), np.array([2.0]), np.array([9.0]), time)
        return outcomes

    def residuals(self, outcomes: Outcomes) -> list[float]:
        return [float(residual) for residual in outcomes.residuals.ravel() if not np.isnan(residual)]

    def test_the_largest_sum_after_the_prediction_is_what_came(self) -> None:
        usages = [(50.0, 50.0)] + [(1.0, 1.0)] * 5 + [(3.0, 4.0)] + [(1.0, 1.0)] * 6
        assert self.residuals(self.played(usages)) == [3.0]

    def test_pods_that_arrive_later_do_not_count(self) -> None:
        self.since = np.array([MONDAY, MONDAY + 600])
        assert self.residuals(self.played([(1.0, 0.0)] * 3 + [(2.0, 9.0)] * 10)) == [0.5]

    def test_a_gap_leaves_nothing_to_judge(self) -> None:
        assert self.residuals(self.played([(1.0, 1.0)] * 13, step=1200.0)) == []

    def test_a_clock_that_goes_back_leaves_nothing_to_judge(self) -> None:
        assert self.residuals(self.played([(1.0, 1.0)] * 13, step=-300.0)) == []

    def with_residuals(self, values: Floats, *, early_until: int = 0) -> Outcomes:
        outcomes = Outcomes(1)
        for hour, value in enumerate(values.tolist()):
            for minute in (0.0, 10.0, 20.0, 30.0, 40.0, 50.0):
                time = MONDAY + hour * HOUR_SECONDS + minute * 60
                outcomes.observe(np.zeros(1, np.intp), np.array([value]), np.array([MONDAY - 1]), time)
                outcomes.judge(time)
                if minute == 0.0:
                    age = 1.0 if hour < early_until else 9.0
                    outcomes.predict(np.zeros(1), np.ones(1), np.array([age]), time)
        return outcomes

    def test_the_tail_is_the_ninetieth_percentile_and_the_mean_above(self) -> None:
        tail, days = self.with_residuals(np.append(np.arange(1.0, 101.0), 100.0)).tails()
        assert days == [100 / 24]
        assert (tail.quantile[0], tail.excess[0]) == (pytest.approx(91.0, abs=1.0), pytest.approx(4.5, abs=0.5))

    def test_outcomes_of_the_first_days_make_way_for_later_ones(self) -> None:
        few = self.with_residuals(np.full(30, 5.0), early_until=20)
        assert few.tails()[1] == [29 / 24]
        assert self.with_residuals(np.full(60, 5.0), early_until=20).tails()[1] == [39 / 24]

    def test_a_node_that_changes_its_role_has_drifted_and_a_weekly_cycle_has_not(self) -> None:
        hours = np.arange(21 * 24)
        week = np.where(hours // 24 % 7 < 5, 4.0, 1.0) + hours % 24 / 24
        assert not self.with_residuals(week).drifted()[0]
        changed = week.copy()
        changed[-80:] = 9.0
        drifted = self.with_residuals(changed)
        assert drifted.drifted()[0]
        drifted.forget(np.array([0]), but_hours=calibration.DRIFT_HOURS)
        assert drifted.tails()[1] == [3.0]
        assert not drifted.drifted()[0]

    def test_nonsense_is_refused(self) -> None:
        arrays = Outcomes(1).arrays()
        with pytest.raises(ValueError, match="residuals must be"):
            Outcomes.of_arrays({**arrays, "residuals": np.zeros((1, 3))})


class TestHeld:
    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(ValueError, match="daily means"):
            DailyMeans.of_arrays({"sums": np.zeros((1, 2)), "counts": np.zeros(2), "day": np.array([0])})
        with pytest.raises(ValueError, match="held"):
            Held.of_arrays({"hourly": np.zeros((1, 3)), "hour": np.array([0])})

    def test_a_peak_is_promised_for_some_hours_and_not_beyond_what_pods_may_use(self) -> None:
        held = Held()
        held.raise_to(np.array([5.0]), MONDAY)
        for hour in range(1, 12):
            held.raise_to(np.array([1.0]), MONDAY + hour * HOUR_SECONDS)
            expected = 5.0 if hour < peak_mix.HELD_HOURS else 1.0
            assert held.peaks(np.array([9.0])) == [expected]
        assert held.peaks(np.array([0.5])) == [0.5]


def recording(days: int = 3) -> tuple[RecordedUsage, PodSchedule]:
    rng = np.random.default_rng(7)
    limits = rng.choice([1.0, 2.0, 4.0], 20)
    ticks = days * 288
    usage = (
        rng.gamma(1.0, 0.2, (20, ticks)) * (1.5 + np.sin(np.arange(ticks) / 288 * 2 * np.pi)) * limits[:, np.newaxis]
    )
    recorded = RecordedUsage(usage, limits, MONDAY, 300.0).capped_and_filled()
    node = packing.first_fit(limits, 16, rng)
    return recorded, packing.churned(node, limits, ticks, mean_hours=24, ticks_per_hour=12, rng=rng)


def promised(recorded: RecordedUsage, schedule: PodSchedule, *targets: float) -> dict[float, Floats]:
    """What agents promise every hour for 24 hours, by target; shape (hours, nodes)."""
    trial = Trial(0, ("peak-mix",), targets, (24,), policy.from_settings(AgentSettings()))
    played = study.play(RecordedFleet(recorded, schedule), trial)
    return {one.target_percent or 0.0: peaks for one, peaks in played.promised.items()}


def test_while_no_promise_breaks_a_stricter_target_never_lends_more() -> None:
    peaks = promised(*recording(1), 0.1, 1.0, 5.0)
    assert (peaks[0.1] >= peaks[1.0]).all()
    assert (peaks[1.0] >= peaks[5.0]).all()


def test_a_node_that_falls_quiet_for_good_lends_more_after_its_memory_is_shortened() -> None:
    ticks = 20 * 96
    usage = np.full((4, ticks), 0.8)
    usage[:, 14 * 96 :] = 0.05
    recorded = RecordedUsage(
        usage * (1 + 0.1 * np.sin(np.arange(ticks))), np.ones(4), MONDAY, 900.0
    ).capped_and_filled()
    peaks = promised(recorded, packing.static(np.zeros(4, np.intp), ticks), 1.0)[1.0]
    before, after = (float(peaks[day * 24 - 1, 0]) for day in (17, 20))
    assert after < before * 0.8


def test_after_a_bad_sample_no_promise_is_below_what_is_used_as_ever() -> None:
    recorded, schedule = hostile.fleet(["bad sample x4, day 20"], pods=10, days=32, interval_seconds=900)
    peaks = promised(recorded, schedule, 1.0)[1.0][:, 0]
    hours = np.arange(len(peaks)) / 24
    used = recorded.usage.sum(axis=0)[96 * 22 :].max()
    assert (peaks[hours >= 21.5] >= used).all()
