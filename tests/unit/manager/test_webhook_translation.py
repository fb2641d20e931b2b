"""What a pod asks for is the same amount under another name, and nothing else about it changes."""

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.apiserver import patching
from manager.nodeside.webhook import jsonpatch, translation
from shared import names
from shared.api import pods
from shared.api.core import Pod
from shared.names import PriorityClass, Tier
from shared.quantity import QuantityError

TRANSLATED = (PriorityClass.MID, PriorityClass.BATCH)
RESOURCES = names.TIER_RESOURCES


def pod(*resources: dict[str, Any], init: list[dict[str, Any]] | None = None, **metadata: Any) -> dict[str, Any]:
    containers = [
        {"name": f"c{index}", "image": "x", "resources": each, "securityContext": {"seLinuxOptions": {"new": 1}}}
        for index, each in enumerate(resources)
    ]
    spec: dict[str, Any] = {"containers": containers, "aFieldOfTheFuture": [1, 2]}
    if init is not None:
        spec["initContainers"] = [{"name": "init", "resources": each} for each in init]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": spec}


def asked(document: dict[str, Any]) -> dict[str, int]:
    return pods.requests(msgspec.convert(document, Pod))


CPU = st.one_of(
    st.integers(0, 10**6).map(lambda value: f"{value}m"),
    st.integers(0, 10**4).map(str),
    st.decimals(0, 100, places=4, allow_nan=False).map(str),
)
MEMORY = st.builds("{}{}".format, st.integers(0, 10**5), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi"]))
AMOUNTS = st.fixed_dictionaries({}, optional={"cpu": CPU, "memory": MEMORY, "nvidia.com/gpu": st.just("1")})
REQUIREMENTS = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
PODS = st.builds(
    lambda containers, init: pod(*containers, init=init),
    st.lists(REQUIREMENTS, min_size=1, max_size=3),
    st.none() | st.lists(REQUIREMENTS, max_size=2),
)


@given(PODS, st.sampled_from(TRANSLATED))
def test_all_that_was_asked_natively_is_asked_of_the_class(document: dict[str, Any], of: PriorityClass) -> None:
    result = dict(translation.translated(document, of))
    before, after = asked(document), asked(result)
    cpu, memory = RESOURCES[Tier(of.removeprefix("koord-"))]
    assert (after.get(cpu, 0), after.get(memory, 0)) == (before.get("cpu", 0), before.get("memory", 0))
    assert "cpu" not in after
    assert "memory" not in after
    assert after.get("nvidia.com/gpu") == before.get("nvidia.com/gpu")


@given(PODS, st.sampled_from(TRANSLATED))
def test_a_translated_pod_is_not_translated_again(document: dict[str, Any], of: PriorityClass) -> None:
    once = translation.with_extended_resource_spec(translation.translated(document, of))
    assert translation.with_extended_resource_spec(translation.translated(once, of)) == once


@given(PODS, st.sampled_from(list(PriorityClass)))
def test_the_patch_makes_the_translation_of_the_original_which_stays_as_it_was(
    document: dict[str, Any], of: PriorityClass
) -> None:
    original = copy.deepcopy(document)
    result = translation.with_extended_resource_spec(translation.translated(document, of))
    assert document == original
    assert patching.json_patch(document, jsonpatch.difference(document, result)) == result
    if of not in TRANSLATED:
        assert result == original


def test_cpu_becomes_whole_milli_cores_and_memory_keeps_its_quantity() -> None:
    given_ = {"requests": {"cpu": "1.5", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1500M"}}
    result = translation.translated(pod(given_), PriorityClass.MID)
    assert result["spec"]["containers"][0]["resources"] == {
        "requests": {"kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "1Gi"},
        "limits": {"kubernetes.io/mid-cpu": "2k", "kubernetes.io/mid-memory": "1500M"},
    }


def test_a_limit_stands_in_for_a_missing_request_and_nothing_for_a_missing_limit() -> None:
    result = translation.translated(pod({"limits": {"cpu": "1"}}, {"requests": {"cpu": "1"}}), PriorityClass.BATCH)
    first, second = (container["resources"] for container in result["spec"]["containers"])
    assert first == {"limits": {"kubernetes.io/batch-cpu": "1k"}, "requests": {"kubernetes.io/batch-cpu": "1k"}}
    assert second == {"requests": {"kubernetes.io/batch-cpu": "1k"}}


def test_a_native_default_that_came_back_does_not_replace_what_was_translated() -> None:
    both = {"requests": {"cpu": "50m", "kubernetes.io/mid-cpu": "2k"}, "limits": {"cpu": "100m"}}
    result = translation.translated(pod(both), PriorityClass.MID)
    resources = result["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"kubernetes.io/mid-cpu": "2k"}


def test_the_overhead_stays_native() -> None:
    document = pod({"requests": {"cpu": "1"}})
    document["spec"]["overhead"] = {"cpu": "100m"}
    assert translation.translated(document, PriorityClass.MID)["spec"]["overhead"] == {"cpu": "100m"}


@pytest.mark.parametrize("bad", ["lots", "", "1 ", "--1"])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_a_quantity_that_means_nothing_is_not_translated(resource: str, bad: str) -> None:
    with pytest.raises(QuantityError):
        translation.translated(pod({"requests": {resource: bad}}), PriorityClass.MID)


def test_batch_is_labelled_best_effort_unless_the_pod_says_otherwise() -> None:
    bare, labelled = pod({}), pod({}, labels={names.LABEL_QOS_CLASS: "LS", "app": "a"})
    assert translation.translated(bare, PriorityClass.BATCH)["metadata"]["labels"] == {names.LABEL_QOS_CLASS: "BE"}
    assert translation.translated(labelled, PriorityClass.BATCH)["metadata"] == labelled["metadata"]
    assert translation.translated(bare, PriorityClass.MID) == bare


@pytest.mark.parametrize(("of", "cpu"), [(PriorityClass.BATCH, names.BATCH_CPU), (PriorityClass.MID, names.MID_CPU)])
def test_the_annotation_for_runtime_hooks_tells_what_is_asked_of_a_tier_by_container(
    of: PriorityClass, cpu: str
) -> None:
    known = {"containers": {"c0": {"limits": {cpu: "1k"}, "requests": {cpu: "1k"}}}}
    pods_ = [translation.translated(pod({"limits": {"cpu": "1"}}, {}), of)]
    pods_.append(pod({"requests": {cpu: "1k", "cpu": "0"}, "limits": {"cpu": "1"}}, {}))
    for each in pods_:
        annotations = translation.with_extended_resource_spec(each)["metadata"]["annotations"]
        assert json.loads(annotations[names.ANNOTATION_EXTENDED_RESOURCE_SPEC]) == known
    native = pod({"limits": {"cpu": "1"}})
    assert translation.with_extended_resource_spec(native) is native


@pytest.mark.parametrize(
    ("labels", "spec", "by_profile", "expected"),
    [
        ({names.LABEL_PRIORITY_CLASS: "koord-mid"}, {"priority": 9500}, False, PriorityClass.MID),
        ({names.LABEL_PRIORITY_CLASS: "of-mine"}, {"priorityClassName": "koord-mid"}, False, PriorityClass.NONE),
        ({}, {"priority": 7000}, False, PriorityClass.MID),
        ({}, {"priority": 5999}, False, PriorityClass.BATCH),
        ({}, {"priorityClassName": "koord-batch"}, False, PriorityClass.BATCH),
        ({}, {"priorityClassName": "koord-batch", "priority": 0}, False, PriorityClass.NONE),
        ({names.LABEL_QOS_CLASS: "BE"}, {}, False, PriorityClass.NONE),
        ({names.LABEL_QOS_CLASS: "BE"}, {}, True, PriorityClass.BATCH),
        ({}, {}, True, PriorityClass.NONE),
        ({}, {"containers": [{"resources": {"requests": {names.MID_CPU: "1"}}}]}, False, PriorityClass.MID),
        ({}, {"initContainers": [{"resources": {"limits": {names.BATCH_CPU: "1"}}}]}, True, PriorityClass.BATCH),
        ({}, {"priority": -5, "priorityClassName": "own-mid"}, False, PriorityClass.MID),
        ({names.LABEL_PRIORITY_CLASS: "koord-prod"}, {"priorityClassName": "own-mid"}, False, PriorityClass.PROD),
    ],
)
def test_the_class_comes_from_the_label_else_the_priority_else_its_class_else_what_is_asked(
    labels: dict[str, str], spec: dict[str, Any], by_profile: bool, expected: PriorityClass
) -> None:
    found = msgspec.convert({"metadata": {"labels": labels}, "spec": spec}, Pod)
    own = {PriorityClass.MID: "own-mid"}
    assert translation.class_of(found, by_profile=by_profile, priority_classes=own) is expected
