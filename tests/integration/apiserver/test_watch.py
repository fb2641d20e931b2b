"""Lists and watches: selectors, pages, resuming, bookmarks, expiry."""

import threading
from typing import Any

import pytest

from tests.integration.apiserver.conftest import Api, config_map, pod
from tests.support.apiserver import ApiServer


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def seen(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


@pytest.fixture
def five(api: Api, namespace: str) -> str:
    """Five Secrets a to e with labels; ConfigMaps are in a new namespace of their own accord."""
    for index, name in enumerate("abcde"):
        labels = {"parity": "odd" if index % 2 else "even", "index": str(index)}
        api.ok("POST", f"{namespace}/secrets", {"metadata": {"name": name, "labels": labels}})
    return f"{namespace}/secrets"


SELECTORS = [
    ("parity=odd", "bd"), ("parity==odd", "bd"), ("parity!=odd", "ace"), ("index in (1, 4)", "be"),
    ("index notin (1,4)", "acd"), ("parity", "abcde"), ("!parity", ""), ("missing", ""), ("!missing", "abcde"),
    ("parity=even,index!=0", "ce"), ("missing!=x", "abcde"),
]  # fmt: skip


@pytest.mark.parametrize(("selector", "expected"), SELECTORS, ids=[selector for selector, _ in SELECTORS])
def test_label_selectors_select(api: Api, five: str, selector: str, expected: str) -> None:
    response = api.http.get(five, params={"labelSelector": selector})
    assert "".join(names(response.json()["items"])) == expected


def test_field_selectors_select(api: Api, namespace: str, unique: str) -> None:
    for name, node in (("a", f"{unique}-1"), ("b", f"{unique}-2"), ("c", "")):
        api.ok("POST", f"{namespace}/pods", pod(name, **({"nodeName": node} if node else {})))
    for selector, expected in (
        (f"spec.nodeName={unique}-1", ["a"]),
        (f"spec.nodeName!={unique}-1", ["b", "c"]),
        ("spec.nodeName=", ["c"]),
        ("metadata.name=b,status.phase=Pending", ["b"]),
    ):
        assert names(api.http.get(f"{namespace}/pods", params={"fieldSelector": selector}).json()["items"]) == expected


def test_pages_follow_each_other_at_one_version(api: Api, five: str) -> None:
    first = api.ok("GET", f"{five}?limit=2")
    assert names(first["items"]) == ["a", "b"]
    token = first["metadata"]["continue"]
    second = api.ok("GET", f"{five}?limit=2&continue={token}")
    assert names(second["items"]) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = api.ok("GET", f"{five}?limit=2&continue={second['metadata']['continue']}")
    assert (names(last["items"]), "continue" in last["metadata"]) == (["e"], False)


def test_a_watch_resumes_after_a_version(api: Api, five: str) -> None:
    version = api.ok("GET", five)["metadata"]["resourceVersion"]
    api.patch(f"{five}/a", {"data": {"x": "MQ=="}})
    api.ok("DELETE", f"{five}/b")
    with api.watch(five, resourceVersion=version) as events:
        assert [seen(next(events)) for _ in range(2)] == [("MODIFIED", "a"), ("DELETED", "b")]
        made = api.ok("POST", five, config_map("f"))
        event = next(events)
        assert (seen(event), event["object"]) == (("ADDED", "f"), made)


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
def test_a_watch_from_nowhere_begins_with_what_is(api: Api, five: str, query: dict[str, str]) -> None:
    with api.watch(five, **query) as events:
        assert [seen(next(events)) for _ in range(5)] == [("ADDED", name) for name in "abcde"]


def test_selected_objects_come_and_go_as_they_begin_and_cease_to_match(api: Api, five: str) -> None:
    with api.watch(five, labelSelector="parity=odd") as events:
        assert [seen(next(events)) for _ in range(2)] == [("ADDED", "b"), ("ADDED", "d")]
        changed = api.patch(f"{five}/a", {"metadata": {"labels": {"parity": "odd"}}})
        api.patch(f"{five}/c", {"data": {"not": "seen"}})
        gone = api.patch(f"{five}/b", {"metadata": {"labels": {"parity": "even"}}})
        api.ok("DELETE", f"{five}/d")
        added, left, deleted = next(events), next(events), next(events)
    assert (seen(added), added["object"]) == (("ADDED", "a"), changed)
    assert seen(left) == ("DELETED", "b")
    assert left["object"]["metadata"]["labels"]["parity"] == "odd"  # as it was when it last matched
    assert left["object"]["metadata"]["resourceVersion"] == gone["metadata"]["resourceVersion"]
    assert seen(deleted) == ("DELETED", "d")


def test_one_object_is_watched_by_its_name(api: Api, five: str) -> None:
    assert api.ok("GET", f"{five}/c?watch=1")["metadata"]["name"] == "c"  # a name in the path makes it a get
    with api.watch(five, fieldSelector="metadata.name=c") as events:
        assert seen(next(events)) == ("ADDED", "c")
        api.patch(f"{five}/a", {"data": {"x": "MQ=="}})
        api.patch(f"{five}/c", {"data": {"x": "MQ=="}})
        assert seen(next(events)) == ("MODIFIED", "c")


def test_a_version_that_is_too_old_ends_the_watch_with_410_inside_the_stream(
    server: ApiServer, api: Api, five: str
) -> None:
    old = int(api.ok("GET", five)["metadata"]["resourceVersion"]) - 1
    server.compact()
    with api.watch(five, resourceVersion=old) as events:
        error = next(events)
        assert list(events) == []
    assert error["type"] == "ERROR"
    assert (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")
    assert error["object"]["message"].startswith(f"too old resource version: {old} (")


def test_a_watch_ends_after_its_timeout(api: Api, five: str) -> None:
    version = api.ok("GET", five)["metadata"]["resourceVersion"]
    with api.watch(five, resourceVersion=version, timeoutSeconds=1, allowWatchBookmarks="true") as events:
        found = list(events)
    assert {event["type"] for event in found} <= {"BOOKMARK"}


def test_what_is_written_at_once_by_many_reaches_every_watcher_in_order(api: Api, namespace: str) -> None:
    path = f"{namespace}/secrets"
    version = api.ok("GET", path)["metadata"]["resourceVersion"]
    with api.watch(path, resourceVersion=version) as events:
        threads = [
            threading.Thread(target=lambda name=name: api.ok("POST", path, {"metadata": {"name": name}}))
            for name in (f"m{index}" for index in range(20))
        ]
        for thread in threads:
            thread.start()
        versions = [int(next(events)["object"]["metadata"]["resourceVersion"]) for _ in range(20)]
        for thread in threads:
            thread.join()
    assert versions == sorted(set(versions))


def test_a_watch_shows_tables_to_who_asks_for_them(api: Api, five: str) -> None:
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    table = api.http.get(five, headers=accept, params={"includeObject": "Object"}).json()
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
    assert [row["cells"][0] for row in table["rows"]] == list("abcde")
    assert table["rows"][0]["object"]["kind"] == "Secret"
    with api.http.stream("GET", five, headers=accept, params={"watch": "1"}) as response:
        assert '"kind":"Table"' in next(response.iter_lines())
