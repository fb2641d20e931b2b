"""The built-in kinds as the Go types they are: what a body decodes to and is stored as.

kube-apiserver decodes into structs and stores what they encode to. Hence unknown fields vanish, empty ones that are
`omitempty` are left out, others are there though nobody set them, and a wrong type is refused in the words of
encoding/json. structs.json, written by generate.py, holds the types; bodies in order, nearly all, are converted by
msgspec in C, and whatever it refuses is walked in full to find out why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from deploy.local.apiserver import quantities
from deploy.local.apiserver.merging import ListRule
from deploy.local.apiserver.objects import Json, JsonObject

DATA = Path(__file__).with_name("structs.json")
# Sent, but no kinds of their own.
UNSERVED = ("admission/v1.AdmissionReview", "core/v1.Binding", "meta/v1.DeleteOptions", "policy/v1.Eviction")
STRUCT_TYPE = "+structType"  # the key of a struct's own marker among its fields
META = "meta/v1.ObjectMeta"
_TYPE_META = ("apiVersion", "kind")
_IDENTITY = (*_TYPE_META, "metadata")
_TIME, _MICRO_TIME = "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.000000Z07:00"
_TIME_PARTS: Mapping[str, str] = {
    "2006": r"\d{4}", "01": r"\d\d", "02": r"\d\d", "15": r"\d\d", "04": r"\d\d", "05": r"\d\d(\.\d+)?",
    ".000000": r"\.\d{6}", "Z07:00": r"Z|[+-]\d\d:\d\d",
}  # fmt: skip
_LAYOUT_PART = re.compile(r"2006|01|02|15|04|05(?=Z)|05|\.000000|Z07:00|.")
_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_BASE64_START = re.compile(r"[A-Za-z0-9+/]*")
_QUANTITY_ERROR = f"quantities must match the regular expression '{quantities.PATTERN}'"
_INTEGERS = {"int32": 31, "int64": 63, "int": 63}


class Quantity:
    """A resource.Quantity on its way through msgspec, in canonical form."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


