"""A policy is taken whole or not at all, and the last good one stays."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from agent.metric_cache.cache import MetricCache
from agent.predict_server import policy
from agent.predict_server.server import PredictServer
from agent.reporter import policy as report_policy
from agent.settings import AgentSettings
from shared.clock import ManualClock
from shared.errors import InvalidInput

BASE = policy.from_settings(AgentSettings())


def test_nothing_said_changes_nothing() -> None:
    assert policy.overridden(BASE, None) == policy.overridden(BASE, {}) == BASE


def test_every_field_of_the_spec_overrides_ours() -> None:
    changed = policy.overridden(
        BASE,
        {
            "predictor": "n-sigma-v1",
            "sigmaCPU": "2.5",
            "sigmaMemory": 3,
            "coldStartPeriodSeconds": 0,
            "resourceDiffThresholdPercent": 10,
            "reclaimRatioPercent": 80,
            "cpuHalfLifeSeconds": 60,
            "memoryHalfLifeSeconds": 120,
        },
    )
    assert changed == policy.Policy(
        predictor="n-sigma-v1",
        sigma_cpu=2.5,
        sigma_memory=3,
        cold_start_seconds=0,
        resource_diff_threshold_percent=10,
        reclaim_ratio_percent=80,
        cpu_half_life_seconds=60,
        memory_half_life_seconds=120,
    )


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"predictor": "crystal-ball"}, "predictor"),
        ({"predictor": 5}, "predictor"),
        ({"sigmaCPU": "many"}, "sigmaCPU"),
        ({"sigmaCPU": -1}, "sigmaCPU"),
        ({"sigmaMemory": "inf"}, "sigmaMemory"),
        ({"sigmaMemory": "nan"}, "sigmaMemory"),
        ({"coldStartPeriodSeconds": -1}, "coldStartPeriodSeconds"),
        ({"cpuHalfLifeSeconds": 0}, "cpuHalfLifeSeconds"),
        ({"reclaimRatioPercent": 101}, "reclaimRatioPercent"),
        ({"sigmaCPU": "1e308"}, "sigmaCPU"),
        ({"sigmaMemory": 10**400}, "sigmaMemory"),
        ({"coldStartPeriodSeconds": 10**400}, "coldStartPeriodSeconds"),
        ({"cpuHalfLifeSeconds": 10**400}, "cpuHalfLifeSeconds"),
        ({"memoryHalfLifeSeconds": 2**31}, "memoryHalfLifeSeconds"),
        ("a text", "predictPolicy"),
        ([], "predictPolicy"),
    ],
)
def test_a_bad_value_is_refused_and_named(raw: object, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        policy.overridden(BASE, raw)
    assert caught.value.field == field


def test_an_unknown_predictor_in_the_settings_is_refused() -> None:
    with pytest.raises(InvalidInput, match="n-sigma-v1"):
        policy.from_settings(AgentSettings(predictor="crystal-ball"))


def test_after_a_bad_policy_the_last_good_one_stays_and_the_problem_shows_until_it_is_mended(tmp_path: Path) -> None:
    server = PredictServer(
        AgentSettings(state_dir=str(tmp_path)), MetricCache(60), ManualClock(), registry=CollectorRegistry()
    )
    server.apply({"predictPolicy": {"sigmaCPU": 3}})
    server.apply({"predictPolicy": {"sigmaCPU": 4, "predictor": "crystal-ball"}})
    assert server.policy.sigma_cpu == 3
    assert "crystal-ball" in server.predict([], None).policy_problem
    server.apply(None)
    assert server.policy == BASE
    assert server.predict([], None).policy_problem == ""


def test_report_intervals_follow_the_spec_from_one_second_on() -> None:
    base = report_policy.from_settings(AgentSettings())
    changed = report_policy.overridden(base, {"reportIntervalSeconds": 1, "aggregateDurationSeconds": 2})
    assert (changed.intervals.report, changed.aggregate_seconds) == (1, 2)
    assert report_policy.overridden(base, None) == base


@pytest.mark.parametrize(
    "raw",
    [
        {"reportIntervalSeconds": 10**400},
        {"aggregateDurationSeconds": 2**31},
        {"reportIntervalSeconds": 0},
        {"aggregateDurationSeconds": -5},
        {"reportIntervalSeconds": "1m"},
        "x",
    ],
)
def test_a_bad_report_policy_is_refused(raw: object) -> None:
    with pytest.raises(InvalidInput):
        report_policy.overridden(report_policy.from_settings(AgentSettings()), raw)
