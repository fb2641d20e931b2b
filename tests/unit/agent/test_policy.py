"""A policy is taken whole or not at all, and the last good one stays."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Metric
from agent.predict_server import policy
from agent.predict_server.server import PredictServer
from agent.reporter import policy as report_policy
from agent.settings import AgentSettings
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.settings import load

BASE = policy.from_settings(AgentSettings())


def test_unless_told_otherwise_the_model_is_peak_mix_at_one_percent_and_n_is_5() -> None:
    parameters = BASE.parameters
    assert (BASE.predictor, BASE.target_violation_percent) == ("peak-mix", 1.0)
    assert parameters.sigma.tolist() == [5, 5]
    assert parameters.percentiles.tolist() == [0.95, 0.98]
    assert parameters.safety_margin_percent is None
    assert parameters.borg_ratio == 1.1
    assert BASE.training_aggregation is Aggregation.P90
    assert BASE.cold_start_seconds == 86400
    assert (BASE.cpu_half_life_seconds, BASE.memory_half_life_seconds) == (43200, 86400)


def test_nothing_said_changes_nothing() -> None:
    assert policy.overridden(BASE, None) == policy.overridden(BASE, {}) == BASE


def test_every_field_of_the_spec_overrides_ours() -> None:
    changed = policy.overridden(
        BASE,
        {
            "predictor": "max(n-sigma-v2, percentile)",
            "targetViolationPercent": "0.1",
            "horizonSeconds": 14400,
            "cpuPercentile": 99,
            "memoryPercentile": 100,
            "safetyMarginPercent": 20,
            "borgRatio": "1.25",
            "trainingInput": "max",
            "warmUpSamples": 12,
            "sigmaCPU": "2.5",
            "sigmaMemory": 3,
            "sigmaCapPods": True,
            "coldStartPeriodSeconds": 0,
            "resourceDiffThresholdPercent": 10,
            "reclaimRatioPercent": 80,
            "cpuHalfLifeSeconds": 60,
            "memoryHalfLifeSeconds": 120,
        },
    )
    assert changed == policy.PredictionPolicy(
        predictor="max(n-sigma-v2, percentile)",
        target_violation_percent=0.1,
        horizon_seconds=14400,
        cpu_percentile=99,
        memory_percentile=100,
        safety_margin_percent=20,
        borg_ratio=1.25,
        training_input="max",
        warm_up_samples=12,
        sigma_cpu=2.5,
        sigma_memory=3,
        sigma_cap_pods=True,
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
        ({"predictor": "max(n-sigma-v1,crystal-ball)"}, "predictor"),
        ({"predictor": "max(max(n-sigma-v1),percentile)"}, "predictor"),
        ({"predictor": ""}, "predictor"),
        ({"sigmaCPU": "1_0"}, "sigmaCPU"),
        ({"sigmaCPU": " 5"}, "sigmaCPU"),
        ({"cpuPercentile": 101}, "cpuPercentile"),
        ({"memoryPercentile": -1}, "memoryPercentile"),
        ({"safetyMarginPercent": -1}, "safetyMarginPercent"),
        ({"borgRatio": "0.9"}, "borgRatio"),
        ({"borgRatio": "nan"}, "borgRatio"),
        ({"trainingInput": "p50"}, "trainingInput"),
        ({"warmUpSamples": -1}, "warmUpSamples"),
        ({"sigmaCPU": "many"}, "sigmaCPU"),
        ({"sigmaCPU": -1}, "sigmaCPU"),
        ({"sigmaMemory": "inf"}, "sigmaMemory"),
        ({"sigmaMemory": "nan"}, "sigmaMemory"),
        ({"coldStartPeriodSeconds": -1}, "coldStartPeriodSeconds"),
        ({"targetViolationPercent": 0}, "targetViolationPercent"),
        ({"targetViolationPercent": "0.001"}, "targetViolationPercent"),
        ({"targetViolationPercent": 51}, "targetViolationPercent"),
        ({"horizonSeconds": 60}, "horizonSeconds"),
        ({"horizonSeconds": 604801}, "horizonSeconds"),
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
    changed = report_policy.overridden(base, {"reportIntervalSeconds": 1, "aggregateDurationSeconds": 61})
    assert (changed.intervals.report, changed.aggregate_seconds) == (1, 61)
    assert report_policy.overridden(base, {"aggregateDurationSeconds": 1}).aggregate_seconds == 60
    assert report_policy.overridden(base, None) == base
    patient = replace(report_policy.from_settings(AgentSettings()), shortest_interval_seconds=30)
    assert report_policy.overridden(patient, {"reportIntervalSeconds": 1}).intervals.report == 30


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--collect-interval", "6s"),  # an older sample is not what is used now
        ("--histogram-update-interval", "inf"),
        ("--histogram-update-interval", "301"),
        ("--kubelet-poll-interval", "61"),
        ("--reporting-interval", "inf"),
        ("--check-prediction-interval", "1e12"),
        ("--force-update-interval", "inf"),
        ("--checkpoint-interval", "1e12"),
        ("--model-expiration", "inf"),
        ("--workload-expiration", "inf"),
        ("--resource-diff-threshold-percent", "inf"),
        ("--cpu-percentile", "0.95"),  # a ratio where a percentage is meant
        ("--memory-percentile", "0.98"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_their_flag(flag: str, value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load(AgentSettings, program="agent", description="", argv=[flag, value], environment={})
    assert refused.value.source == flag


def test_windows_and_memory_follow_the_spec() -> None:
    base = report_policy.from_settings(AgentSettings())
    assert (base.durations_seconds, base.memory) == ((300, 600, 1800), Metric.MEMORY)
    changed = report_policy.overridden(
        base,
        {
            "nodeAggregatePolicy": {"durations": ["1m", "1h30m0s", "168h"]},
            "nodeMemoryCollectPolicy": "usageWithHotPageCache",
        },
    )
    assert changed.durations_seconds == (60, 5400, 604800)
    assert changed.memory is Metric.MEMORY_WITH_HOT_PAGE_CACHE
    assert report_policy.overridden(base, {"nodeAggregatePolicy": {}}) == base
    assert report_policy.overridden(base, {"nodeAggregatePolicy": {"durations": []}}).durations_seconds == ()


@pytest.mark.parametrize(
    "raw",
    [
        {"reportIntervalSeconds": 10**400},
        {"reportIntervalSeconds": 3601},
        {"aggregateDurationSeconds": 604801},
        {"reportIntervalSeconds": 0},
        {"aggregateDurationSeconds": -5},
        {"reportIntervalSeconds": "1m"},
        {"nodeAggregatePolicy": {"durations": ["soon"]}},
        {"nodeAggregatePolicy": {"durations": ["0s"]}},
        {"nodeAggregatePolicy": {"durations": ["-5m"]}},
        {"nodeAggregatePolicy": {"durations": ["169h"]}},
        {"nodeAggregatePolicy": {"durations": ["1m"] * 11}},
        {"nodeMemoryCollectPolicy": "usageWithLuck"},
        "x",
    ],
)
def test_a_bad_report_policy_is_refused(raw: object) -> None:
    with pytest.raises(InvalidInput):
        report_policy.overridden(report_policy.from_settings(AgentSettings()), raw)
