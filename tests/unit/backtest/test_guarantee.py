"""What agents promise on usage that is hard to predict: no more breaks than the target and a fixed debt allow."""

import itertools

import numpy as np
import pytest

from agent.backtest import metrics, study
from agent.backtest.study import RecordedFleet, Trial
from agent.predict_server import policy
from agent.predict_server.debts import MOST_CREDIT, STEP
from agent.settings import AgentSettings
from tests.support import hostile

HORIZON_HOURS, TARGET_PERCENT, DAYS = 24, 1.0, 35
DEBT = (1 + MOST_CREDIT) * HORIZON_HOURS / STEP + HORIZON_HOURS + 1
SETTLED_HOURS, LONGEST_RUN_HOURS = 14 * 24, 36
HARD = [
    "sine, replicas",
    "heap at 85 %",
    "saw-tooth of 5 days",
    "leak x6 in 35 days",
    "leak with a restart each 10 days",
    "growth 3 % a day",
    "month end",
    "spike each 9 days",
    "step x3",
    "role change down and back",
    "bad sample x4, day 20",
    "bursts, one a day",
    "walks 0.2",
    "common walk 0.6",
]
OTHERS = sorted(set(hostile.SERIES) - set(HARD))


@pytest.mark.parametrize("names", [HARD, pytest.param(OTHERS, marks=pytest.mark.thorough)], ids=["hard", "others"])
def test_on_hostile_usage_no_more_promises_break_than_the_target_and_the_debt_allow(names: list[str]) -> None:
    recorded, schedule = hostile.fleet(names, pods=3, days=DAYS, interval_seconds=900.0)
    trial = Trial(0, ("peak-mix",), (TARGET_PERCENT,), (HORIZON_HOURS,), policy.from_settings(AgentSettings()))
    played = study.play(RecordedFleet(recorded, schedule), trial)
    ((_, promised),) = played.promised.items()
    known = ~np.isnan(played.came[HORIZON_HOURS]).any(axis=1)
    broken = metrics.violations(promised[known], played.came[HORIZON_HOURS][known])
    outcomes = np.arange(1, len(broken) + 1)[:, np.newaxis]
    assert (broken.cumsum(axis=0) <= TARGET_PERCENT / 100 * outcomes + DEBT).all()
    for name, node in zip(names, broken.T, strict=True):
        runs = [len(list(run)) for bad, run in itertools.groupby(node[SETTLED_HOURS:].tolist()) if bad]
        assert max(runs, default=0) <= LONGEST_RUN_HOURS, name
    assert broken[SETTLED_HOURS:].mean() <= 0.05
