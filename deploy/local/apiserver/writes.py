"""Decisions about writes: create, update, delete, each from the latest state to the next, with every rule.

Everything here runs inside one turn of the event loop; what it decides is durable when `Outcome.done` is.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deploy.local.apiserver import apply, builtin, deletion, metadata, quoting, registry, status, structs
from deploy.local.apiserver.admission import Admission
from deploy.local.apiserver.deletion import Deletion
from deploy.local.apiserver.kinds import Kind, blank, mismatch
from deploy.local.apiserver.objects import Json, JsonObject, encode, timestamp
from deploy.local.apiserver.registry import Registry
from deploy.local.apiserver.status import FieldError
from deploy.local.apiserver.store import Record, Store, object_key

Mutate = Callable[[JsonObject], JsonObject]

_SERVER_OWNED = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink",
)  # fmt: skip
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
_FURNITURE: Mapping[tuple[str, str], JsonObject] = {
    ("/serviceaccounts", "default"): {},
    ("/configmaps", "kube-root-ca.crt"): {"data": {"ca.crt": ""}},
}
# What the server gives a new object's spec, its writer does not own.
_ADMITTED: Mapping[str, Sequence[str]] = {
    "/pods": ("priority", "preemptionPolicy", "serviceAccount", "serviceAccountName", "tolerations"),
    "/namespaces": ("finalizers",),
}
_NOT_INTO = re.compile(r"json: cannot unmarshal (\S+(?: \d\S*)?) into Go struct field \S+ of type (\S+)")
_GO_KINDS = {"object": "map", "array": "slice", "number": "int64"}
_UNCOMPARED = ("apiVersion", "kind", "metadata", "status")


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decided write: the object's JSON, and the future of its durability (None: nothing was written)."""

    value: bytes
    done: Future[None] | None = None
    created: bool = False
    deleted: bool = False
    uid: str = ""
    warnings: Sequence[str] = field(default_factory=tuple)


