"""Objects as bytes: in memory, and in the database before any client sees them."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

import msgspec

from deploy.local.apiserver import database, status
from deploy.local.apiserver.database import UnusableData
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import JsonObject, decode, encode

Describe = Callable[[str, JsonObject], dict[str, str]]


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """One object at one version: its JSON, and the fields that selectors and the garbage collector read."""

    resource: str
    key: str
    version: int
    labels: dict[str, str]
    fields: dict[str, str]
    owners: tuple[str, ...]
    value: bytes

    @property
    def namespace(self) -> str:
        return self.key.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    def load(self) -> JsonObject:
        obj: JsonObject = decode(self.value)
        return obj


class ObjectChange(msgspec.Struct, gc=False):
    """A step of one object; for a deletion `record` is its last state at the deletion's version."""

    record: StoredObject
    previous: StoredObject | None
    deleted: bool
    lines: dict[str, bytes] = {}

    def line(self, event: str) -> bytes:
        """The watch line of the unchanged record, encoded once for all watchers."""
        text = self.lines.get(event)
        if text is None:
            text = self.lines[event] = b'{"type":"%s","object":%s}\n' % (event.encode(), self.record.value)
        return text


class Collection:
    """The objects of one resource; sorts them by key on demand."""

    def __init__(self) -> None:
        self.records: dict[str, StoredObject] = {}
        self._ordered: list[StoredObject] | None = []

    def set(self, key: str, record: StoredObject | None) -> None:
        """Holds a record at its key, or none."""
        if record is None:
            self.records.pop(key, None)
        else:
            self.records[key] = record
        self._ordered = None

    def ordered(self) -> list[StoredObject]:
        if self._ordered is None:
            self._ordered = sorted(self.records.values(), key=attrgetter("key"))
        return self._ordered


def object_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def describe_record(resource: str, key: str, version: int, obj: JsonObject, fields: dict[str, str]) -> StoredObject:
    meta = obj["metadata"]
    owners = tuple(owner["uid"] for owner in meta.get("ownerReferences") or ())
    return StoredObject(resource, key, version, meta.get("labels") or {}, fields, owners, encode(obj))


class Store:
    """All collections and their versions. Call its methods only in the event loop's thread."""

    def __init__(self, directory: Path, describe: Describe) -> None:
        self._describe = describe
        self._collections: dict[str, Collection] = {}
        self._database = database.open_database(directory)
        try:
            self._load()
        except (msgspec.MsgspecError, sqlite3.DatabaseError, KeyError, TypeError) as error:
            self._database.close()
            raise UnusableData(f"{self._database.path}: a stored object cannot be read: {error!r}") from error
        self.version = self._database.version
        self._listeners: list[Callable[[ObjectChange], None]] = []

    def _load(self) -> None:
        for resource, key, version, value in self._database.rows():
            obj = decode(value)
            fields = self._describe(resource, obj)
            self._collection(resource).set(key, describe_record(resource, key, version, obj, fields))

    def close(self) -> None:
        self._database.forget_deletions(self.version)
        self._database.close()

    def listen(self, listener: Callable[[ObjectChange], None]) -> None:
        """Registers a callback for every change, in version order."""
        self._listeners.append(listener)

    def _collection(self, resource: str) -> Collection:
        return self._collections.setdefault(resource, Collection())

    def get(self, resource: str, key: str) -> StoredObject | None:
        return self._collection(resource).records.get(key)

    def found(self, kind: ApiKind, namespace: str, name: str) -> StoredObject:
        """Raises StatusError (404)."""
        record = self.get(kind.resource, object_key(namespace, name))
        if record is None:
            raise status.not_found(kind.group, kind.plural, name)
        return record

    def ordered(self, resource: str) -> Sequence[StoredObject]:
        """The records of a resource in key order; the list is never changed in place."""
        return self._collection(resource).ordered()

    def resources(self) -> Iterator[str]:
        yield from list(self._collections)

    def put(self, resource: str, key: str, obj: JsonObject) -> StoredObject:
        """Stores an object, in which it sets the next version. Raises StatusError (500)."""
        return self._write(resource, key, obj, deleted=False)

    def delete(self, resource: str, key: str, last: JsonObject) -> StoredObject:
        """Removes an object; watchers get `last` as the deleted state. Raises StatusError (500)."""
        return self._write(resource, key, last, deleted=True)

    def _write(self, resource: str, key: str, obj: JsonObject, *, deleted: bool) -> StoredObject:
        version = self.version + 1
        obj["metadata"]["resourceVersion"] = str(version)
        record = describe_record(resource, key, version, obj, self._describe(resource, obj))
        try:
            # The event loop waits for it, since a thread would cost more than it gains.
            self._database.write(resource, key, version, b"" if deleted else record.value)
        except sqlite3.Error as error:
            raise status.internal(f"the store refused the write: {error}") from error
        self.version = version
        change = ObjectChange(record, self.get(resource, key), deleted)
        self._collection(resource).set(key, None if deleted else record)
        for listener in self._listeners:
            listener(change)
        return record
