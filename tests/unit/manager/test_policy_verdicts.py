"""The webhook denies a policy exactly where the manager complains of it, and both name the same fields."""

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside import policy
from manager.nodeside.policy import ClusterPolicy
from manager.nodeside.webhook import reviews
from manager.nodeside.webhook.configmap import ConfigAdmission
from shared import names
from shared.api import colocation
from shared.api.core import ConfigMap
from tests.unit.manager.objects import node

SOURCE = "ConfigMap ns/config"


def webhook_says(text: str) -> str:
    """Why the webhook denies the policy; empty where it does not."""
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u1",
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "namespace": "ns",
            "name": "config",
            "object": {
                "metadata": {"name": "config", "namespace": "ns"},
                "data": {names.CONFIG_KEY_COLOCATION: text},
            },
        },
    }
    answer = ConfigAdmission("ns", "config", list).review(reviews.decode(msgspec.json.encode(review)))
    return answer.denied or ""


def manager_says(text: str) -> str:
    """What the manager complains of; empty where there is nothing."""
    config_map = ConfigMap(data={names.CONFIG_KEY_COLOCATION: text})
    known = policy.next_policy(ClusterPolicy(), config_map, source=SOURCE)
    return "; ".join(map(str, [known.problem] if known.problem else known.config.problems))


def pools(*configs: dict[str, Any]) -> str:
    return json.dumps({"enable": True, "nodeConfigs": list(configs)})


