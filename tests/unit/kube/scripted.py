"""An HTTP server on a real socket that answers as its script says, fault by fault."""

import io
import json
import socket
import ssl
import struct
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Answer: TypeAlias = "Callable[[Exchange], None]"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Exchange(BaseHTTPRequestHandler):
    """One request and the means to answer it well or badly."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits 40 ms for a delayed ACK
    server: "ScriptedServer"

    def _serve(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        self.request_seen = Request(
            self.command,
            url.path,
            dict(urllib.parse.parse_qsl(url.query)),
            dict(self.headers),
            json.loads(self.rfile.read(length)) if length else None,
        )
        self.server.next_answer(self.request_seen)(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names http.server asks for

    def whole(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def begin(self, chunks: Sequence[bytes]) -> None:
        """Headers and chunks in one piece, so that whoever reads them never waits between two of them."""
        connection, self.wfile = self.wfile, io.BytesIO()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.chunk(chunk)
        whole, self.wfile = self.wfile.getvalue(), connection
        self.wfile.write(whole)

    def reset(self) -> None:
        """Drops the connection with a RST instead of a FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


class ScriptedServer(ThreadingHTTPServer):
    """Gives the answers it was told in turn; afterwards every watch stays open and silent, the rest is a 404."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._scheme = "https" if tls else "http"
        self.closing = threading.Event()
        self.requests: list[Request] = []
        self._script: list[Answer] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    def next_answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            if self._script:
                return self._script.pop(0)
        return stream() if "watch" in request.query else status(404, "NotFound")

    def then(self, *answers: Answer) -> None:
        with self._lock:
            self._script += answers

    def close(self) -> None:
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # broken pipes are what these tests are about


class Hurried:
    """A clock that stands still; it notes how long it was to wait, and does not."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        return event.is_set()

    def wait_notified(self, condition: threading.Condition, seconds: float) -> None:
        self.waits.append(seconds)


def node(name: str, version: int, **metadata: object) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)} | metadata
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


def event(type: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": type, "object": item}).encode() + b"\n"


def error_event(code: int, reason: str) -> bytes:
    return event("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "scripted"})


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": str(version)}})


def answer(body: object, code: int = 200, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda exchange: exchange.whole(code, raw, headers)


def status(code: int, reason: str, *, retry_after: str | None = None, details: object = None) -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "scripted"}
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return answer(body | ({"details": details} if details else {}), code, **headers)


def page(*items: object, version: int, token: str = "") -> Answer:
    metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return answer({"kind": "NodeList", "metadata": metadata, "items": items})


def reset() -> Answer:
    return lambda exchange: exchange.reset()


def stream(*chunks: bytes, end: str = "stall") -> Answer:
    """A watch that sends `chunks`, then stays open ("stall"), ends well ("close"), ends without its last chunk
    ("cut"), or is torn down with what is still on its way ("reset").
    """

    def serve(exchange: Exchange) -> None:
        exchange.begin(chunks)
        if end == "stall":
            exchange.server.closing.wait()
            exchange.close_connection = True
        elif end == "close":
            exchange.wfile.write(b"0\r\n\r\n")
        elif end == "cut":
            exchange.close_connection = True
        else:
            exchange.reset()

    return serve
