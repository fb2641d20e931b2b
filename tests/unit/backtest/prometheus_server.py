"""A server with the range queries of Prometheus' HTTP API, over made-up series."""

import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

MOST_POINTS = 11_000

Value = Callable[[float], float | None]


class PrometheusServer:
    """`series` are those of each query that contains its key: labels, and the value at a time (None: no sample)."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.series: dict[str, Sequence[tuple[Mapping[str, str], Value]]] = {}
        self.queries: list[dict[str, str]] = []
        self.token = ""
        self.failures: list[int] = []  # statuses to answer first
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        scheme = "http"
        if certificate is not None:
            scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}/prometheus"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, authorization: str, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if self.failures:
            return self.failures.pop(), {"status": "error", "error": "not now"}
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"status": "error", "error": "who are you"}
        if path != "/prometheus/api/v1/query_range":
            return 404, {"status": "error", "error": "no such page"}
        self.queries.append(fields)
        start, end, step = (float(fields[name]) for name in ("start", "end", "step"))
        points = int((end - start) // step) + 1
        if points > MOST_POINTS:
            return 400, {
                "status": "error",
                "errorType": "bad_data",
                "error": "exceeded maximum resolution of 11,000 points",
            }
        found = next((series for key, series in self.series.items() if key in fields["query"]), None)
        if found is None:
            return 400, {"status": "error", "errorType": "bad_data", "error": f"parse error: {fields['query']}"}
        times = [start + step * point for point in range(points)]
        result = []
        for labels, value in found:
            values = [[time, f"{amount:g}"] for time in times if (amount := value(time)) is not None]
            if values:
                result.append({"metric": labels, "values": values})
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}


def _handler(server: PrometheusServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fields = {name: values[0] for name, values in parse_qs(body).items()}
            status, answer = server.answer(self.path, self.headers.get("Authorization", ""), fields)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
