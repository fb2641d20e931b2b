"""What constants are tried on is what agents would promise with them."""

import numpy as np
import pytest

from agent.backtest import packing, study
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.backtest.study import RecordedFleet, Trial
from agent.predict_server import policy
from agent.predict_server.peak_mix import Weights
from agent.settings import AgentSettings
from tests.bench import peak_mix_choice, recorded
from tests.bench.peak_mix_replay import Rehearsed, promised, rehearsed, shipped

DAYS = 20
TUESDAY = 1_760_400_000.0


def recording() -> tuple[RecordedUsage, PodSchedule]:
    """Pods that come and go on two nodes, which are surprised twice and then fall quiet for good."""
    rng = np.random.default_rng(3)
    limits = rng.choice([1.0, 2.0, 4.0], 16)
    ticks = DAYS * 24 * recorded.HOUR_TICKS
    usage = rng.gamma(1.0, 0.2, (16, ticks)) * limits[:, np.newaxis]
    usage[:, 13 * 24 * recorded.HOUR_TICKS :] *= 0.2
    for day in (9, 11):
        usage[:, day * 24 * recorded.HOUR_TICKS :][:, :4] += 0.7 * limits[:, np.newaxis]
    of = RecordedUsage(usage, limits, TUESDAY, 300.0).capped_and_filled()
    node = packing.first_fit(limits, 12, rng)
    return of, packing.churned(node, limits, ticks, mean_hours=200, ticks_per_hour=recorded.HOUR_TICKS, rng=rng)


@pytest.fixture(scope="module")
def replay() -> tuple[RecordedUsage, PodSchedule, Rehearsed]:
    of, schedule = recording()
    return of, schedule, rehearsed(of, schedule)


def test_a_trial_promises_what_a_backtest_of_agents_promises(
    replay: tuple[RecordedUsage, PodSchedule, Rehearsed],
) -> None:
    of, schedule, once = replay
    trial = Trial(0, ("peak-mix",), recorded.TARGET_PERCENTS, (24,), policy.from_settings(AgentSettings()))
    agents = study.play(RecordedFleet(of, schedule), trial)
    found = promised(once, shipped(), recorded.TARGET_PERCENTS)
    for promise, peaks in agents.promised.items():
        assert found[promise.target_percent or 0.0] == pytest.approx(peaks, rel=1e-3)
        assert found[promise.target_percent or 0.0][24 * 8 :] == pytest.approx(peaks[24 * 8 :], rel=1e-9)
    assert once.requested == pytest.approx(agents.requested)
    assert (found[1.0] < once.came).sum() > 10, "some promises break"


def test_the_constants_in_use_promise_what_the_code_promises(
    replay: tuple[RecordedUsage, PodSchedule, Rehearsed],
) -> None:
    _, _, once = replay
    in_use = dict(peak_mix_choice.IN_USE)
    held, step, power = (
        in_use.pop(name) for name in (peak_mix_choice.HELD, peak_mix_choice.STEP, peak_mix_choice.POWER)
    )
    by_script = promised(once, shipped(Weights(**in_use)), (1.0,), int(held), step, power)[1.0]
    assert np.array_equal(by_script, promised(once, shipped(), (1.0,))[1.0])