class Writes:
    """The write half of the API over one store."""

    def __init__(self, store: Store, kinds: Registry) -> None:
        self._store = store
        self._kinds = kinds
        self._admission = Admission(store)

    def create(self, kind: Kind, namespace: str, obj: JsonObject, how: How) -> Outcome:
        """Raises StatusError: 404 (namespace), 403, 409, 422, 400."""
        now = timestamp(time.time())
        meta = obj["metadata"] = dict(obj.get("metadata") or {})
        name = self._new_name(kind, namespace, meta)
        if meta.pop("resourceVersion", "") not in ("", "0"):
            raise status.StatusError(500, "", "resourceVersion should not be set on objects to be created")
        # What is no object of its kind is refused before anything is asked about it.
        decoded = (
            structs.decode_metadata(kind.kind, obj, alone=True) if kind.custom else structs.decode(kind.struct, obj)
        )
        if decoded.problem:
            raise _undecodable(kind, obj, how, decoded.problem)
        sent = set(obj["spec"]) if isinstance(obj.get("spec"), dict) else set()
        self._admission.admit(kind, namespace, name, obj)
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(key, None)
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now}
        if kind.generation:
            meta["generation"] = 1
        if kind.status and kind.kind != "Node":
            obj.pop("status", None)
        obj, warnings = self._settle(kind, None, obj, how)
        if taken := self._store.latest(kind.resource, object_key(namespace, name)):
            going = bool(taken.load()["metadata"].get("deletionTimestamp"))
            raise status.already_exists(kind.group, kind.plural, name, going=going)
        if how.operation == "Update":
            written = {key: value for key, value in obj.items() if key != "status" or not kind.status}
            if admitted := _ADMITTED.get(kind.resource):
                own = {key: value for key, value in obj["spec"].items() if key in sent or key not in admitted}
                written["spec"] = own
            apply.track_new(blank(kind), obj, written, self._writer(kind, how, now), kind.list_rule)
        outcome = replace(self._put(kind, namespace, name, obj, how), created=True, warnings=warnings)
        if kind.resource == "/namespaces" and not how.dry_run:
            self.furnish(name)
        return outcome

    def furnish(self, namespace: str) -> None:
        """Gives a namespace what every one has: its default account, and the (here empty) bundle of authorities."""
        for (resource, name), content in _FURNITURE.items():
            kind = self._kinds.of_resource(resource)
            if kind is not None and self._store.latest(resource, object_key(namespace, name)) is None:
                self.create(kind, namespace, {"metadata": {"name": name}} | content, How("kube-controller-manager"))

    def _new_name(self, kind: Kind, namespace: str, meta: JsonObject) -> str:
        name: str = meta.get("name") or ""
        prefix: str = meta.get("generateName") or ""
        if not name and not prefix:
            raise status.invalid(
                kind.group, kind.kind, "", [status.required("metadata.name", "name or generateName is required")]
            )
        while not name or (prefix and not meta.get("name") and self._taken(kind, namespace, name)):
            name = prefix[:58] + "".join(random.choices(_SUFFIX_LETTERS, k=5))
        meta["name"] = name
        if kind.namespaced:
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)
        return name

    def _taken(self, kind: Kind, namespace: str, name: str) -> bool:
        return self._store.latest(kind.resource, object_key(namespace, name)) is not None

    def update(
        self, kind: Kind, namespace: str, name: str, mutate: Mutate, how: How, *, replacing: bool = False
    ) -> Outcome:
        """The next state of an existing object. Raises StatusError: 404, 409, 422, 400, 500.

        `mutate` must not change its argument. A resourceVersion in its result has to be the current one; when
        `replacing` (PUT) some kinds insist on one.
        """
        record = self._store.latest(kind.resource, object_key(namespace, name))
        if record is None:
            raise status.not_found(kind.group, kind.plural, name)
        old = self._store.latest_object(record)
        new = dict(mutate(old))
        meta = new["metadata"] = dict(new.get("metadata") or {})
        metadata.check_version(kind, old, meta, replacing=replacing)
        metadata.check_identity(kind, old, meta, replacing=replacing)
        for key in _SERVER_OWNED:
            meta.pop(key, None)
            if key in old["metadata"]:
                meta[key] = old["metadata"][key]
        meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        _isolate(kind, old, new, how.subresource)
        if kind.resource == "/services":
            _keep_address(old, new)
        new, warnings = self._settle(kind, old, new, how)
        if kind.generation and how.subresource != "binding" and _counts(kind, old, new):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if how.operation == "Update":
            writer = self._writer(kind, how, timestamp(time.time()))
            apply.track(old, new, writer, kind.list_rule)
        outcome = self._store_update(kind, namespace, name, old, new, record, how)
        return replace(outcome, warnings=warnings) if warnings else outcome

    def _store_update(
        self, kind: Kind, namespace: str, name: str, old: JsonObject, new: JsonObject, record: Record, how: How
    ) -> Outcome:
        if deletion.may_go(kind, new):
            # The answer to the last who lets go shows the version that it let go of.
            shown = encode(new)
            return replace(self._remove(kind, namespace, name, new, how), value=shown)
        if _same(old, new):
            # The answer may show a write that is not durable yet: it waits for that write.
            return Outcome(record.value, self._store.pending(kind.resource, record.key))
        return self._put(kind, namespace, name, new, how)

    def _settle(
        self, kind: Kind, old: JsonObject | None, obj: JsonObject, how: How
    ) -> tuple[JsonObject, Sequence[str]]:
        """Types, defaults, schema and rules. Raises StatusError (400, 422)."""
        name = obj["metadata"]["name"]
        obj, errors, warnings = decode(kind, obj, how)
        if not kind.custom:
            obj, errors = self._settle_built_in(kind, old, obj, how)
        errors = [*metadata.errors(kind, old, obj), *errors]
        if errors:
            raise status.invalid(kind.group, kind.kind, name, errors)
        return obj, [*warnings, *metadata.warnings(kind, obj)]

    def _settle_built_in(
        self, kind: Kind, old: JsonObject | None, obj: JsonObject, how: How
    ) -> tuple[JsonObject, list[FieldError]]:
        if kind.kind == "CustomResourceDefinition":
            errors = list(registry.definition_errors(obj))
            if not errors:
                registry.accept(obj, timestamp(time.time()))
            return obj, errors
        rules = builtin.RULES.get(kind.kind, builtin.NO_RULES)
        try:
            rules.default(obj)
            # A binding sets the one field of a pod's spec that no update may.
            return obj, [] if how.subresource == "binding" else list(rules.errors(obj, old))
        except ValueError as error:
            raise _undecodable(kind, obj, how, str(error)) from error

    def delete(self, kind: Kind, namespace: str, name: str, wanted: Deletion, how: How) -> Outcome:
        """Removes the object, or marks it for those who must let go first. Raises StatusError (404, 409)."""
        record = self._store.latest(kind.resource, object_key(namespace, name))
        if record is None:
            raise status.not_found(kind.group, kind.plural, name)
        obj = record.load()
        meta = obj["metadata"]
        if kind.resource == "/namespaces" and name in _PROTECTED_NAMESPACES:
            raise status.forbidden("", kind.plural, name, "this namespace may not be deleted")
        deletion.check_preconditions(kind, meta, wanted)
        grace = deletion.grace_seconds(kind, obj, wanted)
        finalizers = deletion.finalizers(meta, wanted.propagation)
        marked = meta.get("deletionTimestamp") is not None
        if marked and finalizers == (meta.get("finalizers") or []) and grace >= deletion.marked_grace(meta):
            return Outcome(record.value, self._store.pending(kind.resource, record.key), uid=meta["uid"])
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        if grace == 0 and not finalizers and not deletion.holds_content(kind, obj):
            if kind.resource == "/pods":
                deletion.mark(kind, obj, 0)
            return self._remove(kind, namespace, name, obj, how)
        deletion.mark(kind, obj, grace)
        return replace(self._put(kind, namespace, name, obj, how), uid=meta["uid"])

    def _writer(self, kind: Kind, how: How, now: str) -> apply.Writer:
        return apply.Writer(how.manager, how.operation, kind.api_version, now, how.subresource)

    def _put(self, kind: Kind, namespace: str, name: str, obj: JsonObject, how: How) -> Outcome:
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": obj["metadata"]} | obj
        if how.dry_run:
            return Outcome(encode(obj))
        record, done = self._store.put(kind.resource, object_key(namespace, name), obj)
        return Outcome(record.value, done)

    def _remove(self, kind: Kind, namespace: str, name: str, obj: JsonObject, how: How) -> Outcome:
        uid = obj["metadata"]["uid"]
        if how.dry_run:
            return Outcome(encode(obj), deleted=True, uid=uid)
        record, done = self._store.delete(kind.resource, object_key(namespace, name), obj)
        return Outcome(record.value, done, deleted=True, uid=uid)


