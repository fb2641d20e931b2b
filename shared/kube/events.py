"""Kubernetes Events about the product's actions, without flooding the API server or delaying a decision.

A repeated event within two minutes raises the count of the first one. Each reason has a budget, so that a mistake
repeated for five thousand nodes does not bury the rest.
"""

import collections
import contextlib
import logging
import queue
import secrets
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from shared import durations
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, ApiError, InvalidResponse, NotFound, Unreachable
from shared.kube.resources import EVENTS
from shared.stop import Stop

logger = logging.getLogger(__name__)

EventType: TypeAlias = Literal["Normal", "Warning"]
Said: TypeAlias = tuple[EventType, str, str]  # type, reason and message of an Event

NORMAL: Literal["Normal"] = "Normal"
WARNING: Literal["Warning"] = "Warning"

DEDUPE_SECONDS = 120.0
QUEUE_LENGTH = 1000
MAX_MESSAGE = 1024  # the API server refuses longer messages

# Per reason: a burst for a change of a whole cluster, then one every five seconds.
BURST = 50.0
REFILL_PER_SECOND = 0.2

_DRAIN_SECONDS = 2.0


class EventReason(str):
    """The reason of Events, one CamelCase word, with their type and message. The module that records them declares it,
    so that the reference lists all that are imported.
    """

    DECLARED: ClassVar[list["EventReason"]] = []
    type: EventType
    message: str

    def __new__(cls, reason: str, type: EventType, message: str) -> "EventReason":
        self = super().__new__(cls, reason)
        self.type, self.message = type, message
        cls.DECLARED.append(self)
        return self

    def say(self, **values: object) -> Said:
        """One Event, with `values` for the placeholders of the message."""
        return self.type, str(self), self.message.format_map(values)


class ObjectRef(NamedTuple):
    """The subject of an Event. An Event about a cluster-scoped object lives in the namespace "default"."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class _Occurrence(NamedTuple):
    regarding: ObjectRef
    type: str
    reason: str
    message: str

    @property
    def namespace(self) -> str:
        return self.regarding.namespace or "default"


@dataclass
class _Written:
    """An Event on the server and its count, which may be ahead of the server's."""

    name: str
    count: int
    last_monotonic: float


@dataclass
class _Budget:
    """A token bucket."""

    tokens: float = BURST
    refilled_at: float = 0.0

    def take(self, monotonic: float) -> bool:
        self.tokens = min(BURST, self.tokens + (monotonic - self.refilled_at) * REFILL_PER_SECOND)
        self.refilled_at = monotonic
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Recorder:
    """Writes Events as `component` on `host`. `event` may be called from any thread and costs a queue entry."""

    def __init__(self, client: Client, component: str, host: str) -> None:
        self._client = client
        self._component = component
        self._host = host
        self._queue: queue.Queue[_Occurrence | None] = queue.Queue(QUEUE_LENGTH)  # None: a wake-up
        self._written: collections.OrderedDict[_Occurrence, _Written] = collections.OrderedDict()
        self._budgets: collections.defaultdict[str, _Budget] = collections.defaultdict(_Budget)

    def event(self, regarding: ObjectRef, type: EventType, reason: str, message: str) -> None:
        """Queues an event; `reason` is one CamelCase word. Never blocks, never raises."""
        try:
            self._queue.put_nowait(_Occurrence(regarding, type, str(reason), message[:MAX_MESSAGE]))
        except queue.Full:
            self._drop("queue_full")

    def run(self, stop: Stop) -> None:
        """Writes queued events until `stop`, and then the remaining ones, for a moment."""
        clock = self._client.clock
        with stop.calling(self._wake):
            while not stop.is_set():
                self._record(self._queue.get())
        deadline = clock.monotonic() + _DRAIN_SECONDS
        with contextlib.suppress(queue.Empty):
            while clock.monotonic() < deadline:
                self._record(self._queue.get_nowait())

    def _wake(self) -> None:
        with contextlib.suppress(queue.Full):  # then nothing waits
            self._queue.put_nowait(None)

    def _record(self, occurrence: _Occurrence | None) -> None:
        if occurrence is None:
            return
        now = self._client.clock.monotonic()
        self._forget(now - DEDUPE_SECONDS)
        written = self._written.get(occurrence)
        if written is not None:
            written.count += 1
            written.last_monotonic = now
            self._written.move_to_end(occurrence)
        if not self._budgets[occurrence.reason].take(now):
            # The repetition still counts: the next write carries the whole count.
            if written is None:
                self._drop("rate_limited")
            return
        try:
            if written is None or not self._raise_count(occurrence, written):
                self._create(occurrence, now)
        except (ApiError, Unreachable, InvalidResponse) as error:
            self._drop("refused")
            logger.warning("event not written: %s", error, extra={"reason": occurrence.reason})

    def _create(self, occurrence: _Occurrence, monotonic: float) -> None:
        regarding = occurrence.regarding
        name = f"{regarding.name}.{secrets.token_hex(8)}"
        stamp = durations.timestamp(self._client.clock.now())
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": occurrence.namespace},
            "involvedObject": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "name": regarding.name,
                "namespace": regarding.namespace,
                "uid": regarding.uid,
            },
            "type": occurrence.type,
            "reason": occurrence.reason,
            "message": occurrence.message,
            "count": 1,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
        with contextlib.suppress(AlreadyExists):  # the random name is ours: an attempt that looked failed did succeed
            self._client.create(EVENTS, body, occurrence.namespace, repeatable=True)
        self._written[occurrence] = _Written(name, 1, monotonic)

    def _raise_count(self, occurrence: _Occurrence, written: _Written) -> bool:
        """False when the server no longer has the Event; it keeps Events for about an hour."""
        stamp = durations.timestamp(self._client.clock.now())
        patch = {"count": written.count, "lastTimestamp": stamp}
        try:
            self._client.patch(EVENTS, written.name, patch, occurrence.namespace)
        except NotFound:
            return False
        return True

    def _forget(self, before_monotonic: float) -> None:
        while self._written:
            oldest = next(iter(self._written))
            if self._written[oldest].last_monotonic >= before_monotonic:
                return
            del self._written[oldest]

    def _drop(self, why: str) -> None:
        self._client.metrics.dropped_events.labels(why).inc()
