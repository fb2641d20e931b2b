"""A watch as small generators: bytes into lines, lines into events, for as long as one connection lives.

A stream ends for exactly one of these reasons: the server closed it (it does so after `timeout_seconds`), `stop` was
set, it broke off or fell silent (Unreachable), the server reported an error (ApiError; Gone when the position is lost),
or it sent something other than events (InvalidResponse). The informer decides what happens next.
"""

import contextlib
import random
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

from shared.kube import objects
from shared.kube.client import Client
from shared.kube.errors import InvalidResponse, Unreachable
from shared.kube.http import Stream
from shared.kube.objects import ObjectT, RefusedObject, WatchEvent
from shared.kube.resources import Resource
from shared.kube.retry import Jitter

# etcd refuses objects above 1.5 MiB by default; a longer line than this is no object.
MAX_LINE_BYTES = 16 << 20

_STOP_LATENCY_SECONDS = 0.5


@dataclass(frozen=True)
class WatchScope:
    """Which objects of a resource are watched: all, or those of one namespace and of these selectors."""

    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None


@dataclass(frozen=True)
class WatchTimes:
    """When a watch ends, and when the next one begins.

    The server ends a watch after one to two times `timeout_seconds`; the spread keeps thousands of agents out of step.
    A stream that is still open and silent `margin_seconds` after that has lost its server. The margin cannot be
    shorter, because servers promise no bookmark at any interval. `jitter` spreads the attempts after failures. A kind
    that the server does not know is looked for again after about `absent_seconds`; None: it is an error.
    """

    timeout_seconds: float = 240.0
    margin_seconds: float = 15.0
    jitter: Jitter = field(default_factory=Jitter)
    absent_seconds: float | None = None


def events(
    client: Client,
    resource: Resource,
    into: type[ObjectT],
    resource_version: str,
    *,
    stop: threading.Event,
    opened: Callable[[], None],
    scope: WatchScope,
    times: WatchTimes,
) -> Generator[WatchEvent[ObjectT] | RefusedObject, None, None]:
    """The changes after `resource_version`, from one connection; closing the generator closes it.

    `opened` is called once the server has begun to answer.
    """
    server_seconds = max(1, round(times.timeout_seconds * random.uniform(1, 2)))
    stream = client.watch(
        resource,
        scope.namespace,
        resource_version=resource_version,
        label_selector=scope.label_selector,
        field_selector=scope.field_selector,
        timeout_seconds=server_seconds,
        idle_seconds=server_seconds + times.margin_seconds,
    )
    try:
        with contextlib.closing(stream), _aborted_on(stop, stream):
            opened()
            for line in lines(stream.chunks()):
                yield objects.decode_event(line, into)
    except Unreachable:
        if not stop.is_set():
            raise


def lines(chunks: Iterable[bytes], max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """The non-empty lines of a stream cut at arbitrary places; an incomplete last line is dropped.

    Raises InvalidResponse for a line beyond `max_line_bytes`.
    """
    torn = b""
    for chunk in chunks:
        *complete, torn = (torn + chunk).split(b"\n")
        yield from filter(None, complete)
        if len(torn) > max_line_bytes:
            raise InvalidResponse(f"a line of a watch is longer than {max_line_bytes} bytes")


@contextlib.contextmanager
def _aborted_on(stop: threading.Event, stream: Stream) -> Iterator[None]:
    """Aborts `stream` when `stop` is set while the block runs.

    A thread blocked in a read cannot wait for an event too, and short read timeouts would leave urllib3's response
    unusable; so a second thread waits, and shuts the socket down.
    """
    finished = threading.Event()

    def guard() -> None:
        while not finished.is_set():
            if stop.wait(_STOP_LATENCY_SECONDS):
                stream.abort()
                return

    threading.Thread(target=guard, name="watch-guard", daemon=True).start()
    try:
        yield
    finally:
        finished.set()
