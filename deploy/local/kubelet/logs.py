"""`kubectl logs`: the kubelet's endpoint /containerLogs/NAMESPACE/POD/CONTAINER, to which the API server proxies."""

import http.server
import logging
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

logger = logging.getLogger(__name__)

FOLLOW_SECONDS = 0.2
CHUNK_BYTES = 1 << 16

Find = Callable[[str, str, str], Path | None]  # namespace, pod, container -> its log file


def tail(content: bytes, lines: int | None) -> bytes:
    """The last `lines` lines, including an incomplete one; all of them for None."""
    if lines is None:
        return content
    return b"".join(content.splitlines(keepends=True)[-lines:]) if lines > 0 else b""


class LogServer:
    """Serves on loopback, on `port` or, if 0, on any free port; with TLS if there is a certificate (and its key).

    Raises OSError, ssl.SSLError for unusable files.
    """

    def __init__(self, find: Find, port: int = 0, certificate: tuple[str, str] | None = None) -> None:
        handler = type("Handler", (_Handler,), {"find": staticmethod(find)})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            # The thread that serves the connection does the handshake, so that a slow client cannot block others.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, name="logs", daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    find: Find

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        parts = [urllib.parse.unquote(part) for part in url.path.strip("/").split("/")]
        path = self.find(*parts[1:]) if len(parts) == 4 and parts[0] == "containerLogs" else None
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such container on this node")
            return
        lines = query.get("tailLines", "")
        if lines and not lines.isdigit():
            self.send_error(HTTPStatus.BAD_REQUEST, f"tailLines: {lines!r} is not a number")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        follow = query.get("follow") in ("true", "1")
        try:
            for chunk in _output(path, int(lines) if lines else None, follow=follow):
                self.wfile.write(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client closed the connection

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)


def _output(path: Path, lines: int | None, *, follow: bool) -> Iterator[bytes]:
    """The current log and, with `follow`, what is added as long as the file exists."""
    if not path.exists():
        return
    with path.open("rb") as file:
        yield tail(file.read(), lines)
        while follow and path.exists():
            chunk = file.read(CHUNK_BYTES)
            if chunk:
                yield chunk
            else:
                time.sleep(FOLLOW_SECONDS)
