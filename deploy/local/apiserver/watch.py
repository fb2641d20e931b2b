"""Watches: a bounded history per resource, and the watchers of the changes after it."""

import asyncio
import itertools
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from deploy.local.apiserver import status
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import JsonObject, encode
from deploy.local.apiserver.selectors import Requirements
from deploy.local.apiserver.store import ObjectChange, StoredObject

HISTORY_SECONDS = 300.0  # as long as kube-apiserver leaves etcd's history uncompacted
HISTORY_EVENTS = 10_000
HISTORY_BYTES = 16 << 20
BOOKMARK_SECONDS = 60.0
BACKLOG_LINES = 20_000

Render = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records of a resource a list or watch covers."""

    namespace: str
    labels: Requirements
    fields: Requirements

    def matches(self, record: StoredObject) -> bool:
        if self.namespace and not record.key.startswith(self.namespace + "/"):
            return False
        of_labels = all(requirement.matches(record.labels) for requirement in self.labels)
        return of_labels and all(requirement.matches(record.fields) for requirement in self.fields)


class ChangeHistory:
    """The latest changes of one resource: all after `floor`, and possibly some before it."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._changes: deque[tuple[float, ObjectChange]] = deque()  # the oldest first, with its time
        self._bytes = 0

    def append(self, now: float, change: ObjectChange) -> None:
        self._changes.append((now, change))
        self._bytes += len(change.record.value)
        self.trim(now)

    def trim(self, now: float) -> None:
        """Drops what is too old or too much."""
        while self._changes and (
            now - self._changes[0][0] > HISTORY_SECONDS
            or len(self._changes) > HISTORY_EVENTS
            or self._bytes > HISTORY_BYTES
        ):
            _, dropped = self._changes.popleft()
            self._bytes -= len(dropped.record.value)
            self.floor = dropped.record.version

    def since(self, version: int) -> list[ObjectChange]:
        """Changes after a version, oldest first. Raises StatusError (410) if some may be missing."""
        if version < self.floor:
            why = f"too old resource version: {version} ({self.floor})"
            raise status.StatusError(410, "Expired", why)
        found = []
        for _, change in reversed(self._changes):
            if change.record.version <= version:
                break
            found.append(change)
        return found[::-1]


class Watcher:
    """One open watch: turns changes into lines and buffers them until its stream takes them."""

    def __init__(
        self, kind: ApiKind, wanted: Filter, render: Render | None, *, bookmarks: bool, timeout_seconds: float
    ) -> None:
        now = time.monotonic()
        self._kind = kind
        self._filter = wanted
        self._render = render
        self._bookmarks = bookmarks
        self._lines: list[bytes] = []
        self._wake = asyncio.Event()
        self._expires = now + timeout_seconds
        self._next_bookmark = now + BOOKMARK_SECONDS
        self._columns_told = False
        self.closed = False

    def tick(self, now: float, version: int) -> None:
        """Sends a due bookmark, and ends the watch when its time is up."""
        if now >= self._next_bookmark:
            self._next_bookmark = now + BOOKMARK_SECONDS
            self.bookmark(version)
        if now >= self._expires:
            self.close()

    def offer(self, change: ObjectChange) -> None:
        line = self._line(change)
        if line is not None:
            self._push(line)

    def _line(self, change: ObjectChange) -> bytes | None:
        before = change.previous is not None and self._filter.matches(change.previous)
        if not change.deleted and self._filter.matches(change.record):
            event, content = ("MODIFIED" if before else "ADDED"), change.record
        elif not before or change.previous is None:
            return None
        else:
            event, content = "DELETED", change.record if change.deleted else change.previous
        if self._render is None and content is change.record:
            return change.line(event)
        obj = content.load()
        obj["metadata"]["resourceVersion"] = str(change.record.version)
        return self._encode(event, obj)

    def _encode(self, event: str, obj: JsonObject) -> bytes:
        shown = obj if self._render is None else self._render(obj)
        if "columnDefinitions" in shown:
            if self._columns_told:
                shown = shown | {"columnDefinitions": None}
            self._columns_told = True
        return encode({"type": event, "object": shown}) + b"\n"

    def bookmark(self, version: int) -> None:
        if self._bookmarks:
            identity = {"kind": self._kind.kind, "apiVersion": self._kind.api_version}
            self._push(self._encode("BOOKMARK", identity | {"metadata": {"resourceVersion": str(version)}}))

    def error(self, failure: status.StatusError) -> None:
        self._push(encode({"type": "ERROR", "object": failure.to_object()}) + b"\n")
        self.close()

    def close(self) -> None:
        self.closed = True
        self._wake.set()

    def _push(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) > BACKLOG_LINES:
            # A client that does not read must resume from its last version, like any slow watcher.
            self.closed = True
        self._wake.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """The buffered lines, and those to come until the watch is closed."""
        while self._lines or not self.closed:
            if self._lines:
                lines, self._lines = self._lines, []
                yield b"".join(lines)
            else:
                self._wake.clear()
                await self._wake.wait()


class Hub:
    """Histories and watchers of all resources; gets every change."""

    def __init__(self, version: int) -> None:
        self._start = version
        self._histories: dict[str, ChangeHistory] = {}
        # Those that their responses hold, in the order in which they came.
        self._watchers: dict[str, weakref.WeakValueDictionary[int, Watcher]] = {}
        self._numbers = itertools.count()

    def history(self, resource: str) -> ChangeHistory:
        return self._histories.setdefault(resource, ChangeHistory(self._start))

    def publish(self, change: ObjectChange) -> None:
        resource = change.record.resource
        self.history(resource).append(time.monotonic(), change)
        for watcher in self._attached(resource):
            watcher.offer(change)
        change.lines.clear()  # a watch that comes later encodes it anew, and the history needs half the memory

    def attach(self, resource: str, watcher: Watcher) -> None:
        self._watchers.setdefault(resource, weakref.WeakValueDictionary())[next(self._numbers)] = watcher

    def _attached(self, resource: str) -> list[Watcher]:
        return list(self._watchers[resource].values()) if resource in self._watchers else []

    def watchers(self) -> list[Watcher]:
        return [watcher for resource in self._watchers for watcher in self._attached(resource)]

    def tick(self, version: int) -> None:
        now = time.monotonic()
        for history in self._histories.values():
            history.trim(now)
        for watcher in self.watchers():
            watcher.tick(now, version)

    def compact(self, version: int) -> None:
        """Drops all history up to a version: older watches get 410."""
        self._start = version
        self._histories.clear()

    def close(self) -> None:
        for watcher in self.watchers():
            watcher.close()
