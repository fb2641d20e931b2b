"""Service accounts and their tokens, and who the caller is."""

import time
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Api, Kubectl
from tests.support import eventually

NODE = {"kind": "Node", "apiVersion": "v1"}


@pytest.fixture
def token_path(api: Api, namespace: str) -> str:
    """Where tokens of a service account of the test's own are asked for."""
    api.ok("POST", f"{namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
    return f"{namespace}/serviceaccounts/robot/token"


def uid_of(api: Api, path: str, other_than: str | None = None) -> str | None:
    """The uid of an object that is there, and is not the one of before."""
    response = api.call("GET", path)
    uid: str | None = response.json()["metadata"].get("uid") if response.is_success else None
    return uid if uid != other_than else None


def test_every_namespace_has_an_account_and_the_authorities(api: Api, namespace: str) -> None:
    for path in (f"{namespace}/serviceaccounts/default", f"{namespace}/configmaps/kube-root-ca.crt"):
        first = eventually(partial(uid_of, api, path))
        api.ok("DELETE", path)
        assert eventually(partial(uid_of, api, path, first))
    assert "ca.crt" in api.ok("GET", f"{namespace}/configmaps/kube-root-ca.crt")["data"]


def test_a_token_lasts_as_long_as_asked(api: Api, token_path: str) -> None:
    issued = api.ok("POST", token_path, {"spec": {"audiences": ["a"], "expirationSeconds": 1200}})
    assert (issued["kind"], issued["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert issued["spec"] == {"audiences": ["a"], "expirationSeconds": 1200, "boundObjectRef": None}
    assert issued["status"]["token"]
    ends = datetime.fromisoformat(issued["status"]["expirationTimestamp"]).timestamp()
    assert abs(ends - time.time() - 1200) < 60
    assert api.ok("POST", token_path, {})["spec"]["expirationSeconds"] == 3600


def test_a_token_is_bound_to_an_object_that_is_there(api: Api, token_path: str, unique: str) -> None:
    api.ok("POST", "/api/v1/nodes", {"metadata": {"name": unique}})
    bound = {"boundObjectRef": NODE | {"name": unique}}
    assert api.ok("POST", token_path, {"spec": bound})["spec"]["boundObjectRef"]["name"] == unique
    bound["boundObjectRef"]["uid"] = "other"
    assert "does not match the UID in record" in api.fails(409, "POST", token_path, {"spec": bound})["message"]
    api.ok("DELETE", f"/api/v1/nodes/{unique}")


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"spec": {"expirationSeconds": 599}}, 422, "may not specify a duration less than 10 minutes"),
    ({"spec": {"expirationSeconds": 2**33}}, 422, "may not specify a duration larger than 2^32 seconds"),
    ({"spec": {"boundObjectRef": NODE | {"name": "no-such"}}}, 404, 'nodes "no-such" not found'),
    (
        {"spec": {"boundObjectRef": {"kind": "Foo", "apiVersion": "v1", "name": "a"}}},
        400,
        "cannot bind token to object",
    ),
    ({"metadata": {"name": "other"}}, 422, "must match the service account name if specified"),
]


@pytest.mark.parametrize(("body", "code", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_a_token_that_cannot_be_is_refused(
    api: Api, token_path: str, body: dict[str, Any], code: int, message: str
) -> None:
    assert message in api.fails(code, "POST", token_path, body)["message"]


def test_an_account_that_is_not_there_has_no_tokens(api: Api, namespace: str) -> None:
    missing = api.fails(404, "POST", f"{namespace}/serviceaccounts/no-such/token", {})
    assert missing["message"] == 'serviceaccounts "no-such" not found'


def test_reviews_say_who_the_caller_is_and_what_it_may(api: Api) -> None:
    who = api.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert "system:masters" in who["status"]["userInfo"]["groups"]
    access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    asked = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}
    assert api.ok("POST", access, asked)["status"]["allowed"] is True
    assert "exactly one of" in api.fails(422, "POST", access, {})["message"]
    other = {"spec": {"user": "nobody", "resourceAttributes": {"verb": "get", "resource": "nodes"}}}
    assert api.ok("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", other)["status"]["allowed"] is False
    token = {"spec": {"token": "none"}}
    assert "user" in api.ok("POST", "/apis/authentication.k8s.io/v1/tokenreviews", token)["status"]
    api.fails(405, "GET", "/apis/authentication.k8s.io/v1/selfsubjectreviews")


def test_kubectl_asks_who_it_is_and_for_tokens(kubectl: Kubectl) -> None:
    assert "system:masters" in kubectl("auth whoami")
    assert "*.*" in kubectl("auth can-i --list")
    assert kubectl("create token default --duration=700s").strip()
    assert 'serviceaccounts "no-such" not found' in kubectl("create token no-such", fails=True)
