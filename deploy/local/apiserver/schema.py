"""Structural schemas of custom kinds: pruning, defaulting and validation as CustomResourceDefinitions ask for.

Objects that are in order, nearly all, satisfy types that msgspec checks in C (`_shape`); whatever does not, or has
a schema that the types cannot express, is walked in full: changed where it has to be, refused with exact causes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec

from deploy.local.apiserver import status
from deploy.local.apiserver.merging import ListRule, Path
from deploy.local.apiserver.objects import Json, JsonObject, copy
from deploy.local.apiserver.status import FieldError

_UNCHECKED = ("apiVersion", "kind", "metadata")
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
_COMBINED = ("allOf", "anyOf", "oneOf", "not")


@dataclass(frozen=True, slots=True)
class Checked:
    """An object after its schema: pruned and defaulted, its errors, and the fields that were dropped."""

    obj: JsonObject
    errors: list[FieldError]
    unknown: list[str]


class Schema:
    """A compiled openAPIV3Schema."""

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw
        self.list_rules: dict[Path, ListRule] = dict(_list_rules(raw, ()))
        try:
            self._shape: Any = _shape_of_object(raw, root=True)
        except _NoShapeError:
            self._shape = None

    def check(self, obj: JsonObject) -> Checked:
        """Prunes, defaults and validates, leaving `obj` as it is."""
        if self._is_in_order(obj):
            return Checked(obj, list(self._duplicates(obj)), [])
        obj = copy(obj)
        unknown: list[str] = []
        prune(obj, self.raw, "", unknown, root=True)
        apply_defaults(obj, self.raw)
        unknown.sort()
        return Checked(obj, [*validate(obj, self.raw, "", root=True), *self._duplicates(obj)], unknown)

    def _is_in_order(self, obj: JsonObject) -> bool:
        """Whether the object is certainly valid and complete, with nothing to prune."""
        if self._shape is None:
            return False
        try:
            msgspec.convert(obj, self._shape)
        except msgspec.ValidationError:
            return False
        return True

    def _duplicates(self, obj: JsonObject) -> Iterator[FieldError]:
        for path, rule in self.list_rules.items():
            if rule.map_keys or rule.is_set:
                yield from _duplicate_items(obj, path, rule, "")


def _list_rules(schema: JsonObject, path: Path) -> Iterator[tuple[Path, ListRule]]:
    match schema.get("x-kubernetes-list-type"):
        case "map":
            yield path, ListRule(map_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()))
        case "set":
            yield path, ListRule(is_set=True)
    if schema.get("x-kubernetes-map-type") == "atomic":
        yield path, ListRule(atomic=True)
    for name, child in (schema.get("properties") or {}).items():
        yield from _list_rules(child, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from _list_rules(schema["items"], path)


def _duplicate_items(value: Json, path: Path, rule: ListRule, where: str) -> Iterator[FieldError]:
    if path and isinstance(value, dict):
        yield from _duplicate_items(value.get(path[0]), path[1:], rule, f"{where}.{path[0]}".lstrip("."))
    elif isinstance(value, list) and path:
        for index, item in enumerate(value):
            yield from _duplicate_items(item, path, rule, f"{where}[{index}]")
    elif isinstance(value, list):
        seen: list[Json] = []
        for index, item in enumerate(value):
            key = item if rule.is_set else {name: item.get(name) for name in rule.map_keys}
            if key in seen:
                yield status.duplicate(f"{where}[{index}]", key)
            seen.append(key)


def _preserves(schema: JsonObject) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def prune(value: Json, schema: JsonObject, path: str, unknown: list[str], *, root: bool = False) -> None:
    """Drops in place what the schema does not name, collecting the paths."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            prune(item, schema.get("items") or {}, f"{path}[{index}]", unknown)
    if not isinstance(value, dict):
        return
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    checked = root or schema.get("x-kubernetes-embedded-resource")
    for key in list(value):
        if checked and key in _UNCHECKED:
            continue
        where = f"{path}.{key}" if path else key
        child = properties.get(key, extra if isinstance(extra, dict) else None)
        if child is not None:
            prune(value[key], child, where, unknown)
        elif not extra and not _preserves(schema):
            unknown.append(where)
            del value[key]


