"""A second evaluator, which shares no code with the first one, and what a promise must not know: the future."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from agent.backtest import metrics, packing, study
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.backtest.study import Played, RecordedFleet, Trial
from agent.predict_server import policy
from agent.predict_server.decay import Floats
from agent.settings import AgentSettings
from tests.support import hostile

TICK_SECONDS, HOUR_TICKS, HORIZON_HOURS = 900.0, 4, 24
DAYS, PODS = 12, 3
NAMES = ["common walk 0.2", "steps up each five days", "bursts, one a day", "Pareto 1.5"]
MODELS = ("peak-mix", "max(n-sigma-v2,resource-central)")


def recording() -> tuple[RecordedUsage, PodSchedule]:
    """Pods that come and go on nodes whose usage is hard to predict."""
    recorded, _ = hostile.fleet(NAMES, pods=PODS, days=DAYS, interval_seconds=TICK_SECONDS)
    node = np.repeat(np.arange(len(NAMES)), PODS)
    rng = np.random.default_rng(4)
    sizes = recorded.limits
    churned = packing.churned(node, sizes, recorded.ticks, mean_hours=60, ticks_per_hour=HOUR_TICKS, rng=rng)
    return recorded, churned


def played(recorded: RecordedUsage, schedule: PodSchedule) -> Played:
    trial = Trial(0, MODELS, (1.0,), (HORIZON_HOURS,), policy.from_settings(AgentSettings()))
    return study.play(RecordedFleet(recorded, schedule), trial)


@pytest.fixture(scope="module")
def whole() -> tuple[RecordedUsage, PodSchedule, Played]:
    recorded, schedule = recording()
    return recorded, schedule, played(recorded, schedule)


def came(recorded: RecordedUsage, schedule: PodSchedule, tick: int, node: int) -> float | None:
    """By hand: the most that the pods of that tick used together within the horizon; None where that is not known."""
    ahead = range(tick + 1, tick + 1 + HORIZON_HOURS * HOUR_TICKS)
    if ahead[-1] >= recorded.ticks:
        return None
    columns = (schedule.node, schedule.series, schedule.first, schedule.end)
    pods = [pod for pod in zip(*(each.tolist() for each in columns), strict=True) if pod[0] == node]
    present = [(series, end) for _, series, first, end in pods if first <= tick < end]
    sums = [sum(recorded.usage[series, later] for series, end in present if later < end) for later in ahead]
    return float(max(sums))


@pytest.mark.parametrize("model", MODELS)
def test_violations_and_savings_are_what_counting_by_hand_says(
    whole: tuple[RecordedUsage, PodSchedule, Played], model: str
) -> None:
    recorded, schedule, found = whole
    (promised,) = (peaks for promise, peaks in found.promised.items() if promise.model == model)
    broken = outcomes = 0
    kept_back = requested = 0.0
    for row, tick in enumerate(range(HOUR_TICKS - 1, recorded.ticks, HOUR_TICKS)):
        for node in range(len(NAMES)):
            peak = came(recorded, schedule, tick, node)
            if row < 7 * 24 or peak is None:
                continue
            owed = min(float(promised[row, node]), float(PODS))
            outcomes, broken = outcomes + 1, broken + (peak > owed * (1 + 1e-9))
            kept_back, requested = kept_back + owed, requested + PODS
    ours = metrics.scores(promised[7 * 24 :], found.came[HORIZON_HOURS][7 * 24 :], found.requested[7 * 24 :])
    assert ours.predictions == outcomes
    assert ours.violation_percent == pytest.approx(100 * broken / outcomes)
    assert ours.savings_percent == pytest.approx(100 * (1 - kept_back / requested))
    assert 0 < broken < outcomes


def shuffled(future: Floats) -> Floats:
    return np.random.default_rng(0).permuted(future, axis=1)


@pytest.mark.parametrize(
    "changed",
    [shuffled, np.zeros_like, np.ones_like, pytest.param(lambda future: future[:, :HOUR_TICKS], id="truncated")],
)
def test_the_future_changes_no_promise(
    whole: tuple[RecordedUsage, PodSchedule, Played], changed: Callable[[Floats], Floats]
) -> None:
    recorded, schedule, before = whole
    now = 8 * 24 * HOUR_TICKS
    usage = np.concatenate([recorded.usage[:, :now], changed(recorded.usage[:, now:])], axis=1)
    other = replace(recorded, usage=usage)
    still = np.flatnonzero(schedule.first < other.ticks)
    end = np.minimum(schedule.end[still], other.ticks)
    first, series = schedule.first[still], schedule.series[still]
    shorter = PodSchedule(schedule.node[still], series, first, end, schedule.nodes)
    after = played(other, shorter)
    hours = now // HOUR_TICKS
    for promise, peaks in before.promised.items():
        assert np.array_equal(after.promised[promise][:hours], peaks[:hours])
