"""Structural schemas: pruning, defaulting and validation as in CustomResourceDefinitions."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.local.apiserver import status
from deploy.local.apiserver.objects import Json, JsonObject, copy
from deploy.local.apiserver.status import FieldError

KEEPS_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_UNCHECKED = ("apiVersion", "kind", "metadata")
_FORMATS: Mapping[str, str] = {
    "date-time": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:[0-5]\d)$",
    "duration": r"^-?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+$|^0$",
    "date": r"^\d{4}-\d\d-\d\d$",
    "byte": r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    "quantity": r"^[+-]?(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$",
}
_RANGES = {"int32": 2**31, "int64": 2**63}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,),
    "array": (list,), "quantity": (str, int, float),
}  # fmt: skip

Where = tuple["Where", str] | None  # the way to a value, from the inside out
Check = Callable[[Any], str]  # what is wrong with a value; empty if nothing


@dataclass(frozen=True, slots=True)
class Checked:
    """An object after its schema: pruned and defaulted, its errors, and the dropped fields."""

    obj: JsonObject
    errors: list[FieldError] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Schema:
    """An openAPIV3Schema of a whole object."""

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw
        properties = {name: part for name, part in raw.get("properties", {}).items() if name not in _UNCHECKED}
        self._root = _Node(raw | {"properties": properties})

    def check(self, obj: JsonObject) -> Checked:
        """Prunes, defaults and validates all but the identity; does not change `obj`."""
        content: JsonObject = copy({key: value for key, value in obj.items() if key not in _UNCHECKED})
        found = Checked(content)
        self._root.take(content, None, found)
        identity = {key: obj[key] for key in _UNCHECKED if key in obj}
        return Checked(identity | content, found.errors, sorted(found.unknown))


class _Node:
    """One schema, prepared for many values. The nodes of inner schemas are made when a value first has the field.

    `is_part`: the schema is an operand of anyOf, allOf, oneOf or not, which neither prunes nor sets defaults.
    """

    def __init__(self, schema: JsonObject, *, is_part: bool = False) -> None:
        self._schema = schema
        self._is_part = is_part
        self._types = tuple(python for name in _type_names(schema) for python in _TYPES[name])
        self.nullable = bool(schema.get("nullable"))
        self._enum: Sequence[Json] | None = schema.get("enum")
        self._checks = tuple(_checks(schema))
        self._properties: JsonObject = schema.get("properties") or {}
        self._extra = schema.get("additionalProperties")
        self._keeps_unknown = is_part or bool(schema.get(KEEPS_UNKNOWN) or self._extra)
        self._defaults = () if is_part else tuple(
            (name, inner["default"]) for name, inner in self._properties.items() if "default" in inner
        )  # fmt: skip
        self._fields: dict[str, _Node | None] = {}
        self._items: _Node | None = None

    def take(self, value: Json, where: Where, found: Checked) -> Json:
        """The value as it is stored; reports to `found`, and changes objects and lists in place."""
        if value is None and self.nullable:
            return value
        if type(value) is float and int in self._types and float not in self._types and value.is_integer():
            value = int(value)
        if self._types and type(value) not in self._types:
            wanted = " or ".join(_type_names(self._schema))
            found.errors.append(status.invalid_value(_path(where), value, f"must be of type {wanted}"))
            return value
        before = len(found.errors)
        if type(value) is dict:
            self._take_object(value, where, found)
        elif type(value) is list:
            self._take_list(value, where, found)
        if self._checks or self._enum is not None:
            # What is stored is checked; what is wrong with the whole is said before what is wrong inside.
            found.errors[before:before] = self._judged(value, where)
        return value

    def _judged(self, value: Json, where: Where) -> Iterator[FieldError]:
        """The errors of a value of the right type, its fields aside."""
        if self._enum is not None and value not in self._enum:
            yield status.unsupported(_path(where), value, self._enum)
        for check in self._checks:
            if problem := check(value):
                yield status.invalid_value(_path(where), value, problem)

    def _take_object(self, value: JsonObject, where: Where, found: Checked) -> None:
        for key, item in list(value.items()):
            node = self._field(key)
            if node is None:
                if not self._keeps_unknown:
                    found.unknown.append(_path((where, key)))
                    del value[key]
            elif item is None and not node.nullable and not self._is_part:
                del value[key]  # a null where none is allowed counts as absent
            else:
                value[key] = node.take(item, (where, key), found)
        for key, default in self._defaults:
            if key not in value and (node := self._field(key)) is not None:
                value[key] = node.take(copy(default), (where, key), found)
        for key in self._schema.get("required") or ():
            if key not in value:
                found.errors.append(status.required(_path((where, key))))

    def _take_list(self, value: list[Json], where: Where, found: Checked) -> None:
        if self._items is None:
            self._items = self._inner(self._schema.get("items") or {KEEPS_UNKNOWN: self._keeps_unknown})
        value[:] = [self._items.take(item, (where, f"[{index}]"), found) for index, item in enumerate(value)]
        if self._schema.get("x-kubernetes-list-type") in ("map", "set"):
            keys, seen = self._schema.get("x-kubernetes-list-map-keys"), []
            for index, item in enumerate(value):
                identity = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
                if identity in seen:
                    found.errors.append(status.duplicate(_path((where, f"[{index}]")), identity))
                seen.append(identity)

    def _field(self, key: str) -> "_Node | None":
        try:
            return self._fields[key]
        except KeyError:
            schema = self._properties.get(key, self._extra if isinstance(self._extra, dict) else None)
            return self._fields.setdefault(key, None if schema is None else self._inner(schema))

    def _inner(self, schema: JsonObject) -> "_Node":
        return _Node(schema, is_part=self._is_part)


def _path(where: Where) -> str:
    steps = []
    while where is not None:
        where, step = where
        steps.append(step)
    return ".".join(reversed(steps)).replace(".[", "[")


def _type_names(schema: JsonObject) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    if schema.get("format") == "quantity":
        return ("quantity",)
    return (schema["type"],) if schema.get("type") else ()


def _checks(schema: JsonObject) -> Iterator[Check]:
    """The checks that a schema asks for, beside those of types and fields."""
    for keyword, (kinds, problem) in _LIMITS.items():
        if keyword in schema:
            yield _limit(kinds, problem, schema[keyword], exclusive=bool(schema.get(f"exclusive{keyword.title()}")))
    pattern = schema.get("pattern") or _FORMATS.get(schema.get("format", ""))
    if pattern:
        matches = re.compile(pattern).search
        yield lambda value: f"must match '{pattern}'" if isinstance(value, str) and not matches(value) else ""
    if bound := _RANGES.get(schema.get("format", "")):
        yield lambda value: "" if not isinstance(value, int) or -bound <= value < bound else "is out of range"
    for keyword, fits in _COMBINED.items():
        if keyword in schema and not schema.get("x-kubernetes-int-or-string"):
            parts = schema[keyword] if isinstance(schema[keyword], list) else [schema[keyword]]
            yield _combination(keyword, [_Node(part, is_part=True) for part in parts], fits)


def _limit(kinds: tuple[type, ...], problem: Callable[..., bool], limit: Any, *, exclusive: bool) -> Check:
    def check(value: Json) -> str:
        if type(value) not in kinds or not (problem(value, limit) or (exclusive and value == limit)):
            return ""
        return f"is beyond the limit of {limit}"

    return check


def _combination(keyword: str, parts: Sequence[_Node], fits: Callable[[int, int], bool]) -> Check:
    def check(value: Json) -> str:
        passing = 0
        for part in parts:
            found = Checked({})
            part.take(value, None, found)
            passing += not found.errors
        return "" if fits(passing, len(parts)) else f"must validate {keyword} of the given schemas"

    return check


_NUMBERS, _TEXT, _LIST, _OBJECT = (int, float), (str,), (list,), (dict,)
_LIMITS: Mapping[str, tuple[tuple[type, ...], Callable[..., bool]]] = {
    "minimum": (_NUMBERS, lambda value, limit: value < limit),
    "maximum": (_NUMBERS, lambda value, limit: value > limit),
    "multipleOf": (_NUMBERS, lambda value, limit: bool(value % limit)),
    "minLength": (_TEXT, lambda value, limit: len(value) < limit),
    "maxLength": (_TEXT, lambda value, limit: len(value) > limit),
    "minItems": (_LIST, lambda value, limit: len(value) < limit),
    "maxItems": (_LIST, lambda value, limit: len(value) > limit),
    "minProperties": (_OBJECT, lambda value, limit: len(value) < limit),
    "maxProperties": (_OBJECT, lambda value, limit: len(value) > limit),
}
_COMBINED: Mapping[str, Callable[[int, int], bool]] = {
    "allOf": lambda passing, total: passing == total,
    "anyOf": lambda passing, total: passing > 0,
    "oneOf": lambda passing, total: passing == 1,
    "not": lambda passing, total: passing == 0,
}
