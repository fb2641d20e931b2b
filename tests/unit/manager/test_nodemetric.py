"""The NodeMetric's spec and the steps of its life."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.nodemetric import lifecycle, spec
from shared.api.colocation import DEFAULTS, NodePredictPolicy, NodeStrategy
from shared.api.nodemetric_spec import (
    MetricCollectPolicy,
    NodeMetricSpec,
    PredictionPrior,
    PredictPolicy,
    ResourceThresholds,
)
from tests.unit.manager.objects import enabled

OFF = NodeStrategy(DEFAULTS, enabled=False)
OLD = NodeMetricSpec(metric_collect_policy=MetricCollectPolicy(report_interval_seconds=20))


def test_the_policy_in_effect_is_delivered() -> None:
    wanted = spec.desired(
        enabled(metric_report_interval_seconds=30, node_predict_policy=NodePredictPolicy(predictor="n-sigma-v2")),
        settled=True,
        old=OLD,
    )
    assert wanted.metric_collect_policy is not None
    assert wanted.metric_collect_policy.report_interval_seconds == 30
    assert wanted.predict_policy == PredictPolicy(predictor="n-sigma-v2")
    assert wanted.mid_policy is not None
    assert wanted.mid_policy.mid_formula == "seed"


def test_every_field_of_the_predict_policy_is_delivered() -> None:
    said = {
        "resourceDiffThresholdPercent": 10,
        "coldStartPeriodSeconds": 60,
        "predictor": "n-sigma-v1",
        "sigmaCPU": "2.5",
        "sigmaMemory": 3,
        "cpuPercentile": 90,
        "memoryPercentile": 99,
        "safetyMarginPercent": 5,
        "reclaimRatioPercent": 80,
        "cpuHalfLifeSeconds": 3600,
        "memoryHalfLifeSeconds": 7200,
    }
    wanted = spec.desired(enabled(node_predict_policy=msgspec.convert(said, NodePredictPolicy)), settled=True, old=None)
    assert msgspec.to_builtins(wanted)["predictPolicy"] == said


def test_where_colocation_is_off_nothing_but_collection_is_asked_for() -> None:
    wanted = spec.desired(OFF, settled=True, old=OLD)
    assert wanted == NodeMetricSpec(metric_collect_policy=wanted.metric_collect_policy)


@pytest.mark.parametrize(("old", "kept"), [(OLD, True), (None, False)])
def test_an_unsettled_configuration_leaves_an_old_spec_alone(old: NodeMetricSpec | None, kept: bool) -> None:
    assert (spec.desired(OFF, settled=False, old=old) == old) is kept


def test_the_steps_of_a_node_metrics_life() -> None:
    wanted = spec.desired(enabled(), settled=True, old=None)
    assert lifecycle.plan("n1", None, wanted) == lifecycle.Create("n1", wanted)
    assert lifecycle.plan("n1", wanted, wanted) is None
    step = lifecycle.plan("n1", OLD, wanted, version="7")
    assert isinstance(step, lifecycle.Update)
    assert step.patch["metadata"] == {
        "resourceVersion": "7"
    }  # a leader of yesterday cannot undo what has been said since


@pytest.mark.parametrize(
    "there", [{}, {"predictPolicy": {"sigmaCPU": -3}}, {"predictPolicy": 5, "midPolicy": {"midBuffer": []}, "x": 1}]
)
def test_a_spec_that_cannot_be_read_is_made_the_wanted_one(there: dict[str, Any]) -> None:
    policy = NodePredictPolicy(predictor="n-sigma-v1")
    wanted = spec.desired(enabled(node_predict_policy=policy), settled=True, old=NodeMetricSpec())
    step = lifecycle.plan("n1", NodeMetricSpec(), wanted, version="7", unread=there)
    assert isinstance(step, lifecycle.Update)
    assert merge(there, step.spec) == msgspec.to_builtins(wanted)


JSON = st.recursive(
    st.sampled_from([0, 1, "x", [], [1]]),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
DOCUMENTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@given(DOCUMENTS, DOCUMENTS)
def test_a_merge_patch_leads_from_one_document_to_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = spec.difference(old, new)
    assert merge(old, patch) == new
    assert (patch == {}) == (old == new)


def merge(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7386, section 2."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merge(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


def test_the_fleets_prior_is_delivered_and_without_one_the_old_one_stands() -> None:
    old_prior, new_prior = (PredictionPrior(nodes, "2026-01-31T00:00:00Z") for nodes in (30, 40))
    old = NodeMetricSpec(prediction_prior=old_prior)
    for prior, wanted in ((new_prior, new_prior), (None, old_prior)):
        assert spec.desired(enabled(), settled=True, old=old, prior=prior).prediction_prior == wanted
    assert spec.desired(enabled(), settled=True, old=None).prediction_prior is None
    assert spec.desired(OFF, settled=True, old=old, prior=new_prior).prediction_prior is None


def test_thresholds_are_handed_down_where_they_are_enabled_and_the_node_lends() -> None:
    thresholds = ResourceThresholds(enable=True, memory_evict_threshold_percent=80)
    wanted = spec.desired(enabled(), settled=True, old=OLD, thresholds=thresholds)
    assert msgspec.to_builtins(wanted)["resourceUsedThresholdWithBE"] == {
        "enable": True,
        "memoryEvictThresholdPercent": 80,
    }
    for strategy, limits in ((OFF, thresholds), (enabled(), ResourceThresholds(evict_enabled=True)), (enabled(), None)):
        found = spec.desired(strategy, settled=True, old=wanted, thresholds=limits)
        assert found.resource_used_threshold_with_be is None
