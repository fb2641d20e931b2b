"""Codes, reasons and details of refused requests, as kube-apiserver gives them."""

from typing import Any

import pytest

from tests.integration.apiserver.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, config_map, pod
from tests.support.apiserver import ApiServer

NM = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CM = "/api/v1/namespaces/default/configmaps"
POD = "/api/v1/namespaces/default/pods"

TWICE = {"orphanDependents": True, "propagationPolicy": "Orphan"}

# what, method, path, body, media type, code, reason, part of the message
CASES: list[tuple[str, str, str, Any, str, int, str, str]] = [
    ("missing object", "GET", f"{CM}/nope", None, "", 404, "NotFound", 'configmaps "nope" not found'),
    (
        "missing object of a group",
        "GET",
        f"{LEASE}/nope",
        None,
        "",
        404,
        "NotFound",
        'leases.coordination.k8s.io "nope" not found',
    ),
    (
        "missing namespace",
        "POST",
        "/api/v1/namespaces/nope/configmaps",
        config_map("a"),
        "",
        404,
        "NotFound",
        'namespaces "nope" not found',
    ),
    ("malformed JSON", "POST", CM, "{", "", 400, "BadRequest", ""),
    ("no JSON object", "POST", CM, "[1]", "", 400, "BadRequest", "must be of type ConfigMap"),
    ("another kind", "POST", CM, {"kind": "Pod"}, "", 400, "BadRequest", "cannot be handled as a ConfigMap"),
    (
        "another version",
        "POST",
        CM,
        {"apiVersion": "v2"},
        "",
        400,
        "BadRequest",
        'no kind "ConfigMap" is registered for version "v2"',
    ),
    (
        "another namespace",
        "POST",
        CM,
        {"metadata": {"name": "a", "namespace": "b"}},
        "",
        400,
        "BadRequest",
        "the namespace of the provided object does not match",
    ),
    (
        "another name",
        "PUT",
        f"{CM}/a",
        config_map("b"),
        "",
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    ),
    ("a bad dry run", "POST", f"{CM}?dryRun=1", config_map("a"), "", 422, "Invalid", "CreateOptions.meta.k8s.io"),
    (
        "a bad dry run of a patch",
        "PATCH",
        f"{CM}/a?dryRun=1",
        {},
        MERGE,
        422,
        "Invalid",
        'dryRun: Unsupported value: ["1"]',
    ),
    (
        "a bad dry run of a deletion",
        "DELETE",
        f"{CM}/a",
        {"dryRun": ["1"]},
        "",
        422,
        "Invalid",
        "DeleteOptions.meta.k8s.io",
    ),
    ("a bad validation", "PUT", f"{CM}/a?fieldValidation=1", config_map("a"), "", 422, "Invalid", "UpdateOptions.meta"),
    (
        "two propagations",
        "DELETE",
        f"{CM}/a",
        TWICE,
        "",
        422,
        "Invalid",
        "orphanDependents and deletionPropagation cannot",
    ),
    (
        "a namespace that stays",
        "DELETE",
        "/api/v1/namespaces/default",
        None,
        "",
        403,
        "Forbidden",
        "may not be deleted",
    ),
    ("a comparison", "GET", f"{CM}?labelSelector=a%3Eb", None, "", 400, "BadRequest", "the value must be an integer"),
    (
        "a long manager",
        "PATCH",
        f"{CM}/a?fieldManager={'a' * 129}",
        {},
        MERGE,
        422,
        "Invalid",
        "fieldManager: Too long",
    ),
    ("a media type for no object", "POST", CM, "a", "text/plain", 415, "UnsupportedMediaType", "application/yaml"),
    ("a limit that is no number", "GET", f"{CM}?limit=x", None, "", 400, "BadRequest", 'strconv.ParseInt: parsing "x"'),
    ("no name in a PUT", "PUT", f"{CM}/a", {"metadata": {}}, "", 400, "BadRequest", "name must be provided"),
    (
        "labels of the wrong type",
        "POST",
        CM,
        {"metadata": {"name": "a", "labels": {"a": 1}}},
        "",
        400,
        "BadRequest",
        "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
    ),
    (
        "data of the wrong type",
        "POST",
        CM,
        {"metadata": {"name": "a"}, "data": {"a": 1}},
        "",
        400,
        "BadRequest",
        "cannot be handled as a ConfigMap",
    ),
    (
        "a bad quantity",
        "POST",
        "/api/v1/nodes",
        {"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "4x"}}},
        "",
        400,
        "BadRequest",
        "cannot be handled as a Node",
    ),
    (
        "an unknown priority class",
        "POST",
        POD,
        pod("a", priorityClassName="nope"),
        "",
        403,
        "Forbidden",
        "no PriorityClass with name nope was found",
    ),
    (
        "a lease time without microseconds",
        "POST",
        LEASE,
        {"metadata": {"name": "a"}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}},
        "",
        400,
        "BadRequest",
        'cannot parse "Z" as ".000000"',
    ),
    ("a patch of nothing", "PATCH", f"{CM}/nope", {}, MERGE, 404, "NotFound", ""),
    (
        "an unknown patch type",
        "PATCH",
        f"{CM}/nope",
        {},
        "application/json",
        415,
        "UnsupportedMediaType",
        "415: Unsupported Media Type",
    ),
    (
        "a strategic patch of a custom kind",
        "PATCH",
        f"{NM}/nope",
        {},
        STRATEGIC,
        415,
        "UnsupportedMediaType",
        "accepted media types",
    ),
    ("a merge patch that is no object", "PATCH", "/api/v1/namespaces/default", [], MERGE, 400, "BadRequest", ""),
    ("a JSON patch that is no list", "PATCH", "/api/v1/namespaces/default", {}, JSON_PATCH, 400, "BadRequest", ""),
    (
        "apply without manager",
        "PATCH",
        f"{CM}/a",
        config_map("a"),
        APPLY,
        422,
        "Invalid",
        "fieldManager: Required value: is required for apply patch",
    ),
    (
        "force without apply",
        "PATCH",
        f"{CM}/a?force=true",
        {},
        MERGE,
        422,
        "Invalid",
        "may not be specified for non-apply patch",
    ),
    (
        "an unknown field selector",
        "GET",
        f"{POD}?fieldSelector=spec.foo%3Da",
        None,
        "",
        400,
        "BadRequest",
        "field label not supported: spec.foo",
    ),
    (
        "a field selector of a plain kind",
        "GET",
        f"{CM}?fieldSelector=data.a%3Da",
        None,
        "",
        400,
        "BadRequest",
        '"data.a" is not a known field selector',
    ),
    (
        "a bad label selector",
        "GET",
        f"{CM}?labelSelector=a%3D%3D%3Db",
        None,
        "",
        400,
        "BadRequest",
        "unable to parse requirement",
    ),
    (
        "a version from the future",
        "GET",
        f"{CM}?resourceVersion=99999999999999999",
        None,
        "",
        504,
        "Timeout",
        "Too large resource version",
    ),
    (
        "a version that is none",
        "GET",
        f"{CM}?resourceVersion=abc",
        None,
        "",
        400,
        "BadRequest",
        "invalid resource version: resourceVersion: Invalid value",
    ),
    (
        "a match without version",
        "GET",
        f"{CM}?resourceVersionMatch=Exact",
        None,
        "",
        422,
        "Invalid",
        "resourceVersionMatch is forbidden unless resourceVersion is provided",
    ),
    (
        "initial events without match",
        "GET",
        f"{CM}?watch=1&sendInitialEvents=true",
        None,
        "",
        422,
        "Invalid",
        "sendInitialEvents requires setting resourceVersionMatch",
    ),
    (
        "a broken continue token",
        "GET",
        f"{CM}?limit=1&continue=%25",
        None,
        "",
        400,
        "BadRequest",
        "continue key is not valid",
    ),
    ("a method that is not allowed", "POST", f"{CM}/a", {}, "", 405, "MethodNotAllowed", "does not allow this method"),
    (
        "a bad propagation policy",
        "DELETE",
        f"{CM}/a?propagationPolicy=No",
        None,
        "",
        422,
        "Invalid",
        "propagationPolicy: Unsupported value",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_refused_request_is_answered_with_the_status_of_its_cause(
    api: Api, case: tuple[str, str, str, Any, str, int, str, str]
) -> None:
    _, method, path, body, media_type, code, reason, message = case
    status = api.fails(code, method, path, body, media_type or "application/json")
    assert (status["kind"], status["apiVersion"], status["status"], status["code"]) == ("Status", "v1", "Failure", code)
    assert status["reason"] == reason
    assert message in status["message"]


def test_details_name_the_object_and_every_cause(api: Api) -> None:
    status = api.fails(
        422, "POST", POD, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}, {"name": "c"}]}}
    )
    assert status["details"]["name"] == "a"
    assert status["details"]["kind"] == "Pod"
    causes = {(cause["field"], cause["reason"]) for cause in status["details"]["causes"]}
    assert ("spec.containers[1].name", "FieldValueDuplicate") in causes
    assert ("spec.containers[0].image", "FieldValueRequired") in causes


