"""The way between the processes and the API server: requests are calls of its application, in process.

A message that has left a process arrives whatever becomes of the process: only the answer waits for it to go on.
"""

import asyncio
import hashlib
import itertools
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.kube import errors
from shared.kube.errors import ApiError, Unreachable
from shared.kube.http import Response
from tests.simulation.faults import LONGEST_DELAY_SECONDS, FaultKind, Faults
from tests.simulation.stand_ins import Event, Loop
from tests.simulation.virtual import WORLD, Process

Application = Callable[[Any, Any, Any], Awaitable[None]]

HOP_SECONDS = (0.0005, 0.0025)
CONNECTING_SECONDS = 5.0

_REFUSALS = (409, 429, 500, 503)
_STOPPED_SECONDS = (1.0, 60.0)


@dataclass(frozen=True)
class AcceptedWrite:
    """A write that the API server has answered below 300. The process decided to send it at `begun`."""

    at: float
    begun: float
    process: Process
    method: str
    path: str
    body: bytes
    status: int


@dataclass(frozen=True)
class FailedCall:
    """A request that a process was told has failed."""

    at: float
    process: Process
    what: str


class Journal:
    """All writes with their answers, as a hash, and for those who look at each accepted one, and at each failure."""

    def __init__(self) -> None:
        self.watchers: list[Callable[[AcceptedWrite], None]] = []
        self.mourners: list[Callable[[FailedCall], None]] = []
        self.writes = 0
        self._digest = hashlib.sha256()

    def note(self, write: AcceptedWrite) -> None:
        body = hashlib.sha256(write.body).hexdigest()[:16]
        line = f"{write.at:.6f} {write.process.name} {write.method} {write.path} {write.status} {body}\n"
        self._digest.update(line.encode())
        self.writes += 1
        if write.status < 300:
            for watcher in self.watchers:
                watcher(write)

    def note_failure(self, what: str) -> None:
        for mourner in self.mourners:
            mourner(FailedCall(WORLD.now, WORLD.process, what))

    @property
    def hash(self) -> str:
        return self._digest.hexdigest()[:16]


class ApiServer:
    """The running application of the API server, or none, and its event loop."""

    def __init__(self) -> None:
        self.process = Process("apiserver")
        self.loop = Loop()
        self.app: Application | None = None
        self.open: list[_Exchange] = []

    def serve(self, app: Application) -> None:
        self.app = app

    def break_off(self) -> None:
        """The process has ended: all connections break."""
        self.app = None
        for exchange in self.open:
            exchange.break_off()
        self.open.clear()


class _Exchange:
    """One request at the application, and what comes of it."""

    def __init__(self, server: ApiServer, scope: dict[str, Any], body: bytes) -> None:
        self._server = server
        self._scope = scope
        self._body: bytes | None = body
        self.messages: deque[tuple[float, bytes]] = deque()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.is_over = False
        self.is_broken = False
        self.heard = Event()
        self.on_body: Callable[[bytes], None] = lambda body: self.messages.append((WORLD.now, body))
        self.on_end: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """The request arrives."""
        app = self._server.app
        if app is None:
            self.break_off()
            return
        self._server.open.append(self)
        self._task = self._server.loop.create_task(_as_coroutine(app(self._scope, self._receive, self._send)))
        self._task.add_done_callback(self._ended)
        self._server.loop.poke()

    def break_off(self) -> None:
        self.is_broken = True
        self.heard.set()
        self.on_end()

    def close(self) -> None:
        if self in self._server.open:
            self._server.open.remove(self)
        if self._task is not None and not self._task.done() and not self.is_broken:
            self._task.cancel()
            self._server.loop.poke()

    async def _receive(self) -> dict[str, Any]:
        if self._body is None:
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if self.is_broken:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message.get("body"):
            self.on_body(message["body"])
        self.heard.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()
        self.is_over = True
        if self in self._server.open:
            self._server.open.remove(self)
        self.heard.set()
        if not self.is_broken:
            self.on_end()


