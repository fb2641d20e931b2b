"""The colocation strategy is merged as upstream merges it, and refused with the place and the value at fault."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import names
from shared.api import colocation
from shared.api.colocation import DEFAULTS, ColocationConfig, MidFormula
from shared.errors import InvalidInput
from shared.names import Tier


def parse(**document: Any) -> ColocationConfig:
    return colocation.parse(json.dumps(document), source="cm")


def test_an_empty_configuration_is_upstreams_defaults() -> None:
    assert colocation.parse("", source="cm") == ColocationConfig()
    assert (DEFAULTS.enable, DEFAULTS.degrade_time_minutes, DEFAULTS.update_time_threshold_seconds) == (False, 15, 300)
    assert DEFAULTS.formula is MidFormula.SEED


@pytest.mark.parametrize(
    ("text", "field", "value", "problem"),
    [
        ('{"enable": tru}', "(document)", '{"enable": tru}', "malformed"),
        ("[]", "(document)", [], "expected a JSON object"),
        ('{"degradeTimeMinutes": "15"}', "degradeTimeMinutes", "15", "Expected `int`"),
        ('{"degradeTimeMinutes": 0}', "degradeTimeMinutes", 0, "greater than 0"),
        ('{"midCPUThresholdPercent": 101}', "midCPUThresholdPercent", 101, "between 0 and 100"),
        ('{"resourceDiffThreshold": 0}', "resourceDiffThreshold", 0.0, "greater than 0"),
        ('{"midCpuThresholdPercent": 10}', "midCpuThresholdPercent", 10, "unknown field"),
        ('{"metricMemoryCollectPolicy": "all"}', "metricMemoryCollectPolicy", "all", "must be one of"),
        ('{"metricAggregatePolicy": {"durations": ["5"]}}', "metricAggregatePolicy", "5", "positive duration"),
        ('{"nodePredictPolicy": {"sigma": 5}}', "nodePredictPolicy.sigma", 5, "unknown field"),
        ('{"nodePredictPolicy": {"sigmaCPU": "abc"}}', "nodePredictPolicy.sigmaCPU", "abc", "a number from 0"),
        ('{"nodePredictPolicy": {"sigmaMemory": "1e3"}}', "nodePredictPolicy.sigmaMemory", "1e3", "a number from 0"),
        ('{"nodePredictPolicy": {"cpuPercentile": "700"}}', "nodePredictPolicy.cpuPercentile", "700", "from 1 to 100"),
        ('{"nodePredictPolicy": {"cpuPercentile": "0.95"}}', "nodePredictPolicy.cpuPercentile", "0.95", "from 1"),
        ('{"nodePredictPolicy": {"memoryPercentile": 101}}', "nodePredictPolicy.memoryPercentile", 101, "<= 100"),
        ('{"nodePredictPolicy": {"borgRatio": "0"}}', "nodePredictPolicy.borgRatio", "0", "a number from 1"),
        ('{"nodePredictPolicy": {"reclaimRatioPercent": 101}}', "nodePredictPolicy.reclaimRatioPercent", 101, "<= 100"),
        ('{"nodePredictPolicy": {"safetyMarginPercent": 1' + "0" * 20 + "}}", "nodePredictPolicy.safetyMarginPercent",
         10**20, "<= 1000|integer"),
        ('{"nodePredictPolicy": {"cpuHalfLifeSeconds": 2147483648}}', "nodePredictPolicy.cpuHalfLifeSeconds", 2**31,
         "<= 7776000"),
        ('{"degradeTimeMinutes": 1441}', "degradeTimeMinutes", 1441, "at most 1440"),
        ('{"metricReportIntervalSeconds": 1000000000}', "metricReportIntervalSeconds", 10**9, "at most 3600"),
        ('{"metricAggregateDurationSeconds": 604801}', "metricAggregateDurationSeconds", 604801, "at most 604800"),
        ('{"updateTimeThresholdSeconds": 86401}', "updateTimeThresholdSeconds", 86401, "at most 86400"),
        ('{"batchCPUThresholdPercent": 1001}', "batchCPUThresholdPercent", 1001, "between 0 and 1000"),
        ('{"evictionAfterSeconds": 604801}', "evictionAfterSeconds", 604801, "<= 604800"),
        ('{"metricAggregatePolicy": {"durations": ["169h"]}}', "metricAggregatePolicy", "169h", "at most 168h"),
        ('{"nodePredictPolicy": {"coldStartPeriodSeconds": 7776001}}', "nodePredictPolicy.coldStartPeriodSeconds",
         7776001, "<= 7776000"),
        ('{"nodePredictPolicy": {"sigmaMemory": "100.5"}}', "nodePredictPolicy.sigmaMemory", "100.5", "to 100"),
        ('{"nodePredictPolicy": {"predictor": "nonsense shape"}}', "nodePredictPolicy.predictor", "nonsense shape",
         "name of a predictor"),
        ('{"nodePredictPolicy": {"predictor": "max(a,)"}}', "nodePredictPolicy.predictor", "max(a,)", "of several"),
        ('{"nodeConfigs": [{"nodePredictPolicy": {"sigmaCPU": true}}]}', "nodeConfigs[0].nodePredictPolicy.sigmaCPU",
         True, "Expected"),
        ('{"midFormula": "magic"}', "midFormula", "magic", "Invalid enum value"),
        ('{"midBuffer": 101}', "midBuffer", 101, "<= 100"),
        ('{"evictionAfterSeconds": 0}', "evictionAfterSeconds", 0, ">= 1"),
        ('{"midFormula": "seed-mixed", "evictionAfterSeconds": "off"}', "evictionAfterSeconds", "off", "seed-mixed"),
        ('{"nodeConfigs": {}}', "nodeConfigs", {}, "expected a list"),
        ('{"nodeConfigs": [{}, {"enabled": true}]}', "nodeConfigs[1].enabled", True, "unknown field"),
        ('{"nodeConfigs": [{"nodeSelector": {"matchLabels": 1}}]}', "nodeConfigs[0].nodeSelector.matchLabels", 1,
         "Expected `object"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_field_and_value(
    text: str, field: str, value: object, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        colocation.parse(text, source="cm")
    assert (refused.value.source, refused.value.field, refused.value.value) == ("cm", field, value)


def test_a_node_config_out_of_bounds_leaves_its_nodes_with_the_cluster_strategy() -> None:
    config = parse(
        enable=True,
        midCPUThresholdPercent=40,
        nodeConfigs=[{"nodeSelector": {"matchLabels": {"pool": "a"}}, "midCPUThresholdPercent": 400}],
    )
    assert colocation.for_node(config, name="n", labels={"pool": "a"}, annotations=None).strategy == config.cluster
    assert [problem.field for problem in config.problems] == ["nodeConfigs[0].midCPUThresholdPercent"]


def test_node_configs_that_are_null_are_none() -> None:
    assert colocation.parse('{"enable": true, "nodeConfigs": null}', source="cm").node_configs == ()


@pytest.mark.parametrize(
    "policy",
    [
        {"sigmaCPU": "2.5", "sigmaMemory": 0, "cpuPercentile": "99.9", "memoryPercentile": 100, "borgRatio": 1},
        {"predictor": "max( n-sigma-v2 , our_own.model)", "reclaimRatioPercent": 100, "safetyMarginPercent": 1000},
        {"predictor": "n-sigma-v2", "sigmaCapPods": True},
        {"predictor": "borg-default", "cpuHalfLifeSeconds": 1, "memoryHalfLifeSeconds": 90 * 86400},
    ],
)
def test_every_predict_policy_that_an_agent_could_heed_is_taken(policy: dict[str, object]) -> None:
    found = parse(nodePredictPolicy=policy).cluster.node_predict_policy
    assert msgspec.to_builtins(found) == policy


@pytest.mark.parametrize(
    ("selector", "matched"),
    [
        (None, []),
        ({}, ["a", "b", "c"]),
        ({"matchLabels": {"pool": "a"}}, ["a"]),
        ({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]}, ["a", "b"]),
        ({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]}, ["b", "c"]),
        ({"matchExpressions": [{"key": "pool", "operator": "Exists"}]}, ["a", "b"]),
        ({"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}, ["c"]),
        ({"matchExpressions": [{"key": "pool", "operator": "In"}]}, []),
        ({"matchExpressions": [{"key": "pool", "operator": "Like", "values": ["a"]}]}, []),
    ],
)
def test_a_node_config_holds_for_the_nodes_its_selector_matches(selector: object, matched: list[str]) -> None:
    config = parse(enable=True, nodeConfigs=[{"nodeSelector": selector, "degradeTimeMinutes": 3}])
    nodes: dict[str, dict[str, str]] = {"a": {"pool": "a"}, "b": {"pool": "b"}, "c": {}}
    found = [
        name
        for name, labels in nodes.items()
        if colocation.for_node(config, name=name, labels=labels, annotations=None).strategy.degrade_time_minutes == 3
    ]
    assert found == matched


def test_the_cluster_switch_cannot_be_overridden_by_a_node_config() -> None:
    config = parse(enable=False, nodeConfigs=[{"nodeSelector": {}, "enable": True}])
    found = colocation.for_node(config, name="n", labels=None, annotations=None)
    assert found.strategy.enable
    assert not found.enabled


@pytest.mark.parametrize(
    ("annotation", "field"),
    [
        ("{", "(document)"),
        ('{"midCPUThresholdPercent": 900}', "midCPUThresholdPercent"),
        ('{"midCPUThresholdPercent": 10, "nonsense": 1}', "nonsense"),
        ('{"nodePredictPolicy": {"sigmaCPU": "abc"}}', "nodePredictPolicy.sigmaCPU"),
        ('{"extensions": ' + '{"a": ' * 600 + "1" + "}" * 601, "(document)"),
        ('{"degradeTimeMinutes": 1' + "0" * 15 + "}", "degradeTimeMinutes"),
    ],
)
def test_a_bad_annotation_is_ignored_whole_and_concerns_that_node_alone(annotation: str, field: str) -> None:
    config = parse(enable=True)
    bad = colocation.for_node(
        config, name="n", labels=None, annotations={names.ANNOTATION_COLOCATION_STRATEGY: annotation}
    )
    assert bad.strategy == config.cluster
    assert bad.enabled
    assert [(problem.source.split()[1], problem.field) for problem in bad.problems] == [("n", field)]


@pytest.mark.parametrize("ratio", ["-1", "nan", "inf", "1e307", "half", "", "1_0", " 0.5", "0.5\n", "٠.٥"])
def test_a_ratio_label_that_means_nothing_is_ignored_and_reported(ratio: str) -> None:
    found = colocation.for_node(
        parse(enable=True), name="n", labels={names.LABEL_CPU_RECLAIM_RATIO: ratio}, annotations=None
    )
    assert found.strategy.cpu_reclaim_threshold_percent == 60
    assert [(problem.field, problem.value) for problem in found.problems] == [(names.LABEL_CPU_RECLAIM_RATIO, ratio)]


def test_a_static_share_beyond_the_whole_node_is_ignored_and_reported() -> None:
    label = names.LABEL_MID_STATIC_CPU_RESERVED_RATIO
    config = parse(enable=True, midStaticCPUReservedPercent=25)
    found = colocation.for_node(config, name="n", labels={label: "1.5"}, annotations=None)
    assert found.strategy.mid_static_cpu_reserved_percent == 25
    assert [problem.field for problem in found.problems] == [label]


def test_the_nodes_own_annotation_and_labels_come_last() -> None:
    config = parse(enable=True, nodeConfigs=[{"nodeSelector": {}, "cpuReclaimThresholdPercent": 10}])
    annotation = {"cpuReclaimThresholdPercent": 20, "memoryReclaimThresholdPercent": 30}
    found = colocation.for_node(
        config,
        name="n",
        labels={names.LABEL_CPU_RECLAIM_RATIO: "0.57", names.LABEL_MEMORY_RECLAIM_RATIO: "-1"},
        annotations={names.ANNOTATION_COLOCATION_STRATEGY: json.dumps(annotation)},
    )
    assert found.strategy.cpu_reclaim_threshold_percent == 56
    assert found.strategy.memory_reclaim_threshold_percent == 30
    assert [problem.field for problem in found.problems] == [names.LABEL_MEMORY_RECLAIM_RATIO]


@pytest.mark.parametrize(
    ("document", "formula"),
    [
        ({}, MidFormula.SEED),
        ({"midUnallocatedPercent": 0}, MidFormula.UPSTREAM),
        ({"midReclaimMode": "static"}, MidFormula.UPSTREAM),
        ({"midReclaimMode": "static", "midFormula": "seed"}, MidFormula.SEED),
        ({"midFormula": "seed-mixed"}, MidFormula.SEED_MIXED),
    ],
)
def test_what_only_upstream_knows_chooses_upstreams_formula(document: dict[str, Any], formula: MidFormula) -> None:
    assert parse(**document).cluster.formula is formula


PARTS = st.fixed_dictionaries(
    {},
    optional={
        "enable": st.none() | st.booleans(),
        "degradeTimeMinutes": st.none() | st.integers(1, 100),
        "midFormula": st.none() | st.sampled_from(list(MidFormula)),
        "midBuffer": st.sampled_from(["auto", "off", 5]),
        "metricAggregatePolicy": st.fixed_dictionaries({}, optional={"durations": st.lists(st.just("5m"), max_size=3)}),
        "nodePredictPolicy": st.fixed_dictionaries(
            {}, optional={"predictor": st.sampled_from(["n-sigma-v1", "max"]), "coldStartPeriodSeconds": st.just(60)}
        ),
        "extensions": st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=2),
    },
)


@given(PARTS, PARTS)
def test_merging_a_part_again_changes_nothing(first: dict[str, Any], second: dict[str, Any]) -> None:
    once = colocation.merge(colocation.merge(DEFAULTS, first, source="a"), second, source="b")
    assert colocation.merge(once, second, source="b") == once


@given(PARTS)
def test_a_whole_strategy_lays_itself_over_the_defaults_unchanged(part: dict[str, Any]) -> None:
    strategy = colocation.merge(DEFAULTS, part, source="a")
    assert colocation.merge(DEFAULTS, msgspec.to_builtins(strategy), source="a") == strategy


def test_every_value_is_traced_to_where_it_stands() -> None:
    cluster = {"enable": True, "midCPUThresholdPercent": 90, "midMemoryThresholdPercent": 90, "midBuffer": None}
    part = {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "midMemoryThresholdPercent": 80}
    labels = {"pool": "a", names.LABEL_CPU_RECLAIM_RATIO: "0.5", names.LABEL_MEMORY_RECLAIM_RATIO: "much"}
    annotations = {names.ANNOTATION_COLOCATION_STRATEGY: '{"degradeTimeMinutes": 5}'}
    config = parse(**cluster, nodeConfigs=[part])
    found = colocation.for_node(config, name="n", labels=labels, annotations=annotations)
    assert {key: found.source(key) for key in colocation.KEYS if found.source(key) != colocation.DEFAULT_SOURCE} == {
        "enable": "cm",
        "midCPUThresholdPercent": "cm",
        "midMemoryThresholdPercent": "cm nodeConfigs[0]",
        "degradeTimeMinutes": f"Node n annotation {names.ANNOTATION_COLOCATION_STRATEGY}",
        "cpuReclaimThresholdPercent": f"Node n label {names.LABEL_CPU_RECLAIM_RATIO}",
    }
    elsewhere = colocation.for_node(config, name="m", labels=None, annotations=None)
    assert elsewhere.source("midMemoryThresholdPercent") == "cm"


@pytest.mark.parametrize(
    ("strategy", "mid", "batch"),
    [
        ({}, None, None),
        ({"midFormula": "seed-mixed"}, 300, None),
        ({"midFormula": "seed-mixed", "evictionAfterSeconds": 60}, 60, 60),
        ({"evictionAfterSeconds": 60}, 60, 60),
        ({"evictionAfterSeconds": "off"}, None, None),
    ],
)
def test_pods_are_evicted_where_that_is_asked_for_or_the_formula_needs_it(
    strategy: dict[str, object], mid: int | None, batch: int | None
) -> None:
    found = parse(**strategy).cluster
    assert (found.eviction_seconds(Tier.MID), found.eviction_seconds(Tier.BATCH)) == (mid, batch)
