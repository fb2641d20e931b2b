"""/openapi/v3: what kubectl validates, applies and explains by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from deploy.local.apiserver import discovery
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject, encode

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_STRING = {"type": "string"}
_STRINGS = {"type": "object", "additionalProperties": _STRING}
_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_API_VERSION = "The version of the schema that this object follows."
_KIND = "The kind of this object."
_OBJECT_META: JsonObject = {
    "type": "object",
    "description": "What every object carries: its identity, its labels and its life.",
    "properties": {
        "name": {**_STRING, "description": "Unique among the objects of its kind in a namespace."},
        "namespace": {**_STRING, "description": "The space within which the name is unique."},
        "labels": {**_STRINGS, "description": "Keys and values to select objects by."},
        "annotations": {**_STRINGS, "description": "Keys and values for tools, not for selection."},
        "uid": {**_STRING, "description": "Unique over space and time."},
        "resourceVersion": {**_STRING, "description": "Changes with every write of the object."},
        "generation": {"type": "integer", "format": "int64", "description": "Counts changes of the desired state."},
        "creationTimestamp": {**_STRING, "format": "date-time", "description": "When the object was made."},
        "deletionTimestamp": {**_STRING, "format": "date-time", "description": "When the object is to be gone."},
        "finalizers": {"type": "array", "items": _STRING, "description": "Who has to let go before it is gone."},
        "ownerReferences": {
            "type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "description": "The objects this one goes with.",
        },
        "generateName": {**_STRING, "description": "The beginning of a name the server completes."},
    },
    "x-kubernetes-preserve-unknown-fields": True,
}  # fmt: skip


def index(kinds: Iterable[Kind], generation: int) -> JsonObject:
    """The root document: a path, with a hash that changes with the definitions, for each group version."""
    return {"paths": {_path(kind): {"serverRelativeURL": _document_url(kind, generation)} for kind in kinds}}


def _path(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _document_url(kind: Kind, generation: int) -> str:
    digest = hashlib.sha256(encode([_path(kind), generation])).hexdigest()
    return f"/openapi/v3/{_path(kind)}?hash={digest[:32].upper()}"


def document(kinds: Iterable[Kind], path: str) -> JsonObject | None:
    """The OpenAPI v3 document of a group version ("apis/apps/v1"); None if there is no such."""
    chosen = [kind for kind in kinds if _path(kind) == path]
    if not chosen:
        return None
    schemas = {_META: _OBJECT_META} | {_schema_name(kind): _schema(kind) for kind in chosen}
    paths = {_url(kind): _operations(kind) for kind in chosen}
    info = {"title": "Headroom's embedded Kubernetes API", "version": discovery.version()["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _schema_name(kind: Kind) -> str:
    group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{group}.{kind.version}.{kind.kind}"


def _url(kind: Kind) -> str:
    namespace = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"/{_path(kind)}{namespace}/{kind.plural}/{{name}}"


def _schema(kind: Kind) -> JsonObject:
    if kind.schema is not None:
        schema = dict(kind.schema.raw)
    else:
        schema = {"type": "object", "description": f"{kind.kind} of {kind.api_version}, stored as given.",
                  "x-kubernetes-preserve-unknown-fields": True}  # fmt: skip
    common = {
        "apiVersion": {**_STRING, "description": _API_VERSION},
        "kind": {**_STRING, "description": _KIND},
        "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_META}"}], "description": "Identity and life."},
    }
    schema["properties"] = common | {
        name: child for name, child in (schema.get("properties") or {}).items() if name not in common
    }
    return schema | {"x-kubernetes-group-version-kind": [_group_version_kind(kind)]}


def _group_version_kind(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _operations(kind: Kind) -> JsonObject:
    parameters = [{"name": name, "in": "query", "schema": _STRING} for name in _QUERY]
    reference = {"schema": {"$ref": f"#/components/schemas/{_schema_name(kind)}"}}
    answer = {"responses": {"200": {"description": "OK", "content": {"application/json": reference}}}}
    common = {"x-kubernetes-group-version-kind": _group_version_kind(kind)} | answer
    patch_body = {"content": {media_type: {"schema": {"type": "object"}} for media_type in _PATCHES}}
    return {
        "get": {"operationId": f"read{kind.kind}", **common},
        "patch": {"operationId": f"patch{kind.kind}", "parameters": parameters, "requestBody": patch_body, **common},
        "put": {"operationId": f"replace{kind.kind}", "parameters": parameters, **common},
    }
