"""The connections of one port: their number, their deadlines, and which is cut when the port is full.

A connection *waits* while the client has something to do (finish the handshake, the headers, the body, read the answer,
ask again) and is *answered* while the application works. Only waiting connections are cut: the longest-waiting one of
the peer with the most connections. A peer with few, such as a kubelet with its probe, always gets in.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from shared import descriptors, memory
from shared.web.counts import Counts, Reason
from shared.web.limits import Limits, logger

CONNECTION_BYTES = 100 << 10  # of one with TLS, which OpenSSL and asyncio need for it
WORTH_RETURNING_BYTES = 8 << 20


class BoundedConfig(uvicorn.Config):
    """uvicorn's, with the limits of the port."""

    def __init__(self, app: Any, limits: Limits) -> None:
        self.limits = limits
        super().__init__(
            app,
            http=HttpConnection,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            timeout_keep_alive=limits.keep_alive_seconds,
        )


class Connections:
    """All connections of one port, for its event loop alone."""

    def __init__(self, limits: Limits, counts: Counts) -> None:
        self.limits = limits
        self.counts = counts
        self.most = descriptors.share(limits.connections)
        self._all: set[HttpConnection] = set()
        self._waiting: dict[str, dict[HttpConnection, None]] = {}  # by peer; the longest-waiting one comes first
        self._held_bytes = 0
        self._most_bytes = 0  # of connections and what they held, since memory was last returned
        self._returning: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._all)

    @property
    def overloaded(self) -> bool:
        """Whether the port is answering more requests than its limit."""
        return len(self._all) - sum(map(len, self._waiting.values())) > self.limits.answering

    def add(self, connection: "HttpConnection") -> bool:
        """False when the port is full and no connection can be cut."""
        if len(self._all) >= self.most and not self.relieve(Reason.MADE_ROOM):
            self.counts.connections[Reason.FULL] += 1
            return False
        self._all.add(connection)
        self.waits(connection)
        self._weigh()
        return True

    def remove(self, connection: "HttpConnection") -> None:
        self.hold(connection, 0)
        self._all.discard(connection)
        self.answered(connection)
        self._weigh()

    def waits(self, connection: "HttpConnection") -> None:
        """Marks that the connection waits for its client."""
        self.answered(connection)
        if connection in self._all:
            self._waiting.setdefault(connection.peer, {})[connection] = None

    def answered(self, connection: "HttpConnection") -> None:
        """Marks that its request is complete, so that it no longer waits."""
        of_peer = self._waiting.get(connection.peer, {})
        of_peer.pop(connection, None)
        if not of_peer:
            self._waiting.pop(connection.peer, None)

    def relieve(self, reason: Reason) -> bool:
        """Cuts one waiting connection. False without one."""
        if not self._waiting:
            return False
        crowd = max(self._waiting, key=lambda peer: len(self._waiting[peer]))
        victim = next(iter(self._waiting[crowd]))
        logger.warning(
            "too many connections: the one that waited longest is cut",
            extra={"peer": victim.peer, "connections": len(self._all)},
        )
        victim.cut(reason)
        return True

    async def cut_all(self) -> None:
        """Ends the remaining connections after the port is closed, also those in a handshake.

        In TLS both sides say goodbye, and some clients never do.
        """
        left = list(self._all)
        handshakes = [connection.handshake for connection in left if connection.handshake is not None]
        for connection in left:
            connection.cut()
        await asyncio.gather(*handshakes, return_exceptions=True)
        for connection in left:
            connection.cut()  # a cancelled handshake has closed its own transport, which waits for that goodbye

    def hold(self, connection: "HttpConnection", held_bytes: int) -> None:
        """Records the bytes that `connection` holds in memory. Cuts waiting ones while the total is too large."""
        self._held_bytes += held_bytes - connection.held_bytes
        connection.held_bytes = held_bytes
        self._weigh()
        while self._held_bytes > self.limits.held_bytes:
            victim = self._heaviest() or connection
            logger.warning(
                "too many bytes of requests and answers in memory: a connection is cut",
                extra={"peer": victim.peer, "held_bytes": self._held_bytes},
            )
            victim.cut(Reason.MEMORY)
            if victim is connection:
                return

    def _weigh(self) -> None:
        """Has memory returned to the kernel, a little later, once much of what there was at a time is gone."""
        now_bytes = len(self._all) * CONNECTION_BYTES + self._held_bytes
        self._most_bytes = max(self._most_bytes, now_bytes)
        if self._returning is None and self._most_bytes - now_bytes >= WORTH_RETURNING_BYTES:
            delay = self.limits.return_seconds
            self._returning = asyncio.get_running_loop().call_later(delay, self._return_memory)

    def _return_memory(self) -> None:
        self._returning, self._most_bytes = None, 0
        memory.return_freed()
        self._weigh()

    def _heaviest(self) -> "HttpConnection | None":
        def holding(connections: Iterable[HttpConnection]) -> int:
            return sum(one.held_bytes for one in connections)

        peer = max(self._waiting.values(), key=holding, default={})
        return next((one for one in peer if one.held_bytes), None)


