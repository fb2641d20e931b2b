"""Decodes the object of a write to its kind's form, and reports errors and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from deploy.local.apiserver import bodies, status, structs
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.status import FieldError


@dataclass(frozen=True, slots=True)
class How:
    """How to apply a write: to which subresource, as a dry run or not, and with which field validation."""

    subresource: str = ""
    dry_run: bool = False
    field_validation: str = "Ignore"


@dataclass(frozen=True, slots=True)
class Taken:
    """An object in its kind's form, the errors from its schema, and warnings."""

    obj: JsonObject
    errors: Sequence[FieldError]
    warnings: Sequence[str]


def take(kind: Kind, obj: JsonObject, how: How) -> Taken:
    """Raises StatusError (400)."""
    bodies.check_identity(obj, kind)
    try:
        decoded = structs.decode_metadata(obj) if kind.custom else structs.decode(kind.struct, obj)
    except msgspec.ValidationError as error:
        raise status.unfit(kind.kind, kind.version, str(error)) from None
    taken, unknown, errors = decoded.obj, list(decoded.unknown), list[FieldError]()
    taken["metadata"] = {key: value for key, value in taken["metadata"].items() if value or value == 0}
    if kind.schema is not None:
        checked = kind.schema.check(taken)
        taken, errors = checked.obj, checked.errors
        unknown += checked.unknown
    warnings = [f'unknown field "{path}"' for path in unknown]
    if warnings and how.field_validation == "Strict":
        raise status.unfit(kind.kind, kind.version, f"strict decoding error: {', '.join(warnings)}")
    return Taken(taken, errors, warnings if how.field_validation == "Warn" else ())
