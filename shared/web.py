"""The HTTP face of a process: uvicorn in a thread, bound before it starts, and an API page that needs no network."""

import asyncio
import html
import ipaddress
import logging
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import uvicorn

from shared.errors import InvalidInput

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

GRACEFUL_SECONDS = 2
CLOSE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 5  # an idle connection stays open


class TooLarge(Exception):
    """More is sent than anybody has to ask."""


async def body(request: "Request", most_bytes: int) -> bytes:
    """All of a request's body. Raises TooLarge as soon as it is."""
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > most_bytes:
            raise TooLarge
    return bytes(chunks)


async def cut(server: uvicorn.Server) -> None:
    """Ends the connections that are left when nobody is let in any more, those being made too; for its event loop.

    TLS has it that both sides say goodbye, and some clients never will.
    """
    _abort(server)  # first, as whoever is cancelled closes its own once more, which asyncio then cannot abort
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    _abort(server)


def _abort(server: uvicorn.Server) -> None:
    for connection in list(server.server_state.connections):
        connection.transport.abort()


class _Sleeper(uvicorn.Server):
    """Sleeps between requests. The original looks ten times a second whether it is to end, and what the date is."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await cut(self)

    def stop(self) -> None:
        """Ends it, from any thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.set)


class Server:
    """One application on one bound socket, served by a thread of its own."""

    def __init__(
        self,
        app: "ASGIApp",
        listener: socket.socket,
        tls: ssl.SSLContext | None = None,
        keep_alive_seconds: int = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._listener = listener
        self._scheme = "http" if tls is None else "https"
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=keep_alive_seconds,
            timeout_graceful_shutdown=GRACEFUL_SECONDS,
        )
        config.load()
        config.ssl = tls
        self._server = _Sleeper(config)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port actually bound."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        host, port = self.address
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    def start(self) -> None:
        """Serves from now on; the socket already queues connections, so nobody is refused meanwhile."""
        self._thread.start()

    def close(self) -> None:
        """Ends open requests within `GRACEFUL_SECONDS` and frees the port."""
        self._server.stop()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)
        self._listener.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except Exception:
            logger.exception("HTTP server failed", extra={"url": self.url})


def server(
    app: "ASGIApp",
    listen: str,
    *,
    tls: ssl.SSLContext | None = None,
    keep_alive_seconds: int = KEEP_ALIVE_SECONDS,
) -> Server:
    """A server of `app` bound to `listen` ("host:port", port 0 for any free one), not yet started; `tls` for https.

    Raises InvalidInput when `listen` is not an address or the address cannot be bound.
    """
    host, port = _host_and_port(listen)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _refused(listen, f"cannot listen there: {error.strerror}") from error
    return Server(app, listener, tls, keep_alive_seconds)


def docs_page(title: str) -> str:
    """A page that lists the operations of `openapi.json` beside it; everything it needs is in it."""
    return _PAGE.replace("{{title}}", html.escape(title))


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


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{title}} API</title>
<style>
 :root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
 body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
 details { border: 1px solid #8884; border-radius: 6px; margin: .5rem 0; padding: .5rem .8rem }
 summary { cursor: pointer } summary b { display: inline-block; width: 4.5rem; color: #0a7d4f }
 code, pre { font: 13px/1.45 ui-monospace, monospace } pre { overflow: auto; background: #8881; padding: .6rem }
 td { padding: .1rem 1rem .1rem 0; vertical-align: top }
</style></head><body><h1></h1><p id="about"></p><main>Loading openapi.json</main>
<script>
"use strict";
const element = (tag, text, ...children) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};
const resolved = (spec, schema, depth = 0) => {
  if (!schema || depth > 6) return schema;
  if (schema.$ref) return resolved(spec, spec.components.schemas[schema.$ref.split("/").pop()], depth + 1);
  if (schema.anyOf) return schema.anyOf.map(each => resolved(spec, each, depth + 1));
  if (schema.type === "array") return [resolved(spec, schema.items, depth + 1)];
  if (schema.properties) return Object.fromEntries(Object.entries(schema.properties).map(
    ([name, each]) => [name, resolved(spec, each, depth + 1)]));
  return schema.description ? `${schema.type}: ${schema.description}` : schema.type || schema;
};
const operation = (spec, path, method, about) => {
  const node = element("details", "", element("summary", "", element("b", method.toUpperCase()), element("code", path),
    ` ${about.summary || ""}`));
  node.append(element("p", about.description));
  const rows = (about.parameters || []).map(parameter => element("tr", "", element("td", "", element("code",
    parameter.name)), element("td", parameter.in), element("td", parameter.description || "")));
  if (rows.length) node.append(element("table", "", ...rows));
  const asked = Object.values(about.requestBody?.content || {})[0]?.schema;
  if (asked) node.append(element("div", "Body"), element("pre", JSON.stringify(resolved(spec, asked), null, 2)));
  for (const [status, answer] of Object.entries(about.responses || {})) {
    const schema = Object.values(answer.content || {})[0]?.schema;
    node.append(element("div", `${status} ${answer.description}`));
    if (schema) node.append(element("pre", JSON.stringify(resolved(spec, schema), null, 2)));
  }
  if (method === "get" && !path.includes("{")) {
    const link = element("a", "open");
    link.href = path.slice(1);
    node.append(link);
  }
  return node;
};
fetch("openapi.json").then(answer => answer.json()).then(spec => {
  document.querySelector("h1").textContent = `${spec.info.title} ${spec.info.version}`;
  document.querySelector("#about").textContent = spec.info.description || "";
  document.querySelector("main").replaceChildren(...Object.entries(spec.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => operation(spec, path, method, about))));
}).catch(error => { document.querySelector("main").textContent = `openapi.json: ${error}`; });
</script></body></html>
"""
