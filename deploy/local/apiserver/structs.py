"""The built-in kinds as Go types: how the server decodes and stores an object.

kube-apiserver decodes into structs and stores their encoding. Unknown fields therefore disappear, empty `omitempty`
fields are omitted, other unset fields appear, and a wrong type is an error. structs.json, written by `python -m
tests.apiserver.structs`, contains the types, which msgspec converts to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from deploy.local.apiserver import quantities
from deploy.local.apiserver.objects import Json, JsonObject

DATA = Path(__file__).with_name("structs.json")
META = "meta/v1.ObjectMeta"
_IDENTITY = ("apiVersion", "kind", "metadata")
_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_INTEGERS = {"int32": 31, "int64": 63, "int": 63}


FieldPath = tuple[str, ...]  # names of fields, without indexes


@dataclass(frozen=True, slots=True)
class ListRule:
    """How a list or object merges in a strategic patch: by the `merge_key`, as a `union`, or else by replacement."""

    merge_key: str = ""
    union: bool = False
    retain_keys: bool = False
    replace: bool = False


ListRules = Callable[[FieldPath], ListRule | None]


class Quantity:
    """A resource.Quantity for msgspec, in canonical form."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


# The types with their own JSON form, and their types for msgspec.
OPAQUE: Mapping[str, Any] = {
    "api/resource.Quantity": Quantity,
    "meta/v1.Time": Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")],
    "meta/v1.MicroTime": Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")],
    "meta/v1.Duration": str,
    "meta/v1.FieldsV1": Any,
    "util/intstr.IntOrString": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | str,
    "pkg/types.UID": str,
    "pkg/runtime.RawExtension": Any,
    "apiextensions/v1.JSONSchemaProps": Any,
}
_BASIC: Mapping[str, Any] = {
    "string": str,
    "bool": bool,
    "float64": float,
    **{name: Annotated[int, Meta(ge=-(2**bits), le=2**bits - 1)] for name, bits in _INTEGERS.items()},
}
_NULL_IF_EMPTY = ("meta/v1.Time", "meta/v1.MicroTime", "pkg/runtime.RawExtension", "meta/v1.FieldsV1")
_TEXTS = ("string", "meta/v1.Duration", "pkg/types.UID")


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a struct: its Go type, whether it is required, when it is written, and how it merges."""

    type: str
    required: bool
    always: bool
    omit_zero: bool
    rule: ListRule | None


@dataclass(frozen=True, slots=True)
class Decoded:
    """An object in its kind's stored form, and the paths of the dropped fields."""

    obj: JsonObject
    unknown: Sequence[str] = ()


@cache
def _types() -> Mapping[str, str | Mapping[str, str]]:
    types: dict[str, str | Mapping[str, str]] = json.loads(DATA.read_text(encoding="utf-8"))["types"]
    return types


@cache
def members(struct: str) -> Mapping[str, Member]:
    """The fields of a struct by their JSON names. Raises KeyError."""
    fields = _types()[struct]
    assert not isinstance(fields, str), struct
    return {name: _member(text) for name, text in fields.items()}


def _member(text: str) -> Member:
    go, *words = text.split()
    options = dict(word.split("=") for word in words if "=" in word)
    rule = ListRule(options.get("merge", ""), "union" in words, "retain" in words, "replace" in words)
    return Member(
        go,
        required="required" in words or ("always" in words and "optional" not in words),
        always="always" in words,
        omit_zero="omitzero" in words,
        rule=None if rule == ListRule() else rule,
    )


def resolved(go: str) -> str:
    """The type that a name stands for; a struct stands for itself."""
    while go not in OPAQUE and isinstance(found := _types().get(go), str):
        go = found
    return go


def is_struct(go: str) -> bool:
    """Whether a type is a struct that is decoded field by field."""
    return go not in OPAQUE and isinstance(_types().get(go), dict)


def element(go: str) -> str:
    """The element type of a slice or map."""
    return go[2:] if go.startswith("[]") else go.partition("]")[2]


@lru_cache(maxsize=4096)
def list_rule(struct: str, path: FieldPath) -> ListRule | None:
    """How the value at a path of field names without indexes merges."""
    rule = None
    go = struct
    for step in path:
        go = resolved(go.lstrip("*"))
        while go.startswith("[]") and go != "[]byte":
            go = resolved(element(go))
        if go.startswith("map["):
            go, rule = element(go), None
        elif not is_struct(go) or step not in members(go):
            return None
        else:
            go, rule = members(go)[step].type, members(go)[step].rule
    return rule


@cache
def _shape(go: str) -> Any:
    """The msgspec type of a Go type."""
    go = resolved(go.lstrip("*"))
    if go in OPAQUE:
        return OPAQUE[go]
    if go in _BASIC:
        return _BASIC[go]
    if go == "[]byte":
        return Annotated[str, Meta(pattern=f"^{_BASE64.pattern}$")]
    if go.startswith("[]"):
        return GenericAlias(list, _shape(element(go)))
    if go.startswith("map["):
        return GenericAlias(dict, (str, _shape(element(go))))
    return _struct(go, members(go))


