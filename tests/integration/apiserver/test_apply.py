"""Server-side apply: ownership, conflicts, abandoned fields."""

from typing import Any

from tests.integration.apiserver.conftest import APPLY, MERGE, STRATEGIC, Api


def applied(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def owners(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


def test_applying_creates_and_then_drops_what_is_applied_no_longer(api: Api, namespace: str) -> None:
    path = f"{namespace}/configmaps/a?fieldManager=me"
    assert api.call("PATCH", path, applied("a", x="1", y="2"), APPLY).status_code == 201
    again = api.patch(path, applied("a", x="1", z="3"), APPLY)
    assert again["data"] == {"x": "1", "z": "3"}
    assert owners(again)["me"] == {"f:data": {"f:x": {}, "f:z": {}}}


def test_applying_the_same_again_changes_nothing(api: Api, namespace: str) -> None:
    path = f"{namespace}/configmaps/a?fieldManager=me"
    first = api.patch(path, applied("a", x="1"), APPLY)
    assert api.patch(path, applied("a", x="1"), APPLY) == first


def test_a_field_of_another_manager_is_a_conflict_unless_forced(api: Api, namespace: str) -> None:
    path = f"{namespace}/configmaps/a"
    api.patch(f"{path}?fieldManager=one", applied("a", x="1", y="1"), APPLY)
    assert api.patch(f"{path}?fieldManager=two", applied("a", x="1"), APPLY)["data"]["x"] == "1"  # same value: shared
    api.patch(f"{path}?fieldManager=two", applied("a"), APPLY)
    status = api.fails(409, "PATCH", f"{path}?fieldManager=two", applied("a", x="2"), APPLY)
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]
    forced = api.patch(f"{path}?fieldManager=two&force=true", applied("a", x="2"), APPLY)
    assert owners(forced) == {"one": {"f:data": {"f:y": {}}}, "two": {"f:data": {"f:x": {}}}}


def test_an_ordinary_write_takes_what_it_changes(api: Api, namespace: str) -> None:
    path = f"{namespace}/configmaps/a"
    api.patch(f"{path}?fieldManager=one", applied("a", x="1", y="1"), APPLY)
    patched = api.patch(f"{path}?fieldManager=hand", {"data": {"x": "2"}}, MERGE)
    assert owners(patched) == {"one": {"f:data": {"f:y": {}}}, "hand": {"f:data": {"f:x": {}}}}
    status = api.fails(409, "PATCH", f"{path}?fieldManager=one", applied("a", x="1", y="1"), APPLY)
    assert 'conflict with "hand" using v1' in status["message"]


def test_keyed_lists_are_owned_item_by_item(api: Api, unique: str) -> None:
    def with_condition(kind: str, state: str) -> dict[str, Any]:
        conditions = [{"type": kind, "status": state}]
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}, "status": {"conditions": conditions}}

    api.ok("POST", "/api/v1/nodes", {"metadata": {"name": unique}})
    path = f"/api/v1/nodes/{unique}"
    api.patch(f"{path}/status?fieldManager=one", with_condition("A", "True"), APPLY)
    both = api.patch(f"{path}/status?fieldManager=two", with_condition("B", "True"), APPLY)
    assert [c["type"] for c in both["status"]["conditions"]] == ["A", "B"]
    dropped = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}}
    left = api.patch(f"{path}/status?fieldManager=one", dropped, APPLY)
    assert [c["type"] for c in left["status"]["conditions"]] == ["B"]
    main = api.patch(f"{path}?fieldManager=three", with_condition("C", "True"), APPLY)
    assert [c["type"] for c in main["status"]["conditions"]] == ["B"]
    api.ok("DELETE", path)


def test_ownership_can_be_reset(api: Api, namespace: str) -> None:
    path = f"{namespace}/configmaps/a"
    api.patch(f"{path}?fieldManager=one", applied("a", x="1"), APPLY)
    reset = api.patch(path, {"metadata": {"managedFields": [{}]}}, STRATEGIC)
    assert "managedFields" not in reset["metadata"]
    status = api.fails(409, "PATCH", f"{path}?fieldManager=two", applied("a", x="2"), APPLY)
    assert "before-first-apply" in status["message"]
