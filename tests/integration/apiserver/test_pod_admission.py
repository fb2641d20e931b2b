"""What an ordinary cluster makes of a pod, and which pods it does not let in."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Api, pod

PODS = "/api/v1/namespaces/default/pods?dryRun=All"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def never(api: Api, unique: str) -> Iterator[str]:
    """A class of priority 7000 that does not preempt."""
    api.ok("POST", CLASSES, {"metadata": {"name": unique}, "value": 7000, "preemptionPolicy": "Never"})
    yield unique
    api.ok("DELETE", f"{CLASSES}/{unique}")


def container(**content: Any) -> dict[str, Any]:
    return pod("a", containers=[{"name": "c", "image": "i:1"} | content])


def test_priority_comes_from_the_class(api: Api, never: str) -> None:
    for asked in ({}, {"priority": 7000}, {"preemptionPolicy": "Never"}):
        spec = api.ok("POST", PODS, pod("a", priorityClassName=never, **asked))["spec"]
        assert (spec["priority"], spec["preemptionPolicy"]) == (7000, "Never")
    plain = api.ok("POST", PODS, pod("a"))["spec"]
    assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")


def test_a_priority_that_is_not_the_classs_is_forbidden(api: Api, never: str) -> None:
    refused = api.fails(403, "POST", PODS, pod("a", priority=5))
    assert "computed 0" in refused["message"]
    assert refused["details"] == {"name": "a", "kind": "pods"}
    assert "computed 7000" in api.fails(403, "POST", PODS, pod("a", priority=5, priorityClassName=never))["message"]
    policy = {"priorityClassName": never, "preemptionPolicy": "PreemptLowerPriority"}
    assert "computed Never" in api.fails(403, "POST", PODS, pod("a", **policy))["message"]
    unknown = api.fails(403, "POST", PODS, pod("a", priorityClassName="no-such"))
    assert unknown["message"] == 'pods "a" is forbidden: no PriorityClass with name no-such was found'


def test_pods_tolerate_a_node_that_is_not_ready_for_five_minutes(api: Api) -> None:
    taints = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    usual = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in taints]
    assert api.ok("POST", PODS, pod("a"))["spec"]["tolerations"] == usual
    own = {"key": taints[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    assert api.ok("POST", PODS, pod("a", tolerations=[own]))["spec"]["tolerations"] == [own, usual[1]]
    everything = {"operator": "Exists"}
    assert api.ok("POST", PODS, pod("a", tolerations=[everything]))["spec"]["tolerations"] == [everything]


INVALID: list[tuple[dict[str, Any], str]] = [
    (container(imagePullPolicy="x"), "spec.containers[0].imagePullPolicy"),
    (container(image=""), "spec.containers[0].image"),
    (container(name="c d"), "spec.containers[0].name"),
    (container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}), "spec.containers[0].resources.requests"),
    (pod("a", dnsPolicy="x"), "spec.dnsPolicy"),
]


@pytest.mark.parametrize(("body", "field"), INVALID, ids=[field for _, field in INVALID])
def test_an_invalid_spec_is_refused_with_its_cause(api: Api, body: dict[str, Any], field: str) -> None:
    causes = api.fails(422, "POST", PODS, body)["details"]["causes"]
    assert field in {cause["field"] for cause in causes}