def decode(kind: Kind, obj: JsonObject, how: How) -> tuple[JsonObject, list[FieldError], Sequence[str]]:
    """An object as its kind has it, what its schema finds wrong, and what to warn of. Raises StatusError (400, 422)."""
    decoded = structs.decode_metadata(kind.kind, obj) if kind.custom else structs.decode(kind.struct, obj)
    if problem := _identity_problem(kind, obj) or decoded.problem:
        raise _undecodable(kind, obj, how, problem)
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
        raise _undecodable(kind, obj, how, f"strict decoding error: {', '.join(complaints)}")
    return taken, errors, complaints if how.field_validation == "Warn" else ()


def _identity_problem(kind: Kind, obj: JsonObject) -> str:
    for key, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if obj.get(key) not in (None, "", expected):
            if not kind.custom:
                return mismatch(kind, str(obj.get("apiVersion")), str(obj.get("kind")))
            return f"the {key} in the data ({obj[key]}) does not match the expected {key} ({expected})"
    return ""


def _undecodable(kind: Kind, obj: JsonObject, how: How, why: str) -> status.StatusError:
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


def _isolate(kind: Kind, old: JsonObject, new: JsonObject, subresource: str) -> None:
    """The main resource never writes status; the status subresource writes nothing but."""
    if not subresource:
        if kind.status:
            _carry(old, new, "status")
        return
    if subresource == "status" and kind.custom:
        for key in [key for key in new if key not in ("metadata", "status")]:
            del new[key]
        new.update({key: value for key, value in old.items() if key not in ("metadata", "status")})
        managed = new["metadata"].get("managedFields")
        new["metadata"] = dict(old["metadata"]) | ({"managedFields": managed} if managed else {})
    elif subresource == "status":
        for key in (old.keys() | new.keys()) - {"metadata", "status"}:
            _carry(old, new, key)


def _keep_address(old: JsonObject, new: JsonObject) -> None:
    """A service keeps its address, unless it becomes a name for something outside."""
    spec = new.get("spec")
    if isinstance(spec, dict) and not spec.get("clusterIP") and spec.get("type") != "ExternalName":
        kept = {key: old["spec"][key] for key in ("clusterIP", "clusterIPs") if key in old["spec"]}
        new["spec"] = spec | kept


def _carry(old: JsonObject, new: JsonObject, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def _counts(kind: Kind, old: JsonObject, new: JsonObject) -> bool:
    """Whether the desired state changed: everything but metadata and an isolated status."""
    ignored = _UNCOMPARED if kind.status else _UNCOMPARED[:3]
    if any(old.get(key) != new.get(key) for key in old.keys() | new.keys() if key not in ignored):
        return True
    return kind.group == "apps" and old["metadata"].get("annotations") != new["metadata"].get("annotations")


def _same(old: JsonObject, new: JsonObject) -> bool:
    """Equal but for the times of managedFields."""
    if any(old.get(key) != new.get(key) for key in old.keys() | new.keys() if key != "metadata"):
        return False
    before, after = dict(old["metadata"]), dict(new["metadata"])
    managed = [before.pop("managedFields", None), after.pop("managedFields", None)]
    if before != after:
        return False
    timeless = [[{**entry, "time": None} for entry in entries or ()] for entries in managed]
    return timeless[0] == timeless[1]
