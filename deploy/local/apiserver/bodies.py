"""Request bodies: JSON or YAML objects, patches and options, checked against what the path says."""

from __future__ import annotations

import msgspec
import yaml

from deploy.local.apiserver import protobuf, status
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import Json, JsonObject, decode
from deploy.local.apiserver.requests import Request
from deploy.local.apiserver.writes import Deletion

_YAML = ("application/yaml", "application/apply-patch+yaml")
_OBJECTS = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_BOTH_SET = "orphanDependents and deletionPropagation cannot be both set"
_ACCEPTED = (
    "this server takes JSON and YAML: use `kubectl apply -f` or `kubectl create -f` with a manifest "
    "(`kubectl create ... --dry-run=client -o yaml | kubectl apply -f -`)"
)


def parse(request: Request) -> Json:
    """The body as JSON. Raises StatusError (400, 415)."""
    media_type = request.content_type
    try:
        if media_type == "application/vnd.kubernetes.protobuf":
            return protobuf.read(request.body)
        if "cbor" in media_type:
            raise status.unsupported_media_type(_ACCEPTED)
        if media_type in _YAML and not request.body.lstrip().startswith(b"{"):
            # Timestamps stay text: JSON has none.
            return yaml.load(request.body, Loader=_JsonLoader)
        return decode(request.body)
    except protobuf.Unreadable as error:
        raise status.unsupported_media_type(f"this protobuf body cannot be read: {error}; {_ACCEPTED}") from None
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise status.bad_request(f"the body of the request could not be read: {error}") from None


class _JsonLoader(yaml.SafeLoader):
    """YAML restricted to what JSON can say."""


_JsonLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_written(request: Request) -> Json:
    """The body of a request that is no patch. Raises StatusError (400, 415)."""
    if request.content_type not in ("", "application/cbor", *_OBJECTS):
        raise status.unsupported_media_type(status.unknown_format(_OBJECTS))
    return parse(request)


def parse_object(request: Request, kind: Kind, namespace: str) -> JsonObject:
    """The object of a create or update, of the path's kind and namespace. Raises StatusError."""
    return check_object(parse_written(request), kind, namespace)


def parse_applied(request: Request, kind: Kind, namespace: str) -> JsonObject:
    """The configuration of an apply, of the path's kind and namespace. Raises StatusError."""
    return check_object(parse(request), kind, namespace)


def check_object(obj: Json, kind: Kind, namespace: str) -> JsonObject:
    if not isinstance(obj, dict):
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            "couldn't get version/kind; json parse error: the body is no JSON object"
        )
    api_version, kind_name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if kind_name != kind.kind:
        raise status.bad_request(
            f'{kind_name} in version "{str(api_version).rpartition("/")[2]}" cannot be handled as a {kind.kind}: '
            f"the kind in the data ({kind_name}) does not match the expected kind ({kind.kind})"
        )
    if api_version != kind.api_version:
        raise status.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )
    meta = obj.get("metadata") or {}
    if not isinstance(meta, dict):
        raise status.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            "json: cannot unmarshal: Expected `object` - at `$.metadata`"
        )
    if kind.namespaced and meta.get("namespace") not in (None, "", namespace):
        raise status.foreign_namespace()
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": dict(meta)} | {
        key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")
    }


def parse_deletion(request: Request) -> Deletion:
    """DeleteOptions from the body, or else from the query. Raises StatusError (400, 422)."""
    options = parse_written(request) if request.body.strip() else {}
    if not isinstance(options, dict):
        raise status.bad_request("DeleteOptions must be a JSON object")
    preconditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds")
    if grace is None and "gracePeriodSeconds" in request.query:
        grace = request.number("gracePeriodSeconds")
    if grace is not None and not isinstance(grace, int):
        raise status.bad_request("gracePeriodSeconds must be an integer")
    propagation = options.get("propagationPolicy") or request.query.get("propagationPolicy") or ""
    if options.get("orphanDependents") is not None and propagation:
        error = status.invalid_value("propagationPolicy", propagation, _BOTH_SET)
        raise status.invalid_options("DeleteOptions", error)
    if options.get("orphanDependents"):
        propagation = "Orphan"
    allowed = ("Foreground", "Background", "Orphan")
    if propagation and propagation not in allowed:
        error = status.unsupported("propagationPolicy", propagation, (*allowed, "nil"))
        raise status.invalid_options("DeleteOptions", error)
    return Deletion(
        grace_period_seconds=grace,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        propagation=propagation or "Background",
    )


def dry_run_of_deletion(request: Request) -> bool:
    """Dry run may be asked for in the DeleteOptions of the body as well."""
    body = parse(request) if request.body.strip() else {}
    asked = body.get("dryRun") if isinstance(body, dict) else None
    if asked not in (None, [], ["All"]):
        raise status.invalid_options("DeleteOptions", status.unsupported("dryRun", asked, ("All",)))
    return request.dry_run or bool(asked)
