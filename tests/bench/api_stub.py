"""A process that answers a manager as an API server of a large cluster would, and costs the manager nothing.

`python -m tests.bench.api_stub NODES PODS_PER_NODE` prints its address. Lists are made page by page as they are asked
for. A line on its standard input, "N SECONDS", has N nodes report, evenly over that time; it prints which was the last,
and when.
Writes are answered, and a Node's comes back on the watch.
"""

import json
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shared import names
from tests.bench import fleet

CONFIG = json.dumps({"enable": True, "midCPUThresholdPercent": 60, "midMemoryThresholdPercent": 60})
WRITE_SECONDS = 0.005  # what a server takes that has its etcd write to a disk
_SILENCE_SECONDS = 30.0
_NAMED = re.compile(r"/namespaces/[^/]+/[^/]+/[^/]+$")  # of which there are none
_NODE_STATUS = re.compile(r"/api/v1/nodes/node-(\d+)/status")


class Cluster:
    """So many nodes, each with a NodeMetric and so many pods."""

    def __init__(self, nodes: int, pods_per_node: int) -> None:
        self.version = 10_000_000
        self.watches: dict[str, queue.SimpleQueue[bytes]] = {}
        self._nodes = nodes
        self._pods_per_node = pods_per_node
        self._reported = 0
        self._lock = threading.Lock()

    def items(self, plural: str, start: int, limit: int) -> tuple[list[bytes], bool]:
        """A part of a list, and whether more follows."""
        counts = {"nodes": self._nodes, "nodemetrics": self._nodes, "pods": self._nodes * self._pods_per_node}
        if plural == "configmaps":
            meta = {"name": names.CONFIG_MAP, "namespace": names.INSTALL_NAMESPACE, "resourceVersion": "1"}
            return [json.dumps({"metadata": meta, "data": {names.CONFIG_KEY_COLOCATION: CONFIG}}).encode()], False
        end = min(start + limit, counts.get(plural, 0))
        make = {"nodes": fleet.node, "nodemetrics": _fresh_metric, "pods": self._pod}.get(plural, fleet.node)
        return [make(index) for index in range(start, end)], end < counts.get(plural, 0)

    def report(self, reports: int, seconds: float) -> tuple[str, float]:
        """So many nodes report, each in another round than before; the name of the last one, and its time."""
        started, at, index = time.monotonic(), 0.0, 0
        for number in range(reports):
            time.sleep(max(0.0, started + seconds * number / reports - time.monotonic()))
            round_, index = divmod(self._reported, self._nodes)
            self._reported += 1
            at = time.time()
            item = fleet.node_metric(index, version=self.next_version(), at=at, round_=1 + round_)
            self.watches["nodemetrics"].put(fleet.event("MODIFIED", item))
        return f"node-{index}", at

    def patched(self, index: int, status: dict[str, Any]) -> None:
        """The Node as it is after a write, to whoever watches."""
        allocatable = status.get("allocatable", {})
        mid = (int(allocatable.get(names.MID_CPU) or 0), int(allocatable.get(names.MID_MEMORY) or 0))
        item = fleet.node(index, version=self.next_version(), mid=mid)
        if "nodes" in self.watches:
            self.watches["nodes"].put(fleet.event("MODIFIED", item))

    def next_version(self) -> int:
        with self._lock:
            self.version += 1
            return self.version

    def _pod(self, index: int) -> bytes:
        return fleet.pod(index, index // self._pods_per_node, index % self._pods_per_node)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    cluster: Cluster

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        plural = url.path.rpartition("/")[2]
        if query.get("watch"):
            self._stream(self._events(plural))
            return
        if _NAMED.search(url.path):
            self._answer(b'{"kind":"Status","reason":"NotFound","code":404}', status=404)
            return
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 500))
        items, more = self.cluster.items(plural, start, limit)
        self._answer(fleet.page(items, version=self.cluster.version, following=start + limit if more else None))

    def do_PATCH(self) -> None:
        self._write()

    def do_POST(self) -> None:
        self._write()

    def do_PUT(self) -> None:
        self._write()

    def _write(self) -> None:
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(WRITE_SECONDS)
        if found := _NODE_STATUS.search(self.path):
            self.cluster.patched(int(found[1]), patch.get("status", {}))
        self._answer(b'{"metadata":{"resourceVersion":"%d"}}' % self.cluster.version)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""

    def _events(self, plural: str) -> Iterator[bytes]:
        lines = self.cluster.watches[plural] = queue.SimpleQueue()
        while True:
            try:
                yield lines.get(timeout=_SILENCE_SECONDS)
            except queue.Empty:
                return

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, lines: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    """A thread for each connection; that a manager is killed in the middle of a request is no news."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | ValueError):
            super().handle_error(request, client_address)


def _fresh_metric(index: int) -> bytes:
    return fleet.node_metric(index, at=time.time())


def main(nodes: int, pods_per_node: int) -> None:
    Handler.cluster = Cluster(nodes, pods_per_node)
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    for line in sys.stdin:
        reports, seconds = line.split()
        name, at = Handler.cluster.report(int(reports), float(seconds))
        print(name, at, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
