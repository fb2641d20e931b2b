"""The rules that explain other measurements do what is said of them."""

import msgspec
import numpy as np
import pytest

from agent.backtest import packing
from agent.backtest.recording import RecordedUsage
from agent.backtest.study import RecordedFleet
from agent.predict_server import policy
from agent.predict_server.decay import Floats
from agent.settings import AgentSettings
from tests.bench import other_rules
from tests.bench.other_rules import DAY_TICKS

HOUR_SECONDS = 3600.0
MONDAY = 1_760_313_600.0
POLICY = msgspec.structs.replace(policy.from_settings(AgentSettings()), cold_start_seconds=2 * HOUR_SECONDS)


def fleet(usage: Floats) -> RecordedFleet:
    """Pods of one core on one node."""
    recorded = RecordedUsage(usage, np.ones(len(usage)), MONDAY, 300.0)
    return RecordedFleet(recorded, packing.static(np.zeros(len(usage), np.intp), usage.shape[1]))


def noise(pods: int, days: int) -> Floats:
    return np.random.default_rng(2).uniform(0.0, 0.3, (pods, days * DAY_TICKS))


def test_a_window_forgets_what_is_older_than_a_day() -> None:
    usage = noise(3, days=3)
    usage[:, : DAY_TICKS // 2] = 0.9
    at = 2 * DAY_TICKS - 1
    judged = other_rules.windowed(fleet(usage), np.array([at]))
    last = usage[:, at + 1 - DAY_TICKS : at + 1]
    whole = last.sum(axis=0)
    assert judged.promised["n-sigma-v1"][0] == pytest.approx(whole.mean() + 5 * whole.std())
    by_pod = np.minimum(1.0, last.mean(axis=1) + 5 * last.std(axis=1)).sum()
    assert judged.promised["n-sigma-v2"][0] == pytest.approx(max(by_pod, whole.mean() + 5 * whole.std()))
    assert judged.promised["resource-central"][0] == pytest.approx(np.percentile(last, 99, axis=1).sum())
    assert judged.came[0] == pytest.approx(usage[:, at + 1 : at + 1 + DAY_TICKS].sum(axis=0).max())


def test_a_window_counts_a_pod_of_less_than_two_hours_with_its_request() -> None:
    judged = other_rules.windowed(fleet(noise(3, days=2)), np.array([10]))
    assert judged.promised["resource-central"].tolist() == [[3.0]]


def test_what_agents_did_before_counts_cold_pods_twice() -> None:
    judged = other_rules.before(fleet(noise(2, days=2)), 0, POLICY, np.array([10, 100]))
    cold, warm = judged.promised["n-sigma-v1"][:, 0]
    assert cold > 2.0 > warm


def test_by_koordinators_rule_no_pod_lends_less_than_nothing() -> None:
    usage = np.zeros((2, 2 * DAY_TICKS))
    usage[0, ::2] = usage[1, 1::2] = 1.0
    judged = other_rules.before(fleet(usage), 0, POLICY, np.array([DAY_TICKS - 1]))
    assert judged.promised["percentile"].tolist() == [[2.0]]
    assert judged.scores("percentile").savings_percent == 0
