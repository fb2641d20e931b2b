"""Profiles give pods what they say, in upstream's order, and to those pods only that they select."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.webhook import profiles, strategic
from manager.nodeside.webhook.profiles import PriorityClassObject, Profile, UnknownPriorityClass
from shared import names
from shared.api.profile import ClusterColocationProfile
from shared.errors import InvalidInput

POD = {"metadata": {"name": "p", "labels": {"app": "web", "tier": "t"}}, "spec": {"containers": [{"name": "c"}]}}
CLASSES = {"koord-mid": PriorityClassObject(value=7000, preemption_policy="Never")}


def profile(name: str = "a", *, own: dict[str, str] | None = None, **spec: Any) -> Profile:
    document = {"metadata": {"name": name, "annotations": own or {}}, "spec": spec}
    return profiles.accepted(msgspec.convert(document, ClusterColocationProfile))


def applied(one: Profile, pod: Mapping[str, Any] = POD) -> Mapping[str, Any]:
    return profiles.applied(one, pod, CLASSES.get)


def chosen(some: list[Profile], labels: dict[str, str], namespace: dict[str, str]) -> list[str]:
    return [each.name for each in profiles.selected(some, labels, lambda: namespace)]


def test_a_profile_selects_by_labels_of_the_pod_and_of_its_namespace() -> None:
    some = [
        profile("z"),
        profile("pod", selector={"matchLabels": {"app": "web"}}),
        profile("namespace", namespaceSelector={"matchExpressions": [{"key": "team", "operator": "Exists"}]}),
        profile("empty", selector={}, namespaceSelector={}),
    ]
    assert chosen(some, {"app": "web"}, {"team": "a"}) == ["empty", "namespace", "pod", "z"]
    assert chosen(some, {"app": "db"}, {}) == ["empty", "z"]


def test_the_namespace_is_not_looked_up_for_profiles_that_do_not_depend_on_it() -> None:
    def unknown() -> Mapping[str, str]:
        raise AssertionError("looked up")

    assert profiles.selected([profile(), profile(selector={})], {}, unknown)


def test_a_profile_sets_all_that_it_names() -> None:
    one = profile(
        labels={"app": "other", "new": "1"},
        annotations={"a": "b"},
        labelKeysMapping={"tier": "copy", "missing": "never"},
        annotationKeysMapping={"a": "c"},
        labelSuffixes={"app": "-blue", "missing": "-x"},
        schedulerName="koord-scheduler",
        qosClass="BE",
        priorityClassName="koord-mid",
        koordinatorPriority=7999,
        patch={"spec": {"terminationGracePeriodSeconds": 3}},
    )
    result = applied(one)
    assert result["metadata"]["labels"] == {
        "app": "other-blue",
        "new": "1",
        "tier": "t",
        "copy": "t",
        names.LABEL_QOS_CLASS: "BE",
        names.LABEL_PRIORITY: "7999",
    }
    assert result["metadata"]["annotations"] == {"a": "b", "c": "b"}
    assert result["spec"] == {
        "containers": [{"name": "c"}],
        "schedulerName": "koord-scheduler",
        "priorityClassName": "koord-mid",
        "priority": 7000,
        "preemptionPolicy": "Never",
        "terminationGracePeriodSeconds": 3,
    }
    assert POD["metadata"] == {"name": "p", "labels": {"app": "web", "tier": "t"}}


def test_a_profile_applied_twice_does_the_same_as_once() -> None:
    one = profile(labels={"x": "y"}, labelSuffixes={"app": "-blue"}, patch={"spec": {"volumes": [{"name": "v"}]}})
    assert applied(one, applied(one)) == applied(one)
    both = profile(labelKeysMapping={"app": "copy"}, labelSuffixes={"app": "-blue"})
    assert applied(both)["metadata"]["labels"] == {"app": "web-blue", "copy": "web", "tier": "t"}
    assert applied(both, applied(both)) == applied(both)


def test_a_profile_whose_priority_class_is_not_there_is_not_applied() -> None:
    with pytest.raises(UnknownPriorityClass, match="koord-free"):
        applied(profile(priorityClassName="koord-free"))


def test_the_annotation_of_a_profile_keeps_requests_as_they_are() -> None:
    assert not profile(own={names.ANNOTATION_SKIP_UPDATE_RESOURCES: ""}).translates
    assert profile().translates


@given(st.integers(0, 100), st.text(max_size=20))
def test_a_probability_always_takes_the_same_pods_all_at_100_and_none_at_0(percent: int, identity: str) -> None:
    one = profile(probability=f"{percent}%")
    assert one.percent == profile(probability=percent).percent == percent
    assert profiles.takes(one, identity) == profiles.takes(one, identity)
    assert profiles.takes(profile(probability=100), identity)
    assert not profiles.takes(profile(probability=0), identity)
    if profiles.takes(one, identity) and percent < 100:
        assert profiles.takes(profile(probability=percent + 1), identity)


def test_a_probability_takes_about_its_share() -> None:
    one = profile(probability="30%")
    assert 2700 < sum(profiles.takes(one, f"ns/pod-{index}") for index in range(10_000)) < 3300


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"probability": 101}, "spec.probability"),
        ({"probability": "-1%"}, "spec.probability"),
        ({"probability": "many"}, "spec.probability"),
        ({"qosClass": "BEST"}, "spec.qosClass"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "spec.selector"),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "spec.namespaceSelector"),
        ({"patch": {"spec": {"$patch": "replace"}}}, "spec.patch"),
        ({"patch": {"spec": {"containers": [{"image": "x"}]}}}, "spec.patch"),
    ],
)
def test_a_profile_that_means_nothing_is_refused_by_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        profile(**spec)
    assert caught.value.field == field
    assert caught.value.source == "ClusterColocationProfile a"


def test_a_patch_merges_lists_by_their_key_and_replaces_those_without() -> None:
    pod = {
        "spec": {
            "containers": [{"name": "a", "env": [{"name": "X", "value": "1"}], "args": ["1", "2"]}, {"name": "b"}],
            "tolerations": [{"key": "old"}],
            "nodeName": "n",
        }
    }
    patch = {
        "spec": {
            "containers": [
                {"name": "a", "env": [{"name": "X", "value": "2"}, {"name": "Y", "value": None}], "args": ["3"]},
                {"name": "new", "image": "i"},
            ],
            "tolerations": [{"key": "new"}],
            "nodeName": None,
        }
    }
    assert strategic.merged(pod, patch) == {
        "spec": {
            "containers": [
                {"name": "a", "env": [{"name": "X", "value": "2"}, {"name": "Y"}], "args": ["3"]},
                {"name": "b"},
                {"name": "new", "image": "i"},
            ],
            "tolerations": [{"key": "new"}],
        }
    }
