"""uvicorn in a thread, bound before it starts, with limits on the number, size and time of connections."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import uvicorn

from shared.errors import InvalidInput
from shared.web import requests
from shared.web.connections import BoundedConfig, Connections, HttpConnection
from shared.web.counts import Counts, Reason
from shared.web.limits import Limits, logger
from shared.web.requests import Edge, Gate

if TYPE_CHECKING:
    from starlette.types import ASGIApp

GRACEFUL_SECONDS = 2
CLOSE_SECONDS = 10.0
BACKLOG = 1024
ACCEPTED_AT_ONCE = 64  # before existing connections get their turn
PAUSE_SECONDS = 0.1  # when no descriptors are left, and no connection can be cut
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor(uvicorn.Server):
    """Accepts connections itself, so that their number is bounded before there is a handshake, and sleeps between.

    The original accepts without limit, and checks ten times a second for its end and for the date. `serve` runs in the
    caller's event loop until `stop`; the caller also handles signals.
    """

    config: BoundedConfig

    def __init__(
        self,
        app: "ASGIApp",
        listener: socket.socket,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        counts: Counts | None = None,
    ) -> None:
        config = BoundedConfig(app, limits)
        config.timeout_graceful_shutdown = GRACEFUL_SECONDS
        config.load()
        super().__init__(config)
        self._listener = listener
        self._tls = tls
        self.connections = Connections(limits, counts or Counts())
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self.started = True
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)

    async def main_loop(self) -> None:
        if not self.should_exit:
            await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        await super().shutdown(sockets)
        await self.connections.cut_all()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)

    def stop(self) -> None:
        """Ends `serve`, from any thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.set)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, (peer, *_rest) = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _SCARCE:
                    self._make_room(error)
                    return
                continue  # the client has closed it already
            self._admit(accepted, peer)

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        loop = asyncio.get_running_loop()
        connection = HttpConnection(self.config, self.server_state, self.connections, peer, loop)
        if not self.connections.add(connection):
            logger.warning("too many connections: a new one is refused", extra={"peer": peer})
            accepted.close()
            return
        accepted.setblocking(False)
        connection.handshake = loop.create_task(self._connect(accepted, connection))

        def closed_if_cut_before_it_began(_: object) -> None:
            if not connection.begun:
                accepted.close()

        connection.handshake.add_done_callback(closed_if_cut_before_it_began)

    async def _connect(self, accepted: socket.socket, connection: HttpConnection) -> None:
        connection.begun = True  # from now on asyncio closes the socket
        seconds = {"ssl_handshake_timeout": self.config.limits.handshake_seconds, "ssl_shutdown_timeout": 1.0}
        secured: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls, **seconds}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted, **secured)
        except OSError as error:  # ssl.SSLError and the timeout are OSErrors
            logger.info("no connection: %s", type(error).__name__, extra={"peer": connection.peer})
            connection.cut(Reason.HANDSHAKE)
        finally:
            connection.handshake = None

    def _make_room(self, error: OSError) -> None:
        """Without descriptors: cuts a waiting connection, else the next connection waits in the kernel."""
        logger.warning("no connection can be accepted: %s", error.strerror)
        assert self._loop is not None
        if not self.connections.relieve(Reason.DESCRIPTORS):
            self._loop.remove_reader(self._listener)
            self._loop.call_later(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._loop is not None and self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)


class Server:
    """One application on one bound socket, served by a thread of its own."""

    def __init__(
        self, app: "ASGIApp", listener: socket.socket, tls: ssl.SSLContext | None, limits: Limits, gate: Gate
    ) -> None:
        self._address = listener.getsockname()[:2]
        self._listener = listener
        self._scheme = "http" if tls is None else "https"
        self.counts = Counts()
        self._server = Acceptor(Edge(app, gate, self.counts), listener, limits, tls, self.counts)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port actually bound."""
        host, port = self._address
        return str(host), int(port)

    @property
    def url(self) -> str:
        host, port = self.address
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._server.connections)

    def start(self) -> None:
        """Starts to serve; the socket already queues connections, so none is refused before."""
        self._thread.start()

    def close(self) -> None:
        """Ends open requests within `GRACEFUL_SECONDS` and frees the port."""
        self._server.stop()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)
        self._listener.close()

    def _serve(self) -> None:
        try:
            self._server.run()
        except Exception:
            logger.exception("HTTP server failed", extra={"url": self.url})


def server(
    app: "ASGIApp",
    listen: str,
    *,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    gate: Gate | None = None,
) -> Server:
    """A server of `app` bound to `listen` ("host:port", port 0 for any free one), not yet started; `tls` for https.

    `gate` decides who may ask. Without one, a loopback address serves only this machine, and any other address every
    client. Raises InvalidInput when `listen` is not an address or the address cannot be bound.
    """
    listener = listening(listen)
    return Server(app, listener, tls, limits or Limits(), gate or default_gate(listen))


def listening(listen: str) -> socket.socket:
    """A socket that queues connections to `listen`. Raises InvalidInput as `server` does."""
    host, port = _host_and_port(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle only when the socket names its protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _refused(listen, f"cannot listen there: {error.strerror}") from error
    return listener


def default_gate(listen: str) -> Gate:
    """On a loopback address a gate for this machine, elsewhere one for every client. Raises InvalidInput."""
    return requests.own_machine if is_loopback(listen) else requests.allow_all


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches the address. Raises InvalidInput."""
    return ipaddress.ip_address(_host_and_port(listen)[0]).is_loopback


def _host_and_port(listen: str) -> tuple[str, int]:
    host, separator, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        number = int(port)
        address = "127.0.0.1" if host == "localhost" else str(ipaddress.ip_address(host or "0.0.0.0"))
    except ValueError as error:
        raise _refused(listen, "expected IP:PORT, for example 127.0.0.1:8080") from error
    if not separator or not 0 <= number <= 65535:
        raise _refused(listen, "the port must be between 0 and 65535")
    return address, number


def _refused(listen: str, problem: str) -> InvalidInput:
    return InvalidInput(source="settings", field="listen", value=listen, problem=problem)
