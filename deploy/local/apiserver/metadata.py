"""The metadata rules for all kinds: names, labels, finalizers, owners, and immutable fields."""

from collections.abc import Iterator

from deploy.local.apiserver import selectors, status
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.status import FieldError

_LABEL_RULE = "lower case letters, digits and '-', beginning and ending with a letter or digit"
_SUBDOMAIN_RULE = f"labels with dots between them, each of {_LABEL_RULE}"
_FIXED = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")


def name_errors(name: str, name_format: str, field: str = "metadata.name") -> Iterator[FieldError]:
    """Why a name is invalid, for formats `subdomain`, `label` and `path`."""
    match name_format:
        case "path" if "/" in name or "%" in name or name in (".", ".."):
            yield status.invalid_value(field, name, "may not be a step of a path")
        case "label" if not selectors.LABEL_NAME.fullmatch(name):
            yield status.invalid_value(field, name, _LABEL_RULE)
        case "subdomain" if len(name) > 253 or not selectors.SUBDOMAIN.fullmatch(name):
            yield status.invalid_value(field, name, _SUBDOMAIN_RULE)


def key_errors(key: str, field: str) -> Iterator[FieldError]:
    """Why a text is not a qualified name: `name` or `prefix/name`."""
    if not selectors.valid_label_key(key):
        yield status.invalid_value(field, key, selectors.KEY_RULE)


def errors(kind: ApiKind, old: JsonObject | None, obj: JsonObject) -> Iterator[FieldError]:
    """All errors in the metadata of an object's new state."""
    meta = obj["metadata"]
    if old is None and kind.kind != "Event":
        yield from name_errors(meta["name"], kind.name_format)
    for key, value in (meta.get("labels") or {}).items():
        yield from key_errors(key, "metadata.labels")
        if not selectors.valid_label_value(value):
            yield status.invalid_value("metadata.labels", value, selectors.VALUE_RULE)
    for key in meta.get("annotations") or {}:
        yield from key_errors(key.lower(), "metadata.annotations")
    names = meta.get("finalizers") or ()
    for name in names:
        yield from key_errors(name, "metadata.finalizers")
    if old is not None and meta.get("deletionTimestamp") and set(names) - set(old["metadata"].get("finalizers") or ()):
        yield status.forbidden_field("metadata.finalizers", "no finalizer can be added if the object is being deleted")


def check_version(kind: ApiKind, old: JsonObject, meta: JsonObject, *, replacing: bool) -> None:
    """Raises StatusError: 409 for a version that is not the current one, 422 if a required one is missing."""
    version, name = meta.get("resourceVersion") or "", old["metadata"]["name"]
    if version in ("", "0"):
        if replacing and not kind.unconditional_update:
            error = status.required("metadata.resourceVersion", "must be specified for an update")
            raise status.invalid(kind.group, kind.plural, name, [error])
    elif version != old["metadata"]["resourceVersion"]:
        raise status.conflict(kind.group, kind.plural, name)


def check_identity(kind: ApiKind, old: JsonObject, meta: JsonObject, *, replacing: bool = False) -> None:
    """Completes the identity in a new state. Raises StatusError (400, 409, 422) if it belongs to another object."""
    before = old["metadata"]
    check_name(meta.get("name"), before["name"])
    if kind.namespaced and meta.get("namespace") not in (None, "", before["namespace"]):
        raise status.foreign_namespace()
    meta.pop("namespace", None)
    if kind.namespaced:
        meta["namespace"] = before["namespace"]
    if replacing and meta.get("uid") not in (None, "", before["uid"]):
        raise status.conflict(kind.group, kind.plural, before["name"], f"its uid is {before['uid']}")
    fixed = [key for key in _FIXED if meta.get(key) not in (None, "", before.get(key))]
    if fixed:
        unchangeable = [status.invalid_value(f"metadata.{key}", meta[key], "it never changes") for key in fixed]
        raise status.invalid(kind.group, kind.kind, before["name"], unchangeable)


def check_name(given: str | None, expected: str) -> None:
    """Raises StatusError (400) if an object's name differs from the one in its URL."""
    if given != expected:
        raise status.bad_request(f"the name of the object ({given}) does not match the name on the URL ({expected})")
