"""What a write says, as its kind has it, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deploy.local.apiserver import builtin, quoting, registry, status, structs
from deploy.local.apiserver.kinds import Kind, mismatch
from deploy.local.apiserver.objects import Json, JsonObject
from deploy.local.apiserver.status import FieldError

_NOT_INTO = re.compile(r"json: cannot unmarshal (\S+(?: \d\S*)?) into Go struct field \S+ of type (\S+)")
_GO_KINDS = {"object": "map", "array": "slice", "number": "int64"}


@dataclass(frozen=True, slots=True)
class How:
    """How a write is made: by whom, for real or not, and how strictly fields are taken.

    `patch`: what was merged into the object, if anything was; `strategic`: in the way of built-in kinds.
    """

    manager: str = "apiserver"
    operation: str = "Update"
    subresource: str = ""
    dry_run: bool = False
    field_validation: str = "Warn"
    patch: Json = None
    strategic: bool = False
    repeated: Sequence[str] = ()


def decode(kind: Kind, obj: JsonObject, how: How) -> tuple[JsonObject, list[FieldError], Sequence[str]]:
    """An object as its kind has it, what its schema finds wrong, and what to warn of. Raises StatusError (400, 422)."""
    decoded = structs.decode_metadata(kind.kind, obj) if kind.custom else structs.decode(kind.struct, obj)
    if problem := identity_problem(kind, obj) or decoded.problem:
        raise undecodable(kind, obj, how, problem)
    taken, unknown, errors = decoded.obj, list(decoded.unknown), list[FieldError]()
    taken["metadata"] = {key: value for key, value in taken["metadata"].items() if value or value == 0}
    if kind.schema is not None:
        checked = kind.schema.check(taken)
        taken, errors = checked.obj, checked.errors
        if how.subresource == "status":
            errors = [error.below("status") for error in errors]
        unknown += checked.unknown
    complaints = [*how.repeated, *(f'unknown field "{path}"' for path in unknown)]
    if complaints and how.field_validation == "Strict":
        if how.repeated and how.repeated[0].startswith("line "):
            complaints[: len(how.repeated)] = [status.repeated_in_yaml(how.repeated)]
        raise undecodable(kind, obj, how, f"strict decoding error: {', '.join(complaints)}")
    return taken, errors, complaints if how.field_validation == "Warn" else ()


def rule_errors(kind: Kind, old: JsonObject | None, obj: JsonObject, how: How) -> Iterable[FieldError]:
    """What the rules of a built-in kind find wrong. Raises StatusError (400, 422)."""
    if kind.kind == "CustomResourceDefinition":
        return registry.definition_errors(obj)
    if how.subresource == "binding":
        return ()  # it sets the one field of a pod's spec that no update may
    try:
        return list(builtin.rules_of(kind).errors(obj, old))
    except ValueError as error:
        raise undecodable(kind, obj, how, str(error)) from error


def identity_problem(kind: Kind, obj: JsonObject) -> str:
    """Why the object is not of its kind; empty if it is."""
    for key, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if obj.get(key) not in (None, "", expected):
            if not kind.custom:
                return mismatch(kind, str(obj.get("apiVersion")), str(obj.get("kind")))
            return f"the {key} in the data ({obj[key]}) does not match the expected {key} ({expected})"
    return ""


def undecodable(kind: Kind, obj: JsonObject, how: How, why: str) -> status.StatusError:
    """What is no object of its kind: a bad body, or a patch that makes a bad object of a good one."""
    if how.operation == "Apply":
        key = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
        return status.not_applicable(kind.group, kind.version, kind.kind, key, why)
    if how.patch is not None:
        shown = quoting.go_text(how.patch) if how.strategic else quoting.patched(kind, obj, how.patch)
        why = _NOT_INTO.sub(_not_restored, why) if how.strategic else why
        return status.invalid("", "", "", [status.invalid_value("patch", shown, why)])
    return status.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def _not_restored(match: re.Match[str]) -> str:
    """What a strategic patch is told of a wrong type: it does not go through JSON."""
    found, wanted = _GO_KINDS.get(match[1].split()[0], match[1]), match[2]
    if wanted.startswith(("[]", "map[")):
        return f"cannot restore {'slice' if wanted.startswith('[]') else 'map'} from {found}"
    if "." in wanted:
        return f"cannot restore struct from: {found}"
    if (found, wanted) == ("int64", "string"):
        return "cannot convert int64 to string"
    return f"unrecognized type: {wanted}"
