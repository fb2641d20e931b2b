"""A watch as small generators: bytes into lines, lines into events, for as long as one connection lives.

A stream ends for exactly one of these reasons: the server closed it (it does so after `timeout_seconds`), `stop` was
set, it broke off or fell silent (Unreachable), the server reported an error (ApiError; Gone when the position is lost),
or it sent something other than events (InvalidResponse). The informer decides what happens next.
"""

import contextlib
import random
import threading
from collections.abc import Callable, Generator, Iterable, Iterator

from shared.kube import objects
from shared.kube.client import Client
from shared.kube.errors import InvalidResponse, Unreachable
from shared.kube.http import Stream
from shared.kube.objects import ObjectT, RefusedObject, WatchEvent
from shared.kube.resources import Resource

# The server ends a watch after one to two times this long; the spread keeps thousands of agents out of step.
TIMEOUT_SECONDS = 240.0

# Added to the server's own end: a stream still open and silent after that has lost its server. It cannot be shorter,
# because servers promise no bookmark at any interval.
MARGIN_SECONDS = 15.0

# etcd refuses objects above 1.5 MiB by default; a longer line than this is no object.
MAX_LINE_BYTES = 16 << 20

_STOP_LATENCY_SECONDS = 0.5


def events(
    client: Client,
    resource: Resource,
    into: type[ObjectT],
    resource_version: str,
    *,
    stop: threading.Event,
    opened: Callable[[], None] | None = None,
    namespace: str | None = None,
    label_selector: str | None = None,
    field_selector: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    margin_seconds: float = MARGIN_SECONDS,
) -> Generator[WatchEvent[ObjectT] | RefusedObject, None, None]:
    """The changes after `resource_version`, from one connection; closing the generator closes it.

    `opened` is called once the server has begun to answer.
    """
    server_seconds = max(1, round(timeout_seconds * random.uniform(1, 2)))
    stream = client.watch(
        resource,
        namespace,
        resource_version=resource_version,
        label_selector=label_selector,
        field_selector=field_selector,
        timeout_seconds=server_seconds,
        idle_seconds=server_seconds + margin_seconds,
    )
    try:
        with contextlib.closing(stream), _aborted_on(stop, stream):
            if opened is not None:
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
