"""`kubectl logs`: the kubelet's endpoint /containerLogs/NAMESPACE/POD/CONTAINER, to which the API server proxies."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from deploy.local.ports import LOOPBACK
from shared import web

FOLLOW_SECONDS = 0.2
CHUNK_BYTES = 1 << 16

Find = Callable[[str, str, str], Path | None]  # namespace, pod, container -> its log file


def log_server(find: Find, certificate: tuple[str, str] | None = None) -> web.Server:
    """A server on a free loopback port, with TLS if there are a certificate and its key. Raises OSError, SSLError."""

    async def logs(request: Request) -> Response:
        path, lines = find(*request.path_params.values()), request.query_params.get("tailLines", "")
        if path is None:
            return PlainTextResponse("no such container on this node", 404)
        if lines and not lines.isdigit():
            return PlainTextResponse(f"tailLines: {lines!r} is not a number", 400)
        follow = request.query_params.get("follow") in ("true", "1")
        return StreamingResponse(_output(path, int(lines) if lines else None, follow=follow), media_type="text/plain")

    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    app = Starlette(routes=[Route("/containerLogs/{namespace}/{pod}/{container}", logs)])
    return web.server(app, f"{LOOPBACK}:0", tls=context)


async def _output(path: Path, lines: int | None, *, follow: bool) -> AsyncIterator[bytes]:
    """The current log, or only its last lines, and, with `follow`, what is added as long as the file exists."""
    if not path.exists():
        return
    with path.open("rb") as file:
        content = file.read()
        yield content if lines is None else b"".join(content.splitlines(keepends=True)[-lines:] if lines else ())
        while follow and path.exists():
            if chunk := file.read(CHUNK_BYTES):
                yield chunk
            else:
                await asyncio.sleep(FOLLOW_SECONDS)
