"""What constants are tried on is what agents would promise with them."""

import dataclasses

import numpy as np
import pytest

from agent.backtest import packing
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server.peak_mix import HELD_HOURS, WEIGHTS, Weights
from tests.bench import peak_mix_choice, peak_mix_ideas, peak_mix_withdrawals, recorded
from tests.bench.peak_mix_trials import Rehearsed, promised, rehearsed, shipped

DAYS = 20
TUESDAY = 1_760_400_000.0
OTHERS = dataclasses.replace(WEIGHTS, base=0.8, young_peak=0.9, least_spread=0.3)


def recording() -> tuple[RecordedUsage, PodSchedule]:
    """Pods that come and go on three nodes, the first of which falls quiet for good."""
    rng = np.random.default_rng(3)
    limits = rng.choice([1.0, 2.0, 4.0], 16)
    ticks = DAYS * 24 * recorded.HOUR_TICKS
    usage = rng.gamma(1.0, 0.2, (16, ticks)) * limits[:, np.newaxis]
    usage[:, 13 * 24 * recorded.HOUR_TICKS :] *= 0.2
    of = RecordedUsage(usage, limits, TUESDAY, 300.0).capped_and_filled()
    node = packing.first_fit(limits, 12, rng)
    return of, packing.churned(node, limits, ticks, mean_hours=200, ticks_per_hour=recorded.HOUR_TICKS, rng=rng)


@pytest.fixture(scope="module")
def replay() -> tuple[RecordedUsage, PodSchedule, Rehearsed]:
    of, schedule = recording()
    return of, schedule, rehearsed(of, schedule)


@pytest.mark.parametrize(
    ("weights", "held_hours"), [(WEIGHTS, HELD_HOURS), pytest.param(OTHERS, 3, marks=pytest.mark.thorough)]
)
def test_a_trial_promises_what_a_replay_of_agents_promises(
    replay: tuple[RecordedUsage, PodSchedule, Rehearsed], weights: Weights, held_hours: int
) -> None:
    of, schedule, once = replay
    agents = recorded.replayed(of, schedule, weights, held_hours=held_hours)
    found = promised(once, shipped(weights), recorded.TARGET_PERCENTS, held_hours)
    for target, peaks in agents.promised.items():
        assert found[target] == pytest.approx(peaks, rel=1e-12)
    assert once.requested == pytest.approx(agents.requested)


def test_the_constants_in_use_promise_what_the_code_promises(
    replay: tuple[RecordedUsage, PodSchedule, Rehearsed],
) -> None:
    _, _, once = replay
    in_use = dict(peak_mix_choice.IN_USE)
    held = int(in_use.pop(peak_mix_choice.HELD))
    by_script = promised(once, shipped(Weights(**in_use)), (1.0,), held)[1.0]
    assert np.array_equal(by_script, promised(once, shipped(), (1.0,))[1.0])


@pytest.mark.parametrize("name", [name for name in peak_mix_ideas.IDEAS if name.startswith("arrivals")])
def test_room_for_pods_that_are_to_come_never_lends_more_than_the_same_margin_does_without(
    replay: tuple[RecordedUsage, PodSchedule, Rehearsed], name: str
) -> None:
    _, _, once = replay
    hour = once.hours[-1]
    nodes = hour.nodes(np.full(once.requested.shape[1], -np.inf))
    assert (peak_mix_ideas.IDEAS[name](hour, nodes).base >= shipped()(hour, nodes).base).all()


def test_hindsight_breaks_one_promise_in_a_hundred() -> None:
    came = np.random.default_rng(1).uniform(0.5, 1.5, (200, 10))
    scaled = np.full(came.shape, 3.0) * peak_mix_ideas.hindsight(np.full(came.shape, 3.0), came)
    assert (came > scaled).mean() == pytest.approx(0.01, abs=0.001)


def test_a_peak_that_is_held_is_promised_as_agents_hold_it(
    replay: tuple[RecordedUsage, PodSchedule, Rehearsed],
) -> None:
    _, _, once = replay
    at_once, for_five_hours = (promised(once, shipped(), (1.0,), hours)[1.0] for hours in (1, 5))
    assert peak_mix_withdrawals.held(at_once, 5, once.requested) == pytest.approx(for_five_hours)


def test_what_is_taken_back_is_told_by_its_reason(replay: tuple[RecordedUsage, PodSchedule, Rehearsed]) -> None:
    _, _, once = replay
    falling = np.linspace(2.0, 1.0, len(once.hours))[:, np.newaxis] * once.requested
    assert peak_mix_withdrawals.reasons(once._replace(requested=falling), falling / 2, 0).requests_fell == 100
    lends_all_but_the_record = np.array([hour.daily.max(axis=1) for hour in once.hours])
    steady = once._replace(requested=np.full(once.requested.shape, once.requested.max()))
    assert peak_mix_withdrawals.reasons(steady, lends_all_but_the_record, 0).used_more_than_ever == pytest.approx(100)
