"""Request bodies: JSON objects, patches and options, checked against the path, the kind and its schema."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from deploy.local.apiserver import kubectl, schemas, status
from deploy.local.apiserver.deletion import Deletion
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import Json, JsonObject, decode
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.status import FieldError

_OBJECTS = ("", "application/json")
_MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)


def parse(request: Request) -> Json:
    """The body as JSON. Raises StatusError (400)."""
    try:
        return decode(request.body)
    except _MALFORMED as error:
        raise status.bad_request(f"the body cannot be read as {request.content_type or 'JSON'}: {error}") from None


def parse_written(request: Request) -> Json:
    """The body of a request that is not a patch. Raises StatusError (400, 415)."""
    if request.content_type not in _OBJECTS:
        raise status.unsupported_media_type(_OBJECTS[1:], kubectl.hint(request))
    return parse(request)


def check_object(obj: Json, kind: ApiKind, namespace: str) -> JsonObject:
    """An object with the path's kind and namespace. Raises StatusError (400) if it is of others."""
    if not isinstance(obj, dict):
        raise status.bad_request(f"the body is no {kind.kind} but {type(obj).__name__}")
    check_identity(obj, kind)
    meta = obj.get("metadata") or {}
    if not isinstance(meta, dict):
        raise status.bad_request(f"{kind.kind}: metadata is no object")
    if kind.namespaced and meta.get("namespace") not in (None, "", namespace):
        raise status.foreign_namespace()
    rest = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": dict(meta)} | rest


def check_identity(obj: JsonObject, kind: ApiKind) -> None:
    """Raises StatusError (400) for an object of another kind or version."""
    said = (obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind)
    if said != (kind.api_version, kind.kind):
        raise status.bad_request(
            f"the object is a {said[1]} of {said[0]}, where a {kind.kind} of {kind.api_version} belongs"
        )


def deletion_of(request: Request) -> Deletion:
    """DeleteOptions as sent, in the body or else in the query. Raises StatusError (400, 415, 422)."""
    sent = parse_written(request) if request.body.strip() else {}
    if not isinstance(sent, dict):
        raise status.bad_request("DeleteOptions are an object")
    asked: JsonObject = {"propagationPolicy": request.query.get("propagationPolicy")}
    if "gracePeriodSeconds" in request.query:
        asked["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    return deletion(asked | sent | ({"dryRun": ["All"]} if request.dry_run else {}))


def deletion(options: JsonObject) -> Deletion:
    """Raises StatusError (400)."""
    try:
        return msgspec.convert({key: value for key, value in options.items() if value is not None}, Deletion)
    except msgspec.ValidationError as error:
        raise status.bad_request(f"DeleteOptions: {error}") from None


@dataclass(frozen=True, slots=True)
class How:
    """The options of a write: its subresource, whether it is a dry run, and the field validation."""

    subresource: str = ""
    dry_run: bool = False
    field_validation: str = "Ignore"


def how_of(request: Request, target: Target) -> How:
    return How(target.subresource, dry_run=request.dry_run, field_validation=request.field_validation)


def take(kind: ApiKind, obj: JsonObject, how: How) -> tuple[JsonObject, Sequence[FieldError], Sequence[str]]:
    """An object as its kind is stored, the errors from its schema, and warnings. Raises StatusError (400)."""
    check_identity(obj, kind)
    meta, checked = schemas.of_metadata().check(obj["metadata"]), kind.shape.check(obj)
    unfit, errors = list(meta.errors), checked.errors
    if not kind.custom:
        unfit += [error for error in errors if error.reason == status.INVALID]
        errors = [error for error in errors if error.reason != status.INVALID]
    if unfit:
        raise status.unfit(kind.kind, kind.version, ", ".join(map(str, unfit)))
    taken = checked.obj | {"metadata": {key: value for key, value in meta.obj.items() if value or value == 0}}
    unknown = [*(f"metadata.{path}" for path in meta.unknown), *checked.unknown]
    warnings = [f'unknown field "{path}"' for path in unknown]
    if warnings and how.field_validation == "Strict":
        raise status.unfit(kind.kind, kind.version, f"strict decoding error: {', '.join(warnings)}")
    return taken, errors, warnings if how.field_validation == "Warn" else ()
