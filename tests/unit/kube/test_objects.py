import json
import subprocess
import sys
from typing import Any

import pytest

from shared.api.core import Node
from shared.kube import objects
from shared.kube.errors import ApiError, Gone, InvalidResponse
from shared.kube.objects import RefusedObject, WatchEvent


def line(type: str, item: object) -> bytes:
    return json.dumps({"type": type, "object": item}).encode()


GOOD = {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"}, "status": {"capacity": {"cpu": "4"}}}
BAD: dict[str, Any] = {"metadata": {"name": "n2", "resourceVersion": "8"}, "status": {"capacity": "lots"}}


@pytest.mark.parametrize("type", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_carries_its_object_key_and_version(type: str) -> None:
    event = objects.decode_event(line(type, GOOD), Node)
    assert isinstance(event, WatchEvent)
    assert (event.type, event.key, event.resource_version) == (type, "n1", "7")
    assert event.object is not None
    assert event.object.status.capacity == {"cpu": "4"}


def test_a_bookmark_moves_the_position_even_where_the_object_has_required_fields() -> None:
    event = objects.decode_event(line("BOOKMARK", {"metadata": {"resourceVersion": "99"}, "spec": 5}), Node)
    assert event == WatchEvent("BOOKMARK", "", "99")


def test_a_malformed_object_is_refused_with_its_name_and_fault() -> None:
    refused = objects.decode_event(line("MODIFIED", BAD), Node)
    assert isinstance(refused, RefusedObject)
    assert (refused.key, refused.resource_version) == ("n2", "8")
    assert "$.status.capacity" in refused.reason


def test_a_malformed_object_that_is_deleted_is_deleted_all_the_same() -> None:
    assert objects.decode_event(line("DELETED", BAD), Node) == WatchEvent("DELETED", "n2", "8")


def test_an_object_whose_very_name_is_malformed_is_refused_without_a_key() -> None:
    refused = objects.decode_event(line("ADDED", {"metadata": {"name": 5}}), Node)
    assert isinstance(refused, RefusedObject)
    assert refused.key == ""


def test_an_error_event_raises_what_it_reports() -> None:
    with pytest.raises(Gone):
        objects.decode_event(line("ERROR", {"code": 410, "reason": "Expired", "message": "m"}), Node)
    with pytest.raises(ApiError):
        objects.decode_event(line("ERROR", {"metadata": {}, "message": "m"}), Node)


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"null",
        b"[]",
        b'"ADDED"',
        b"{}",
        b'{"type":"ADDED"}',
        b'{"type":5,"object":{}}',
        b'{"type":"SURPRISE","object":{}}',
        b'{"type":"ERROR","object":"not a status"}',
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}',
        b"<html>",
        b'{"type":"ADDED","object":' + b"[" * 200_000,
    ],
)
def test_what_is_no_event_is_an_invalid_response(raw: bytes) -> None:
    with pytest.raises(InvalidResponse):
        objects.decode_event(raw, Node)


def test_a_page_gives_the_good_objects_and_names_the_bad_ones() -> None:
    body = json.dumps({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [GOOD, BAD]}).encode()
    page = objects.decode_page(body, Node)
    assert [item.metadata.name for item in page.items] == ["n1"]
    assert [refused.key for refused in page.refused] == ["n2"]
    assert (page.resource_version, page.continue_token) == ("9", "t")


def test_a_page_of_nothing_is_empty() -> None:
    assert objects.decode_page(b'{"metadata":{"resourceVersion":"1"},"items":null}', Node).items == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"metadata":{}}', b'{"items":[]}', b'{"metadata":{},"items":5}'])
def test_what_is_no_list_never_passes_for_an_empty_one(body: bytes) -> None:
    with pytest.raises(InvalidResponse):
        objects.decode_page(body, Node)


def test_many_threads_may_meet_a_struct_for_the_first_time_at_once() -> None:
    # In a process of its own: what this guards against is a crash of the interpreter.
    code = """
import sys, threading, msgspec
from shared.api.meta import ObjectMeta
from shared.kube import objects
sys.setswitchinterval(1e-6)
body = b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"},"inner":{"values":{"x":1}}}]}'
for number in range(60):
    inner = msgspec.defstruct(f"Inner{number}", [("values", dict[str, int | str | float] | None, None)])
    outer = msgspec.defstruct(f"Outer{number}", [("metadata", ObjectMeta), ("inner", inner | None, None)])
    barrier = threading.Barrier(4)
    def meet():
        barrier.wait()
        assert objects.decode_page(body, outer).items[0].inner.values == {"x": 1}
    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("version", "other", "is_older"),
    [("9", "10", True), ("10", "9", False), ("9", "9", False), ("", "9", False), ("9", "", False), ("a", "b", False)],
)
def test_versions_are_in_the_order_of_their_numbers_where_they_are_numbers(
    version: str, other: str, is_older: bool
) -> None:
    assert objects.is_older(version, other) is is_older
