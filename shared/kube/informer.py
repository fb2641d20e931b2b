"""A cache that follows one resource: it lists once, then watches, and recovers from every error.

The cache always holds the last known state of each object: a change is stored first and announced second. After a lost
watch, the informer resumes at the last resourceVersion, or lists again where the server no longer knows that version.
"""

import contextlib
import enum
import logging
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from shared.kube import objects, retry, watch
from shared.kube.client import Client
from shared.kube.errors import ApiError, Gone, InvalidResponse, NotFound, ServerError, TooManyRequests, Unreachable
from shared.kube.objects import HasMetadata, ObjectT, RefusedObject, WatchEvent
from shared.kube.resources import Resource
from shared.kube.retry import Backoff, Jitter

logger = logging.getLogger(__name__)

T = TypeVar("T")
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


class _Entry(msgspec.Struct, Generic[RecordT], frozen=True, gc=False):
    """A cache entry: the identity of this version of the object, and the record."""

    key: str
    uid: str
    resource_version: str
    record: RecordT


class Informer(Generic[RecordT]):
    """Follows `resource` (narrowed by the selectors) into a cache by "name" or "namespace/name".

    The cache holds the objects as the struct `into`, or the records that `Kept` describes. `on_change` is called in the
    informer's thread, in the order of the server's history, and should be quick. SYNCED comes after every complete
    list. Only an object that does not fit the struct is left out: it is logged and counted once per version, and an
    earlier good version stays. `synced` is set for good after the first complete list, `current` while a watch delivers
    the changes after it.

    Without `absent_seconds` a kind that the server does not know is an error. With it, such a kind has no objects,
    which is `current`, and the informer looks again after 0.5 to 1.5 times that long.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        into: type[RecordT] | Kept[Any, RecordT],
        *,
        on_change: Callable[[Change[RecordT]], None] | None = None,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        jitter: Jitter | None = None,
        timeout_seconds: float = watch.TIMEOUT_SECONDS,
        margin_seconds: float = watch.MARGIN_SECONDS,
        absent_seconds: float | None = None,
    ) -> None:
        self.synced = threading.Event()
        self.current = threading.Event()
        self._client = client.single_attempt()  # this loop retries by itself, and knows `stop`
        self._resource = resource
        self._kept: Kept[Any, RecordT] = into if isinstance(into, Kept) else Kept(into, _whole)
        self._reactions = [] if on_change is None else [on_change]
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._timeout_seconds = timeout_seconds
        self._margin_seconds = margin_seconds
        self._absent_seconds = absent_seconds
        self._is_absent = False
        self._backoff = Backoff(client.clock, jitter)
        self._lock = threading.Lock()
        self._cache: dict[str, _Entry[RecordT]] = {}
        self._refused: dict[str, str] = {}  # key -> resourceVersion
        self._position: str | None = None  # resourceVersion to resume at; None: list first
        self._complete_at = -math.inf  # monotonic time of the last complete list or of the end of `current` after it

    @property
    def age_seconds(self) -> float:
        """The age of the cache's state: 0 while it is `current`, infinite before the first complete list."""
        return 0.0 if self.current.is_set() else self._client.clock.monotonic() - self._complete_at

    def subscribe(self, on_change: Callable[[Change[RecordT]], None]) -> None:
        """Announces changes to `on_change`, too, after those that came first. To be called before `run`."""
        self._reactions.append(on_change)

    def get(self, key: str) -> RecordT | None:
        """The object's last known state."""
        with self._lock:
            entry = self._cache.get(key)
        return None if entry is None else entry.record

    def values(self) -> list[RecordT]:
        """All objects' last known states."""
        with self._lock:
            return [entry.record for entry in self._cache.values()]

    def keys(self) -> list[str]:
        """The keys of all objects."""
        with self._lock:
            return list(self._cache)

    def unread(self) -> list[str]:
        """The keys of existing objects of which no version could be read."""
        with self._lock:
            return sorted(self._refused.keys() - self._cache.keys())

    def run(self, stop: threading.Event) -> None:
        """Keeps the cache up to date until `stop`; a supervisor calls it again if it raises."""
        while not stop.is_set():
            error: ApiError | Unreachable | InvalidResponse | None = None
            try:
                if self._position is None:
                    self._list()
                self._watch(self._position or "", stop)
            except NotFound as caught:
                error = caught
                if self._absent_seconds is not None:
                    self._note_absence()
                    self._client.clock.wait(stop, self._absent_seconds * random.uniform(0.5, 1.5))
                    continue
                self._end_current()
                self._position = None
            except (ApiError, Unreachable, InvalidResponse) as caught:
                error = caught
                self._end_current()
                if not _may_resume(error):
                    self._position = None
            if not stop.is_set():
                self._rest(error, stop)

    def _note_absence(self) -> None:
        """The server does not know the kind: drops its objects."""
        self._position = None
        for key in self._cache.keys() | self._refused.keys():
            self._remove(key)
        if not self._is_absent:
            logger.warning("the cluster does not know this kind", extra={"resource": str(self._resource)})
        self._is_absent = True
        self.synced.set()
        self.current.set()

    def _end_current(self) -> None:
        if self.current.is_set():
            self._complete_at = self._client.clock.monotonic()
            self.current.clear()

    def _rest(self, error: ApiError | Unreachable | InvalidResponse | None, stop: threading.Event) -> None:
        delay = self._backoff.delay_seconds(error)
        reason = _reason(error)
        self._client.metrics.watch_restarts.labels(str(self._resource), reason).inc()
        log = logger.debug if error is None else logger.warning
        log(
            "watch interrupted, going on in %.2f s: %s",
            delay,
            error or "the server ended it",
            extra={"resource": str(self._resource), "reason": reason},
        )
        retry.wait(self._client.clock, stop, delay, self._client.answers if isinstance(error, Unreachable) else None)

    def _list(self) -> None:
        listing = self._client.list(
            self._resource,
            self._namespace,
            into=self._kept.into,
            keep=self._entry,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        entries = [one for one in listing.items if isinstance(one, _Entry)]
        refusals = [*listing.refused, *(one for one in listing.items if isinstance(one, RefusedObject))]
        for refused in refusals:
            self._refuse(refused)
        # A refused object exists, although we cannot read it; only the other objects that the list lacks are deleted.
        present = {entry.key for entry in entries} | {refused.key for refused in refusals}
        for key in (self._cache.keys() | self._refused.keys()) - present:
            self._remove(key)
        for entry in entries:
            self._store(entry)
        self._is_absent = False
        self._position = listing.resource_version
        self._complete_at = self._client.clock.monotonic()
        self.synced.set()
        self._announce(Change(ChangeKind.SYNCED))

    def _watch(self, position: str, stop: threading.Event) -> None:
        events = watch.events(
            self._client,
            self._resource,
            self._kept.into,
            position,
            stop=stop,
            opened=self.current.set,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_seconds=self._timeout_seconds,
            margin_seconds=self._margin_seconds,
        )
        with contextlib.closing(events):
            for event in events:
                self._apply(event)
                self._position = event.resource_version or self._position

    def _apply(self, event: WatchEvent[Any] | RefusedObject) -> None:
        if isinstance(event, RefusedObject):
            self._refuse(event)
            return
        entry = None if event.object is None else self._entry(event.object)
        if event.type == objects.DELETED:
            self._remove(event.key, last=entry)
        elif isinstance(entry, RefusedObject):
            self._refuse(entry)
        elif entry is not None:
            self._store(entry)

    def _entry(self, item: HasMetadata) -> _Entry[RecordT] | RefusedObject:
        """The cache entry of an object; for a version in the cache already, that entry."""
        meta = item.metadata
        key, uid, version = meta.key, meta.uid, meta.resource_version
        if not key:
            return RefusedObject("", version, "metadata.name is missing")
        old = self._cache.get(key)
        if old is not None and old.uid == uid and old.resource_version == version:
            return old
        try:
            return _Entry(key, uid, version, self._kept.record(item))
        except Exception as error:
            # An unforeseen object must not hide all others.
            return RefusedObject(key, version, repr(error))

    def _store(self, new: _Entry[RecordT]) -> None:
        key = new.key
        with self._lock:
            self._refused.pop(key, None)
        old = self._cache.get(key)
        if old is not None and old.uid != new.uid:
            # Deleted and created again while we were away: two objects with one name, not a changed one.
            self._remove(key)
            old = None
        if old is not None and old.resource_version == new.resource_version:
            return
        with self._lock:
            self._cache[key] = new
        if old is None:
            self._announce(Change(ChangeKind.ADDED, key, None, new.record))
        else:
            self._announce(Change(ChangeKind.MODIFIED, key, old.record, new.record))

    def _remove(self, key: str, last: _Entry[RecordT] | RefusedObject | None = None) -> None:
        with self._lock:
            self._refused.pop(key, None)
            old = self._cache.pop(key, None)
        if old is not None:
            gone = last if isinstance(last, _Entry) else old
            self._announce(Change(ChangeKind.DELETED, key, gone.record))

    def _refuse(self, refused: RefusedObject) -> None:
        if self._refused.get(refused.key) == refused.resource_version:
            return
        with self._lock:
            self._refused[refused.key] = refused.resource_version
        self._client.metrics.refused_objects.labels(str(self._resource)).inc()
        logger.error(
            "object refused: %s",
            refused.reason,
            extra={
                "resource": str(self._resource),
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
                what = {"resource": str(self._resource), "key": change.key}
                logger.exception("reaction to a change failed", extra=what)


def _whole(item: T) -> T:
    return item


def _may_resume(error: ApiError | Unreachable | InvalidResponse) -> bool:
    """Whether the same position is worth another try.

    It is not after a Gone, another refusal, or garbage, which would come again.
    """
    return isinstance(error, Unreachable | TooManyRequests | ServerError)


def _reason(error: ApiError | Unreachable | InvalidResponse | None) -> str:
    """The error as a metric's label: few values, whatever the server's text."""
    match error:
        case None:
            return "ended"
        case Gone():
            return "gone"
        case TooManyRequests():
            return "throttled"
        case ApiError():
            return "refused"
        case Unreachable():
            return "unreachable"
        case InvalidResponse():
            return "malformed"
