"""Writes: create, update, delete, each from the current state to the next, with all rules."""

import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from deploy.local.apiserver import builtin, deletion, metadata, registry, status
from deploy.local.apiserver.admission import Admission
from deploy.local.apiserver.bodies import How, take
from deploy.local.apiserver.deletion import Deletion
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import JsonObject, encode
from deploy.local.apiserver.registry import KindRegistry
from deploy.local.apiserver.status import FieldError
from deploy.local.apiserver.store import Store, StoredObject, object_key
from shared import durations

Mutate = Callable[[JsonObject], JsonObject]

_SERVER_OWNED = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink",
    "managedFields",
)  # fmt: skip
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
_UNCOMPARED = ("apiVersion", "kind", "metadata", "status")


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The object's JSON after a write."""

    value: bytes
    created: bool = False
    deleted: bool = False
    uid: str = ""
    warnings: Sequence[str] = field(default_factory=tuple)


@dataclass(slots=True)
class Draft:
    """A write in progress: an object with its defaults, and the object that it replaces (`record`, loaded: `old`).

    `identity`: the metadata that the server sets.
    """

    kind: ApiKind
    namespace: str
    name: str
    how: How
    obj: JsonObject
    old: JsonObject | None = None
    record: StoredObject | None = None
    identity: JsonObject = field(default_factory=dict)
    errors: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()


