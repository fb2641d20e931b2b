"""The pure parts, by properties and by the tables of their standards."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.apiserver import patching
from deploy.local.apiserver.kinds import BUILT_IN
from deploy.local.apiserver.objects import copy
from deploy.local.apiserver.schema import Schema
from deploy.local.apiserver.schemas import FieldPath

pytestmark = pytest.mark.embedded_only("nothing here asks a server")

scalars = st.none() | st.booleans() | st.integers(-100, 100) | st.text("abc", max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
)
objects = st.dictionaries(st.text("abc", min_size=1, max_size=2), values, max_size=4)

MERGES: list[tuple[Any, Any, Any]] = [  # RFC 7386, appendix A
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), MERGES)
def test_merge_patches_follow_the_standard(target: Any, patch: Any, expected: Any) -> None:
    before = copy(target)
    assert patching.merge(target, patch) == expected
    assert target == before


@given(objects, objects)
def test_a_merge_patch_applied_twice_changes_nothing_more(target: dict[str, Any], patch: dict[str, Any]) -> None:
    once = patching.merge(target, patch)
    assert patching.merge(once, patch) == once


POD = next(kind for kind in BUILT_IN if kind.kind == "Pod")
LISTS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "an item is deleted",
        {"env": [{"name": "a"}, {"name": "b"}]},
        {"env": [{"$patch": "delete", "name": "a"}]},
        {"env": [{"name": "b"}]},
    ),
    (
        "a list is replaced",
        {"env": [{"name": "a"}]},
        {"env": [{"$patch": "replace"}, {"name": "b"}]},
        {"env": [{"name": "b"}]},
    ),
    ("an object is replaced", {"meta": {"a": 1}}, {"meta": {"$patch": "replace", "b": 2}}, {"meta": {"b": 2}}),
    ("primitives are added", {"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
    (
        "primitives are deleted",
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    (
        "keys are retained",
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"volumes": [{"name": "v", "hostPath": {}, "$retainKeys": ["name", "hostPath"]}]},
        {"volumes": [{"name": "v", "hostPath": {}}]},
    ),
    (
        "atomic lists are replaced",
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    (
        "a null removes",
        {"env": [{"name": "a", "value": "1"}]},
        {"env": [{"name": "a", "value": None}]},
        {"env": [{"name": "a"}]},
    ),
]


# Where the fields of these fragments are in a pod.
PLACES: dict[str, FieldPath] = {
    "env": ("spec", "containers"),
    "volumes": ("spec",),
    "tolerations": ("spec",),
    "finalizers": ("metadata",),
}


@pytest.mark.parametrize(("target", "patch", "expected"), [case[1:] for case in LISTS], ids=[case[0] for case in LISTS])
def test_strategic_directives_act(target: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy(target)
    assert patching.strategic(target, patch, lambda path: POD.list_rule((*PLACES.get(path[0], ()), *path))) == expected
    assert target == before


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 50},
        "b": {"x-kubernetes-int-or-string": True, "pattern": "^[a-c]$", "minimum": 0},
        "c": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}},
        "aa": {
            "type": "array",
            "maxItems": 2,
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "boolean"}}},
        },
        "ab": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "ac": {"type": "string", "nullable": True},
        "ba": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@given(objects)
def test_what_a_schema_made_of_an_object_it_leaves_as_it_is(obj: dict[str, Any]) -> None:
    before = copy(obj)
    checked = Schema(SCHEMA).check(obj)
    assert obj == before
    assert checked.obj.keys() <= SCHEMA["properties"].keys()
    again = Schema(SCHEMA).check(checked.obj)
    assert (again.obj, again.unknown, again.errors) == (checked.obj, [], checked.errors)


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        ({"a": -1}, "a"),
        ({"a": "1"}, "a"),
        ({"b": "d"}, "b"),
        ({"b": True}, "b"),
        ({"c": {"k": "long"}}, "c.k"),
        ({"aa": [{}]}, "aa[0].a"),
        ({"aa": [{"a": True}] * 3}, "aa"),
        ({"ab": "c"}, "ab"),
    ],
)
def test_a_schema_names_the_field_that_is_wrong(obj: dict[str, Any], field: str) -> None:
    assert [error.field for error in Schema(SCHEMA).check(obj).errors] == [field]


@given(objects)
def test_a_copy_is_equal_and_shares_nothing(obj: dict[str, Any]) -> None:
    copied = copy(obj)
    assert copied == obj
    assert msgspec.json.encode(copied) == msgspec.json.encode(obj)
    assert all(copied[key] is not obj[key] for key in obj if isinstance(obj[key], dict))
