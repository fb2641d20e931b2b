"""The schemas of the built-in kinds, as a real API server publishes them: openapi.json.

`python -m tests.apiserver.schemas` records the file. Objects of built-in kinds get their defaults and are checked with
these schemas, as those of custom kinds are with their own; kubectl reads them to explain, validate and merge.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from deploy.local.apiserver.objects import JsonObject, decode
from deploy.local.apiserver.schema import KEEPS_UNKNOWN, Schema

DATA = Path(__file__).with_name("openapi.json")
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_KEPT = ("type", "format", "enum", "default")
_STRATEGY, _MERGE_KEY = "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"

FieldPath = tuple[str, ...]  # names of fields, without indexes


@dataclass(frozen=True, slots=True)
class ListRule:
    """How a list or object merges in a strategic patch: by the `merge_key`, as a `union`, or else by replacement."""

    merge_key: str = ""
    union: bool = False
    replace: bool = False


ListRules = Callable[[FieldPath], ListRule | None]


@cache
def published() -> Mapping[str, JsonObject]:
    """The recorded schemas by name."""
    schemas: Mapping[str, JsonObject] = decode(DATA.read_bytes())["schemas"]
    return schemas


def identities(schema: JsonObject) -> set[tuple[str, str, str]]:
    """The group, version and kind of each kind that a schema describes."""
    return {(of["group"], of["version"], of["kind"]) for of in schema.get("x-kubernetes-group-version-kind") or ()}


@cache
def name_of(group: str, version: str, kind: str) -> str:
    """The name of a kind's schema."""
    return next(name for name, schema in published().items() if (group, version, kind) in identities(schema))


def with_references(names: Iterable[str]) -> dict[str, JsonObject]:
    """The named schemas, with all those that they refer to."""
    found: dict[str, JsonObject] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = published()[name]
            wanted += _references(found[name])
    return dict(sorted(found.items()))


def _references(schema: JsonObject) -> Iterable[str]:
    for part in (schema, *schema.get("allOf", ())):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
    inner = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for part in inner:
        if isinstance(part, dict):
            yield from _references(part)


@cache
def of_kind(group: str, version: str, kind: str) -> Schema:
    """The schema of a built-in kind's objects."""
    return Schema(_component(name_of(group, version, kind)))


@cache
def of_metadata() -> Schema:
    """The schema of any object's metadata."""
    return Schema(_component(META))


_components: dict[str, JsonObject] = {}


def _component(name: str) -> JsonObject:
    """A schema with its references replaced by the schemas themselves, which can be recursive."""
    if name not in _components:
        _components[name] = {}
        _components[name] |= _resolved(published()[name])
    return _components[name]


def _resolved(schema: JsonObject) -> JsonObject:
    """The part of a schema that the server checks. Which fields are required depends on the kind: see `builtin`."""
    own = {key: schema[key] for key in (*_KEPT, _STRATEGY, _MERGE_KEY) if key in schema}
    for name in _references({key: schema[key] for key in ("$ref", "allOf") if key in schema}):
        return _component(name) | own if own else _component(name)
    if schema.get("format") == "int-or-string":
        return {"x-kubernetes-int-or-string": True}
    if "oneOf" in schema:  # a quantity
        return {"format": "quantity"}
    extra = schema.get("additionalProperties")
    if "items" in schema:
        own["items"] = _resolved(_without_default(schema["items"]))
    if "properties" in schema:
        own["properties"] = {name: _resolved(property_) for name, property_ in schema["properties"].items()}
    elif isinstance(extra, dict):
        own["additionalProperties"] = _resolved(_without_default(extra))
    else:
        own[KEEPS_UNKNOWN] = True
    return own


def _without_default(schema: JsonObject) -> JsonObject:
    """A schema of items, which are never absent."""
    return {key: value for key, value in schema.items() if key != "default"}


@lru_cache(maxsize=4096)
def list_rule(group: str, version: str, kind: str, path: FieldPath) -> ListRule | None:
    """How a strategic patch of a built-in kind merges the value at a path."""
    schema = of_kind(group, version, kind).raw
    for step in path:
        schema = schema.get("items") or schema
        following = schema.get("properties", {}).get(step) or schema.get("additionalProperties")
        if following is None:
            return None
        schema = following
    strategies, merge_key = schema.get(_STRATEGY, "").split(","), schema.get(_MERGE_KEY, "")
    rule = ListRule(merge_key, "merge" in strategies and not merge_key, "replace" in strategies)
    return None if rule == ListRule() else rule