# The types with a JSON form of their own, and what msgspec is to take for them.
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
_JSON_NAMES: Mapping[type, str] = {
    str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a struct: its Go type, whether it has to be there, when it is written, and how it merges."""

    type: str
    required: bool
    always: bool
    omit_zero: bool
    rule: ListRule | None
    numbers: tuple[int, ...]  # in protobuf; more than one where embedded structs nest


@dataclass(frozen=True, slots=True)
class Decoded:
    """An object as its kind stores it, the paths that were dropped, and why it is none (or nothing)."""

    obj: JsonObject
    unknown: Sequence[str] = ()
    problem: str = ""


@dataclass(slots=True)
class _Walk:
    """What a walk has found so far."""

    unknown: list[str] = field(default_factory=list)
    problem: str = ""

    def fail(self, problem: str) -> None:
        self.problem = self.problem or problem


@cache
def _types() -> Mapping[str, str | Mapping[str, str]]:
    types: dict[str, str | Mapping[str, str]] = json.loads(DATA.read_text(encoding="utf-8"))["types"]
    return types


@cache
def members(struct: str) -> Mapping[str, Member]:
    """The fields of a struct by their JSON names. Raises KeyError."""
    fields = _types()[struct]
    assert not isinstance(fields, str), struct
    return {name: _member(text) for name, text in fields.items() if name != STRUCT_TYPE}


def _member(text: str) -> Member:
    go, *words = text.split()
    options = dict(word.split("=") for word in words if "=" in word)
    struct = resolved(go.lstrip("*"))
    atomic = "atomic" in words or is_atomic_struct(struct)
    rule = ListRule(
        merge_key=options.get("merge", ""),
        map_keys=tuple(filter(None, options.get("keys", "").split(","))),
        is_set="set" in words,
        union="union" in words,
        retain_keys="retain" in words,
        replace="replace" in words,
        atomic=atomic,
        atomic_items=go.startswith("[]") and is_atomic_struct(resolved(element(go).lstrip("*"))),
    )
    numbers = next((word[1:] for word in words if word.startswith("#")), "")
    return Member(
        go,
        required="required" in words or ("always" in words and "optional" not in words),
        always="always" in words,
        omit_zero="omitzero" in words,
        rule=None if rule == ListRule() else rule,
        numbers=tuple(map(int, numbers.split("."))) if numbers else (),
    )


def resolved(go: str) -> str:
    """The type that a name stands for; a struct stands for itself."""
    while go not in OPAQUE and isinstance(found := _types().get(go), str):
        go = found
    return go


def is_struct(go: str) -> bool:
    """Whether a type is a struct that is read field by field."""
    return go not in OPAQUE and isinstance(_types().get(go), dict)


def is_atomic_struct(go: str) -> bool:
    """Whether a struct is applied as one value."""
    return is_struct(go) and STRUCT_TYPE in _types()[go]


def element(go: str) -> str:
    """The element type of a slice or map."""
    return go[2:] if go.startswith("[]") else go.partition("]")[2]


@lru_cache(maxsize=4096)
def list_rule(struct: str, path: tuple[str, ...]) -> ListRule | None:
    """How the value at an index-free path of field names merges."""
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
    # Names of fields may be no Python names: they are numbered, and renamed on the wire.
    names = {f"f{number}": key for number, key in enumerate(fields_)}
    fields = [(python, *_default(fields_[key])) for python, key in names.items()]
    return msgspec.defstruct(
        re.sub(r"\W", "_", name), fields, rename=names, omit_defaults=True, forbid_unknown_fields=True
    )


def _default(member: Member) -> tuple[Any, Any]:
    """A field's msgspec type and default; a default from a factory of ours is written, all others are left out."""
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
    raise ValueError(_QUANTITY_ERROR)


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
    """An object of a built-in kind as it is stored; the argument stays as it is."""
    content = {key: value for key, value in obj.items() if key not in _IDENTITY}
    identity = {key: obj[key] for key in _IDENTITY if key in obj}
    try:
        msgspec.convert(obj["metadata"], _shape(META))
        return Decoded(identity | _convert(content, _content(struct)))
    except msgspec.ValidationError as error:
        walk = _Walk()
        kept = _walked_struct({key: obj[key] for key in obj if key not in _TYPE_META}, struct, (), "", walk)
        identity["metadata"] = kept.pop("metadata", {})
        if not walk.problem:
            try:
                kept = _convert(kept, _content(struct))
            except msgspec.ValidationError:
                walk.fail(f"json: cannot unmarshal: {error}")
        return Decoded(identity | kept, walk.unknown, walk.problem)


def decode_metadata(kind: str, obj: JsonObject, *, alone: bool = False) -> Decoded:
    """`decode` of the metadata, which every kind has; `alone`: no field of the struct that a problem is told of."""
    try:
        msgspec.convert(obj["metadata"], _shape(META))
    except msgspec.ValidationError:
        walk = _Walk()
        meta = _walked(obj["metadata"], META, kind, () if alone else ("metadata",), "metadata", walk)
        return Decoded(obj | {"metadata": meta}, walk.unknown, walk.problem)
    return Decoded(obj)


def undeclared(struct: str, obj: JsonObject) -> str:
    """Why an object is no configuration of a kind that could be applied, or nothing."""
    return next(_undeclared({key: obj[key] for key in obj if key not in _TYPE_META}, struct, None, ""), "")


def _undeclared(value: Json, go: str, rule: ListRule | None, where: str) -> Iterator[str]:
    go = resolved(go.lstrip("*"))
    if value is None or go in OPAQUE:
        return
    if isinstance(value, dict) and is_struct(go):
        declared = members(go)
        for key, item in value.items():
            if key not in declared:
                yield f"{where}.{key}: field not declared in schema"
            else:
                yield from _undeclared(item, declared[key].type, declared[key].rule, f"{where}.{key}")
    elif isinstance(value, dict) and go.startswith("map["):
        for key, item in value.items():
            yield from _undeclared(item, element(go), None, f"{where}.{key}")
    elif isinstance(value, list) and go.startswith("[]") and go != "[]byte":
        names = [_item_name(item, index, rule) for index, item in enumerate(value)]
        if twice := next((name for index, name in enumerate(names) if name in names[:index]), ""):
            yield f"{where}: duplicate entries for key [{twice}]"
        for index, item in enumerate(value):
            yield from _undeclared(item, element(go), None, f"{where}[{_item_name(item, index, rule)}]")
    elif expected := _expected(value, go):
        yield f"{where}: expected {expected}, got &value.valueUnstructured{{Value:{json.dumps(value)}}}"


def _item_name(item: Json, index: int, rule: ListRule | None) -> str:
    if rule is None or not rule.map_keys or not isinstance(item, dict):
        return str(index)
    return ",".join(f"{key}={json.dumps(item[key])}" for key in sorted(rule.map_keys) if key in item)


def _expected(value: Json, go: str) -> str:
    """The schema's name for a type that a value is not of, or nothing."""
    if go.startswith("map[") or is_struct(go):
        return "map"
    if go.startswith("[]") and go != "[]byte":
        return "list"
    if go in _INTEGERS or go == "float64":
        return "" if type(value) in (int, float) else "numeric (int or float)"
    expected = {"string": "string", "bool": "boolean", "[]byte": "string"}.get(go, "")
    found = {str: "string", bool: "boolean"}.get(type(value), "")
    return "" if found == expected else expected


def _walked_struct(value: JsonObject, struct: str, path: tuple[str, ...], where: str, walk: _Walk) -> JsonObject:
    declared, kept = members(struct), {}
    name = struct.rpartition(".")[2]
    for key, item in value.items():
        at = f"{where}.{key}" if where else key
        if key not in declared:
            walk.unknown.append(at)
        elif item is not None:
            kept[key] = _walked(item, declared[key].type, name, (*path, key), at, walk)
    return kept


def _walked(value: Json, go: str, struct: str, path: tuple[str, ...], where: str, walk: _Walk) -> Json:
    """The value as its type takes it: nothing unknown in it, nothing null."""
    named = go.lstrip("*")
    go = resolved(named)
    if go in OPAQUE:
        return _walked_opaque(value, go, struct, path, walk)
    if isinstance(value, dict) and is_struct(go):
        return _walked_struct(value, go, path, where, walk)
    if isinstance(value, dict) and go.startswith("map["):
        return {key: _walked(item, element(go), struct, path, f"{where}.{key}", walk) for key, item in value.items()}
    if isinstance(value, list) and go.startswith("[]") and go != "[]byte":
        return [_walked(item, element(go), struct, path, f"{where}[{index}]", walk) for index, item in enumerate(value)]
    if wrong := _wrong_basic(value, go):
        walk.fail(wrong if wrong.startswith("illegal") else _cannot(wrong, struct, path, named))
    return value


def _cannot(found: str, struct: str, path: tuple[str, ...], go: str) -> str:
    shown = re.sub(r"[\w/]*/(\w+\.)", r"\1", go)
    return f"json: cannot unmarshal {found} into Go struct field {struct}.{'.'.join(path)} of type {shown}"


def _wrong_basic(value: Json, go: str) -> str:
    """What a value is that is none of a basic type, or nothing."""
    found = _JSON_NAMES.get(type(value), "null")
    if go == "[]byte" and isinstance(value, str):
        if _BASE64.fullmatch(value):
            return ""
        start = _BASE64_START.match(value)
        return f"illegal base64 data at input byte {start.end() if start else 0}"
    if go in _INTEGERS:
        fits = type(value) is int and -(2 ** _INTEGERS[go]) <= value < 2 ** _INTEGERS[go]
        return "" if fits else f"number {value}" if found == "number" else found
    expected = {"string": "string", "bool": "bool", "float64": "number"}.get(go, "")
    return "" if found == expected else found


def _walked_opaque(value: Json, go: str, struct: str, path: tuple[str, ...], walk: _Walk) -> Json:
    found = _JSON_NAMES.get(type(value), "null")
    match go:
        case "meta/v1.Time":
            return _walked_time(value, _TIME, walk)
        case "meta/v1.MicroTime":
            return _walked_time(value, _MICRO_TIME, walk)
        case "util/intstr.IntOrString":
            if found not in ("string", "number") or _wrong_basic(value, "int32" if found == "number" else "string"):
                walk.fail(_cannot(found, struct, path, "int32"))
        case "api/resource.Quantity":
            try:
                _from_text(Quantity, value)
            except ValueError as error:
                walk.fail(str(error))
        case "meta/v1.Duration" | "pkg/types.UID":
            if found != "string":
                walk.fail(_cannot(found, struct, path, "types.UID" if go == "pkg/types.UID" else "string"))
    return value


def _walked_time(value: Json, layout: str, walk: _Walk) -> Json:
    if not isinstance(value, str):
        walk.fail(f"json: cannot unmarshal {_JSON_NAMES.get(type(value), 'null')} into Go value of type string")
        return value
    rest = value
    for part in _LAYOUT_PART.findall(layout):
        match = re.match(_TIME_PARTS.get(part, re.escape(part)) if part != "05" or layout == _TIME else r"\d\d", rest)
        if match is None:
            walk.fail(f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as "{part}"')
            return value
        rest = rest[match.end() :]
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone(UTC)
    except ValueError:
        walk.fail(f'parsing time "{value}": out of range')
        return value
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ" if layout == _TIME else "%Y-%m-%dT%H:%M:%S.%fZ")
