"""Structural schemas of custom kinds: pruning, defaulting and validation as in CustomResourceDefinitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.local.apiserver import status
from deploy.local.apiserver.objects import Json, JsonObject, copy
from deploy.local.apiserver.status import FieldError

_UNCHECKED = ("apiVersion", "kind", "metadata")
_KEEPS_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
FORMATS: Mapping[str, str] = {
    "date-time": r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$",
    "duration": r"^-?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+$|^0$",
    "date": r"^\d{4}-\d\d-\d\d$",
}
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,),
    "array": (list,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checked:
    """An object after its schema: pruned and defaulted, its errors, and the dropped fields."""

    obj: JsonObject
    errors: list[FieldError]
    unknown: list[str]


@dataclass(frozen=True, slots=True)
class Schema:
    """An openAPIV3Schema."""

    raw: JsonObject

    def check(self, obj: JsonObject) -> Checked:
        """Prunes, defaults and validates; does not change `obj`."""
        obj = copy(obj)
        unknown: list[str] = []
        complete(obj, self.raw, "", unknown, root=True)
        return Checked(obj, list(validate(obj, self.raw, "", root=True)), sorted(unknown))


def complete(value: Json, schema: JsonObject, path: str, unknown: list[str], *, root: bool = False) -> None:
    """Drops in place the fields that the schema does not name, collects their paths, and sets the schema's defaults.

    A field that is null where null is not allowed counts as absent.
    """
    keeps_unknown = bool(schema.get(_KEEPS_UNKNOWN))
    if isinstance(value, list):
        items = schema.get("items") or {_KEEPS_UNKNOWN: keeps_unknown}
        for index, item in enumerate(value):
            complete(item, items, f"{path}[{index}]", unknown)
    if not isinstance(value, dict):
        return
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    unchecked = _UNCHECKED if root or schema.get("x-kubernetes-embedded-resource") else ()
    for key in [key for key in value if key not in unchecked]:
        child = properties.get(key, extra if isinstance(extra, dict) else None)
        if child is None:
            if not extra and not keeps_unknown:
                unknown.append(f"{path}.{key}".lstrip("."))
                del value[key]
        elif value[key] is None and not child.get("nullable"):
            del value[key]
    for key, child in properties.items():
        if key not in value and "default" in child:
            value[key] = copy(child["default"])
    for key, item in value.items():
        child = properties.get(key, extra if isinstance(extra, dict) else None)
        if child is not None and key not in unchecked:
            if child.get("type") == "integer" and isinstance(item, float) and item.is_integer():
                value[key] = int(item)
            complete(item, child, f"{path}.{key}".lstrip("."), unknown)


def validate(value: Json, schema: JsonObject, path: str, *, root: bool = False) -> Iterator[FieldError]:
    """Every violation of the schema."""
    if value is None and schema.get("nullable"):
        return
    wanted = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else _types_of(schema)
    if wanted and not any(_has_type(value, name) for name in wanted):
        found = next((name for name in _TYPES if _has_type(value, name)), "null")
        yield status.invalid_value(path, value, f"must be of type {' or '.join(wanted)}, and is of type {found}")
        return
    yield from _violations(value, schema, path)
    if isinstance(value, dict):
        yield from _object_errors(value, schema, path, root)
    elif isinstance(value, list):
        yield from _list_errors(value, schema, path)


def _types_of(schema: JsonObject) -> tuple[str, ...]:
    return (schema["type"],) if schema.get("type") else ()


def _has_type(value: Json, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _object_errors(value: JsonObject, schema: JsonObject, path: str, root: bool) -> Iterator[FieldError]:
    prefix = f"{path}." if path else ""
    for name in schema.get("required") or ():
        if name not in value:
            yield status.required(prefix + name)
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        child = properties.get(key, extra if isinstance(extra, dict) else None)
        if child is not None and not (root and key in _UNCHECKED):
            yield from validate(item, child, prefix + key)


def _list_errors(value: list[Json], schema: JsonObject, path: str) -> Iterator[FieldError]:
    keys, seen = schema.get("x-kubernetes-list-map-keys"), []
    for index, item in enumerate(value):
        yield from validate(item, schema.get("items") or {}, f"{path}[{index}]")
        if schema.get("x-kubernetes-list-type") in ("map", "set"):
            identity = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
            if identity in seen:
                yield status.duplicate(f"{path}[{index}]", identity)
            seen.append(identity)


def _violations(value: Json, schema: JsonObject, path: str) -> Iterator[FieldError]:
    if "enum" in schema and value not in schema["enum"]:
        yield status.unsupported(path, value, schema["enum"])
    for limit in schema.keys() & _LIMITS.keys():
        if detail := _LIMITS[limit](value, schema[limit], schema):
            yield status.invalid_value(path, value, detail)
    name = schema.get("format", "")
    if isinstance(value, str) and name in FORMATS and not re.search(FORMATS[name], value):
        yield status.invalid_value(path, value, f"must be a {name}")
    if isinstance(value, int) and name in _RANGES and not _RANGES[name][0] <= value <= _RANGES[name][1]:
        yield status.invalid_value(path, value, f"must be an {name}")
    if not schema.get("x-kubernetes-int-or-string"):
        yield from _combined_errors(value, schema, path)


def _combined_errors(value: Json, schema: JsonObject, path: str) -> Iterator[FieldError]:
    for part in schema.get("allOf") or ():
        yield from validate(value, part, path)
    for name in ("anyOf", "oneOf"):
        passing = [part for part in schema.get(name) or () if not any(validate(value, part, path))]
        if name in schema and (not passing or (name == "oneOf" and len(passing) > 1)):
            yield status.invalid_value(path, value, f"must validate {name} of the given schemas")
    if "not" in schema and not any(validate(value, schema["not"], path)):
        yield status.invalid_value(path, value, "must not validate the schema (not)")


def _number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _too_small(value: Json, limit: float, schema: JsonObject) -> str:
    exclusive = bool(schema.get("exclusiveMinimum"))
    if not _number(value) or value > limit or (value == limit and not exclusive):
        return ""
    return f"must be greater than {'' if exclusive else 'or equal to '}{limit}"


def _too_large(value: Json, limit: float, schema: JsonObject) -> str:
    exclusive = bool(schema.get("exclusiveMaximum"))
    if not _number(value) or value < limit or (value == limit and not exclusive):
        return ""
    return f"must be less than {'' if exclusive else 'or equal to '}{limit}"


def _size(kind: type[str | list[Json] | JsonObject], *, at_least: bool) -> Callable[[Json, int, JsonObject], str]:
    def broken(value: Json, limit: int, _: JsonObject) -> str:
        if not isinstance(value, kind) or (len(value) >= limit if at_least else len(value) <= limit):
            return ""
        return f"must have a size of at {'least' if at_least else 'most'} {limit}"

    return broken


_LIMITS: Mapping[str, Callable[[Json, Any, JsonObject], str]] = {
    "minimum": _too_small,
    "maximum": _too_large,
    "multipleOf": lambda v, limit, _: f"must be a multiple of {limit}" if _number(v) and v % limit else "",
    "minLength": _size(str, at_least=True),
    "maxLength": _size(str, at_least=False),
    "minItems": _size(list, at_least=True),
    "maxItems": _size(list, at_least=False),
    "minProperties": _size(dict, at_least=True),
    "maxProperties": _size(dict, at_least=False),
    "pattern": lambda v, p, _: f"must match '{p}'" if isinstance(v, str) and not re.search(p, v) else "",
}