class HttpConnection(HttpToolsProtocol):
    """One connection with deadlines for handshake, headers, body and reading, and a bound on each."""

    config: BoundedConfig

    def __init__(
        self,
        config: BoundedConfig,
        server_state: ServerState,
        connections: Connections,
        peer: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(config, server_state, {}, loop)
        self.peer = peer
        self.held_bytes = 0
        self.handshake: asyncio.Task[None] | None = None
        self.begun = False
        self._table = connections
        self._limits = config.limits
        self._body_bytes = 0
        self._header_bytes = 0
        self._unasked_bytes = 0
        self._in_body = False
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def cut(self, reason: Reason | None = None) -> None:
        """Closes at once, without an answer. No reason means that the server ends."""
        if reason is not None:
            self._table.counts.connections[reason] += 1
        self._table.remove(self)
        if self.handshake is not None:
            self.handshake.cancel()
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._expect(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()
        if self._writing is not None:
            self._writing.cancel()
        self._unset_keepalive_if_required()
        self._table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.transport.is_closing() or self._in_body or self._is_answering:
            return
        # Neither a body nor the application's time: these bytes are headers, even an empty line.
        self._header_bytes += len(data)
        if self._header_bytes > self._limits.header_bytes:
            self._refuse(431, "Request Header Fields Too Large", Reason.LARGE_HEADERS)
        elif self._reading is None and self.timeout_keep_alive_task is None:
            self._expect(self._limits.header_seconds)

    def send_400_response(self, msg: str) -> None:
        self._table.counts.connections[Reason.MALFORMED] += 1
        super().send_400_response(msg)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > self._limits.headers:
            raise ValueError("too many headers")

    def on_headers_complete(self) -> None:
        if self._is_answering:  # no client of these ports does so, and uvicorn forgets the first request for the second
            if not self.transport.is_closing():
                self.cut(Reason.PIPELINED)
            return
        self._header_bytes = self._unasked_bytes = 0
        self._settle()
        super().on_headers_complete()
        self.scope["state"]["connection"] = self
        self._in_body = True
        self._expect(self._limits.body_seconds)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:  # a client sees its answer only once it has sent enough
            self._unasked_bytes += len(body)
            if self._unasked_bytes > self._limits.unasked_bytes:
                self.cut(Reason.UNASKED_BODY)
        else:
            self._body_bytes += len(body)
            self._weigh()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        self._settle()
        if self._is_answering:
            self._table.answered(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._body_bytes = 0
        self._weigh()
        self._table.waits(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._weigh()
        self._writing = self.loop.call_later(self._limits.write_seconds, self._too_slow_a_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        self._weigh()

    @property
    def overloaded(self) -> bool:
        """Whether the port answers as many requests as it may already."""
        return self._table.overloaded

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The client's verified certificate, in the form of `ssl.SSLSocket.getpeercert`."""
        encrypted = self.transport.get_extra_info("ssl_object")
        return None if encrypted is None else encrypted.getpeercert()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _weigh(self) -> None:
        unread = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        if not self.transport.is_closing():
            self._table.hold(self, self._body_bytes + unread)

    def _expect(self, seconds: float) -> None:
        """Sets the deadline for what the client is sending."""
        self._settle()
        self._reading = self.loop.call_later(seconds, self._refuse, 408, "Request Timeout", Reason.TIMEOUT)

    def _settle(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _refuse(self, status: int, phrase: str, reason: Reason) -> None:
        logger.info("request given up: %s", phrase.lower(), extra={"peer": self.peer})
        self._settle()
        if self.transport.is_closing():
            return
        self._table.counts.connections[reason] += 1
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            text = f"HTTP/1.1 {status} {phrase}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(text.encode())
        self.transport.close()
        self.loop.call_later(1.0, self.transport.abort)  # output that the client does not read is dropped

    def _too_slow_a_reader(self) -> None:
        logger.info("answer given up: the client does not read it", extra={"peer": self.peer})
        self.cut(Reason.SLOW_READER)