def _struct(name: str, fields_: Mapping[str, Member]) -> Any:
    # JSON names may be invalid in Python: the attributes are numbered, and msgspec maps them to the names.
    names = {f"f{number}": key for number, key in enumerate(fields_)}
    fields = [(python, *_default(fields_[key])) for python, key in names.items()]
    return msgspec.defstruct(
        re.sub(r"\W", "_", name), fields, rename=names, omit_defaults=True, forbid_unknown_fields=True
    )


def _default(member: Member) -> tuple[Any, Any]:
    """A field's msgspec type and default; a default from one of these factories is written, any other is omitted."""
    go, shape = resolved(member.type), _shape(member.type)
    if go in _TEXTS:
        return shape, (msgspec.field(default_factory=lambda: "") if member.always else "")
    if go in ("bool", "float64", *_INTEGERS):
        zero: Any = False if go == "bool" else 0
        return shape, (msgspec.field(default_factory=lambda: zero) if member.always else zero)
    if go.startswith(("[]", "map[")) and go != "[]byte" and not member.always:
        return shape, msgspec.field(default_factory=list if go.startswith("[]") else dict)
    if is_struct(go) and not member.omit_zero:
        return shape, msgspec.field(default_factory=shape)
    if go == "api/resource.Quantity":
        return shape, msgspec.field(default_factory=lambda: Quantity("0"))
    if go == "util/intstr.IntOrString":
        return shape, msgspec.field(default_factory=lambda: 0)
    if (member.always or go in _NULL_IF_EMPTY) and not member.omit_zero:
        return shape | None, msgspec.field(default_factory=lambda: None)
    return shape, None


def _from_text(wanted: type, value: Json) -> Quantity:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return Quantity(quantities.canonical(value))
    raise ValueError("Expected a quantity")


def _to_text(value: Any) -> str:
    text: str = value.text
    return text


def _convert(value: JsonObject, shape: Any) -> JsonObject:
    """Raises msgspec.ValidationError."""
    struct = msgspec.convert(value, shape, dec_hook=_from_text)
    converted: JsonObject = msgspec.to_builtins(struct, enc_hook=_to_text)
    return converted


@cache
def _content(struct: str) -> Any:
    """The shape of a kind without its identity."""
    return _struct(struct, {name: member for name, member in members(struct).items() if name not in _IDENTITY})


def decode(struct: str, obj: JsonObject) -> Decoded:
    """An object of a built-in kind in its stored form; does not change the argument. Raises msgspec.ValidationError."""
    identity = {key: obj[key] for key in _IDENTITY if key in obj}
    content = {key: value for key, value in obj.items() if key not in _IDENTITY}
    try:
        msgspec.convert(obj["metadata"], _shape(META))
        return Decoded(identity | _convert(content, _content(struct)))
    except msgspec.ValidationError:
        unknown: list[str] = []
        identity["metadata"] = _known(obj["metadata"], META, "metadata", unknown)
        content = _known(content, struct, "", unknown)
        msgspec.convert(identity["metadata"], _shape(META))
        return Decoded(identity | _convert(content, _content(struct)), unknown)


def decode_metadata(obj: JsonObject) -> Decoded:
    """`decode` for the metadata alone, which custom kinds also have. Raises msgspec.ValidationError."""
    unknown: list[str] = []
    meta = _known(obj["metadata"], META, "metadata", unknown)
    msgspec.convert(meta, _shape(META))
    return Decoded(obj | {"metadata": meta}, unknown)


def _known(value: Json, go: str, where: str, unknown: list[str]) -> Json:
    """The value without unknown fields and nulls, and with times in their canonical form."""
    go = resolved(go.lstrip("*"))
    if go in ("meta/v1.Time", "meta/v1.MicroTime") and isinstance(value, str):
        return _time(value, fraction=go == "meta/v1.MicroTime")
    if isinstance(value, dict) and is_struct(go):
        declared, kept = members(go), {}
        for key, item in value.items():
            at = f"{where}.{key}".lstrip(".")
            if key not in declared:
                unknown.append(at)
            elif item is not None:
                kept[key] = _known(item, declared[key].type, at, unknown)
        return kept
    if isinstance(value, dict) and go.startswith("map["):
        return {key: _known(item, element(go), f"{where}.{key}", unknown) for key, item in value.items()}
    if isinstance(value, list) and go.startswith("[]") and go != "[]byte":
        return [_known(item, element(go), f"{where}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def _time(text: str, *, fraction: bool) -> str:
    """Returns an invalid time unchanged."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if fraction else "%Y-%m-%dT%H:%M:%SZ")
