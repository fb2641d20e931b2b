"""Mid and Batch pods keep native limits, all of their containers have them, and native requests are nothing."""

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from manager.nodeside.webhook import limits, translation
from manager.nodeside.webhook.limits import LimitBelowRequest, LimitRules
from shared import names
from shared.api import pods
from shared.api.core import Pod
from shared.names import KubeQoS, PriorityClass
from shared.quantity import QuantityError
from tests.unit.manager.test_webhook_translation import PODS, asked, pod

MID, BATCH = PriorityClass.MID, PriorityClass.BATCH
RULES = LimitRules()
NOTHING = {"cpu": "0", "memory": "0"}
MID_REQUEST = {names.MID_CPU: "500", names.MID_MEMORY: "64Mi"}


def resources(document: Any, index: int = 0, part: str = "containers") -> Any:
    return document["spec"][part][index]["resources"]


def bounded(*given_: dict[str, Any], of: PriorityClass = MID, rules: LimitRules = RULES, **more: Any) -> Any:
    return limits.bounded(pod(*given_, **more), of, rules).pod


@given(PODS)
def test_every_container_is_limited_and_nothing_is_asked_natively(document: dict[str, Any]) -> None:
    original = copy.deepcopy(document)
    try:
        result, _ = limits.bounded(document, MID, RULES)
    except LimitBelowRequest:
        return
    assert document == original
    after, read = asked(dict(result)), msgspec.convert(result, Pod)
    before = asked(document)
    assert (after["cpu"], after["memory"]) == (0, 0)
    assert (after.get(names.MID_CPU, 0), after.get(names.MID_MEMORY, 0)) == (
        before.get("cpu", 0),
        before.get("memory", 0),
    )
    cpu, memory = pods.native_limit(read)
    assert 0 < cpu < float("inf")
    assert 0 < memory < float("inf")
    assert pods.kube_qos(read) is KubeQoS.BURSTABLE
    again = translation.with_extended_resource_spec(result)
    assert limits.bounded(again, MID, RULES).pod == again
    assert translation.with_extended_resource_spec(again) == again


def test_native_limits_stay_and_requests_become_the_tiers() -> None:
    given_ = {
        "requests": {"cpu": "500m", "memory": "64Mi", "nvidia.com/gpu": 1},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    result, warnings = limits.bounded(pod(given_), MID, RULES)
    assert resources(result) == {
        "requests": MID_REQUEST | NOTHING | {"nvidia.com/gpu": 1},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    assert warnings == ()
    assert "annotations" not in result["metadata"]


def test_a_limit_that_is_missing_is_the_request_times_the_factor_of_its_class_and_is_told() -> None:
    rules = LimitRules({MID: 1.5, BATCH: 3.0})
    document = pod({"requests": {"cpu": "333m", "memory": "64Mi"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})
    result, warnings = limits.bounded(document, MID, rules)
    assert resources(result)["limits"] == {"cpu": "500m", "memory": "96Mi"}
    assert resources(result, 1)["limits"] == {"cpu": "2", "memory": "200Mi"}
    assert warnings == ("limits were set where there were none: c0 cpu 500m memory 96Mi, c1 memory 200Mi",)
    noted = json.loads(result["metadata"]["annotations"][names.ANNOTATION_DEFAULTED_LIMITS])
    assert noted == {"c0": {"cpu": "500m", "memory": "96Mi"}, "c1": {"memory": "200Mi"}}
    batch = bounded({"requests": {"cpu": "1"}}, of=BATCH, rules=rules)
    assert resources(batch)["limits"]["cpu"] == "3"
    assert batch["metadata"]["labels"] == {names.LABEL_QOS_CLASS: "BE"}


def test_init_containers_and_sidecars_are_limited_too() -> None:
    document = pod({"limits": {"cpu": "1", "memory": "1Gi"}}, init=[{"requests": {"cpu": "2"}}, {}])
    document["spec"]["initContainers"][1]["restartPolicy"] = "Always"
    result = limits.bounded(document, MID, RULES).pod
    assert resources(result, 0, "initContainers")["limits"] == {"cpu": "2", "memory": "200Mi"}
    assert resources(result, 1, "initContainers")["limits"] == {"cpu": "250m", "memory": "200Mi"}
    assert result["spec"]["initContainers"][1]["restartPolicy"] == "Always"


@pytest.mark.parametrize(
    ("given_", "limit"),
    [
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "0", "memory": "0"}}, None),
        ({"requests": {"cpu": "1m", "memory": "1"}}, {"cpu": "10m", "memory": "16Mi"}),
        ({"requests": {"cpu": "0", "memory": "0"}}, {"cpu": "250m", "memory": "200Mi"}),
        ({"limits": {"cpu": "0", "memory": "0"}}, {"cpu": "250m", "memory": "200Mi"}),
        ({"requests": {"cpu": "9223372036854775807"}}, {"cpu": "9223372036854775807m", "memory": "200Mi"}),
        ({"requests": {"memory": "8Ei"}}, {"cpu": "250m", "memory": "9223372036854775807"}),
        ({"limits": {names.MID_CPU: "2k", names.MID_MEMORY: "1Gi"}}, {"cpu": "2", "memory": "1Gi"}),
        ({"requests": {names.MID_CPU: "1k"}, "limits": {names.MID_CPU: "2k"}}, {"cpu": "2", "memory": "200Mi"}),
    ],
)
def test_no_limit_of_zero_or_less_than_can_run_is_made(given_: dict[str, Any], limit: dict[str, str] | None) -> None:
    if limit is None:  # the API server refuses such a pod
        with pytest.raises(LimitBelowRequest, match="c0 asks for 1 of cpu, its limit is 0"):
            bounded(given_)
    else:
        assert {name: resources(bounded(given_))["limits"][name] for name in limit} == limit


