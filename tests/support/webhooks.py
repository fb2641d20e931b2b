"""Admission webhooks as tests run them: a real HTTPS server, whose answers a test decides on."""

import base64
import contextlib
import json
import ssl
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = Any  # what JSON decodes to
Review = dict[str, Json]
Answer = Callable[[Review], Json]  # the response of a review without its uid, or a Raw one

LOOPBACK = "127.0.0.1"


class Raw:
    """An answer that need not be a review."""

    def __init__(
        self, body: str | bytes, code: int = 200, content_type: str = "application/json", **headers: str
    ) -> None:
        self.body = body.encode() if isinstance(body, str) else body
        self.code = code
        self.content_type = content_type
        self.headers = headers


def allow(_: Review) -> Json:
    return {"allowed": True}


def deny(message: str = "", code: int = 0, reason: str = "", **more: Json) -> Answer:
    status = {"message": message, "code": code, "reason": reason} | more
    return lambda _: {"allowed": False, "status": {key: value for key, value in status.items() if value}}


def patch(*operations: Json) -> Answer:
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def certificate(directory: Path, name: str = "webhook", *names: str) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1 and other hosts' names, and its key."""
    certificate_file, key_file = directory / f"{name}.crt", directory / f"{name}.key"
    hosts = ",".join([f"IP:{LOOPBACK}", *(f"DNS:{host}" for host in names)])
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={hosts}"]
    command += ["-keyout", str(key_file), "-out", str(certificate_file)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate_file, key_file


class WebhookServer:
    """Answers reviews on every path as `answers` says, and keeps what it was sent."""

    def __init__(self, directory: Path, *names: str) -> None:
        certificate_file, key_file = certificate(directory, "webhook", *names)
        self.ca_bundle = base64.b64encode(certificate_file.read_bytes()).decode()
        self.answers: dict[str, Answer] = {}
        self._reviews: dict[str, list[Review]] = defaultdict(list)
        self.calls: list[str] = []
        self.connections = 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate_file, key_file)
        self._server = _Server((LOOPBACK, 0), _handler(self))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def url(self, path: str) -> str:
        return f"https://{LOOPBACK}:{self.port}{path}"

    def client(self, path: str) -> dict[str, Json]:
        """The clientConfig that leads here."""
        return {"url": self.url(path), "caBundle": self.ca_bundle}

    def reviews(self, path: str) -> Sequence[Review]:
        """The requests of the reviews that came, without their envelope."""
        return [review["request"] for review in self._reviews[path]]

    def envelopes(self, path: str) -> Sequence[Review]:
        return self._reviews[path]

    def answer(self, path: str, review: Review) -> Raw:
        self._reviews[path].append(review)
        self.calls.append(path)
        given = self.answers.get(path, allow)(review["request"])
        if isinstance(given, Raw):
            return given
        response = {"uid": review["request"]["uid"]} | given
        return Raw(json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust the certificate, or no longer waits, is what a test wants."""


def _handler(server: WebhookServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            server.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = server.answer(self.path.partition("?")[0], json.loads(body))
            with contextlib.suppress(OSError):
                self.send_response(answer.code)
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Content-Length", str(len(answer.body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Nothing: what matters is kept."""

    return Handler
