"""What the embedded API server costs: its own CPU for status patches and for big lists."""

from __future__ import annotations

import http.client
import json
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.bench.row import Measure, Row

PATCHES, CLIENTS, WATCHERS, NODES, LISTS = 4_000, 16, 5, 5_000, 5
_CRDS = Path(__file__).parents[2] / "deploy" / "helm" / "headroom" / "files" / "crds"
_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
_METRIC = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
_TOKEN = "bench"


class Server:
    """The API server as a child process, and its CPU time."""

    def __init__(self, directory: Path) -> None:
        token = directory / "token"
        token.write_text(_TOKEN)
        arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(directory / "data"), "--token-file", str(token)]
        command = [sys.executable, "-m", "deploy.local.apiserver", *arguments, "--crd-dir", str(_CRDS)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_CRDS.parents[3])
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip().removeprefix("http://")

    def cpu_seconds(self) -> float:
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def cost(self, work: Callable[[], None]) -> float:
        """CPU seconds that the server spends on some work."""
        before = self.cpu_seconds()
        work()
        return self.cpu_seconds() - before

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Client:
    """One kept-open connection."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection(server.address)

    def call(self, method: str, path: str, body: bytes = b"", media_type: str = "application/json") -> None:
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": media_type}
        self._connection.request(method, path, body or None, headers)
        response = self._connection.getresponse()
        data = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {data[:300]!r}")

    def close(self) -> None:
        self._connection.close()


def _by_many(server: Server, work: Callable[[Client, int], None]) -> None:
    """The work of each of CLIENTS clients, at the same time, as the agents of many nodes do theirs."""

    def run(number: int) -> None:
        with closing(Client(server)) as client:
            work(client, number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(run, range(CLIENTS)))


@contextmanager
def _server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory))
        try:
            yield server
        finally:
            server.stop()


def status_of(step: int) -> dict[str, Any]:
    """A NodeMetric status of about 12 kB, different at every step."""

    def usage(seed: int) -> dict[str, Any]:
        return {"resources": {"cpu": f"{1000 + seed + step}m", "memory": str(2**30 + 4096 * (seed + step))}}

    aggregates = [
        {
            "duration": length,
            "usage": {name: usage(index) for index, name in enumerate(("avg", "p50", "p90", "p95", "p99"))},
        }
        for length in ("5m0s", "10m0s", "30m0s")
    ]
    pods = [
        {
            "name": f"workload-{index}-6d4cf56db6-{index:05d}",
            "namespace": "production",
            "priority": "koord-prod",
            "qos": "LS",
            "podUsage": usage(index),
        }
        for index in range(50)
    ]
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_000 + step))
    return {
        "updateTime": moment,
        "nodeMetric": {
            "nodeUsage": usage(1),
            "systemUsage": usage(2),
            "aggregatedNodeUsages": aggregates,
            "aggregatedSystemUsages": aggregates,
        },
        "podsMetric": pods,
        "prodReclaimableMetric": {"resource": usage(3)},
        "prodPeakMetric": {"resource": usage(4)},
    }


def _node(index: int) -> bytes:
    """A Node of about 20 kB: images and annotations are what makes real ones that big."""
    images = [
        {"names": [f"registry.example/team/{index}/image-{i}@sha256:{i:064d}"], "sizeBytes": 10**8 + i}
        for i in range(130)
    ]
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{index:05d}", "labels": {"zone": str(index % 3)}},
        "status": {"capacity": amounts, "allocatable": amounts, "images": images},
    }
    return json.dumps(node).encode()


def _watch(server: Server, started: threading.Barrier) -> None:
    connection = http.client.HTTPConnection(server.address)
    connection.request("GET", f"{_METRICS}?watch=true", headers={"Authorization": f"Bearer {_TOKEN}"})
    response = connection.getresponse()
    started.wait()
    try:
        while response.read1(1 << 20):
            pass
    except (OSError, http.client.HTTPException):
        return


def _patch_cost(server: Server) -> float:
    """CPU seconds per status patch of many agents, with watchers on."""

    def create(client: Client, number: int) -> None:
        client.call("POST", _METRICS, json.dumps({**_METRIC, "metadata": {"name": f"node-{number}"}}).encode())

    def patch(client: Client, number: int) -> None:
        for step in range(PATCHES // CLIENTS):
            body = json.dumps({"status": status_of(step)}, separators=(",", ":")).encode()  # as agents write it
            client.call("PATCH", f"{_METRICS}/node-{number}/status", body, "application/merge-patch+json")

    _by_many(server, create)
    started = threading.Barrier(WATCHERS + 1)
    for _ in range(WATCHERS):
        threading.Thread(target=_watch, args=(server, started), daemon=True).start()
    started.wait()
    return server.cost(lambda: _by_many(server, patch)) / PATCHES


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        result[key] = _merged(result.get(key), value)
    return result


def _plain_patch_cost() -> float:
    """The same read-modify-write with the standard library alone: no HTTP, no schema, no watchers."""
    with tempfile.TemporaryDirectory() as directory:
        database = sqlite3.connect(Path(directory) / "plain.db", isolation_level=None)
        database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE o (k TEXT PRIMARY KEY, v BLOB)"
        )
        database.execute("INSERT INTO o VALUES ('bench', '{}')")
        patches = [json.dumps({"status": status_of(step)}).encode() for step in range(PATCHES)]
        before = time.process_time()
        for patch in patches:
            (stored,) = database.execute("SELECT v FROM o WHERE k = 'bench'").fetchone()
            value = json.dumps(_merged(json.loads(stored), json.loads(patch)))
            database.execute("UPDATE o SET v = ? WHERE k = 'bench'", (value,))
        cost = (time.process_time() - before) / PATCHES
        database.close()
    return cost


def _list_cost(server: Server) -> float:
    """CPU seconds to list all nodes once."""

    def create(client: Client, number: int) -> None:
        for index in range(number, NODES, CLIENTS):
            client.call("POST", "/api/v1/nodes", _node(index))

    def work() -> None:
        with closing(Client(server)) as client:
            for _ in range(LISTS):
                client.call("GET", "/api/v1/nodes")

    _by_many(server, create)
    return server.cost(work) / LISTS


def _plain_list_cost() -> float:
    """The same list from decoded objects, encoded with the standard library."""
    nodes = [json.loads(_node(index)) for index in range(NODES)]
    before = time.process_time()
    json.dumps({"items": nodes}).encode()
    return time.process_time() - before


def measures() -> tuple[Measure, ...]:
    return (_rows,)


def _rows() -> list[Row]:
    """Both figures with their baselines, measured now on this machine."""
    with _server() as server:
        patch = _patch_cost(server)
        listed = _list_cost(server)
    size = len(json.dumps({"status": status_of(1)}))
    return [
        Row(
            "API server CPU per NodeMetric status patch",
            patch * 1e3,
            "ms",
            0.5,
            "json + SQLite commit, no HTTP",
            _plain_patch_cost() * 1e3,
            f"{size} bytes, {CLIENTS} agents, {WATCHERS} watchers",
        ),
        Row(
            "API server CPU to list 5,000 nodes",
            listed,
            "s",
            1.0,
            "json.dumps of decoded nodes",
            _plain_list_cost(),
            f"{len(_node(1))} bytes each",
        ),
    ]
