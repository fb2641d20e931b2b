"""Decodes the object of a write to its kind's form, and reports errors and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.local.apiserver import bodies, schemas, status
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
    return Taken(taken, errors, warnings if how.field_validation == "Warn" else ())