def apply_defaults(value: Json, schema: JsonObject) -> None:
    """Fills in defaults in place; a field that is null where it is not allowed counts as absent."""
    if isinstance(value, list):
        for item in value:
            apply_defaults(item, schema.get("items") or {})
    if not isinstance(value, dict):
        return
    extra = schema.get("additionalProperties")
    properties = schema.get("properties") or {}
    for key in [key for key, given in value.items() if given is None]:
        child = properties.get(key, extra)
        if isinstance(child, dict) and not child.get("nullable"):
            del value[key]
    for key, child in properties.items():
        if key not in value and "default" in child:
            value[key] = copy(child["default"])
        if key in value:
            given = value[key]
            if child.get("type") == "integer" and isinstance(given, float) and given.is_integer():
                value[key] = int(given)
            apply_defaults(given, child)
    if isinstance(extra, dict):
        for key in value.keys() - properties.keys():
            apply_defaults(value[key], extra)


def validate(value: Json, schema: JsonObject, path: str, *, root: bool = False) -> Iterator[FieldError]:
    """Every violation, in the words of the API."""
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _wrong_type(path, value, "integer,string")
            if "anyOf" in schema:
                why = f'"{path}" must validate at least one schema (anyOf)'
                yield status.FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {why}')
                yield _wrong_type(path, value, schema["anyOf"][0].get("type", ""))
            return
    elif (wanted := schema.get("type")) and not _has_type(value, wanted):
        if _number(value) and (form := schema.get("format")):
            name = "int64" if isinstance(value, int) else "float64"
            yield status.type_invalid(path, name, f'{path} in body must be of type {form}: "{name}"')
            if wanted == "integer":
                why = f"Checked value must be of type integer with format {form} in {path}"
                yield status.FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {why}')
        else:
            yield _wrong_type(path, value, wanted)
        return
    yield from _violations(value, schema, path)
    if isinstance(value, dict):
        yield from _object_errors(value, schema, path, root)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from validate(item, schema.get("items") or {}, f"{path}[{index}]")


