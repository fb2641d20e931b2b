"""The scale subresource of workloads."""

from typing import Any

import pytest

from tests.integration.apiserver.conftest import JSON_PATCH, MERGE, STRATEGIC, Api, Kubectl

KINDS = {"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}


@pytest.fixture(params=KINDS)
def workload(api: Api, namespace: str, request: pytest.FixtureRequest) -> str:
    """The path of a workload without replicas."""
    path = namespace.replace("/api/v1", "/apis/apps/v1") + f"/{request.param}"
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    spec = {"replicas": 0, "selector": selector, "template": template}
    api.ok("POST", path, {"metadata": {"name": "w"}, "spec": spec})
    return f"{path}/w"


def scale(replicas: int, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "w"} | meta,
        "spec": {"replicas": replicas},
    }


def test_a_scale_shows_what_is_wanted_what_is_there_and_which_pods(api: Api, workload: str) -> None:
    shown, whole = api.ok("GET", f"{workload}/scale"), api.ok("GET", workload)
    assert (shown["kind"], shown["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert shown["metadata"]["uid"] == whole["metadata"]["uid"]
    assert (shown["spec"], shown["status"]) == ({}, {"replicas": 0, "selector": "a=b,!z"})


def test_a_scale_is_replaced_and_patched(api: Api, workload: str) -> None:
    dry = f"{workload}/scale?dryRun=All"
    assert api.ok("PUT", dry, scale(3))["spec"] == {"replicas": 3}
    for media_type in (MERGE, STRATEGIC):
        assert api.patch(dry, {"spec": {"replicas": 4}}, media_type)["spec"] == {"replicas": 4}
    assert api.patch(dry, [{"op": "add", "path": "/spec/replicas", "value": 5}], JSON_PATCH)["spec"] == {"replicas": 5}
    before = api.ok("GET", workload)["metadata"]["generation"]
    assert api.patch(f"{workload}/scale", {"spec": {"replicas": 2}})["spec"] == {"replicas": 2}
    after = api.ok("GET", workload)
    assert (after["spec"]["replicas"], after["metadata"]["generation"]) == (2, before + 1)
    assert "scale" in {entry.get("subresource") for entry in after["metadata"]["managedFields"]}


def test_a_scale_is_refused_for_its_own_faults(api: Api, workload: str) -> None:
    refused = api.fails(422, "PUT", f"{workload}/scale", scale(-1))
    assert refused["message"] == (
        'Scale.autoscaling "w" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )
    assert api.fails(409, "PUT", f"{workload}/scale", scale(1, resourceVersion="1"))["reason"] == "Conflict"
    api.fails(400, "PUT", f"{workload}/scale", scale(1) | {"metadata": {"name": "other"}})
    api.fails(400, "PUT", f"{workload}/scale?fieldValidation=Strict", scale(1) | {"foo": 1})
    api.fails(404, "GET", f"{workload}x/scale")
    api.fails(405, "DELETE", f"{workload}/scale")


def test_kubectl_scales(api: Api, workload: str, kubectl: Kubectl) -> None:
    namespace, kind = workload.split("/")[5:7]
    assert "scaled" in kubectl(f"scale -n {namespace} {kind}/w --replicas=1")
    assert api.ok("GET", workload)["spec"]["replicas"] == 1
    assert "Expected replicas to be 7" in kubectl(
        f"scale -n {namespace} {kind}/w --current-replicas=7 --replicas=2", fails=True
    )


def test_a_daemon_set_has_no_scale(api: Api, namespace: str) -> None:
    api.fails(404, "GET", namespace.replace("/api/v1", "/apis/apps/v1") + "/daemonsets/w/scale")
