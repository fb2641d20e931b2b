"""A watch as small generators: bytes into lines, lines into events, for as long as one connection lives.

A stream ends for exactly one of these reasons: the server closed it (it does so after `timeout_seconds`), `stop` was
set, it broke off or fell silent (Unreachable), the server reported an error (ApiError; Gone when the position is lost),
or it sent something other than events (InvalidResponse). The informer decides what happens next.
"""

import contextlib
import logging
import random
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

from shared.kube import objects
from shared.kube.client import Client
from shared.kube.errors import InvalidResponse, Unreachable
from shared.kube.objects import ObjectT, RefusedObject, WatchEvent
from shared.kube.resources import Resource
from shared.kube.retry import Jitter
from shared.stop import Stop

# etcd refuses objects above 1.5 MiB by default; a longer line than this is no object.
MAX_LINE_BYTES = 16 << 20


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
    that the server does not know is looked for again after about `absent_seconds`; None: it is an error. Its absence is
    logged once, at `absence_level`.
    """

    timeout_seconds: float = 240.0
    margin_seconds: float = 15.0
    jitter: Jitter = field(default_factory=Jitter)
    absent_seconds: float | None = None
    absence_level: int = logging.WARNING


def events(
    client: Client,
    resource: Resource,
    into: type[ObjectT],
    resource_version: str,
    *,
    stop: Stop,
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
        with contextlib.closing(stream), stop.calling(stream.abort):
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