def test_more_than_the_limit_stays_for_the_api_server_to_refuse() -> None:
    with pytest.raises(LimitBelowRequest, match="c1 asks for 2Gi of memory, its limit is 1Gi"):
        bounded({}, {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}})
    asks = {"requests": MID_REQUEST, "limits": {"cpu": "100m", "memory": "1Gi"}}
    result, warnings = limits.bounded(pod(asks), MID, RULES)
    assert resources(result) == {"requests": MID_REQUEST | NOTHING, "limits": asks["limits"]}
    assert warnings == ("limits are below what is asked of koord-mid: c0 cpu 100m",)


@pytest.mark.parametrize("bad", ["lots", "", "1 ", "--1"])
@pytest.mark.parametrize("resource", ["cpu", "memory", names.MID_CPU])
@pytest.mark.parametrize("part", ["requests", "limits"])
def test_a_quantity_that_means_nothing_is_not_translated(part: str, resource: str, bad: str) -> None:
    with pytest.raises(QuantityError):
        bounded({part: {resource: bad}})


def test_limits_of_a_later_look_are_noted_beside_the_earlier_ones() -> None:
    first = bounded({"requests": {"cpu": "1", "memory": "1Gi"}})
    injected = {"name": "sidecar", "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}}}
    first["spec"]["containers"].append(injected)
    second = limits.bounded(first, MID, RULES).pod
    noted = json.loads(second["metadata"]["annotations"][names.ANNOTATION_DEFAULTED_LIMITS])
    assert noted == {"c0": {"cpu": "1", "memory": "1Gi"}, "sidecar": {"cpu": "50m", "memory": "32Mi"}}
    second["metadata"]["annotations"][names.ANNOTATION_DEFAULTED_LIMITS] = "[broken"
    second["spec"]["containers"].append({"name": "third"})
    third = limits.bounded(second, MID, RULES).pod["metadata"]["annotations"][names.ANNOTATION_DEFAULTED_LIMITS]
    assert json.loads(third) == {"third": {"cpu": "250m", "memory": "200Mi"}}


def test_other_classes_are_let_alone() -> None:
    document = pod({"requests": {"cpu": "1"}})
    for of in (PriorityClass.PROD, PriorityClass.FREE, PriorityClass.NONE):
        assert limits.bounded(document, of, RULES) == (document, ())