async def _as_coroutine(awaitable: Awaitable[None]) -> None:
    await awaitable


class NoServer:
    """`web.Server` without a socket."""

    _ports = itertools.count(20_000)

    def __init__(self, *_: object, **__: object) -> None:
        self.address = ("127.0.0.1", next(self._ports))
        self.url = "http://127.0.0.1"
        self.connections = 0

    def start(self) -> None:
        return

    def close(self) -> None:
        return


class SimulatedTransport:
    """`shared.kube.http.Transport` of one process."""

    def __init__(self, server: ApiServer, faults: Faults, journal: Journal, token: str, target: str) -> None:
        """`target` is what faults call the process."""
        self._server = server
        self._faults = faults
        self._journal = journal
        self._token = token
        self._target = target
        self._own = WORLD.process

    def close(self) -> None:
        return

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        more_headers: Mapping[str, str] | None = None,
        timeout_seconds: float,
    ) -> Response:
        try:
            return self._request(method, path, query, body, content_type, more_headers or {}, timeout_seconds)
        except (ApiError, Unreachable):
            self._journal.note_failure(f"{method} {path}")
            raise
        finally:
            if "/leases/" not in path:  # after those it has no more to send than when it is merely stopped
                self._may_stop(FaultKind.STOP_AT_ANSWER)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        more_headers: Mapping[str, str],
        timeout_seconds: float,
    ) -> Response:
        what, process, begun = f"{method} {path}", WORLD.process, WORLD.now
        if method != "GET":
            self._may_stop(FaultKind.STOP_AT_WRITE)
        self._may_fail(what, timeout_seconds, is_write=method != "GET")
        headers = [(b"content-type", content_type.encode())] if body is not None else []
        headers += [(name.lower().encode(), value.encode()) for name, value in more_headers.items()]
        answered = Event()
        exchange = _Exchange(self._server, self._scope(method, path, query, headers), body or b"")

        def over() -> None:
            if method != "GET" and exchange.status is not None:
                write = AcceptedWrite(WORLD.now, begun, process, method, path, body or b"", exchange.status)
                self._journal.note(write)
            WORLD.later(self._hop_seconds(), answered.set)

        exchange.on_end = over
        WORLD.later(self._hop_seconds(), exchange.begin)
        if not answered.wait(timeout_seconds):
            raise Unreachable(f"{what}: no answer within {timeout_seconds:g} s")
        if exchange.status is None:
            raise Unreachable(f"{what}: the connection broke off")
        if self._faults.hits(FaultKind.LOSE_ANSWERS, self._target):
            WORLD.park(min(timeout_seconds, CONNECTING_SECONDS))
            raise Unreachable(f"{what}: the answer was lost")
        payload = b"".join(chunk for _, chunk in exchange.messages)
        if exchange.status >= 300:
            raise errors.from_response(exchange.status, payload, exchange.headers)
        return Response(exchange.status, payload)

    def stream(
        self, path: str, *, query: Mapping[str, str], timeout_seconds: float, idle_seconds: float
    ) -> "SimulatedStream":
        self._may_fail(f"GET {path}", timeout_seconds, is_write=False)
        WORLD.park(self._hop_seconds())
        exchange = _Exchange(self._server, self._scope("GET", path, query, []), b"")
        stream = SimulatedStream(exchange, self._faults, self._target, idle_seconds)
        exchange.begin()
        exchange.heard.wait(timeout_seconds)
        if exchange.status is None:
            raise Unreachable(f"GET {path}: no answer")
        if exchange.status >= 300:
            while not (exchange.is_over or exchange.is_broken):
                exchange.heard.clear()
                exchange.heard.wait(timeout_seconds)
            payload = b"".join(chunk for _, chunk in exchange.messages)
            raise errors.from_response(exchange.status, payload, exchange.headers)
        return stream

    def _may_stop(self, kind: FaultKind) -> None:
        """Stops the process for a while, longer than a lease lasts as often as not."""
        if fault := self._faults.hits(kind, self._target):
            WORLD.process.paused_until = WORLD.now + self._faults.chance_of(fault).uniform(*_STOPPED_SECONDS)
            WORLD.park(0.0)

    def _may_fail(self, what: str, timeout_seconds: float, *, is_write: bool) -> None:
        """Raises what a fault in force makes of the request before it arrives."""
        if self._faults.hits(FaultKind.LOSE_REQUESTS, self._target):
            WORLD.park(min(timeout_seconds, CONNECTING_SECONDS))
            raise Unreachable(f"{what}: the request was lost")
        refusing = FaultKind.REFUSE, *((FaultKind.STOP_AT_ANSWER,) if is_write else ())
        if fault := next(filter(None, (self._faults.hits(each, self._target) for each in refusing)), None):
            status = self._faults.chance_of(fault).choice(_REFUSALS)
            if status != 409 or is_write:
                body = b'{"kind":"Status","code":409,"reason":"Conflict","message":"it has changed"}'
                raise errors.from_response(status, body if status == 409 else b"", {"retry-after": "1"})

    def _hop_seconds(self) -> float:
        """How long a message is on its way."""
        seconds = WORLD.chance.uniform(*HOP_SECONDS)
        if fault := self._faults.hits(FaultKind.DELAY, self._target):
            seconds += LONGEST_DELAY_SECONDS / 2 * self._faults.chance_of(fault).random()
        return seconds

    def _scope(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: list[tuple[bytes, bytes]]
    ) -> dict[str, Any]:
        return {
            "type": "http",
            "method": method,
            "path": urllib.parse.unquote(path),
            "raw_path": path.encode(),
            "query_string": urllib.parse.urlencode(query or {}).encode(),
            "headers": [
                (b"authorization", f"Bearer {self._token}".encode()),
                (b"accept", b"application/json"),
                *headers,
            ],
            "http_version": "1.1",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "scheme": "http",
            "server": ("apiserver", 443),
            "client": (self._target, 1),
            "root_path": "",
        }


