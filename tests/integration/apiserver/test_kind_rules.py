"""What objects of each kind have to be like, as kube-apiserver says it."""

from typing import Any

import pytest

from tests.integration.apiserver.conftest import Api, config_map, pod

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CM = "/api/v1/namespaces/default/configmaps"
POD = "/api/v1/namespaces/default/pods"
EVENT = "/api/v1/namespaces/default/events"
HALF = {"metadata": {"name": "a"}, "status": {"capacity": {"a.io/b": "0.5"}}}


BUDGET = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NO_OPERATOR = {"matchExpressions": [{"key": "a", "operator": "No"}]}


def budget(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": spec}


def event(namespace: str) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace}}


def device(requests: dict[str, str], limits: dict[str, str]) -> dict[str, Any]:
    return pod("a", containers=[{"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}}])


CASES: list[tuple[str, str, Any, str]] = [  # what is wrong, path, body, part of the message
    ("an event elsewhere", EVENT, event("other"), "does not match event.namespace"),
    ("an unlimited device", POD, device({"a.io/b": "1"}, {}), "Limit must be set"),
    ("half a device", POD, device({}, {"a.io/b": "500m"}), "must be an integer"),
    ("fewer devices", POD, device({"a.io/b": "1"}, {"a.io/b": "2"}), "must be equal to a.io/b limit of 2"),
    ("a bare resource", POD, device({"a": "1"}, {}), "must be a standard resource type or fully"),
    ("a node's half device", "/api/v1/nodes", HALF, "status.capacity.a.io/b: Invalid value"),
    ("a bad toleration", POD, pod("a", tolerations=[{"operator": "In"}]), "tolerations[0].operator"),
    ("a percentage", BUDGET, budget(minAvailable="101%"), "must not be greater than 100%"),
    ("a policy", BUDGET, budget(unhealthyPodEvictionPolicy="No"), "EvictionPolicy: Unsupported"),
    ("a selector", BUDGET, budget(selector=NO_OPERATOR), "not a valid selector operator"),
    ("a key twice", CM, config_map("a", k="") | {"binaryData": {"k": ""}}, "duplicate of key"),
    ("a namespace with dots", "/api/v1/namespaces", config_map("a.b"), "must not contain"),
    ("no name", CM, {"metadata": {}}, "name or generateName is required"),
    (
        "a bad name",
        CM,
        config_map("A_b"),
        'ConfigMap "A_b" is invalid: metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain',
    ),
    ("a bad label", CM, {"metadata": {"name": "a", "labels": {"a": "b c"}}}, "metadata.labels: Invalid value"),
    ("an empty pod", POD, {"metadata": {"name": "a"}, "spec": {}}, "spec.containers: Required value"),
    (
        "a container without image",
        POD,
        {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}},
        "spec.containers[0].image: Required value",
    ),
    (
        "a lease without duration",
        LEASE,
        {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 0}},
        "must be greater than 0",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_an_object_that_breaks_a_rule_of_its_kind_is_invalid(api: Api, case: tuple[str, str, Any, str]) -> None:
    _, path, body, message = case
    status = api.fails(422, "POST", path, body)
    assert status["reason"] == "Invalid"
    assert message in status["message"]


def test_built_in_objects_show_what_clients_expect_to_be_there(api: Api, namespace: str, unique: str) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": namespace.rpartition("/")[2]}
    written = api.ok("POST", f"{namespace}/events", {"metadata": {"name": "a"}, "involvedObject": about})
    assert (written["eventTime"], written["source"], written["reportingComponent"]) == (None, {}, "")
    conditions = [{"type": "Ready", "status": "True"}]
    node = api.ok("POST", "/api/v1/nodes", {"metadata": {"name": unique}, "status": {"conditions": conditions}})
    assert node["status"]["conditions"][0]["lastHeartbeatTime"] is None
    api.ok("DELETE", f"/api/v1/nodes/{unique}")
    path = namespace.replace("/api/v1", "/apis/policy/v1") + "/poddisruptionbudgets"
    counts = api.ok("POST", path, budget(minAvailable=1))["status"]
    assert set(counts.values()) == {0}


def test_a_replication_controller_selects_by_labels_those_of_its_template_unless_it_says_so(
    api: Api, namespace: str
) -> None:
    path = f"{namespace}/replicationcontrollers"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    made = api.ok("POST", f"{path}?dryRun=All", {"metadata": {"name": "w"}, "spec": {"template": template}})
    assert (made["spec"]["replicas"], made["spec"]["selector"]) == (1, {"a": "b"})
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    api.ok("POST", path, {"metadata": {"name": "w"}, "spec": {"replicas": 0, "template": template}})
    assert api.ok("GET", f"{path}/w/scale")["status"] == {"replicas": 0, "selector": "a=b"}
    assert api.patch(f"{path}/w/scale?dryRun=All", {"spec": {"replicas": 2}})["spec"] == {"replicas": 2}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec.selector: Required value"),
        ({"selector": {"a": "b"}}, "spec.template: Required value"),
        (
            {"selector": {"a": "c"}, "template": {"metadata": {"labels": {"a": "b"}}}},
            "does not match template `labels`",
        ),
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    ],
)
def test_a_replication_controller_that_cannot_work_is_invalid(api: Api, spec: dict[str, Any], message: str) -> None:
    path = "/api/v1/namespaces/default/replicationcontrollers"
    assert message in api.fails(422, "POST", path, {"metadata": {"name": "a"}, "spec": spec})["message"]
