"""An HTTP server of a test, which answers from what the test has told it."""

import ssl
import threading
from abc import ABC, abstractmethod
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple


class Request(NamedTuple):
    """What a client asked for: the path with its query, its headers, and a body, empty for GET."""

    path: str
    headers: Message
    body: bytes


class HttpServer(ABC):
    """Serves on a free loopback port until it is closed; over TLS with `certificate`: its file and that of its key."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        scheme = "http"
        if certificate is not None:
            scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @abstractmethod
    def answer(self, request: Request) -> tuple[int, bytes]:
        """Status and content, which is where a redirect leads."""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: HttpServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each answer, which is sent in two parts, takes 40 ms

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = server.answer(Request(self.path, self.headers, body))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", content.decode())
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """What was asked is what a test looks at."""

    return Handler