@pytest.mark.embedded_only("kube-apiserver reads protobuf of every kind")
def test_protobuf_of_a_kind_that_is_not_read_is_refused_with_what_to_do_instead(api: Api) -> None:
    path, media_type = "/apis/apps/v1/namespaces/default/deployments", "application/vnd.kubernetes.protobuf"
    assert "apply -f" in api.fails(415, "POST", path, b"k8s\x00", media_type)["message"]


@pytest.mark.parametrize("credentials", ["", "Bearer wrong", "Basic !"])
def test_without_the_token_nothing_but_health_and_version_is_answered(server: ApiServer, credentials: str) -> None:
    with server.http(headers={"Authorization": credentials}) as http:
        refused = http.get("/api/v1/nodes")
        # Whoever says nothing about himself is somebody to a server that knows rights: "system:anonymous".
        allowed = {(401, "Unauthorized")} if "wrong" in credentials else {(401, "Unauthorized"), (403, "Forbidden")}
        assert (refused.status_code, refused.json()["reason"]) in allowed
        if "wrong" not in credentials:
            assert http.get("/healthz").text == "ok"
            assert http.get("/version").json()["major"] == "1"


def test_a_resource_that_is_not_served_is_not_found(api: Api) -> None:
    for path in ("/apis/example.com/v1/things", f"{NM.rpartition('/')[0]}/things", "/nonsense"):
        response = api.call("GET", path)
        assert (response.status_code, response.text) == (404, "404 page not found\n")
    for path in ("/api/v1/things", f"{CM}/a/status", "/api/v1/nodes/a/b/c"):
        status = api.fails(404, "GET", path)
        assert (status["message"], status["details"]) == ("the server could not find the requested resource", {})
