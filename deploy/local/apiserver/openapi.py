"""/openapi/v3, one document per group version, with which kubectl validates, applies and explains; and /openapi/v2."""

from collections.abc import Iterable

from starlette.responses import Response

from deploy.local.apiserver import discovery, schemas
from deploy.local.apiserver.kinds import REVIEWS, ApiKind
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.responses import json_response
from deploy.local.apiserver.schemas import META

_QUERY = ("dryRun", "fieldManager", "fieldValidation", "pretty")
_PATCHES = ("application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_TITLE = "Headroom's embedded Kubernetes API"
_STRING = {"type": "string"}


def v3(path: str, served: Iterable[ApiKind]) -> Response | None:
    """The root document (""), or that of a group version ("apis/apps/v1"); None if it does not exist."""
    kinds = [*served, *REVIEWS]
    if not path:
        return json_response(
            {"paths": {_path(kind): {"serverRelativeURL": f"/openapi/v3/{_path(kind)}"} for kind in kinds}}
        )
    chosen = [kind for kind in kinds if _path(kind) == path]
    return json_response(_document(chosen)) if chosen else None


def v2() -> Response:
    """A document without paths. Clients read it only for kinds that version 3 does not describe, which do not exist."""
    info = {"title": _TITLE, "version": discovery.version()["gitVersion"]}
    return json_response({"swagger": "2.0", "info": info, "paths": {}})


def _path(kind: ApiKind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _document(kinds: Iterable[ApiKind]) -> JsonObject:
    """The document of a group version's kinds."""
    found = schemas.with_references([META, *(_schema_name(kind) for kind in kinds if not kind.custom)])
    found |= {_schema_name(kind): _custom_schema(kind) for kind in kinds if kind.custom}
    paths = {_url(kind): _operations(kind) for kind in kinds}
    info = {"title": _TITLE, "version": discovery.version()["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": found}}


def _schema_name(kind: ApiKind) -> str:
    if not kind.custom:
        return schemas.name_of(kind.group, kind.version, kind.kind)
    return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"


def _url(kind: ApiKind) -> str:
    namespace = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"/{_path(kind)}{namespace}/{kind.plural}/{{name}}"


def _custom_schema(kind: ApiKind) -> JsonObject:
    assert kind.schema is not None
    # Fields beside `$ref` are ignored, so it is inside `allOf`.
    metadata = {"allOf": [{"$ref": f"#/components/schemas/{META}"}], "description": "Identity and life."}
    identity = {"apiVersion": _STRING, "kind": _STRING, "metadata": metadata}
    properties = {**kind.schema.raw.get("properties", {}), **identity}
    return {
        **kind.schema.raw,
        "properties": properties,
        "x-kubernetes-group-version-kind": [_group_version_kind(kind)],
    }


def _group_version_kind(kind: ApiKind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _operations(kind: ApiKind) -> JsonObject:
    """The operation that kubectl looks for: how the kind is patched, and with which options."""
    media_types = _PATCHES if kind.custom else (*_PATCHES, _STRATEGIC)
    return {
        "patch": {
            "x-kubernetes-group-version-kind": _group_version_kind(kind),
            "operationId": f"patch{kind.kind}",
            "parameters": [{"name": name, "in": "query", "schema": _STRING} for name in _QUERY],
            "requestBody": {"content": {media_type: {"schema": {"type": "object"}} for media_type in media_types}},
            "responses": {"200": {"description": "OK"}},
        }
    }
