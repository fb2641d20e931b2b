"""peak-mix as agents run it: it learns from what came, forgets by rule, and loses nothing by a restart."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import plugins, states
from agent.predict_server.calibrated import PeakMix
from agent.predict_server.decay import Floats
from agent.predict_server.models import Outcome, Parameters
from agent.predict_server.outcomes import Outcomes
from agent.predict_server.prediction import NodePrediction
from agent.predict_server.table import ModelTable
from agent.predict_server.truth import Truth
from agent.states_informer.pods import NodePod
from shared.clock import ManualClock
from shared.quantity import Resources
from tests.support import certain
from tests.support.properties import examples
from tests.unit.agent.models import Life, answer, entities, fleet, model_table, reclaimable_milli, situation, train
from tests.unit.agent.pods import NOW, pod

GIB = 2.0**30
HOUR, DAY = 3600.0, 86400.0
SYSTEM = Usage(0.25, GIB)
PODS = [pod("a", cpu="8", memory="8Gi", age_seconds=10**7), pod("b", cpu="4", memory="4Gi", age_seconds=10**7)]


SETTINGS: dict[str, object] = {"warm_up_samples": 1, "checkpoint_interval_seconds": 1e9}


class Hourly(Life):
    """Learns each quarter of an hour, in which the pods use `cores(time)`; an hour takes `hour_seconds`."""

    def __init__(
        self, directory: Path, clock: ManualClock | None = None, *, hour_seconds: int = 3600, **settings: object
    ) -> None:
        given = SETTINGS | settings | {"prediction_hour_seconds": hour_seconds}
        super().__init__(directory, clock or ManualClock(NOW - NOW % DAY), **given)
        self.pace = HOUR / hour_seconds

    def live(self, hours: float, cores: Callable[[float], float], pods: list[NodePod] = PODS) -> NodePrediction:
        """Asked once an hour, which is what promises are kept of."""
        self.predict(*pods)
        for quarter in range(1, int(4 * hours)):
            self.use(900 / self.pace, cores, pods)
            if quarter % 4 == 0:
                self.predict(*pods)
        return self.step(900 / self.pace, cores, pods)

    def step(self, seconds: float, cores: Callable[[float], float], pods: list[NodePod] = PODS) -> NodePrediction:
        self.use(seconds, cores, pods)
        return self.predict(*pods)

    def use(self, seconds: float, cores: Callable[[float], float], pods: list[NodePod]) -> None:
        used = cores((self.clock.now() + seconds) * self.pace)
        usages = {one.uid: Usage(used / len(pods), GIB) for one in pods}
        self.learn(entities(SYSTEM, **usages), pods, seconds)


def office(time: float) -> float:
    return 6.0 if 8 <= (time % DAY) / HOUR < 18 else 1.0


def peak_milli(prediction: NodePrediction, horizon: int = 0) -> int:
    return prediction.promises[horizon].peak.cpu_milli


def test_a_node_lends_more_after_its_first_day_and_a_stricter_target_lends_less(tmp_path: Path) -> None:
    lent = []
    for target in (0.1, 1.0, 5.0):
        life = Hourly(tmp_path / str(target), target_violation_percent=target)
        on_the_first_day = reclaimable_milli(life.live(2, lambda _: 2.0))
        found = life.live(34, lambda _: 2.0)
        assert found.target_violation_percent == target
        lent.append(reclaimable_milli(found))
        assert on_the_first_day < lent[-1]
    assert on_the_first_day > 0
    assert 0 < lent[0] < lent[1] < lent[2] < 10_000


def test_a_longer_horizon_is_never_promised_less(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    life.live(1, office)
    for hours in range(1, 26):
        found = life.live(1, office)
        assert [one.kept.horizon_seconds for one in found.promises] == [DAY, HOUR]
        assert peak_milli(found, 0) >= peak_milli(found, 1) > 0
        assert found.promises[1].kept.outcomes == hours
    assert found.promises[0].kept.outcomes == 2


def test_n_sigma_is_told_beside_it(tmp_path: Path) -> None:
    found = Hourly(tmp_path).live(10, office)
    assert found.prod is not None
    v1 = found.prod.mean.cpu_cores + 5 * found.prod.stdev.cpu_cores
    assert found.n_sigma["n-sigma-v1"].cpu_milli == pytest.approx(1000 * v1, abs=1)
    assert found.n_sigma["n-sigma-v2"].cpu_milli >= found.n_sigma["n-sigma-v1"].cpu_milli
    assert found.model == "peak-mix"


def test_what_a_load_used_is_taken_back_at_once_and_lent_again_in_the_two_weeks_after_it(tmp_path: Path) -> None:
    life = Hourly(tmp_path, hour_seconds=60)

    def lent_after(days: int) -> int:
        return reclaimable_milli([life.step(6 * 60, lambda _: 1.0) for _ in range(4 * days)][-1])

    calm = lent_after(2)
    assert reclaimable_milli(life.step(60, lambda _: 9.0)) < calm - 5000
    a_day_later, a_week_later, two_weeks_later = lent_after(1), lent_after(8), lent_after(7)
    assert a_day_later < a_week_later < (calm + a_day_later) / 2 < two_weeks_later, "it broke promises"
    assert two_weeks_later == pytest.approx(calm, rel=0.03), "but for what the surprise costs"


def test_in_shorter_hours_a_node_learns_the_same_sooner_and_times_that_are_shown_stay_the_clocks(
    tmp_path: Path,
) -> None:
    usual, quick = Hourly(tmp_path / "usual"), Hourly(tmp_path / "quick", hour_seconds=60)
    started = quick.clock.now()
    one, other = usual.live(40, office), quick.live(40, office)
    for promise, sooner in zip(one.promises, other.promises, strict=True):
        assert sooner.peak == pytest.approx(promise.peak, rel=1e-6)
        assert sooner.kept == promise.kept._replace(horizon_seconds=promise.kept.horizon_seconds / 60)
    assert other.n_sigma["n-sigma-v2"] == pytest.approx(one.n_sigma["n-sigma-v2"], rel=1e-3)
    assert other.requests == one.requests
    assert other.requests.cold == Resources(), "the cold start of a day took 24 minutes"
    assert other.history_percent == 100
    assert quick.clock.now() - started == 40 * 60
    assert other.time == quick.clock.now()
    assert other.prod is not None
    assert other.prod.first_observed == pytest.approx(started + 15)
    histograms = certain(quick.server.histograms("a"))
    assert abs(histograms["cpu"].reference_timestamp - started) < 2 * DAY


def test_a_clock_that_is_set_moves_shorter_hours_as_far(tmp_path: Path) -> None:
    life = Hourly(tmp_path, hour_seconds=60)
    before = life.live(36, lambda _: 2.0)
    life.clock.jump(-90.0)
    after = life.live(3, lambda _: 2.0)
    assert peak_milli(after) == pytest.approx(peak_milli(before), rel=0.1)
    assert all(b.kept.outcomes > a.kept.outcomes for a, b in zip(before.promises, after.promises, strict=True))


def test_what_was_learned_in_hours_of_another_length_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Hourly(tmp_path)
    assert life.live(3, office).promises[1].kept.outcomes
    life.server.save()
    other = Hourly(tmp_path, life.clock, hour_seconds=60)
    assert other.server.model_count == 0
    assert "made in hours of 3600 s, not 60 s" in caplog.text
    assert list(tmp_path.glob("*.bad-*"))


def step(model: PeakMix, table: ModelTable, hour: int, came: float, cores: float = 2.0) -> float:
    """An hour of a node with two pods that use so many cores each, and what came of the prediction a day ago."""
    time = NOW - NOW % DAY + HOUR * hour
    tick = entities(a=Usage(cores, GIB), b=Usage(cores, GIB))
    train(table, tick, time)
    model.update(list(tick), np.array(list(tick.values())), time)
    if hour >= 24:
        amounts = np.array([[came, 2 * GIB]])
        for horizon in (DAY, HOUR):
            model.observe([Outcome((series.PROD_PEAK,), time - horizon, horizon, amounts, amounts)])
    requests = [Usage(8.0, 8 * GIB), Usage(8.0, 8 * GIB)]
    return float(np.asarray(model.peak(situation(table, ["a", "b"], requests))["peak-mix"])[0, 0, 0])


def test_outcomes_above_what_was_expected_widen_the_margin_and_others_narrow_it() -> None:
    peaks = []
    for came in (2.0, 4.0, 8.0):
        model, table = PeakMix(Parameters()), model_table()
        for hour in range(24 * 6):
            peak = step(model, table, hour, came)
        peaks.append(peak)
    assert peaks[0] < peaks[1] < peaks[2]


def test_a_restart_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    whole, halved = Hourly(tmp_path / "whole"), Hourly(tmp_path / "halved")
    whole.live(30, office)
    halved.live(20, office)
    halved.server.save()
    again = Hourly(tmp_path / "halved", halved.clock)
    again.live(10, office)
    one, other = whole.predict(*PODS), again.predict(*PODS)
    assert [promise[:2] for promise in one.promises] == [promise[:2] for promise in other.promises]
    assert (one.shadows, one.withdrawn, one.recommended) == (other.shadows, other.withdrawn, other.recommended)
    assert one.reclaimable == other.reclaimable


def test_two_agents_that_were_fed_the_same_agree_to_the_bit(tmp_path: Path) -> None:
    one, other = (Hourly(tmp_path / name).live(10, office) for name in ("one", "other"))
    assert one == other


@pytest.mark.parametrize(
    "seconds", [6 * HOUR, -2 * HOUR, *(pytest.param(each, marks=pytest.mark.thorough) for each in (5.0, 3 * DAY))]
)
def test_a_clock_that_is_set_is_no_history_and_costs_none(tmp_path: Path, seconds: float) -> None:
    life = Hourly(tmp_path)
    before = life.live(36, lambda _: 2.0)
    life.clock.jump(seconds)
    after = life.live(3, lambda _: 2.0)
    assert peak_milli(after) == pytest.approx(peak_milli(before), rel=0.1)
    for earlier, later in zip(before.promises, after.promises, strict=True):
        assert later.kept.outcomes >= earlier.kept.outcomes + 2
        assert later.kept.violation_percents == (0.0, 0.0)


def test_training_as_slow_as_hours_are_short_leaves_promises_to_be_judged(tmp_path: Path) -> None:
    life = Hourly(tmp_path, hour_seconds=2, histogram_update_interval_seconds=2.0)
    found = [life.step(2.0, office) for _ in range(30)][-1]
    assert [one.kept.horizon_seconds for one in found.promises] == [48, 2]
    assert all(one.kept.outcomes for one in found.promises)


@pytest.mark.thorough
def test_a_node_that_changed_its_role_forgets_what_it_was(caplog: pytest.LogCaptureFixture) -> None:
    model, table = PeakMix(Parameters()), model_table()
    for hour in range(24 * 18):
        busy = step(model, table, hour, 9.0, cores=4.5)
    for hour in range(24 * 18, 24 * 27):
        quiet = step(model, table, hour, 9.0 if hour < 24 * 18 else 0.5, cores=0.25)
    assert "usage has changed permanently" in caplog.text
    assert quiet < busy / 2


def test_a_node_among_many_learns_as_it_does_alone_to_the_bit() -> None:
    draw = np.random.default_rng(3)
    nodes = [[f"{node}/pod-{number}" for number in range(draw.integers(1, 6))] for node in range(3)]
    requests = {uid: Usage(*draw.uniform(1, 8, 2)) for node in nodes for uid in node}
    models = {places: PeakMix(Parameters()) for places in ((0, 1, 2), (0,), (1,), (2,))}
    found: dict[tuple[int, ...], Floats] = {}
    table = model_table()
    for step in range(60):
        time = NOW + HOUR * step
        tick: dict[str, Usage] = {}
        for number, pods in enumerate(nodes):
            used = {uid: Usage(*draw.gamma(1, 1, 2)) for uid in pods}
            whole = entities(Usage(*draw.gamma(1, 0.1, 2)), **used)
            tick |= {key if key in used else f"{number}/{key}": usage for key, usage in whole.items()}
        train(table, tick, time)
        came = draw.gamma(3, 1, (3, 2))
        for places, model in models.items():
            keys = tuple(f"{place}/{series.PROD_PEAK}" for place in places)
            model.update(list(tick), np.array(list(tick.values())), time)
            if step > 2:
                realised = came[list(places)]
                model.observe([Outcome(keys, time - HOUR, HOUR, realised, realised)])
            found[places] = model.peak(fleet(table, [nodes[place] for place in places], requests))["peak-mix"]
    for place in range(3):
        assert found[(place,)][:, 0].tolist() == found[(0, 1, 2)][:, place].tolist()


def test_whoever_asks_about_ever_new_nodes_is_remembered_by_the_last_few() -> None:
    model, table, draw = PeakMix(Parameters()), model_table(), Usage(1.0, GIB)
    train(table, {f"{node}/pod": draw for node in range(50)}, NOW)

    def ask(node: int) -> list[str]:
        model.peak(fleet(table, [[f"{node}/pod"]], {f"{node}/pod": draw}))
        return [name for name in states.decode(model.state()) if " of " in name]

    for node in range(50):
        ask(0)
        kept = ask(node)
    assert kept == [f"{place} of {node}/{series.PROD_PEAK}" for place, node in enumerate((47, 48, 0, 49))]
    again = PeakMix(Parameters())
    again.restore(model.state())
    assert again.state() == model.state()


def asked(table: ModelTable, pods: list[str], requests: list[Usage], limits: list[Usage] | None = None) -> Floats:
    found = PeakMix(Parameters()).peak(situation(table, pods, requests, limits=limits))["peak-mix"]
    peak: Floats = np.asarray(found)[0, 0]
    return peak


def test_it_never_promises_more_than_pods_and_system_may_use_and_another_pod_never_lowers_it() -> None:
    draw = np.random.default_rng(5)
    for _ in range(50):
        keys = [f"p{number}" for number in range(draw.integers(1, 6))]
        limits = [Usage(*draw.uniform(1, 4, 2)) for _ in keys]
        table = model_table()
        for step in range(4):
            used = {key: Usage(*(draw.uniform(0, 1, 2) * most)) for key, most in zip(keys, limits, strict=True)}
            train(table, entities(SYSTEM, **used), NOW + HOUR * step)
        peak = asked(table, keys, limits, limits)
        assert (peak <= np.sum(limits, axis=0) + SYSTEM).all()
        more = asked(table, [*keys, "new"], [*limits, Usage(1.0, 1.0)], [*limits, Usage(1.0, 1.0)])
        assert (more >= peak).all()


samples = st.lists(st.tuples(st.floats(0.0, 4.0), st.floats(0.0, 4.0)), min_size=4, max_size=12)
targets = st.lists(st.floats(0.01, 50.0), min_size=2, max_size=4)


@examples(30)
@given(samples, targets, st.floats(0.0, 8.0))
def test_whatever_came_a_stricter_target_and_a_longer_horizon_never_lower_the_peak(
    usages: list[tuple[float, float]], percents: list[float], came: float
) -> None:
    """Hour by hour, with an outcome for every promise that is due."""
    models = {percent: PeakMix(Parameters(target_violation_percent=percent)) for percent in sorted(percents)}
    table, key = model_table(), (series.PROD_PEAK,)
    for number, (a, b) in enumerate(usages):
        time = NOW + HOUR * number
        tick = entities(SYSTEM, a=Usage(a, GIB * a), b=Usage(b, GIB * b))
        train(table, tick, time)
        peaks = []
        for model in models.values():
            model.update(list(tick), np.array(list(tick.values())), time)
            if number:
                amounts = np.array([[came, GIB * came]])
                model.observe([Outcome(key, time - HOUR, HOUR, amounts, amounts)])
            asked = dataclasses.replace(
                situation(table, ["a", "b"], [Usage(4.0, 4 * GIB)] * 2), horizons_seconds=(7 * DAY, DAY, HOUR)
            )
            peaks.append(np.asarray(model.peak(asked)["peak-mix"]))
        for week, day, hour in peaks:
            assert (week >= day).all()
            assert (day >= hour).all()
        for strict, loose in itertools.pairwise(peaks):
            assert (strict >= loose).all()


@pytest.mark.parametrize("cores", [0.0, *(pytest.param(cores, marks=pytest.mark.thorough) for cores in (0.013, 0.05))])
def test_an_idle_node_lends_all_that_pods_requested_but_the_margin(tmp_path: Path, cores: float) -> None:
    """From when its pods are a day old; what it promises does not depend on where buckets of a histogram begin."""

    def promised(used: float) -> int:
        return peak_milli(Hourly(tmp_path / str(used)).live(36, lambda _: used))

    idle, busier = promised(cores), promised(cores + 0.001)
    assert 0 <= busier - idle < 15
    assert idle < 0.2 * 12_000


def test_a_pod_that_was_never_seen_counts_with_a_part_of_its_request() -> None:
    table = model_table()
    train(table, entities(a=Usage(1.0, GIB)), NOW)
    one = asked(table, ["a"], [Usage(2.0, GIB)])
    two = asked(table, ["a", "new"], [Usage(2.0, GIB), Usage(4.0, GIB)])
    assert one[0] < two[0] < one[0] + 4.0


@pytest.mark.parametrize("state", [b"", b"?", b"\x80", b"\x81\xa30 x\x80", b"\x81\xa8cpu mean\xc0"])
def test_a_state_that_means_nothing_is_refused_whole(state: bytes) -> None:
    model = PeakMix(Parameters())
    with contextlib.suppress(KeyError, ValueError):
        model.restore(state)
    table = model_table()
    train(table, entities(a=Usage(1.0, GIB)), NOW)
    assert model.peak(situation(table, ["a"], [Usage(2.0, GIB)]))["peak-mix"].shape == (2, 1, 2)
    with pytest.raises(ValueError, match=r".*"):
        Truth("n", [HOUR]).restore(b"?")


def test_a_state_stays_small(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    life.live(3, office)
    life.server.save()
    loaded = plugins.load("peak-mix")(Parameters())
    assert isinstance(loaded, PeakMix)
    assert 0 < max(file.stat().st_size for file in tmp_path.iterdir()) < 250_000


def test_outcomes_keep_their_hours_when_the_clock_is_set() -> None:
    outcomes = Outcomes(1)
    for step in range(5 * 12):
        time = NOW + 300.0 * step
        outcomes.observe(np.zeros(1, np.intp), np.ones(1), np.zeros(1), time)
        outcomes.judge(time)
        if not outcomes.predicted_in(time):
            outcomes.predict(np.ones(1), np.ones(1), np.ones(1), time)
    judged = int(np.count_nonzero(~np.isnan(outcomes.residuals)))
    assert judged >= 4
    outcomes.set_clock(1000 * DAY)
    time = NOW + 300.0 * 60 + 1000 * DAY
    outcomes.observe(np.zeros(1, np.intp), np.ones(1), np.zeros(1), time)
    outcomes.judge(time)
    assert int(np.count_nonzero(~np.isnan(outcomes.residuals))) >= judged


def sent_down(quantile: str) -> dict[str, object]:
    tail = {"quantile": quantile, "meanExcess": "0.1"}
    horizons = [{"horizonSeconds": seconds, "cpu": tail, "memory": tail} for seconds in (86400, 3600)]
    return {"predictionPrior": {"nodes": 40, "pooledTime": "2026-01-31T00:00:00Z", "horizons": horizons}}


def test_a_node_without_outcomes_starts_from_the_fleets_prior_and_says_so(tmp_path: Path) -> None:
    plain, taught = Hourly(tmp_path / "plain"), Hourly(tmp_path / "taught")
    taught.server.apply(sent_down("0.3"))
    one, other = plain.live(2, lambda _: 2.0), taught.live(2, lambda _: 2.0)
    assert peak_milli(one) < peak_milli(other)
    assert one.prior is None
    assert other.prior is not None
    assert other.prior.nodes == 40
    terms = {term.name: term for term in answer(other).explanation.cpu.terms}
    assert (terms["priorQuantile"].value, terms["priorQuantile"].source) == (30, "prior of 40 nodes")


def test_a_prior_out_of_bounds_is_refused_and_the_last_good_one_stays_with_the_policy_applied(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    life.server.apply(sent_down("0.3"))
    life.server.apply(sent_down("3") | {"predictPolicy": {"targetViolationPercent": "5"}})
    found = life.live(2, lambda _: 2.0)
    assert found.prior is not None
    assert found.prior.by_horizon[86400][0].quantile == 0.3
    assert found.target_violation_percent == 5
    assert (
        "spec.predictionPrior: horizons[0].cpu.quantile: '3': expected a number from 0.0 to 0.3" in found.policy_problem
    )
    life.server.apply({})
    assert life.predict(*PODS).prior is None
    assert not life.predict(*PODS).policy_problem


def test_a_new_prior_costs_no_outcome_and_what_outcomes_show_is_told(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    before = life.live(30, office)
    life.server.apply(sent_down("0.3"))
    after = life.predict(*PODS)
    assert [one.kept for one in after.promises] == [one.kept for one in before.promises]
    assert [one.tails for one in after.promises] == [one.tails for one in before.promises]
    day, hour = after.promises
    assert day.tails is not None
    assert hour.tails is not None
    assert (24 * day.tails[0].days, 24 * hour.tails[0].days) == (day.kept.outcomes, hour.kept.outcomes)
