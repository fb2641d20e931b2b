"""The rules of metadata that hold for every kind: names, labels, finalizers, owners, and what stays as it is."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.local.apiserver import selectors, status
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.status import FieldError

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_UNQUALIFIED_FINALIZER = "name is neither a standard finalizer name nor is it fully qualified"
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_SET_BY_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")


def name_errors(name: str, name_format: str, field: str = "metadata.name") -> Iterator[FieldError]:
    """Why a name is not one, for formats `subdomain`, `label` and `path`."""
    if name_format == "path":
        if "/" in name or "%" in name or name in (".", ".."):
            wrong = next((sign for sign in "/%" if sign in name), "")
            yield status.invalid_value(field, name, f"may not contain '{wrong}'" if wrong else f"may not be '{name}'")
    elif name_format == "label":
        if not selectors.LABEL_NAME.fullmatch(name):
            yield status.invalid_value(field, name, "must not contain dots" if "." in name else _LABEL_RULE)
    elif len(name) > 253:
        yield status.invalid_value(field, name, "must be no more than 253 characters")
    elif not selectors.SUBDOMAIN.fullmatch(name):
        yield status.invalid_value(field, name, _SUBDOMAIN_RULE)


def qualified_name_errors(name: str, field: str) -> Iterator[FieldError]:
    """Why a text is no qualified name: `name` or `prefix/name`."""
    for problem in selectors.key_problems(name):
        yield status.invalid_value(field, name, problem)


def errors(kind: Kind, old: JsonObject | None, obj: JsonObject) -> Iterator[FieldError]:
    """Everything wrong with the metadata of a new state of an object."""
    meta = obj["metadata"]
    if old is None and (prefix := meta.get("generateName")):
        # A dash at the end is one in the middle of the name.
        for error in name_errors(prefix.removesuffix("-") + "a" * prefix.endswith("-"), kind.name_format):
            yield status.invalid_value(
                "metadata.generateName", prefix, error.detail.partition(": ")[2].partition(": ")[2]
            )
    if old is None and kind.kind != "Event":
        yield from name_errors(meta["name"], kind.name_format)
    for key, value in (meta.get("labels") or {}).items():
        yield from qualified_name_errors(key, "metadata.labels")
        if problem := selectors.value_problem(value):
            yield status.invalid_value("metadata.labels", value, problem)
    for key in meta.get("annotations") or {}:
        if not selectors.valid_label_key(key.lower()):
            yield from qualified_name_errors(key, "metadata.annotations")
    yield from _owner_errors(meta)
    yield from _finalizer_errors(kind, meta)
    if old is not None and meta.get("deletionTimestamp"):
        yield from _late_finalizer_errors(old["metadata"], meta)


def _owner_errors(meta: JsonObject) -> Iterator[FieldError]:
    field, owners = "metadata.ownerReferences", meta.get("ownerReferences") or ()
    for owner in owners:
        api_version = owner.get("apiVersion") or ""
        if not api_version or api_version.count("/") > 1:
            yield status.invalid_value(f"{field}.apiVersion", api_version, "version must not be empty")
        for key in ("kind", "name", "uid"):
            if not owner.get(key):
                yield status.invalid_value(f"{field}.{key}", "", "must not be empty")
        if (api_version, owner.get("kind")) == ("v1", "Event"):
            yield status.invalid_value(field, owner, "/v1, Kind=Event is disallowed from being an owner")
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        first, second = (f"{owner.get('kind', '')}/{owner.get('name', '')}" for owner in controllers[:2])
        detail = 'Only one reference can have Controller set to true. Found "true" in references for '
        yield status.invalid_value(field, owners, f"{detail}{first} and {second}")


def _finalizer_errors(kind: Kind, meta: JsonObject) -> Iterator[FieldError]:
    for index, name in enumerate(meta.get("finalizers") or ()):
        yield from qualified_name_errors(name, "metadata.finalizers")
        if not kind.custom and "/" not in name and name not in _STANDARD_FINALIZERS:
            yield status.invalid_value(f"metadata.finalizers[{index}]", name, _UNQUALIFIED_FINALIZER)


def warnings(kind: Kind, obj: JsonObject) -> Iterator[str]:
    """What a custom object's metadata had better not say."""
    for name in obj["metadata"].get("finalizers") or () if kind.custom else ():
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            why = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
            yield f'metadata.finalizers: "{name}": {why}'


def _late_finalizer_errors(before: JsonObject, meta: JsonObject) -> Iterator[FieldError]:
    added = [name for name in meta.get("finalizers") or () if name not in (before.get("finalizers") or ())]
    if added:
        shown = "[]string{" + ", ".join(f'"{name}"' for name in added) + "}"
        detail = "no new finalizers can be added if the object is being deleted, found new finalizers "
        yield status.forbidden_field("metadata.finalizers", detail + shown)


def check_version(kind: Kind, old: JsonObject, meta: JsonObject, *, replacing: bool) -> None:
    """Raises StatusError: 409 for a version that is not the current one, 422 where one is needed, 500 for none."""
    version, name = meta.get("resourceVersion") or "", old["metadata"]["name"]
    if version in ("", "0"):
        if replacing and not kind.unconditional_update:
            error = status.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise status.invalid(kind.group, kind.plural, name, [error])
    elif not str(version).isdigit():
        raise status.StatusError(500, "", status.no_number(version))
    elif version != old["metadata"]["resourceVersion"]:
        raise status.conflict(kind.group, kind.plural, name)


def check_identity(kind: Kind, old: JsonObject, meta: JsonObject, *, replacing: bool) -> None:
    """Completes the identity in a new state. Raises StatusError (400, 409, 422) if it is another object's."""
    before = old["metadata"]
    name = before["name"]
    check_name(meta.get("name"), name)
    if kind.namespaced and meta.get("namespace") not in (None, "", before["namespace"]):
        raise status.foreign_namespace()
    meta.pop("namespace", None)
    if kind.namespaced:
        meta["namespace"] = before["namespace"]
    uid = meta.get("uid")
    if uid not in (None, "", before["uid"]) and replacing:
        why = status.storage_conflict(kind.group, kind.plural, before, uid)
        raise status.conflict(kind.group, kind.plural, name, why)
    fixed = [key for key in ("uid", *_SET_BY_DELETION) if meta.get(key) not in (None, "", before.get(key))]
    if fixed:
        unchangeable = [status.immutable(f"metadata.{key}", meta[key]) for key in fixed]
        raise status.invalid(kind.group, kind.kind, name, unchangeable)


def check_name(given: str | None, expected: str) -> None:
    """Raises StatusError (400) when an object is not the one its URL names."""
    if not given:
        why = f"the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        raise status.bad_request(why)
    if given != expected:
        raise status.bad_request(f"the name of the object ({given}) does not match the name on the URL ({expected})")
