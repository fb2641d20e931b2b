"""Events, as v1 and as events.k8s.io/v1: the same objects under two sets of names."""

from typing import Any

import pytest

from tests.integration.apiserver.conftest import MERGE, Api, Kubectl


@pytest.fixture
def paths(namespace: str) -> tuple[str, str]:
    """The events of a namespace, as v1 and as events.k8s.io/v1."""
    return f"{namespace}/events", namespace.replace("/api/v1", "/apis/events.k8s.io/v1") + "/events"


def about(path: str) -> dict[str, Any]:
    return {"kind": "Pod", "namespace": path.split("/")[-2], "name": "p", "apiVersion": "v1"}


def old_event(path: str) -> dict[str, Any]:
    moment = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:01Z", "count": 3}
    said = {"reason": "R", "message": "m", "type": "Normal", "source": {"component": "x", "host": "h"}}
    return {"metadata": {"name": "old"}, "involvedObject": about(path)} | moment | said


def new_event(path: str) -> dict[str, Any]:
    said = {"reason": "R", "note": "n", "type": "Warning", "action": "A", "eventTime": "2026-01-01T00:00:00.000000Z"}
    by = {"reportingController": "x.y/z", "reportingInstance": "h"}
    return {"metadata": {"name": "new"}, "regarding": about(path)} | said | by


def without_metadata(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "metadata"}


def test_an_old_event_is_shown_under_the_new_names(api: Api, paths: tuple[str, str]) -> None:
    core, new = paths
    api.ok("POST", core, old_event(core))
    assert without_metadata(api.ok("GET", f"{new}/old")) == {
        "kind": "Event", "apiVersion": "events.k8s.io/v1", "regarding": about(core), "note": "m", "reason": "R",
        "type": "Normal", "eventTime": None, "deprecatedSource": {"component": "x", "host": "h"}, "deprecatedCount": 3,
        "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": "2026-01-01T00:00:01Z",
    }  # fmt: skip


def test_a_new_event_is_shown_under_the_old_names(api: Api, paths: tuple[str, str]) -> None:
    core, new = paths
    made = api.ok("POST", new, new_event(core))
    assert (made["apiVersion"], made["note"]) == ("events.k8s.io/v1", "n")
    assert without_metadata(api.ok("GET", f"{core}/new")) == {
        "kind": "Event", "apiVersion": "v1", "involvedObject": about(core), "message": "n", "reason": "R",
        "type": "Warning", "action": "A", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "x.y/z",
        "reportingInstance": "h", "source": {}, "firstTimestamp": None, "lastTimestamp": None,
    }  # fmt: skip
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    assert api.patch(f"{new}/new", {"series": series}, MERGE)["series"] == series
    assert api.ok("GET", f"{core}/new")["series"] == series
    refused = api.fails(422, "PATCH", f"{new}/new", {"note": "other"}, MERGE)
    assert refused["message"] == 'Event "new" is invalid: message: Invalid value: "other": field is immutable'
    assert api.ok("DELETE", f"{new}/new")["details"]["group"] == "events.k8s.io"
    assert api.gone(f"{core}/new")


def test_lists_watches_and_selectors_speak_the_new_names(api: Api, paths: tuple[str, str]) -> None:
    core, new = paths
    api.ok("POST", core, old_event(core))
    api.ok("POST", new, new_event(core))
    listed = api.ok("GET", new)
    assert (listed["kind"], listed["apiVersion"]) == ("EventList", "events.k8s.io/v1")
    assert {item["metadata"]["name"]: item["note"] for item in listed["items"]} == {"old": "m", "new": "n"}
    with api.watch(new, resourceVersion="0") as events:
        seen = [next(events) for _ in range(2)]
    assert {event["object"]["metadata"]["name"]: event["object"]["note"] for event in seen} == {"old": "m", "new": "n"}
    for selector, names in (
        ("regarding.name=p", {"old", "new"}),
        ("reportingController=x.y/z", {"new"}),
        ("type!=Warning", {"old"}),
    ):
        found = api.ok("GET", f"{new}?fieldSelector={selector}")["items"]
        assert {item["metadata"]["name"] for item in found} == names
    refused = api.fails(400, "GET", f"{new}?fieldSelector=involvedObject.kind=Pod")
    assert refused["message"] == "field label not supported: involvedObject.kind"


@pytest.mark.parametrize("field", ["eventTime", "action", "reason", "reportingController", "reportingInstance", "type"])
def test_a_new_event_says_all_it_has_to(api: Api, paths: tuple[str, str], field: str) -> None:
    core, new = paths
    event = {key: value for key, value in new_event(core).items() if key != field}
    causes = api.fails(422, "POST", new, event)["details"]["causes"]
    assert field in {cause["field"] for cause in causes}


def test_kubectl_shows_events_of_both_versions(api: Api, paths: tuple[str, str], kubectl: Kubectl) -> None:
    core, _ = paths
    namespace = core.split("/")[4]
    api.ok("POST", core, old_event(core))
    for command in ("get events", "get events.v1.events.k8s.io", "events"):
        assert "Normal" in kubectl(f"{command} -n {namespace}")
