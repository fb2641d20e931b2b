"""Whatever is used, no more promises break than the target and a fixed debt allow; and what that costs is told."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import debts, peak_mix, states, surprises
from agent.predict_server.calibrated import PeakMix
from agent.predict_server.debts import MOST_CREDIT, STEP, Debts, violated
from agent.predict_server.models import OpenPromises, Outcome, Parameters
from agent.predict_server.peak_mix import NodeArrays, PodArrays
from agent.predict_server.prediction import target_note
from agent.predict_server.table import ModelTable
from agent.telemetry import node
from agent.telemetry.scrape import Scrape
from shared.api.nodemetric import SurpriseCause
from tests.support.properties import examples
from tests.unit.agent.models import answer, entities, model_table, situation, train
from tests.unit.agent.pods import NOW
from tests.unit.agent.test_calibrated import PODS, Hourly

GIB = 2.0**30
HOUR, DAY = 3600.0, 86400.0
NO_CAUSE = np.zeros(1, np.int64)


def most_broken(outcomes: int, target_percent: float, horizon_hours: int) -> float:
    """The theorem's bound, see `debts`."""
    return target_percent / 100 * outcomes + (1 + MOST_CREDIT) * horizon_hours / STEP + horizon_hours + 1


class Followed:
    """Promises made hour by hour; those with a debt below 1 may break, as an adversary wants."""

    def __init__(self, horizon_hours: int, target_percent: float) -> None:
        self.debts, self.target = Debts(horizon_hours), target_percent
        self.open: list[tuple[float, bool, bool]] = []  # when made, may break, is broken
        self.broken = self.outcomes = 0
        self.owed: list[float] = []  # by hour, when its promise was made
        self.runs: list[list[int]] = []  # the hours whose promises broke in a row

    def hour(self, number: int, wanted: list[bool]) -> None:
        time = NOW + HOUR * number
        self.open = [
            (made, fragile, broken or (fragile and now))
            for (made, fragile, broken), now in zip(self.open, wanted, strict=False)
        ]
        if self.open:
            flags = np.array([[broken] for _, _, broken in self.open])
            self.debts.watch(np.array([made for made, _, _ in self.open]), flags, time, NO_CAUSE)
        if len(self.open) == self.debts.horizon_hours:
            is_broken = self.open.pop(0)[2]
            self.broken += is_broken
            self.outcomes += 1
            self.debts.settle(self.target, np.array([is_broken]))
            self._run(number - self.debts.horizon_hours, is_broken)
        self.owed.append(self.debts.promises_of(0))
        self.open.append((time, bool(self.debts.debt[0] < 1) and not self.debts.ends_run(time)[0], False))

    def _run(self, hour: int, is_broken: bool) -> None:
        if is_broken and self.runs and self.runs[-1][-1] == hour - 1:
            self.runs[-1].append(hour)
        elif is_broken:
            self.runs.append([hour])


