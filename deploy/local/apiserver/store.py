"""Objects as bytes: decided in memory, and durable before any client sees them.

Writers see the latest decided state (`latest`); all other callers see only the committed state. The store queues
decisions in the order of their versions, and commits all decisions of one turn of the event loop together at its end.
Only when the group is on disk does the store change the index, notify watchers and answer callers. The loop waits for
the disk meanwhile: new requests form the next group, and a thread would cost more than it gains.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from deploy.local.apiserver import database, status
from deploy.local.apiserver.objects import JsonObject, decode, encode

Describe = Callable[[str, JsonObject], dict[str, str]]


class Record(msgspec.Struct, frozen=True, gc=False):
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


class Change(msgspec.Struct, gc=False):
    """A committed step of one object; for a deletion `record` is its last state at the deletion's version."""

    record: Record
    previous: Record | None
    deleted: bool
    lines: dict[str, bytes] = {}

    def line(self, event: str) -> bytes:
        """The watch line of the unchanged record, encoded once for all watchers."""
        text = self.lines.get(event)
        if text is None:
            text = self.lines[event] = b'{"type":"%s","object":%s}\n' % (event.encode(), self.record.value)
        return text


Decided = tuple[Change, asyncio.Future[None]]  # a change, and the future that is done when it is durable


class Collection:
    """The committed objects of one resource; sorts them by key on demand."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._ordered: list[Record] | None = []

    def add(self, record: Record) -> None:
        self.records[record.key] = record
        self._ordered = None

    def apply(self, change: Change) -> None:
        if change.deleted:
            self.records.pop(change.record.key, None)
            self._ordered = None
        else:
            self.add(change.record)

    def ordered(self) -> list[Record]:
        if self._ordered is None:
            self._ordered = sorted(self.records.values(), key=_record_key)
        return self._ordered


def _record_key(record: Record) -> str:
    return record.key


def object_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def describe_record(resource: str, key: str, version: int, obj: JsonObject, fields: dict[str, str]) -> Record:
    meta = obj["metadata"]
    owners = tuple(owner["uid"] for owner in meta.get("ownerReferences") or ())
    return Record(resource, key, version, meta.get("labels") or {}, fields, owners, encode(obj))


class Store:
    """All collections, their versions, and the group commit. Call its methods only in the event loop's thread."""

    def __init__(self, directory: Path, describe: Describe) -> None:
        self._describe = describe
        self._collections: dict[str, Collection] = {}
        self._database = database.open_database(directory)
        try:
            self._load()
        except (msgspec.MsgspecError, database.DataError, KeyError, TypeError) as error:
            self._database.close()
            database.set_aside(self._database.path, f"a stored object cannot be read: {error!r}")
            self._collections.clear()
            self._database = database.open_database(directory)
        self.version = self._issued = self._database.revision()
        self._staged: dict[tuple[str, str], Change] = {}
        self._queued: list[Decided] = []
        self._listeners: list[Callable[[Sequence[Change]], None]] = []

    def _load(self) -> None:
        for resource, key, version, value in self._database.rows():
            obj = decode(value)
            fields = self._describe(resource, obj)
            self._collection(resource).add(describe_record(resource, key, version, obj, fields))

    def start(self) -> None:
        """Starts committing; call it inside the event loop."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Waits until the queued groups are on disk, then closes the file."""
        await self.flushed()
        self._database.close()

    async def flushed(self) -> None:
        """Waits until all decisions, including those made meanwhile, are durable."""
        while self._queued:
            await asyncio.wait([done for _, done in self._queued])

    def listen(self, listener: Callable[[Sequence[Change]], None]) -> None:
        """Registers a callback for every committed group, in version order."""
        self._listeners.append(listener)

    def _collection(self, resource: str) -> Collection:
        return self._collections.setdefault(resource, Collection())

    def get(self, resource: str, key: str) -> Record | None:
        return self._collection(resource).records.get(key)

    def latest(self, resource: str, key: str) -> Record | None:
        """The record after the last decision, committed or not: the next write builds on it."""
        staged = self._staged.get((resource, key))
        if staged is not None:
            return None if staged.deleted else staged.record
        return self.get(resource, key)

    def pending(self, resource: str, key: str) -> asyncio.Future[None] | None:
        """The future of the object's last write if that is not yet durable."""
        staged = self._staged.get((resource, key))
        if staged is None:
            return None
        return next((done for change, done in self._queued if change is staged), None)

    def ordered(self, resource: str) -> Sequence[Record]:
        """Committed records of a resource in key order; the list is never changed in place."""
        return self._collection(resource).ordered()

    def records(self, resource: str) -> Mapping[str, Record]:
        return self._collection(resource).records

    def resources(self) -> Iterator[str]:
        yield from list(self._collections)

    def put(self, resource: str, key: str, obj: JsonObject) -> tuple[Record, asyncio.Future[None]]:
        """Decides a write: sets the next version in the object. The future is done when the write is durable."""
        self._issued += 1
        obj["metadata"]["resourceVersion"] = str(self._issued)
        record = describe_record(resource, key, self._issued, obj, self._describe(resource, obj))
        return record, self._stage(Change(record, self.latest(resource, key), deleted=False))

    def delete(self, resource: str, key: str, last: JsonObject) -> tuple[Record, asyncio.Future[None]]:
        """Decides a deletion; watchers get `last` as the deleted state."""
        self._issued += 1
        last["metadata"]["resourceVersion"] = str(self._issued)
        record = describe_record(resource, key, self._issued, last, self._describe(resource, last))
        return record, self._stage(Change(record, self.latest(resource, key), deleted=True))

    def _stage(self, change: Change) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        self._staged[change.record.resource, change.record.key] = change
        if not self._queued:
            self._loop.call_soon(self._commit)
        self._queued.append((change, done))
        return done

    def _commit(self) -> None:
        group, self._queued = self._queued, []
        try:
            self._database.write(_effects([change for change, _ in group]))
        except sqlite3.Error as error:
            # No write of the group happened, and the group contains all decisions.
            self._staged.clear()
            for done in _awaited(group):
                done.set_exception(status.internal(f"the store refused the write: {error}"))
        else:
            self._publish(group)

    def _publish(self, group: Sequence[Decided]) -> None:
        changes = [change for change, _ in group]
        for change in changes:
            record = change.record
            self._collection(record.resource).apply(change)
            if self._staged.get((record.resource, record.key)) is change:
                del self._staged[record.resource, record.key]
        self.version = changes[-1].record.version
        for listener in self._listeners:
            listener(changes)
        for done in _awaited(group):
            done.set_result(None)


def _awaited(group: Sequence[Decided]) -> Iterator[asyncio.Future[None]]:
    """The futures that callers may still await; a cancelled caller has cancelled its own."""
    return (done for _, done in group if not done.done())


def _effects(changes: Sequence[Change]) -> database.Batch:
    """The result of a group: of several steps of one object only the last counts."""
    last = {(change.record.resource, change.record.key): change for change in changes}
    puts = [
        (record.resource, record.key, record.version, record.value)
        for record in (change.record for change in last.values() if not change.deleted)
    ]
    deletes = [where for where, change in last.items() if change.deleted]
    return database.Batch(puts, deletes, changes[-1].record.version)