class Writes:
    """The write half of the API over one store."""

    def __init__(self, store: Store, kinds: KindRegistry) -> None:
        self._store = store
        self._kinds = kinds
        self._admission = Admission(store)

    def create(self, kind: ApiKind, namespace: str, obj: JsonObject, how: How) -> WriteOutcome:
        """Raises StatusError: 404 (namespace), 403, 409, 422, 400."""
        return self.commit(self.settled(self.draft_new(kind, namespace, obj, how)))

    def draft_new(self, kind: ApiKind, namespace: str, obj: JsonObject, how: How) -> Draft:
        """A new object after the cluster's own admission and the kind's defaults. Raises StatusError."""
        meta = obj["metadata"] = dict(obj.get("metadata") or {})
        name = self._new_name(kind, namespace, meta)
        if meta.pop("resourceVersion", "") not in ("", "0"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        identity: JsonObject = {"uid": str(uuid.uuid4()), "creationTimestamp": durations.timestamp(time.time())}
        if kind.generation:
            identity["generation"] = 1
        draft = Draft(kind, namespace, name, how, obj, identity=identity)
        self._form(draft, obj, how)
        self.admit(draft)
        return draft

    def admit(self, draft: Draft) -> None:
        """The cluster's own admission of a new object. Raises StatusError (403, 404)."""
        self._admission.admit(draft.kind, draft.namespace, draft.name, draft.obj)

    def _new_name(self, kind: ApiKind, namespace: str, meta: JsonObject) -> str:
        name: str = meta.get("name") or ""
        prefix: str = meta.get("generateName") or ""
        if not name and not prefix:
            missing = status.required("metadata.name", "name or generateName is required")
            raise status.invalid(kind.group, kind.kind, "", [missing])
        while not name or (not meta.get("name") and self._store.get(kind.resource, object_key(namespace, name))):
            name = prefix[:58] + "".join(random.choices(_SUFFIX_LETTERS, k=5))
        meta["name"] = name
        meta.pop("namespace", None)
        if kind.namespaced:
            meta["namespace"] = namespace
        return name

    def update(
        self, kind: ApiKind, namespace: str, name: str, mutate: Mutate, how: How, *, replacing: bool = False
    ) -> WriteOutcome:
        """The next state of an existing object. Raises StatusError: 404, 409, 422, 400.

        `mutate` must not change its argument. A resourceVersion in its result must be the current one; with `replacing`
        (PUT), some kinds require one.
        """
        draft = self.draft_change(kind, namespace, name, mutate, how, replacing=replacing)
        return self.commit(self.settled(draft))

    def draft_change(
        self, kind: ApiKind, namespace: str, name: str, mutate: Mutate, how: How, *, replacing: bool = False
    ) -> Draft:
        """The next state of an existing object with its defaults. Raises StatusError as `update` does."""
        record = self._store.found(kind, namespace, name)
        old = record.load()
        new = dict(mutate(old))
        if not isinstance(new.get("metadata"), dict):
            raise status.unfit(kind.kind, kind.version, "metadata is no object")
        meta = new["metadata"] = dict(new["metadata"])
        metadata.check_version(kind, old, meta, replacing=replacing)
        metadata.check_identity(kind, old, meta, replacing=replacing)
        owned = (*_SERVER_OWNED, "resourceVersion")
        identity = {key: old["metadata"][key] for key in owned if key in old["metadata"]}
        draft = Draft(kind, namespace, name, how, new, old, record, identity=identity)
        self._form(draft, new, how)
        return draft

    def revise(self, draft: Draft, obj: JsonObject) -> None:
        """Replaces a draft's object with the one that a webhook returned. Raises StatusError (400, 409, 422)."""
        kind, warnings = draft.kind, draft.warnings
        meta = obj["metadata"] = dict(obj.get("metadata") or {})
        if draft.old is not None:
            metadata.check_identity(kind, draft.old, meta)
        else:
            draft.name = meta["name"] = meta.get("name") or draft.name
            meta |= {"namespace": draft.namespace} if kind.namespaced else {}
        self._form(draft, obj, replace(draft.how, field_validation="Ignore"))
        draft.warnings = warnings

    def _form(self, draft: Draft, obj: JsonObject, how: How) -> None:
        """Sets an object in the draft, with the server's fields and defaults, its types checked. Raises StatusError."""
        kind, old, meta = draft.kind, draft.old, obj["metadata"]
        for key in _SERVER_OWNED:
            meta.pop(key, None)
        meta |= draft.identity
        if old is not None:
            _isolate(kind, old, obj, how.subresource)
        elif kind.status and kind.kind != "Node":
            obj.pop("status", None)
        draft.obj, draft.errors, draft.warnings = take(kind, obj, how)
        builtin.default(kind, draft.obj)

    def settled(self, draft: Draft) -> Draft:
        """The draft after all rules, as the store would contain it. Raises StatusError (422)."""
        kind, old, obj, how = draft.kind, draft.old, draft.obj, draft.how
        errors = [*metadata.errors(kind, old, obj), *draft.errors]
        if kind.kind == "CustomResourceDefinition":
            errors += registry.definition_errors(obj)
        elif how.subresource != "binding":  # a binding sets the one pod field that no update may
            errors += builtin.errors(kind, obj, old)
        if errors:
            raise status.invalid(kind.group, kind.kind, draft.name, errors)
        if kind.kind == "CustomResourceDefinition":
            registry.accept(obj, durations.timestamp(time.time()))
        if old is not None and kind.generation and how.subresource != "binding" and _counts(kind, old, obj):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return draft

    def commit(self, draft: Draft, warnings: Sequence[str] = ()) -> WriteOutcome:
        """Writes a settled draft. Raises StatusError (409)."""
        kind, namespace, name, obj, how = draft.kind, draft.namespace, draft.name, draft.obj, draft.how
        if draft.record is None:
            if self._store.get(kind.resource, object_key(namespace, name)) is not None:
                raise status.already_exists(kind.group, kind.plural, name)
            outcome = replace(self._put(kind, namespace, name, obj, how), created=True)
        elif deletion.may_go(kind, obj):
            # The response to the removal of the last finalizer shows the version that the client updated.
            shown = encode(obj)
            outcome = replace(self._remove(kind, namespace, name, obj, how), value=shown)
        elif draft.old == obj:
            outcome = WriteOutcome(draft.record.value)
        else:
            outcome = self._put(kind, namespace, name, obj, how)
        return replace(outcome, warnings=[*warnings, *draft.warnings])

    def delete(self, kind: ApiKind, namespace: str, name: str, wanted: Deletion) -> WriteOutcome:
        """Removes the object, or marks it until its finalizers are removed. Raises StatusError (403, 404, 409)."""
        record = self._store.found(kind, namespace, name)
        obj, how = record.load(), How(dry_run=bool(wanted.dry_run))
        meta = obj["metadata"]
        if kind.resource == "/namespaces" and name in _PROTECTED_NAMESPACES:
            raise status.forbidden("", kind.plural, name, "this namespace may not be deleted")
        deletion.check_preconditions(kind, meta, wanted)
        grace = deletion.grace_seconds(kind, obj, wanted)
        finalizers = meta.get("finalizers")
        marked = meta.get("deletionTimestamp") is not None
        if marked and grace >= deletion.marked_grace(meta):
            return WriteOutcome(record.value, uid=meta["uid"])
        if grace == 0 and not finalizers and not deletion.holds_content(kind, obj):
            if kind.resource == "/pods":
                deletion.mark(kind, obj, 0)
            return self._remove(kind, namespace, name, obj, how)
        deletion.mark(kind, obj, grace)
        return replace(self._put(kind, namespace, name, obj, how), uid=meta["uid"])

    def _put(self, kind: ApiKind, namespace: str, name: str, obj: JsonObject, how: How) -> WriteOutcome:
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": obj["metadata"]} | obj
        if how.dry_run:
            return WriteOutcome(encode(obj))
        return WriteOutcome(self._store.put(kind.resource, object_key(namespace, name), obj).value)

    def _remove(self, kind: ApiKind, namespace: str, name: str, obj: JsonObject, how: How) -> WriteOutcome:
        uid = obj["metadata"]["uid"]
        if how.dry_run:
            return WriteOutcome(encode(obj), deleted=True, uid=uid)
        record = self._store.delete(kind.resource, object_key(namespace, name), obj)
        return WriteOutcome(record.value, deleted=True, uid=uid)


def _isolate(kind: ApiKind, old: JsonObject, new: JsonObject, subresource: str) -> None:
    """Restricts a write: the main resource never changes status; the status subresource changes nothing else."""
    if not subresource:
        if kind.status:
            _carry(old, new, "status")
    elif subresource == "status":
        for key in (old.keys() | new.keys()) - {"metadata", "status"}:
            _carry(old, new, key)
        if kind.custom:
            new["metadata"] = dict(old["metadata"])


def _carry(old: JsonObject, new: JsonObject, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def _counts(kind: ApiKind, old: JsonObject, new: JsonObject) -> bool:
    """Whether the desired state changed: all fields except metadata and an isolated status."""
    ignored = _UNCOMPARED if kind.status else _UNCOMPARED[:3]
    return any(old.get(key) != new.get(key) for key in old.keys() | new.keys() if key not in ignored)