@examples(60)
@given(st.sampled_from([0.1, 1.0, 5.0, 50.0]), st.sampled_from([1, 5, 24]), st.floats(0, 1), st.integers(0, 2**32))
def test_whatever_breaks_no_more_promises_break_than_the_target_and_a_fixed_debt_allow(
    target_percent: float, horizon_hours: int, often: float, seed: int
) -> None:
    rng, followed = np.random.default_rng(seed), Followed(horizon_hours, target_percent)
    moods = rng.uniform(0, 2 * often, 40)  # quiet and hostile days
    for number in range(len(moods) * 24):
        wanted = (rng.uniform(0, 1, horizon_hours) < moods[number // 24]).tolist()
        followed.hour(number, wanted)
        assert followed.broken <= most_broken(followed.outcomes, target_percent, horizon_hours)


@examples(60)
@given(
    st.sampled_from([0.1, 1.0, 5.0]),
    st.sampled_from([24, 48]),
    st.lists(st.integers(1, 60), min_size=2, max_size=5),
)
def test_a_second_surprise_prolongs_a_run_by_no_more_than_half_a_day_on_a_node_with_a_debt(
    target_percent: float, horizon_hours: int, apart: list[int]
) -> None:
    followed, surprises = Followed(horizon_hours, target_percent), (horizon_hours + np.cumsum([0, *apart])).tolist()
    for number in range(surprises[-1] + 2 * horizon_hours):
        followed.hour(number, [number in surprises] * horizon_hours)
    for run in followed.runs:
        has_debt = followed.owed[run[0]] > target_percent / 100 * 1.5 * horizon_hours
        assert len(run) <= (1.5 * horizon_hours if has_debt else 2 * horizon_hours + 4)


def test_a_run_of_broken_promises_is_ended_once_where_an_earlier_surprise_is_not_paid_for() -> None:
    ended: dict[bool, list[int]] = {}
    for before in (False, True):
        followed = Followed(24, 1.0)
        for number in range(300):
            followed.hour(number, [number == 200 or (before and number == 100)] * 24)
            if followed.debts.ends_run(NOW + HOUR * number)[0]:
                ended[before] = [*ended.get(before, []), number]
    assert ended == {True: [211]}, "half a horizon of them is known to be broken by then"


@pytest.mark.parametrize("target_percent", [0.1, 1.0, 5.0])
def test_an_adversary_that_breaks_all_it_can_is_soon_stopped_and_stays_so(target_percent: float) -> None:
    followed, broken = Followed(24, target_percent), []
    for number in range(24 * 120):
        followed.hour(number, [True] * 24)
        broken.append(followed.broken)
    first, rest = broken[24 * 28], broken[-1] - broken[24 * 28]
    assert first <= (0.15 + target_percent / 100) * 24 * 28
    assert rest <= target_percent / 100 * 24 * 92


def test_a_broken_promise_counts_once_and_at_once_and_kept_ones_pay_for_it_slowly() -> None:
    owed, made = Debts(24), np.array([NOW])
    for hour in range(3):
        owed.watch(made, np.array([[True]]), NOW + HOUR * hour, NO_CAUSE)
    assert owed.debt[0] == pytest.approx(STEP / 24)
    assert owed.surprises_of(0) == 1
    assert owed.promises_of(0) == pytest.approx(1.0)
    for _ in range(99):
        owed.settle(1.0, np.array([False]))
    assert owed.debt[0] > 0
    owed.settle(1.0, np.array([False]))
    assert owed.debt[0] == pytest.approx(0.0, abs=1e-12)


def test_surprises_are_counted_not_the_promises_that_each_breaks() -> None:
    owed = Debts(24)
    for day in (0, 3, 10):
        for hour in range(5):  # usage that still rises
            time = NOW + DAY * day + HOUR * hour
            owed.watch(np.array([time - 1800]), np.array([[True]]), time, NO_CAUSE)
    assert owed.surprises_of(0) == 3
    owed.watch(np.array([NOW + 29 * DAY]), np.array([[False]]), NOW + 29 * DAY, NO_CAUSE)
    assert owed.surprises_of(0) == 2, "the first was four weeks ago"


def test_a_clock_that_is_set_moves_debts_as_far() -> None:
    owed, moved = Debts(24), Debts(24)
    for one in (owed, moved):
        one.watch(np.array([NOW]), np.array([[True]]), NOW + HOUR, NO_CAUSE)
    moved.set_clock(7 * HOUR)
    for one, later in ((owed, 0.0), (moved, 7 * HOUR)):
        one.watch(np.array([NOW + later]), np.array([[True]]), NOW + later + 2 * HOUR, NO_CAUSE)
    assert moved.debt == owed.debt
    assert moved.surprises_of(0) == owed.surprises_of(0) == 1
    assert moved.last == owed.last + 7 * HOUR
    for one in (owed, moved):
        one.debt, one.run = np.ones(1), np.full(1, 12.0)
    assert owed.ends_run(NOW)[0]
    owed.set_clock(7 * HOUR)
    assert [bool(owed.ends_run(NOW + HOUR * later)[0]) for later in (6, 7, 8)] == [False, True, False]


def test_nonsense_is_refused() -> None:
    kept = Debts(24).arrays()
    with pytest.raises(ValueError, match="debt must be"):
        Debts.of_arrays({**kept, "debt": np.zeros(2)})
    with pytest.raises(ValueError, match="debt must be"):
        Debts.of_arrays({**kept, "debt": np.array([math.nan])})
    with pytest.raises(ValueError, match="run of broken promises must be"):
        Debts.of_arrays({**kept, "run": np.array([math.inf])})


def surprised_debts(surprises: int) -> Debts:
    owed = Debts(24)
    for day in range(surprises):
        made = np.array([NOW + DAY * day + HOUR * hour for hour in range(24)])
        owed.watch(made, np.full((24, 1), True), NOW + DAY * (day + 1), NO_CAUSE)
    return owed


def test_a_first_surprise_costs_little_a_second_more_and_the_third_in_a_row_all_of_the_room() -> None:
    withheld = [float(surprised_debts(number).withheld()[0]) for number in range(4)]
    assert withheld == pytest.approx([0, 1 / 243, 32 / 243, 1])


def test_as_long_as_a_node_has_a_debt_it_remembers_its_peak_of_two_weeks_whatever_it_forgets() -> None:
    one, ten = np.ones(1), np.full(1, 10.0)
    pods = PodArrays(np.zeros(1, np.int64), ten, one, np.full(1, 30.0))
    found = peak_mix.forecast(pods, NodeArrays(one, one, unforgotten_peak=4 * one, mean=one, age_days=30 * one))
    without, owing = (found.peaks(np.zeros(1), np.full(1, share), one, ten) for share in (0.0, 1e-9))
    assert without <= 1
    assert owing > 3


def test_a_debt_of_a_state_that_kept_the_withheld_share_withholds_no_more_of_the_room() -> None:
    kept = {name: values for name, values in Debts(24, 4).arrays().items() if name != "debt"}
    shares = np.array([-0.003, 0.0, 0.05, 0.9])
    found = Debts.of_arrays({**kept, "share": shares, "surprises": np.zeros(4)})
    assert (found.withheld() <= shares + 1e-12).all()
    assert found.debt[2] == pytest.approx(STEP), "one surprise"
    assert found.withheld()[[0, 3]] == pytest.approx(shares[[0, 3]])


class Against:
    """An adversary that sees what is promised, hour by hour; its one pod has a limit of 8 cores, or none."""

    def __init__(self, *, limit: bool, capacity: float = 16.0) -> None:
        self.model, self.table = PeakMix(Parameters()), model_table()
        self.limits = [Usage(8.0, 8 * GIB)] if limit else None
        self.most = 8.0 if limit else capacity
        self.capacity = np.array([[capacity, 64 * GIB]])
        self.made: list[tuple[float, float, float]] = []  # time, promise, the most that was used
        self.broken: list[bool] = []

    def use(self, number: int, cores: float) -> float:
        """The next promise."""
        time, used = NOW - NOW % DAY + HOUR * number, min(cores, self.most)
        tick = entities(a=Usage(used, GIB))
        train(self.table, tick, time)
        self.model.update(list(tick), np.array(list(tick.values())), time)
        self.made = [(made, promised, max(reached, used)) for made, promised, reached in self.made]
        self._tell(time)
        asked = situation(self.table, ["a"], [Usage(8.0, 8 * GIB)], limits=self.limits)
        asked = dataclasses.replace(asked, horizons_seconds=(DAY,), capacity=self.capacity)
        promised = float(np.asarray(self.model.peak(asked)["peak-mix"])[0, 0, 0])
        self.made.append((time, promised, 0.0))
        return promised

    def breakable(self) -> int:
        return sum(reached <= promised < self.most for _, promised, reached in self.made)

    def _tell(self, time: float) -> None:
        def amounts(values: list[float]) -> list[list[list[float]]]:
            return [[[value, 2 * GIB]] for value in values]

        if self.made:
            times, promised, reached = (np.array(column) for column in zip(*self.made, strict=True))
            shown = amounts(promised.tolist()), amounts(reached.tolist())
            known = OpenPromises((series.PROD_PEAK,), DAY, times, np.array(shown[0]), np.array(shown[1]), time)
            self.model.watch([known])
        if self.made and self.made[0][0] <= time - DAY:
            made, owed, came = self.made.pop(0)
            pair = np.array(amounts([owed, came]))
            self.model.observe([Outcome((series.PROD_PEAK,), made, DAY, pair[0], pair[1])])
            self.broken.append(bool(violated(np.array(owed), np.array(came))))


ADVERSARIES: dict[str, Callable[[int, Against], float]] = {
    "just above the least promise": lambda hour, of: min(promised for _, promised, _ in of.made) * 1.001,
    "just above all promises, once a day": lambda hour, of: (
        max(promised for _, promised, _ in of.made) * 1.001 if hour % 24 == 0 else 0.1
    ),
    "as much as it can, when it breaks most": lambda hour, of: of.most if of.breakable() >= 23 else 0.1,
    "just above all promises, and again within a day": lambda hour, of: (
        max(promised for _, promised, _ in of.made) * 1.001 if hour % 400 in (0, 18) else 0.1
    ),
    "quiet until it is trusted": lambda hour, of: of.most if hour % 500 == 499 else 0.2,
}


@pytest.mark.parametrize("limit", [True, False])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_an_adversary_that_sees_the_promise_breaks_no_more_than_the_target_and_the_debt(name: str, limit: bool) -> None:
    of = Against(limit=limit)
    of.use(0, 0.5)
    for hour in range(1, 24 * 40):
        of.use(hour, ADVERSARIES[name](hour, of))
        assert sum(of.broken) <= most_broken(len(of.broken), 1.0, 24)
    later = of.broken[24 * 14 :]
    assert max((len(list(run)) for broken, run in itertools.groupby(later) if broken), default=0) <= 36
    assert sum(of.broken[24 * 26 :]) <= 48, "two surprises in two weeks"


@pytest.mark.parametrize(("target_percent", "credit"), [(0.1, 0.0003), (1.0, 0.003), (5.0, 0.015), (50.0, MOST_CREDIT)])
def test_a_node_without_surprises_runs_up_a_credit_that_is_small_beside_its_target(
    target_percent: float, credit: float
) -> None:
    debts = Debts(24)
    for _ in range(24 * 365):
        debts.settle(target_percent, np.array([False]))
    assert debts.debt[0] == pytest.approx(-credit)


def test_from_a_debt_of_one_on_a_pod_without_a_limit_is_promised_all_that_the_node_has() -> None:
    of = Against(limit=False)
    promised = of.use(0, 1.0)
    for hour in range(1, 24 * 30):
        promised = of.use(hour, promised * 1.001)
        if promised == of.most:
            return
    pytest.fail(f"{promised} cores are promised after so many surprises")


def surprised(life: Hourly, *, hours: int = 1) -> None:
    life.live(60, lambda _: 1.0)
    life.live(hours, lambda _: 5.0)


def test_a_surprise_is_told_within_the_hour_with_what_it_costs_and_until_when(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    surprised(life)
    found = life.predict(*PODS)
    day = found.promises[0]
    assert day.debts is not None
    cpu, memory = day.debts
    assert (cpu.surprises, memory.surprises) == (1, 0)
    assert cpu.promises >= 23, "all that were open, less a credit"
    assert 0 < cpu.withheld < 12
    assert cpu.seconds == pytest.approx(cpu.promises * 100 * HOUR)
    assert found.time - HOUR <= cpu.last <= found.time
    assert cpu.cause is SurpriseCause.CORRELATED
    terms = {term.name: term for term in answer(found).explanation.cpu.terms}
    told = terms["withheldForSurprises"]
    assert told.value == pytest.approx(1000 * cpu.withheld, abs=1)
    assert told.unit == "milli"
    assert "1 surprises in 28 days, correlated; paid by 20" in told.source
    metrics = {metric.name: metric.samples for metric in node.families(Scrape({}, [], found, None, 0, 0, 0))}
    told_of = {"resource": "cpu", "horizon_seconds": "86400", "cause": "correlated"}
    days = [one for one in metrics["headroom_agent_prediction_surprises"] if one.labels["horizon_seconds"] == "86400"]
    assert [(one.labels, one.value) for one in days] == [(told_of, 1)], "memory had none"


def test_a_restart_costs_no_debt_and_a_gap_pays_none(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    surprised(life)
    before = life.predict(*PODS).promises[0].debts
    life.server.save()
    life.clock.advance(5 * HOUR)
    after = Hourly(tmp_path, life.clock).live(1, lambda _: 1.0).promises[0].debts
    assert before is not None
    assert after is not None
    assert after[0].promises == pytest.approx(before[0].promises)
    assert after[0].surprises == before[0].surprises


def restored(state: bytes) -> PeakMix:
    model = PeakMix(Parameters())
    model.restore(state)
    return model


def test_a_state_from_before_there_were_debts_starts_without_any_and_a_newer_one_is_refused() -> None:
    of = Against(limit=True)
    for hour in range(30):
        of.use(hour, 1.0 + hour % 3)
    parts = states.decode(of.model.state())
    old = {name: arrays for name, arrays in parts.items() if name != "version" and " debts " not in name}
    assert restored(states.encode(old)).debts(series.PROD_PEAK)[DAY][0].promises == 0
    without_runs = {
        name: {field: one for field, one in arrays.items() if field not in ("run", "ended")}
        for name, arrays in parts.items()
    }
    assert restored(states.encode(without_runs)).debts(series.PROD_PEAK)[DAY] == of.model.debts(series.PROD_PEAK)[DAY]
    same = restored(states.encode(parts))
    assert same.state() == of.model.state()
    with pytest.raises(ValueError, match="version 4"):
        restored(states.encode({**parts, "version": {"number": np.array([4])}}))


@pytest.mark.parametrize(("percent", "days"), [(0.1, 1000), (1.0, 100), (5.0, None)])
def test_it_says_itself_what_a_target_cannot_mean_in_a_month(percent: float, days: int | None) -> None:
    note = target_note(DAY, percent, 28)
    assert note == "" if days is None else f"allowed in {days} days" in note


def test_the_tolerance_is_of_rounding_alone() -> None:
    assert not violated(np.array(1.0), np.array(1.0 + debts.VIOLATION_TOLERANCE / 2))
    assert violated(np.array(1.0), np.array(1.0 + 1e-6))


def table_of(days: list[float]) -> ModelTable:
    table = model_table()
    for day, used in enumerate(days):
        train(table, entities(a=Usage(used / 2, GIB), b=Usage(used / 2, GIB)), NOW - NOW % DAY + DAY * day)
    return table


@pytest.mark.parametrize(
    ("days", "together", "cause"),
    [
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8], 1.0, SurpriseCause.GROWING),
        ([1.0, 0.9, 1.1, 1.0, 1.05, 0.9, 1.0, 1.1, 1.0], 1.0, SurpriseCause.CORRELATED),
        ([1.0, 0.9, 1.1, 1.0, 1.05, 0.9, 1.0, 1.1, 1.0], 0.4, SurpriseCause.BURSTING),
        ([1.0] * 9, 0.4, SurpriseCause.BURSTING),
    ],
)
def test_why_a_promise_breaks_is_told_from_what_the_node_did(
    days: list[float], together: float, cause: SurpriseCause
) -> None:
    asked = situation(table_of(days), ["a", "b"], [Usage(1, GIB)] * 2)
    found = surprises.causes(asked.whole.daily_maxima(), [np.array([together])] * 2)
    assert surprises.CAUSES[found[0, 0]] is cause
