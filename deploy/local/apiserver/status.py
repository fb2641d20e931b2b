"""Errors in the API's format: metav1.Status with its code, reason, message and details."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.local.apiserver.objects import Json, JsonObject, encode

INVALID = "FieldValueInvalid"
RESOURCE_VERSION_CONFLICT = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@dataclass(eq=False)
class StatusError(Exception):
    """A failed request, with all fields of its Status."""

    code: int
    reason: str
    message: str
    details: JsonObject | None = None

    def __str__(self) -> str:
        return self.message

    def to_object(self) -> JsonObject:
        fixed = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        told = {"message": self.message, "reason": self.reason, "details": self.details, "code": self.code}
        return fixed | {key: value for key, value in told.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One cause of an Invalid response; `detail` is the text after the field."""

    field: str
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"

    def cause(self) -> JsonObject:
        return {"reason": self.reason, "message": self.detail, "field": self.field}


def shown(value: Json) -> str:
    return encode(value).decode()


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid_value(field: str, value: Json, detail: str) -> FieldError:
    return FieldError(field, INVALID, f"Invalid value: {shown(value)}: {detail}")


def unsupported(field: str, value: Json, allowed: Sequence[Json]) -> FieldError:
    names = ", ".join(shown(item) for item in allowed)
    return FieldError(field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {names}")


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: Json) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def qualified(group: str, resource: str) -> str:
    """The `resource.group` form in messages; the core group has no suffix."""
    return f"{resource}.{group}" if group else resource


def _details(group: str, kind: str, name: str = "") -> JsonObject:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def not_found(group: str, resource: str, name: str) -> StatusError:
    message = f'{qualified(group, resource)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_details(group, resource, name))


def already_exists(group: str, resource: str, name: str) -> StatusError:
    message = f'{qualified(group, resource)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(group, resource, name))


def conflict(group: str, resource: str, name: str, why: str = RESOURCE_VERSION_CONFLICT) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(group, resource)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(group, resource, name))


def forbidden(group: str, resource: str, name: str, why: str, causes: Sequence[JsonObject] = ()) -> StatusError:
    subject = f'{qualified(group, resource)} "{name}"' if name else qualified(group, resource)
    details = _details(group, resource, name) | ({"causes": list(causes)} if causes else {})
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    texts = list(dict.fromkeys(map(str, errors)))
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _details(group, kind, name) | {"causes": [error.cause() for error in errors]}
    message = f'{qualified(group, kind)} "{name}" is invalid: {listed}'
    return StatusError(422, "Invalid", message, details=details)


def invalid_option(error: FieldError) -> StatusError:
    """An invalid query parameter or delete option."""
    return invalid("meta.k8s.io", "Options", "", [error])


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unfit(kind: str, version: str, why: str) -> StatusError:
    """A body that is not an object of its kind."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def foreign_namespace() -> StatusError:
    return bad_request("the namespace of the provided object does not match the namespace sent on the request")


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def unsupported_media_type(accepted: Sequence[str], hint: str = "") -> StatusError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", hint or message)


def internal(message: str) -> StatusError:
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details=details)
