"""Scripted faults do what they say, to whom they say, as often as they say."""

import time

import httpx
import pytest

from tests.integration.apiserver.conftest import Api, config_map
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule

CM = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("code", "reason"), [(409, "Conflict"), (410, "Expired"), (429, "TooManyRequests"), (500, "InternalError")]
)
def test_a_status_is_given_as_often_as_asked(server: ApiServer, api: Api, code: int, reason: str) -> None:
    server.fault(rule("status", "configmaps", method="GET", times=2, status=code, retryAfter=1))
    for _ in range(2):
        refused = api.call("GET", CM)
        assert (refused.status_code, refused.json()["reason"], refused.headers["retry-after"]) == (code, reason, "1")
    assert api.call("GET", CM).status_code == 200


def test_only_what_matches_is_struck_and_rules_can_be_taken_back(server: ApiServer, api: Api) -> None:
    server.fault(rule("status", method="PATCH", times=0, status=500))
    assert api.call("GET", CM).status_code == 200
    assert api.call("PATCH", f"{CM}/a", {}).status_code == 500
    server.heal()
    assert api.call("PATCH", f"{CM}/a", {}).status_code == 415


def test_an_answer_is_delayed(server: ApiServer, api: Api) -> None:
    server.fault(rule("delay", seconds=0.3))
    begin = time.monotonic()
    api.ok("GET", CM)
    assert time.monotonic() - begin >= 0.3


def test_a_connection_is_closed_without_an_answer(server: ApiServer, api: Api) -> None:
    server.fault(rule("close"))
    with pytest.raises(httpx.RemoteProtocolError):
        api.call("GET", CM)
    api.ok("GET", CM)


def test_an_answer_is_cut_in_its_middle(server: ApiServer, api: Api) -> None:
    server.fault(rule("truncate"))
    with pytest.raises(httpx.RemoteProtocolError, match="complete message body"):
        api.call("GET", CM)


def test_a_watch_is_dropped_after_a_while(server: ApiServer, api: Api, unique: str) -> None:
    server.fault(rule("drop-watch", "watch", seconds=0.3))
    with pytest.raises(httpx.RemoteProtocolError), api.watch(CM, resourceVersion="0") as events:
        list(events)
    version = api.ok("GET", CM)["metadata"]["resourceVersion"]
    with api.watch(CM, resourceVersion=version) as events:
        api.ok("POST", CM, config_map(unique))
        assert next(events)["object"]["metadata"]["name"] == unique


@pytest.mark.embedded_only("it is about the path at which the embedded server is told what to do wrong")
def test_a_script_that_cannot_be_read_is_refused_and_the_old_one_kept(server: ApiServer, api: Api) -> None:
    server.fault(rule("status", times=0, status=429))
    for broken in (
        [{"action": "explode"}],
        [{"action": "delay", "math": {}}],
        [{"action": "delay", "match": {"path": "("}}],
    ):
        assert "fault rules" in api.fails(400, "POST", "/_faults", broken)["message"]
    assert api.call("GET", CM).status_code == 429
    server.heal()
    eventually(lambda: api.call("GET", CM).status_code == 200)
