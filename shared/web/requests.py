"""Refusals before the application runs, and how a request's body is read."""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from shared.web.counts import Counts
from shared.web.limits import logger

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEALTH = frozenset({"/healthz", "/readyz"})  # answered without a gate, and under any load
JSON = "application/json"


class TooLarge(Exception):
    """The request is larger than any that the API needs."""


@dataclass(frozen=True)
class Refusal:
    """An answer in place of the application's."""

    status: int
    detail: str
    headers: dict[str, str] = field(default_factory=dict)


Headers: TypeAlias = Mapping[str, str]
"""Headers by lower-case name; of duplicates the last one counts."""

Gate: TypeAlias = Callable[["Scope", Headers], Awaitable[Refusal | None]]
"""Decides whether a request may pass: None lets it."""


class Port(Protocol):
    """A request's knowledge of its connection."""

    @property
    def overloaded(self) -> bool: ...


async def body(request: "Request", most_bytes: int) -> bytes:
    """All of a request's body. Raises TooLarge once it is too large, or announces that it will be."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most_bytes:
        raise TooLarge
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > most_bytes:
            raise TooLarge
    return bytes(chunks)


class Edge:
    """Between connections and an application: health requests pass, and others once the gate lets them."""

    def __init__(self, app: "ASGIApp", gate: Gate, counts: Counts) -> None:
        self._app = app
        self._gate = gate
        self._counts = counts

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["path"] in HEALTH and scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = _foreign(headers) or await self._gate(scope, headers)
        if refusal is not None:
            self._counts.requests[refusal.status] += 1
            await _send(send, refusal)
            return
        await _Exchange(scope, headers, receive, send, self._counts).run(self._app)


_BUSY = Refusal(503, "too many requests at a time", {"Retry-After": "1"})
_NOT_JSON = Refusal(415, f"Content-Type: must be {JSON}")


class _Refused(Exception):
    """The application asked for a body that it does not get."""


class _Exchange:
    """One request to the application.

    It does not get the end of the request while the port is overloaded, and nothing of a body that is not JSON: a
    browser sends a form to any host, but JSON only to the origin of its page. The application refuses methods that it
    does not have before it reads.
    """

    def __init__(self, scope: "Scope", headers: Headers, receive: "Receive", send: "Send", counts: Counts) -> None:
        self._counts = counts
        self._scope = scope
        self._receive = receive
        self._send = send
        self._port: Port | None = scope.get("state", {}).get("connection")
        self._is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == JSON
        self._refusal: Refusal | None = None
        self._gone = False

    async def run(self, app: "ASGIApp") -> None:
        try:
            if self._scope["method"] in ("GET", "HEAD") and self._is_overloaded():
                raise self._refused(_BUSY)
            await app(self._scope, self._heard, self._said)
        except _Refused:
            assert self._refusal is not None
            self._counts.requests[self._refusal.status] += 1
            await _send(self._send, self._refusal)
        except Exception:
            if not self._gone:
                raise
            client = self._scope.get("client") or ("",)
            logger.info("client went away", extra={"path": self._scope["path"], "peer": client[0]})

    async def _heard(self) -> "Message":
        if self._scope["method"] == "POST" and not self._is_json:
            raise self._refused(_NOT_JSON)
        message = await self._receive()
        self._gone = message["type"] == "http.disconnect"
        if message["type"] == "http.request" and not message.get("more_body") and self._is_overloaded():
            raise self._refused(_BUSY)
        return message

    async def _said(self, message: "Message") -> None:
        if self._refusal is None:  # else the error is the framework's reaction to our own exception
            await self._send(message)

    def _refused(self, refusal: Refusal) -> _Refused:
        if refusal is _BUSY:
            logger.warning("too many requests at a time: some are refused")
        self._refusal = refusal
        return _Refused()

    def _is_overloaded(self) -> bool:
        return self._port is not None and self._port.overloaded


async def allow_all(_scope: "Scope", _headers: Headers) -> Refusal | None:
    """A gate that lets every request pass."""
    return None


async def own_machine(_scope: "Scope", headers: Headers) -> Refusal | None:
    """For loopback: a web page can reach it under a host name of its own, which the browser then sends as Host."""
    host = headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if name == "localhost" or _is_loopback(name):
        return None
    return Refusal(403, "Host: only localhost and loopback addresses are answered here")


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _foreign(headers: Headers) -> Refusal | None:
    """A browser names the origin of the page that asks."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        return Refusal(403, "Origin: pages of other servers are not answered")
    return None


async def _send(send: Callable[[Any], Awaitable[None]], refusal: Refusal) -> None:
    content = msgspec.json.encode({"detail": refusal.detail})
    headers = {"content-type": JSON, "content-length": str(len(content)), **refusal.headers}
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": encoded})
    await send({"type": "http.response.body", "body": content})
