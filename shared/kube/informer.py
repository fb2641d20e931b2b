"""A cache that follows one resource: list once, then watch, whatever happens on the way.

The cache always holds the last state the server has told of each object, and says so: a change is stored first and
announced second. What was missed while a watch was away is made up for by resuming at the last resourceVersion, or
by listing again where the server does not know it any more.
"""

import contextlib
import enum
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from shared.kube import objects, watch
from shared.kube.client import Client
from shared.kube.errors import ApiError, Gone, InvalidResponse, ServerError, TooManyRequests, Unreachable
from shared.kube.objects import ObjectT, Refused, WatchEvent
from shared.kube.resources import Resource
from shared.kube.retry import Backoff, Jitter

logger = logging.getLogger(__name__)


class Kind(enum.StrEnum):
    """What happened to an object, or, with SYNCED, that the cache has just become complete."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"


@dataclass(frozen=True)
class Change(Generic[ObjectT]):
    """One announcement. ADDED has `new`, DELETED `old`, MODIFIED both, SYNCED (whose key is empty) neither."""

    kind: Kind
    key: str = ""
    old: ObjectT | None = None
    new: ObjectT | None = None


class Informer(Generic[ObjectT]):
    """Follows `resource` (narrowed by the selectors) into a cache by "name" or "namespace/name".

    `on_change` is called in the informer's thread, in the order of the server's history, and should be quick. SYNCED
    comes after every complete list. An object that does not fit the struct is left out alone: it is logged and
    counted once per version, and a good version seen before stays.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        into: type[ObjectT],
        *,
        on_change: Callable[[Change[ObjectT]], None] | None = None,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        jitter: Jitter | None = None,
        timeout_seconds: float = watch.TIMEOUT_SECONDS,
        margin_seconds: float = watch.MARGIN_SECONDS,
    ) -> None:
        self.synced = threading.Event()
        self._client = client.single_attempt()  # this loop has its own patience, and knows `stop`
        self._resource = resource
        self._into = into
        self._on_change = on_change
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._timeout_seconds = timeout_seconds
        self._margin_seconds = margin_seconds
        self._backoff = Backoff(client.clock, jitter)
        self._lock = threading.Lock()
        self._cache: dict[str, ObjectT] = {}
        self._refused: dict[str, str] = {}  # key -> resourceVersion
        self._position: str | None = None  # resourceVersion to resume at; None: list first

    def get(self, key: str) -> ObjectT | None:
        """The object's last known state."""
        with self._lock:
            return self._cache.get(key)

    def values(self) -> list[ObjectT]:
        """All objects' last known states."""
        with self._lock:
            return list(self._cache.values())

    def run(self, stop: threading.Event) -> None:
        """Keeps the cache up to date until `stop`; to be supervised, and to be called again if it raises."""
        while not stop.is_set():
            error: ApiError | Unreachable | InvalidResponse | None = None
            try:
                if self._position is None:
                    self._list()
                self._watch(self._position or "", stop)
            except (ApiError, Unreachable, InvalidResponse) as caught:
                error = caught
                if not _may_resume(error):
                    self._position = None
            if not stop.is_set():
                self._rest(error, stop)

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
        self._client.clock.wait(stop, delay)

    def _list(self) -> None:
        listing = self._client.list(
            self._resource,
            self._namespace,
            into=self._into,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        for refused in listing.refused:
            self._refuse(refused)
        # A refused object is there, though we cannot read it; only the rest of what is not listed has gone.
        present = {item.metadata.key for item in listing.items} | {refused.key for refused in listing.refused}
        for key in self._cache.keys() - present:
            self._remove(key)
        for item in listing.items:
            self._store(item)
        self._position = listing.resource_version
        self.synced.set()
        self._announce(Change(Kind.SYNCED))

    def _watch(self, position: str, stop: threading.Event) -> None:
        events = watch.events(
            self._client,
            self._resource,
            self._into,
            position,
            stop=stop,
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

    def _apply(self, event: WatchEvent[ObjectT] | Refused) -> None:
        if isinstance(event, Refused):
            self._refuse(event)
        elif event.type == objects.DELETED:
            self._remove(event.key, last=event.object)
        elif event.object is not None:
            self._store(event.object)

    def _store(self, new: ObjectT) -> None:
        key = new.metadata.key
        if not key:
            self._refuse(Refused("", new.metadata.resource_version, "metadata.name is missing"))
            return
        self._refused.pop(key, None)
        old = self._cache.get(key)
        if old is not None and old.metadata.uid != new.metadata.uid:
            # Deleted and created anew while we were away: two objects that share a name, not one that changed.
            self._remove(key)
            old = None
        if old is not None and old.metadata.resource_version == new.metadata.resource_version:
            return
        with self._lock:
            self._cache[key] = new
        self._announce(Change(Kind.ADDED if old is None else Kind.MODIFIED, key, old, new))

    def _remove(self, key: str, last: ObjectT | None = None) -> None:
        self._refused.pop(key, None)
        with self._lock:
            old = self._cache.pop(key, None)
        if old is not None:
            self._announce(Change(Kind.DELETED, key, last or old))

    def _refuse(self, refused: Refused) -> None:
        if self._refused.get(refused.key) == refused.resource_version:
            return
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

    def _announce(self, change: Change[ObjectT]) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(change)
        except Exception:
            # The cache has the change already; one bad reaction must not cost the ones that follow.
            logger.exception("reaction to a change failed", extra={"resource": str(self._resource), "key": change.key})


def _may_resume(error: ApiError | Unreachable | InvalidResponse) -> bool:
    """Whether the same position is worth another try.

    After a Gone or any other refusal it is not. Neither is it after garbage, which would come again.
    """
    return isinstance(error, Unreachable | TooManyRequests | ServerError)


def _reason(error: ApiError | Unreachable | InvalidResponse | None) -> str:
    """The error as a metric's label: few values, whatever the server says."""
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
