"""The last known state of each object of one resource.

A change is stored first and announced second. Only an object that cannot be read is left out: it is logged and counted
once per version, and an earlier good version stays.
"""

import enum
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from shared.kube import objects
from shared.kube.client import Listing
from shared.kube.metrics import Metrics
from shared.kube.objects import HasMetadata, ObjectT, RefusedObject, WatchEvent

logger = logging.getLogger(__name__)

RecordT = TypeVar("RecordT")


class ChangeKind(enum.StrEnum):
    """What happened to an object; SYNCED means that the cache has just become complete."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"


@dataclass(frozen=True, slots=True)
class Change(Generic[RecordT]):
    """One announcement. ADDED has `new`, DELETED `old`, MODIFIED both, SYNCED (whose key is empty) neither."""

    kind: ChangeKind
    key: str = ""
    old: RecordT | None = None
    new: RecordT | None = None


@dataclass(frozen=True)
class Kept(Generic[ObjectT, RecordT]):
    """Objects are decoded as `into`; the cache holds and announces `record(object)` instead of each object.

    An object for which `record` raises is refused.
    """

    into: type[ObjectT]
    record: Callable[[ObjectT], RecordT]


class CacheEntry(msgspec.Struct, Generic[RecordT], frozen=True, gc=False):
    """The identity of one version of an object, and its record."""

    key: str
    uid: str
    resource_version: str
    record: RecordT


class ObjectCache(Generic[RecordT]):
    """Records by "name" or "namespace/name". One thread changes it; all may read it."""

    def __init__(self, resource: str, record: Callable[[Any], RecordT], metrics: Metrics) -> None:
        self._resource = resource
        self._record = record
        self._metrics = metrics
        self._reactions: list[Callable[[Change[RecordT]], None]] = []
        self._lock = threading.Lock()
        self._entries: dict[str, CacheEntry[RecordT]] = {}
        self._refused: dict[str, str] = {}  # key -> resourceVersion

    def subscribe(self, on_change: Callable[[Change[RecordT]], None]) -> None:
        """Also announces changes to `on_change`, after earlier subscribers. Call it before any change."""
        self._reactions.append(on_change)

    def get(self, key: str) -> RecordT | None:
        """The object's last known state."""
        with self._lock:
            entry = self._entries.get(key)
        return None if entry is None else entry.record

    def values(self) -> list[RecordT]:
        """All objects' last known states."""
        with self._lock:
            return [entry.record for entry in self._entries.values()]

    def keys(self) -> list[str]:
        """The keys of all objects."""
        with self._lock:
            return list(self._entries)

    def unread(self) -> list[str]:
        """The keys of existing objects of which no version could be read."""
        with self._lock:
            return sorted(self._refused.keys() - self._entries.keys())

    def entry(self, item: HasMetadata) -> CacheEntry[RecordT] | RefusedObject:
        """The cache entry of an object; for a version in the cache already, that entry."""
        meta = item.metadata
        key, uid, version = meta.key, meta.uid, meta.resource_version
        if not key:
            return RefusedObject("", version, "metadata.name is missing")
        old = self._entries.get(key)
        if old is not None and old.uid == uid and old.resource_version == version:
            return old
        try:
            return CacheEntry(key, uid, version, self._record(item))
        except Exception as error:
            # An unforeseen object must not hide all others.
            return RefusedObject(key, version, repr(error))

    def replace(self, listing: Listing[CacheEntry[RecordT] | RefusedObject]) -> None:
        """Takes over a complete list."""
        entries = [one for one in listing.items if isinstance(one, CacheEntry)]
        refusals = [*listing.refused, *(one for one in listing.items if isinstance(one, RefusedObject))]
        for refused in refusals:
            self._refuse(refused)
        # A refused object exists, although we cannot read it; only the other objects that the list lacks are deleted.
        present = {entry.key for entry in entries} | {refused.key for refused in refusals}
        for key in sorted((self._entries.keys() | self._refused.keys()) - present):
            self._remove(key)
        for entry in entries:
            self._store(entry)

    def announce_synced(self) -> None:
        """Says that the cache has become complete."""
        self._announce(Change(ChangeKind.SYNCED))

    def clear(self) -> None:
        """Drops all objects."""
        for key in sorted(self._entries.keys() | self._refused.keys()):
            self._remove(key)

    def apply(self, event: WatchEvent[Any] | RefusedObject) -> None:
        """Takes over one change."""
        if isinstance(event, RefusedObject):
            self._refuse(event)
            return
        entry = None if event.object is None else self.entry(event.object)
        if event.type == objects.DELETED:
            self._remove(event.key, last=entry)
        elif isinstance(entry, RefusedObject):
            self._refuse(entry)
        elif entry is not None:
            self._store(entry)

    def _store(self, new: CacheEntry[RecordT]) -> None:
        key = new.key
        with self._lock:
            self._refused.pop(key, None)
        old = self._entries.get(key)
        if old is not None and old.uid != new.uid:
            # Deleted and created again while we were away: two objects with one name, not a changed one.
            self._remove(key)
            old = None
        if old is not None and old.resource_version == new.resource_version:
            return
        with self._lock:
            self._entries[key] = new
        if old is None:
            self._announce(Change(ChangeKind.ADDED, key, None, new.record))
        else:
            self._announce(Change(ChangeKind.MODIFIED, key, old.record, new.record))

    def _remove(self, key: str, last: CacheEntry[RecordT] | RefusedObject | None = None) -> None:
        with self._lock:
            self._refused.pop(key, None)
            old = self._entries.pop(key, None)
        if old is not None:
            gone = last if isinstance(last, CacheEntry) else old
            self._announce(Change(ChangeKind.DELETED, key, gone.record))

    def _refuse(self, refused: RefusedObject) -> None:
        if self._refused.get(refused.key) == refused.resource_version:
            return
        with self._lock:
            self._refused[refused.key] = refused.resource_version
        self._metrics.refused_objects.labels(self._resource).inc()
        logger.error(
            "object refused: %s",
            refused.reason,
            extra={
                "resource": self._resource,
                "key": refused.key,
                "resource_version": refused.resource_version,
            },
        )

    def _announce(self, change: Change[RecordT]) -> None:
        for react in self._reactions:
            try:
                react(change)
            except Exception:
                # The cache has the change already; one failed reaction must not prevent the next ones.
                what = {"resource": self._resource, "key": change.key}
                logger.exception("reaction to a change failed", extra=what)
