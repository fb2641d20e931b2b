"""A cache that follows one resource: it lists once, then watches, and recovers from every error.

After a lost watch, the informer resumes at the last resourceVersion, or lists again where the server no longer knows
that version.
"""

import contextlib
import logging
import math
import random
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from shared.kube import retry, watch
from shared.kube.client import Client
from shared.kube.errors import ApiError, Gone, InvalidResponse, NotFound, ServerError, TooManyRequests, Unreachable
from shared.kube.object_cache import Change, Kept, ObjectCache, RecordT
from shared.kube.resources import Resource
from shared.kube.retry import Backoff
from shared.kube.watch import WatchScope, WatchTimes
from shared.stop import Stop

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Informer(Generic[RecordT]):
    """Follows what `scope` covers of `resource` into a cache by "name" or "namespace/name".

    The cache holds the objects as the struct `into`, or the records that `Kept` describes. `on_change` is called in the
    informer's thread, in the order of the server's history, and should be quick. SYNCED comes after every complete
    list. Only an object that does not fit the struct is left out: it is logged and counted once per version, and an
    earlier good version stays. `synced` is set for good after the first complete list, `current` while a watch delivers
    the changes after it.

    Without `times.absent_seconds` a kind that the server does not know is an error. With it, such a kind has no
    objects, which is `current`, and the informer looks again after 0.5 to 1.5 times that long.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        into: type[RecordT] | Kept[Any, RecordT],
        *,
        on_change: Callable[[Change[RecordT]], None] | None = None,
        scope: WatchScope | None = None,
        times: WatchTimes | None = None,
    ) -> None:
        self.synced = threading.Event()
        self.current = threading.Event()
        self._client = client.single_attempt()  # this loop retries by itself, and knows `stop`
        self._resource = resource
        self._kept: Kept[Any, RecordT] = into if isinstance(into, Kept) else Kept(into, _whole)
        self._scope = scope or WatchScope()
        self._times = times or WatchTimes()
        self._is_absent = False
        self._backoff = Backoff(client.clock, self._times.jitter)
        self._cache = ObjectCache(str(resource), self._kept.record, client.metrics)
        self._position: str | None = None  # resourceVersion to resume at; None: list first
        self._complete_at = -math.inf  # monotonic time of the last complete list or of the end of `current` after it
        if on_change is not None:
            self._cache.subscribe(on_change)

    @property
    def is_absent(self) -> bool:
        """Whether the server was last seen not to know the kind."""
        return self._is_absent

    @property
    def age_seconds(self) -> float:
        """The age of the cache's state: 0 while it is `current`, infinite before the first complete list."""
        return 0.0 if self.current.is_set() else self._client.clock.monotonic() - self._complete_at

    def subscribe(self, on_change: Callable[[Change[RecordT]], None]) -> None:
        """Also announces changes to `on_change`, after earlier subscribers. Call it before `run`."""
        self._cache.subscribe(on_change)

    def get(self, key: str) -> RecordT | None:
        """The object's last known state."""
        return self._cache.get(key)

    def values(self) -> list[RecordT]:
        """All objects' last known states."""
        return self._cache.values()

    def keys(self) -> list[str]:
        """The keys of all objects."""
        return self._cache.keys()

    def unread(self) -> list[str]:
        """The keys of existing objects of which no version could be read."""
        return self._cache.unread()

    def run(self, stop: Stop) -> None:
        """Keeps the cache up to date until `stop`; a supervisor calls it again if it raises."""
        while not stop.is_set():
            error: ApiError | Unreachable | InvalidResponse | None = None
            try:
                if self._position is None:
                    self._list()
                self._watch(self._position or "", stop)
            except NotFound as caught:
                error = caught
                if self._times.absent_seconds is not None:
                    self._note_absence()
                    self._client.clock.wait(stop, self._times.absent_seconds * random.uniform(0.5, 1.5))
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
        self._cache.clear()
        if not self._is_absent:
            extra = {"resource": self._resource.full_name}
            logger.log(self._times.absence_level, "the cluster does not know this kind", extra=extra)
        self._is_absent = True
        self.synced.set()
        self.current.set()

    def _end_current(self) -> None:
        if self.current.is_set():
            self._complete_at = self._client.clock.monotonic()
            self.current.clear()

    def _rest(self, error: ApiError | Unreachable | InvalidResponse | None, stop: Stop) -> None:
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
            self._scope.namespace,
            into=self._kept.into,
            keep=self._cache.entry,
            label_selector=self._scope.label_selector,
            field_selector=self._scope.field_selector,
        )
        self._cache.replace(listing)
        self._is_absent = False
        self._position = listing.resource_version
        self._complete_at = self._client.clock.monotonic()
        self.synced.set()
        self._cache.announce_synced()

    def _watch(self, position: str, stop: Stop) -> None:
        events = watch.events(
            self._client,
            self._resource,
            self._kept.into,
            position,
            stop=stop,
            opened=self.current.set,
            scope=self._scope,
            times=self._times,
        )
        with contextlib.closing(events):
            for event in events:
                self._cache.apply(event)
                self._position = event.resource_version or self._position


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
