"""The built-in kinds' Go types as OpenAPI v3 component schemas, with which kubectl explains and merges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from deploy.local.apiserver import structs
from deploy.local.apiserver.kinds import BUILT_IN, REVIEWS, Kind
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.structs import ListRule, Member

_PACKAGES: Mapping[str, str] = {
    "meta/v1": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "api/resource": "io.k8s.apimachinery.pkg.api.resource",
    "util/intstr": "io.k8s.apimachinery.pkg.util.intstr",
    "pkg/runtime": "io.k8s.apimachinery.pkg.runtime",
    "apiextensions/v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}
STRING: JsonObject = {"type": "string"}
_DATE_TIME: JsonObject = {"type": "string", "format": "date-time"}
_ANYTHING: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_OPAQUE: Mapping[str, JsonObject] = {
    "api/resource.Quantity": {"oneOf": [STRING, {"type": "number"}]},
    "meta/v1.Time": _DATE_TIME,
    "meta/v1.MicroTime": _DATE_TIME,
    "meta/v1.Duration": STRING,
    "meta/v1.FieldsV1": {"type": "object"},
    "util/intstr.IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, STRING]},
    "pkg/runtime.RawExtension": {"type": "object"},
    "apiextensions/v1.JSONSchemaProps": _ANYTHING,
}
_BASIC: Mapping[str, JsonObject] = {
    "string": STRING,
    "pkg/types.UID": STRING,
    "[]byte": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer", "format": "int32"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
}
_KINDS = {kind.struct: kind for kind in (*BUILT_IN, *REVIEWS)}
IDENTITY: Mapping[str, JsonObject] = {
    "apiVersion": STRING | {"description": "The version of the schema that this object follows."},
    "kind": STRING | {"description": "The kind of this object."},
}
_META_TEXTS: Mapping[str, str] = {
    "name": "Unique among the objects of its kind in a namespace.",
    "generateName": "The beginning of a name the server completes.",
    "namespace": "The space within which the name is unique.",
    "labels": "Keys and values to select objects by.",
    "annotations": "Keys and values for tools, not for selection.",
    "uid": "Unique over space and time.",
    "resourceVersion": "Changes with every write of the object.",
    "generation": "Counts changes of the desired state.",
    "creationTimestamp": "When the object was made.",
    "deletionTimestamp": "When the object is to be gone.",
    "finalizers": "Who has to let go before it is gone.",
    "ownerReferences": "The objects this one goes with.",
}


def name(go: str) -> str:
    """The name of a type's schema."""
    package, _, type_name = go.rpartition(".")
    return f"{_PACKAGES.get(package) or 'io.k8s.api.' + package.replace('/', '.')}.{type_name}"


def reference(component: str) -> JsonObject:
    """A reference to a schema by name, inside `allOf`, because fields beside `$ref` are ignored."""
    return {"allOf": [{"$ref": f"#/components/schemas/{component}"}]}


def group_version_kind(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def schemas(types: Iterable[str]) -> dict[str, JsonObject]:
    """The schemas of Go types by name, with all schemas that they refer to."""
    found: dict[str, JsonObject] = {}
    wanted = list(types)
    while wanted:
        go = wanted.pop()
        if name(go) not in found:
            found[name(go)] = _schema(go)
            wanted += _referred(go)
    return dict(sorted(found.items()))


def _referred(go: str) -> Iterator[str]:
    for member in structs.members(go).values() if structs.is_struct(go) else ():
        inner = _innermost(member.type)
        if inner not in _BASIC:
            yield inner


def _innermost(go: str) -> str:
    go = structs.resolved(go.lstrip("*"))
    while go not in _BASIC and go.startswith(("[]", "map[")):
        go = structs.resolved(structs.element(go).lstrip("*"))
    return go


@cache
def _schema(go: str) -> JsonObject:
    if go in _OPAQUE:
        return _OPAQUE[go]
    members, kind = structs.members(go), _KINDS.get(go)
    properties = {key: _property(item) for key, item in members.items()}
    schema: JsonObject = {"type": "object", "properties": properties}
    if kind is not None:
        schema["properties"] = {**IDENTITY, **properties}
        schema["x-kubernetes-group-version-kind"] = [group_version_kind(kind)]
    if go == structs.META:
        for key, text in _META_TEXTS.items():
            schema["properties"][key]["description"] = text
    if required := [key for key, member in members.items() if member.required]:
        schema["required"] = required
    return schema


def _property(member: Member) -> JsonObject:
    schema = _of_type(member.type)
    return schema if member.rule is None else schema | _merging(member.rule)


def _of_type(go: str) -> JsonObject:
    go = structs.resolved(go.lstrip("*"))
    if go in _BASIC:
        return dict(_BASIC[go])
    if go.startswith("[]"):
        return {"type": "array", "items": _of_type(structs.element(go))}
    if go.startswith("map["):
        return {"type": "object", "additionalProperties": _of_type(structs.element(go))}
    return reference(name(go))


def _merging(rule: ListRule) -> JsonObject:
    """How a patch merges a field."""
    found: JsonObject = {}
    merges = bool(rule.merge_key or rule.union)
    if strategies := ["merge"] * merges + ["retainKeys"] * rule.retain_keys + ["replace"] * rule.replace:
        found["x-kubernetes-patch-strategy"] = ",".join(strategies)
    if rule.merge_key:
        found["x-kubernetes-patch-merge-key"] = rule.merge_key
    return found
