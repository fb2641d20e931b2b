"""Changes of objects that exist and may not become what they are asked to be."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.apiserver.conftest import APPLY, JSON_PATCH, MERGE, Api, config_map

CM = "/api/v1/namespaces/default/configmaps"
UNREASONED: list[tuple[str, str, str, Any, str, str]] = [  # what the API answers with code 500 and no reason
    ("get", "GET", f"{CM}/kept?resourceVersion=abc", None, "", "resourceVersion: Invalid value"),
    ("watch", "GET", f"{CM}?watch=1&resourceVersion=abc", None, "", "resourceVersion: Invalid value"),
    ("put", "PUT", f"{CM}/kept", {"metadata": {"name": "kept", "resourceVersion": "abc"}}, "", "ParseUint"),
    ("patch", "PATCH", f"{CM}/kept", {"metadata": {"resourceVersion": "abc"}}, MERGE, "ParseUint"),
    (
        "apply",
        "PATCH",
        f"{CM}/kept?fieldManager=a&force=true",
        {"apiVersion": "v1", "kind": "ConfigMap", **config_map("kept"), "data": 1},
        APPLY,
        "typed patch object",
    ),
]


@pytest.mark.parametrize("case", UNREASONED, ids=lambda case: case[0])
def test_some_bad_requests_are_answered_like_failures_of_the_server(
    api: Api, kept: None, case: tuple[str, str, str, Any, str, str]
) -> None:
    _, method, path, body, media_type, message = case
    status = api.fails(500, method, path, body, media_type or "application/json")
    assert "reason" not in status
    assert message in status["message"]


@pytest.fixture
def kept(api: Api) -> Iterator[None]:
    """A ConfigMap and a Node of this name."""
    api.ok("POST", CM, config_map("kept"))
    api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "kept"}})
    yield
    api.ok("DELETE", f"{CM}/kept")
    api.ok("DELETE", "/api/v1/nodes/kept")


NODE = "/api/v1/nodes/kept"
_OWNERS = [{"apiVersion": "v1", "kind": "Node", "name": n, "uid": n, "controller": True} for n in "ab"]
REFUSED_CHANGES: list[tuple[str, Any, str, int, str]] = [  # what, body, media type, code, part of the message
    ("another name", {"metadata": {"name": "b"}}, MERGE, 400, "(b) does not match the name on the URL (kept)"),
    ("no name", [{"op": "replace", "path": "", "value": {}}], JSON_PATCH, 400, "name must be provided"),
    ("another uid", {"metadata": {"uid": "b"}}, MERGE, 422, "metadata.uid: Invalid value"),
    ("a deletion", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, MERGE, 422, "field is immutable"),
    ("a wrong type", {"metadata": {"labels": {"a": 1}}}, MERGE, 422, '"" is invalid: patch: Invalid value'),
    ("a bare finalizer", {"metadata": {"finalizers": ["a"]}}, MERGE, 422, "metadata.finalizers[0]: Invalid value"),
    ("a long label", {"metadata": {"labels": {"a" * 64: ""}}}, MERGE, 422, "name part must be no more than 63 bytes"),
    ("a long value", {"metadata": {"labels": {"a": "b" * 64}}}, MERGE, 422, "must be no more than 63 bytes"),
    ("a bad prefix", {"metadata": {"labels": {"A_/b": ""}}}, MERGE, 422, "prefix part a lowercase RFC 1123"),
    ("two controllers", {"metadata": {"ownerReferences": _OWNERS}}, MERGE, 422, "in references for Node/a and Node/b"),
    ("no owner", {"metadata": {"ownerReferences": [{}]}}, MERGE, 422, "ownerReferences.apiVersion: Invalid value"),
    ("another kind", {"kind": "Pod"}, MERGE, 422, '"" is invalid: patch: Invalid value'),
    ("another version", {"apiVersion": "v9"}, MERGE, 422, '"" is invalid: patch: Invalid value'),
    ("a failed test", [{"op": "test", "path": "/kind", "value": "Pod"}], JSON_PATCH, 422, "the server rejected our"),
]


@pytest.mark.parametrize("case", REFUSED_CHANGES, ids=lambda case: case[0])
def test_a_patch_that_makes_a_bad_object_is_refused(api: Api, kept: None, case: tuple[str, Any, str, int, str]) -> None:
    _, body, media_type, code, message = case
    assert message in api.fails(code, "PATCH", NODE, body, media_type)["message"]


def test_an_immutable_config_map_stays_immutable(api: Api, kept: None) -> None:
    api.patch(f"{CM}/kept", {"immutable": True})
    status = api.fails(422, "PATCH", f"{CM}/kept", {"immutable": False}, MERGE)
    assert "immutable: Forbidden: field is immutable" in status["message"]