POOL_A = {"nodeSelector": {"matchLabels": {"pool": "a"}}}
POOL_B = {"nodeSelector": {"matchLabels": {"pool": "b"}}}
IN_BOTH_POOLS = {"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]}}

TAKEN = [
    "",
    "  ",
    "{}",
    '{"enable": true, "cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 0}',
    '{"resourceDiffThreshold": 1, "midStaticCPUReservedPercent": 100}',
    '{"batchCPUThresholdPercent": 200}',  # no more is offered for it
    '{"midReclaimMode": "Static"}',
    '{"enable": null, "nodeConfigs": null}',
    '{"extensions": {"anything": [1, {"goes": true}]}}',
    pools({"name": "a", **POOL_A}, {"name": "b", **POOL_B, "midBuffer": 5}),
    pools({"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]}}, POOL_A),
]
REFUSED = [
    ('{"enable": tru', "(document)"),
    ("[]", "(document)"),
    ('"enable"', "(document)"),
    ('{"enable": "yes"}', "enable"),
    ('{"midStaticCPUReservedPercent": 101}', "midStaticCPUReservedPercent"),
    ('{"midStaticMemoryReservedPercent": 101}', "midStaticMemoryReservedPercent"),
    ('{"resourceDiffThreshold": 1.01}', "resourceDiffThreshold"),
    ('{"cpuReclaimThresholdPercent": 101}', "cpuReclaimThresholdPercent"),
    ('{"memoryReclaimThresholdPercent": 150}', "memoryReclaimThresholdPercent"),
    ('{"cpuReclaimThresholdPercent": 99999999999999999999}', "cpuReclaimThresholdPercent"),
    ('{"midCPUThresholdPercent": 101}', "midCPUThresholdPercent"),
    ('{"cpuReclaimPercent": 60}', "cpuReclaimPercent"),
    ('{"nodePredictPolicy": {"sigma": 5}}', "nodePredictPolicy.sigma"),
    ('{"metricAggregatePolicy": {"windows": []}}', "metricAggregatePolicy.windows"),
    ('{"enable": true, "enable": false}', "enable"),
    ('{"enable": true, "nodePredictPolicy": {"borgRatio": 1, "borgRatio": 2}}', "borgRatio"),
    ('{"extensions": {"a": 1, "a": 1}}', "a"),
    ('{"nodeConfigs": [{"name": "a", "name": "b"}]}', "name"),
    (pools({**POOL_A, "unheardOf": 1}), "nodeConfigs[0].unheardOf"),
    (pools({"nodeSelector": {"matchLabel": {"pool": "a"}}}), "nodeConfigs[0].nodeSelector.matchLabel"),
    (pools({**POOL_A, "cpuReclaimThresholdPercent": 101}), "nodeConfigs[0].cpuReclaimThresholdPercent"),
    (pools({**POOL_A, "midStaticCPUReservedPercent": 101}), "nodeConfigs[0].midStaticCPUReservedPercent"),
    (pools({}), "nodeConfigs[0].nodeSelector"),
    (pools({"nodeSelector": None}), "nodeConfigs[0].nodeSelector"),
    (pools({"nodeSelector": {}}), "nodeConfigs[0].nodeSelector"),
    (pools({**POOL_A, "degradeTimeMinutes": 0}), "nodeConfigs[0].degradeTimeMinutes"),
    (pools(POOL_A, POOL_B, POOL_A), "nodeConfigs[2].nodeSelector"),
    (pools(POOL_A, {"nodeSelector": {"matchLabels": {"pool": "a", "zone": "z"}}}), "nodeConfigs[1].nodeSelector"),
    (pools(POOL_A, IN_BOTH_POOLS), "nodeConfigs[1].nodeSelector"),
    (pools({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}), "nodeConfigs[0].nodeSelector"),
    (pools(*[POOL_A] * 251), "nodeConfigs"),
    ('{"nodeConfigs": [1]}', "nodeConfigs[0]"),
]


@pytest.mark.parametrize("text", TAKEN)
def test_what_one_takes_the_other_takes(text: str) -> None:
    assert (webhook_says(text), manager_says(text)) == ("", "")


@pytest.mark.parametrize(("text", "field"), REFUSED)
def test_what_one_refuses_the_other_refuses_by_the_same_field(text: str, field: str) -> None:
    said = webhook_says(text)
    assert said == manager_says(text)
    assert f"{SOURCE} {names.CONFIG_KEY_COLOCATION}: {field}: " in said


@pytest.mark.parametrize(
    ("text", "field"), [(text, field) for text, field in REFUSED if "nodeConfigs" not in text and text.startswith("{")]
)
def test_a_nodes_own_annotation_is_judged_by_the_same_rules(text: str, field: str) -> None:
    annotations = {names.ANNOTATION_COLOCATION_STRATEGY: text}
    config = colocation.parse('{"enable": true}', source="cm")
    found = colocation.for_node(config, name="n1", labels=None, annotations=annotations)
    assert [problem.field for problem in found.problems] == [field]
    assert found.strategy == config.cluster


@pytest.mark.parametrize("text", [each for each in TAKEN if "nodeConfigs" not in each and each.strip()])
def test_a_nodes_own_annotation_may_say_what_the_config_map_may(text: str) -> None:
    annotated = node(annotations={names.ANNOTATION_COLOCATION_STRATEGY: text})
    found = colocation.for_node(
        colocation.ColocationConfig(), name="n1", labels=None, annotations=annotated.metadata.annotations
    )
    assert found.problems == ()


VALID: dict[str, Any] = {
    "enable": True,
    "cpuReclaimThresholdPercent": 60,
    "resourceDiffThreshold": 0.1,
    "midFormula": "seed-mixed",
    "midStaticCPUReservedPercent": 10,
    "metricAggregatePolicy": {"durations": ["5m"]},
    "nodePredictPolicy": {"predictor": "max(a,b)", "sigmaCPU": "2.5"},
    "nodeConfigs": [
        {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "midBuffer": 5},
        {
            "nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b", "c"]}]},
            "cpuReclaimThresholdPercent": 10,
        },
    ],
}
SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 100, 101, 2**31, 2**63, 1.5, "", "a", "5m", "off", "static", "In", [], {}])
)
KEYS = st.sampled_from(
    ["enable", "nodeSelector", "matchLabels", "midBuffer", "values", "operator", "pool", "x", *sorted(colocation.KEYS)]
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid policy with some of it replaced, added, taken away, or said twice."""
    document = copy.deepcopy(VALID)
    for _ in range(draw(st.integers(1, 3))):
        place: Any = document
        while True:
            steps: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
            inner = [each for each in steps if isinstance(place[each], dict | list) and place[each]]
            if not inner or draw(st.booleans()):
                break
            place = place[draw(st.sampled_from(inner))]
        key: Any = draw(KEYS | st.sampled_from(steps)) if isinstance(place, dict) else draw(st.sampled_from(steps))
        if draw(st.booleans()) or (isinstance(place, dict) and key not in place):
            place[key] = draw(SCALARS)
        else:
            del place[key]
    text = json.dumps(document)
    if draw(st.integers(0, 4)) == 0:
        text = text.replace("{", '{"enable": true, ', 1)
    return text if draw(st.integers(0, 9)) else text[: draw(st.integers(0, len(text)))]


def test_the_policy_that_is_mutated_is_valid() -> None:
    assert webhook_says(json.dumps(VALID)) == manager_says(json.dumps(VALID)) == ""


@given(mutated())
def test_whatever_becomes_of_a_policy_both_say_the_same(text: str) -> None:
    assert webhook_says(text) == manager_says(text)
