"""Whatever the wall clock does, the models go on learning, and what nobody watched is no history."""

from pathlib import Path

import numpy as np
import pytest

from agent.metric_cache.series import Usage
from agent.predict_server.checkpoint import CheckpointLog
from agent.predict_server.decay import Floats
from agent.predict_server.prediction import NodePrediction
from agent.predict_server.table import ModelTable
from shared.clock import ManualClock
from tests.support import certain
from tests.unit.agent.models import Life, entities, model_table, reclaimable_milli, train
from tests.unit.agent.pods import NOW, pod

CPU_HALF_LIFE = 43200.0
DAY = 86400.0
QUIET, BUSY = Usage(0.1, 1e8), Usage(3.0, 3e9)


def trained(*steps: tuple[Usage, float], table: ModelTable | None = None) -> ModelTable:
    table = table or model_table()
    for usage, time in steps:
        train(table, {"a": usage}, time)
    return table


def mean(table: ModelTable) -> Usage:
    return Usage(*(float(bank.moments.means[table.rows["a"]]) for bank in table.banks))


def first_observed(table: ModelTable) -> float:
    return float(table.first_observed[table.rows["a"]])


@pytest.mark.parametrize("ahead", [1.0, DAY, 60 * DAY, 100 * 365 * DAY])
def test_samples_count_in_full_after_a_clock_that_ran_ahead_is_set_right(ahead: float) -> None:
    table = trained(*((QUIET, NOW + ahead + 30 * step) for step in range(10)))
    trained(*((BUSY, NOW + 30 * step) for step in range(10)), table=table)
    assert mean(table).cpu_cores == pytest.approx((0.1 + 3.0) / 2, rel=0.01)
    assert mean(table).memory_bytes == pytest.approx((1e8 + 3e9) / 2, rel=0.01)
    assert table.cpu.histograms.percentiles(table.claim(["a"], NOW), _p95())[0, 0] >= 3.0


def test_history_keeps_its_length_when_the_clock_is_set_back() -> None:
    table = trained((QUIET, NOW + DAY), (QUIET, NOW + DAY + 30), (QUIET, NOW))
    assert NOW - first_observed(table) == pytest.approx(30)


def test_a_half_life_changed_after_the_clock_was_set_back_ruins_nothing() -> None:
    table = trained((QUIET, NOW + 100 * 365 * DAY))
    table.change_half_lives(cpu_seconds=60, memory_seconds=60, time=NOW)
    trained((BUSY, NOW), table=table)
    assert mean(table).cpu_cores == pytest.approx((0.1 + 3.0) / 2, rel=0.01)


def test_a_checkpoint_from_the_future_goes_on_learning_too(tmp_path: Path) -> None:
    log, ahead = CheckpointLog(tmp_path, "n"), trained((QUIET, NOW + 60 * DAY))
    log.trained(["a"], np.array([QUIET]), NOW + 60 * DAY)
    log.begin(ahead)
    content = certain(log.next(ahead, trained_until=0, states={}))
    log.write(content)
    found = certain(CheckpointLog(tmp_path, "n").restore(NOW))
    assert mean(trained((BUSY, NOW), table=found.table)).cpu_cores == pytest.approx((0.1 + 3.0) / 2, rel=0.01)


@pytest.mark.parametrize(("gap", "kept"), [(60.0, True), (CPU_HALF_LIFE, True), (CPU_HALF_LIFE + 1, False)])
def test_a_history_with_a_hole_longer_than_what_it_remembers_begins_anew(gap: float, kept: bool) -> None:
    table = trained((QUIET, NOW), (QUIET, NOW + gap))
    assert first_observed(table) == (NOW if kept else NOW + gap)


@pytest.mark.parametrize("how", ["the agent was away", "the clock leapt"])
def test_a_pod_nobody_watched_for_a_week_is_cold_and_n_sigma_lends_nothing_of_it(tmp_path: Path, how: str) -> None:
    clock, web = ManualClock(NOW), pod("web", age_seconds=30 * DAY)

    def predicted(training_steps: int) -> NodePrediction:
        """By a new process."""
        life = Life(tmp_path, clock, predictor="n-sigma-v2")
        for _ in range(training_steps):
            life.learn(entities(web=QUIET), [web], 3600)
        return life.predict(web)

    assert reclaimable_milli(predicted(26)) > 0
    if how == "the agent was away":
        clock.advance(7 * DAY)
    else:
        clock.jump(7 * DAY)
    assert predicted(0).requests.cold == web.request
    after = predicted(1)
    assert reclaimable_milli(after) == 0
    assert after.history_percent < 10


@pytest.mark.parametrize("leap", [3 * 3600.0, pytest.param(400 * DAY, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("trained_between", [False, True])
def test_a_clock_that_leaps_forward_makes_no_history(tmp_path: Path, leap: float, trained_between: bool) -> None:
    life, web = Life(tmp_path, cold_start_seconds=3600), pod("web", age_seconds=30 * DAY)

    def live(seconds: int) -> None:
        for _ in range(seconds // 30):
            life.learn(entities(web=QUIET), [web])

    live(90)
    life.clock.jump(leap)
    if trained_between:
        live(30)
    assert life.server.cold(web)
    young = life.predict(web)
    assert young.requests.cold == web.request
    assert young.history_percent < 5
    life.server.save()
    restarted = Life(tmp_path, life.clock, cold_start_seconds=3600)
    assert restarted.server.history("web") == life.server.history("web")
    live(3600)
    assert not life.server.cold(web)


def test_what_was_learnt_before_a_leap_forward_keeps_its_weight(tmp_path: Path) -> None:
    life = Life(tmp_path)
    for usage, leap in ((QUIET, 0.0), (QUIET, 60 * DAY), (BUSY, 0.0), (BUSY, 0.0)):
        life.clock.jump(leap)
        life.learn(entities(web=usage))
    found = certain(life.server.history("web"))
    assert found.mean.cpu_cores == pytest.approx((0.1 + 3.0) / 2, rel=0.01)


def test_without_a_cold_start_a_clock_set_back_leaves_an_answer(tmp_path: Path) -> None:
    life = Life(tmp_path, cold_start_seconds=0)
    for _ in range(3):
        life.learn(entities(web=QUIET))
    life.server.save()
    life.clock.jump(-3600)
    restarted = Life(tmp_path, life.clock, cold_start_seconds=0)
    for one in (life, restarted):
        assert one.predict().history_percent == 100


def _p95() -> Floats:
    return np.array([0.95])