class SimulatedStream:
    """`shared.kube.http.Stream`: a watch, with its events late, twice or cut off."""

    def __init__(self, exchange: _Exchange, faults: Faults, target: str, idle_seconds: float) -> None:
        self._exchange = exchange
        self._faults = faults
        self._target = target
        self._idle_seconds = idle_seconds
        self._is_cut = False
        self._due = 0.0
        exchange.on_body = self._take

    @property
    def status(self) -> int:
        assert self._exchange.status is not None
        return self._exchange.status

    def _take(self, body: bytes) -> None:
        exchange, faults = self._exchange, self._faults
        if faults.hits(FaultKind.CUT_WATCHES, self._target) or faults.hits(FaultKind.LOSE_REQUESTS, self._target):
            self._is_cut = True
            return
        seconds = HOP_SECONDS[0]
        if fault := faults.hits(FaultKind.DELAY, self._target):
            seconds += LONGEST_DELAY_SECONDS * faults.chance_of(fault).random()
        self._due = max(self._due, WORLD.now + seconds)  # none overtakes another
        exchange.messages.append((self._due, body))
        if faults.hits(FaultKind.REPEAT_EVENTS, self._target):
            exchange.messages.append((self._due, body))

    def chunks(self) -> Iterator[bytes]:
        exchange = self._exchange
        while True:
            if self._is_cut or exchange.is_broken:
                raise Unreachable("the watch broke off")
            if exchange.messages:
                due, body = exchange.messages[0]
                if due > WORLD.now:
                    WORLD.park(due - WORLD.now)
                    continue
                exchange.messages.popleft()
                yield body
                continue
            if exchange.is_over:
                return
            exchange.heard.clear()
            if not exchange.heard.wait(self._idle_seconds):
                raise Unreachable("the watch fell silent")

    def abort(self) -> None:
        self._is_cut = True
        self._exchange.heard.set()

    def close(self) -> None:
        self._exchange.close()