def _has_type(value: Json, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _wrong_type(path: str, value: Json, wanted: str) -> FieldError:
    name = next((name for name in _TYPES if _has_type(value, name)), "null")
    return status.type_invalid(path, name, f'{path} in body must be of type {wanted}: "{name}"')


def _object_errors(value: JsonObject, schema: JsonObject, path: str, root: bool) -> Iterator[FieldError]:
    prefix = f"{path}." if path else ""
    for name in schema.get("required") or ():
        if name not in value:
            yield status.required(prefix + name)
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        if root and key in _UNCHECKED:
            continue
        child = properties.get(key, extra if isinstance(extra, dict) else None)
        if child is not None:
            yield from validate(item, child, prefix + key)


def _violations(value: Json, schema: JsonObject, path: str) -> Iterator[FieldError]:
    if "enum" in schema and value not in schema["enum"]:
        yield status.unsupported(path, value, schema["enum"])
    for limit, broken in _LIMITS.items():
        if limit in schema and (detail := broken(value, schema[limit], schema)):
            yield status.invalid_value(path, value, f"{path} in body {detail}")
    if wrong := _format_error(value, schema.get("format", "")):
        yield status.type_invalid(path, value, f"{path} in body must be of type {wrong}: {status.shown(value)}")
    yield from _combined_errors(value, schema, path)


def _format_error(value: Json, name: str) -> str:
    if isinstance(value, str) and name in FORMATS and not re.search(FORMATS[name], value):
        return name
    if isinstance(value, int) and name in _RANGES and not _RANGES[name][0] <= value <= _RANGES[name][1]:
        return name
    return ""


def _combined_errors(value: Json, schema: JsonObject, path: str) -> Iterator[FieldError]:
    if schema.get("x-kubernetes-int-or-string"):
        return
    for part in schema.get("allOf") or ():
        yield from validate(value, part, path)
    for name in ("anyOf", "oneOf"):
        passing = [part for part in schema.get(name) or () if not any(validate(value, part, path))]
        if name in schema and (not passing or (name == "oneOf" and len(passing) > 1)):
            yield status.invalid_value(path, value, f"{path} in body must validate {name} of the given schemas")
    if "not" in schema and not any(validate(value, schema["not"], path)):
        yield status.invalid_value(path, value, f"{path} in body must not validate the schema (not)")


def _number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _too_small(value: Json, limit: float, schema: JsonObject) -> str:
    exclusive = bool(schema.get("exclusiveMinimum"))
    if not _number(value) or value > limit or (value == limit and not exclusive):
        return ""
    return f"should be greater than {'' if exclusive else 'or equal to '}{limit}"


def _too_large(value: Json, limit: float, schema: JsonObject) -> str:
    exclusive = bool(schema.get("exclusiveMaximum"))
    if not _number(value) or value < limit or (value == limit and not exclusive):
        return ""
    return f"should be less than {'' if exclusive else 'or equal to '}{limit}"


def _size(
    kind: type[str | list[Json] | JsonObject], unit: str, at_least: bool
) -> Callable[[Json, int, JsonObject], str]:
    def broken(value: Json, limit: int, _: JsonObject) -> str:
        if not isinstance(value, kind) or (len(value) >= limit if at_least else len(value) <= limit):
            return ""
        return f"should {unit} at {'least' if at_least else 'most'} {limit}"

    return broken


_LIMITS: Mapping[str, Callable[[Json, Any, JsonObject], str]] = {
    "minimum": _too_small,
    "maximum": _too_large,
    "multipleOf": lambda v, limit, _: f"should be a multiple of {limit}" if _number(v) and v % limit else "",
    "minLength": _size(str, "have a length of", True),
    "maxLength": _size(str, "have a length of", False),
    "minItems": _size(list, "have an item count of", True),
    "maxItems": _size(list, "have an item count of", False),
    "minProperties": _size(dict, "have a property count of", True),
    "maxProperties": _size(dict, "have a property count of", False),
    "pattern": lambda v, p, _: f"should match '{p}'" if isinstance(v, str) and not re.search(p, v) else "",
}


class _NoShapeError(Exception):
    """No msgspec type says what this schema says; the slow way has to check its objects."""


def _shape(schema: JsonObject) -> Any:
    """A msgspec type that accepts only what needs no change by the schema and breaks none of its rules."""
    if any(name in schema for name in _COMBINED) and not schema.get("x-kubernetes-int-or-string"):
        raise _NoShapeError
    shape: Any = _plain_shape(schema)
    return shape | None if schema.get("nullable") else shape


def _plain_shape(schema: JsonObject) -> Any:
    text = _constrained(str, pattern=schema.get("pattern") or FORMATS.get(schema.get("format", "")),
                        min_length=schema.get("minLength"), max_length=schema.get("maxLength"))  # fmt: skip
    if schema.get("x-kubernetes-int-or-string"):
        return _constrained(int, **_bounds(schema)) | text
    if "pattern" in schema and schema.get("format") in FORMATS:
        raise _NoShapeError
    if "enum" in schema:
        if not all(type(item) in (int, str) for item in schema["enum"]):
            raise _NoShapeError
        return Literal[tuple(schema["enum"])]
    match schema.get("type"):
        case "string":
            return text
        case "integer":
            return _constrained(int, **_bounds(schema))
        case "number":
            return _constrained(int, **_bounds(schema)) | _constrained(float, **_bounds(schema))
        case "boolean":
            return bool
        case "array":
            item = _shape(schema.get("items") or {})
            items = GenericAlias(list, item)
            return _constrained(items, min_length=schema.get("minItems"), max_length=schema.get("maxItems"))
        case "object":
            return _shape_of_object(schema)
    if _preserves(schema) and not schema.get("properties"):
        return Any
    raise _NoShapeError


def _constrained(base: Any, **limits: Any) -> Any:
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return Annotated[base, msgspec.Meta(**given)] if given else base


def _bounds(schema: JsonObject) -> dict[str, Any]:
    lowest, highest = _RANGES.get(schema.get("format", ""), (None, None))
    minimum, maximum = schema.get("minimum", lowest), schema.get("maximum", highest)
    return {
        "gt" if schema.get("exclusiveMinimum") else "ge": minimum,
        "lt" if schema.get("exclusiveMaximum") else "le": maximum,
        "multiple_of": schema.get("multipleOf"),
    }


def _shape_of_object(schema: JsonObject, *, root: bool = False) -> Any:
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    if schema.get("x-kubernetes-embedded-resource") or "minProperties" in schema or "maxProperties" in schema:
        raise _NoShapeError
    if not properties and (extra or _preserves(schema)):
        return GenericAlias(dict, (str, _shape(extra) if isinstance(extra, dict) else Any))
    if extra or _preserves(schema):
        raise _NoShapeError
    if root:
        properties = {**properties, **{name: {"x-kubernetes-preserve-unknown-fields": True} for name in _UNCHECKED}}
    fields = [
        _field(index, name, child, required=name in (schema.get("required") or ()))
        for index, (name, child) in enumerate(properties.items())
    ]
    renamed = {field[0]: name for field, name in zip(fields, properties, strict=True)}
    return msgspec.defstruct("Shape", fields, rename=renamed, kw_only=True, forbid_unknown_fields=True, gc=False)


def _field(index: int, name: str, child: JsonObject, *, required: bool) -> tuple[Any, ...]:
    shape, label = _shape(child), f"field{index}"
    if "default" in child or required:  # what would be filled in has to be there already
        return (label, shape)
    return (label, shape | msgspec.UnsetType, msgspec.UNSET)
