"""A proxy in front of a real API server that makes scripted faults happen."""

import asyncio
import json
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from starlette.types import Receive, Scope, Send

from deploy.local.apiserver.app import read_body
from deploy.local.apiserver.responses import failure
from deploy.local.ports import LOOPBACK
from shared.web.limits import Limits
from shared.web.server import CLOSE_SECONDS, Acceptor, listening
from tests.support import eventually
from tests.support.faults import Disconnect, Faults, Rule, disconnected

Headers = list[tuple[bytes, bytes]]

_OF_ONE_CONNECTION = (b"connection", b"keep-alive", b"transfer-encoding")  # and here are two
LIMITS = Limits(connections=8192, held_bytes=1 << 30, keep_alive_seconds=120)


class FaultProxy:
    """Serves https on `port` with the API server's own certificate, and passes every request on to `upstream`.

    While nobody answers there, connections are closed without an answer.
    """

    def __init__(self, port: int, upstream: str, certificate: Path, key: Path) -> None:
        self.url = f"https://{LOOPBACK}:{port}"
        self._upstream = httpx.URL(upstream)
        self._certificate = certificate
        self._faults = Faults()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = Acceptor(self, listening(f"{LOOPBACK}:{port}"), LIMITS, context)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="fault proxy", daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started)

    def script(self, rules: Sequence[dict[str, Any]]) -> None:
        """From now on these rules, and only these, are in force."""
        self._faults.script(json.dumps(rules).encode())

    def rules_left(self) -> int:
        """How many of them have not been used up."""
        return len(self._faults.rules())

    def close(self) -> None:
        self._server.force_exit = True  # it waits for no watch
        self._server.stop()
        self._thread.join(CLOSE_SECONDS)

    async def _run(self) -> None:
        context = ssl.create_default_context(cafile=self._certificate)
        unlimited = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(verify=context, timeout=None, limits=unlimited) as self._client:
            await self._server.serve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, query = await read_body(receive, LIMITS.held_bytes), scope["query_string"].decode("latin-1")
        rule = self._faults.strike(scope["method"], f"{scope['path']}?{query}")
        is_watch = "watch=" in query
        begun = asyncio.get_running_loop().create_future()
        answering = asyncio.create_task(self._answer(scope, body, send, rule, is_watch, begun))
        gone = asyncio.create_task(disconnected(receive))
        limit = rule.seconds if rule and rule.action == "drop-watch" and is_watch else None
        # Only a watch is given up when the client goes: others end by themselves, and had better end tidily.
        ends = (answering, gone) if is_watch else (answering,)
        await asyncio.wait(ends, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        # A connection that is given up while it is being made would stay open.
        await asyncio.wait((answering, begun), return_when=asyncio.FIRST_COMPLETED)
        answering.cancel()
        try:
            await answering
        except (Disconnect, httpx.TransportError, asyncio.CancelledError):
            scope["state"]["connection"].transport.close()
        await gone

    async def _answer(
        self,
        scope: Scope,
        body: bytes,
        send: Send,
        rule: Rule | None,
        is_watch: bool,
        begun: asyncio.Future[None],
    ) -> None:
        if rule and rule.action == "delay":
            await asyncio.sleep(rule.seconds)
        if rule and rule.action == "close":
            raise Disconnect
        if rule and rule.action == "status":
            refusal = failure(rule.error())
            await _begin(send, refusal.status_code, refusal.raw_headers)
            await send({"type": "http.response.body", "body": refusal.body})
            return
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        url = self._upstream.copy_with(raw_path=target)
        request = httpx.Request(scope["method"], url, headers=_passed_on(scope["headers"]), content=body)
        response = await self._client.send(request, stream=True)
        begun.set_result(None)
        try:
            # The last piece ends an answer: a client that counts its bytes would ask again before that.
            headers = _passed_on(response.headers.raw, b"content-length")
            await _begin(send, response.status_code, headers)
            if rule and rule.action == "truncate" and not is_watch:
                whole = b"".join([chunk async for chunk in response.aiter_raw()])
                await _go_on(send, whole[: len(whole) // 2])
                raise Disconnect
            await _go_on(send, b"")  # sends the headers now: a watch may have nothing to say for long
            async for chunk in response.aiter_raw():
                await _go_on(send, chunk)
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()


async def _begin(send: Send, code: int, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": code, "headers": headers})


async def _go_on(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _passed_on(headers: Headers, *but: bytes) -> Headers:
    return [(name, value) for name, value in headers if name.lower() not in (*_OF_ONE_CONNECTION, *but)]
