"""Builds custom resource definitions from the structs of `shared.api` and the words of `crd_words/`.

A struct gives names, types, bounds and nesting. The words add descriptions, formats and list rules, by struct and field
as on the wire; None removes what the struct gives.
"""

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
import yaml

from shared import yaml_file
from shared.api.core import Quantities
from shared.api.nodemetric import NodeMetricReport
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.api.profile import ProfileSpec

Schema: TypeAlias = dict[str, Any]

WORDS = Path(__file__).with_name("crd_words")
# By resource, the structs of the object's parts.
RESOURCES: dict[str, dict[str, type[msgspec.Struct]]] = {
    "clustercolocationprofiles": {"spec": ProfileSpec},
    "nodemetrics": {"spec": NodeMetricSpec, "status": NodeMetricReport},
}

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_INT_OR_STRING = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
_QUANTITY = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
_SCALARS: dict[object, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
}


def definition(resource: str) -> Schema:
    """The CustomResourceDefinition of one of `RESOURCES`."""
    words = yaml_file.parse((WORDS / f"{resource}.yaml").read_text("utf-8"))
    parts = {name: schema_of(kind, words["structs"]) for name, kind in RESOURCES[resource].items()}
    base = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    found: Schema = words["definition"]
    (version,) = found["spec"]["versions"]
    version["schema"] = {"openAPIV3Schema": _merged({"type": "object", "properties": base | parts}, words["root"])}
    return found


def schema_of(kind: Any, words: Mapping[str, Any]) -> Schema:
    """The structural schema of a type."""
    if kind == Quantities:
        return {"type": "object", "additionalProperties": {**_INT_OR_STRING, "pattern": _QUANTITY}}
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = words.get(kind.__name__, {})
        fields = {
            field.encode_name: _merged(schema_of(field.type, words), known.get(field.encode_name, {}))
            for field in msgspec.structs.fields(kind)
        }
        return {"type": "object", "properties": fields}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return schema_of(arguments[0], words) | _bounds(arguments[1])
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        some = [each for each in arguments if each is not types.NoneType]
        if len(some) == 1:
            return schema_of(some[0], words)
        schemas = [schema_of(each, words) for each in some]
        bounds: Schema = {key: each[key] for each in schemas for key in ("minimum", "maximum") if key in each}
        return {**_INT_OR_STRING, **bounds}
    if origin is tuple:
        return {"type": "array", "items": schema_of(arguments[0], words)}
    if origin is dict and arguments[1] is not object:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], words)}
    return dict(_ANYTHING)


def rendered(resource: str) -> str:
    """The definition as a file."""
    text: str = yaml.dump(definition(resource), Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
    return f"# Made by `python -m deploy.chart_files` from shared/api and deploy/crd_words.\n{text}"


class _Plain(yaml.SafeDumper):
    """A YAML writer without anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _bounds(meta: msgspec.Meta) -> Schema:
    """The bounds of whole numbers."""
    low = meta.ge if meta.gt is None else meta.gt + 1
    return {key: bound for key, bound in (("minimum", low), ("maximum", meta.le)) if bound is not None}


def _merged(schema: Schema, words: Mapping[str, Any]) -> Schema:
    """`schema` with the words merged over it; None deletes."""
    found = dict(schema)
    for key, value in words.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(found.get(key), dict):
            found[key] = _merged(found[key], value)
        else:
            found[key] = value
    return found
