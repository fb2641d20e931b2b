"""What agents tell of a week, as `headroom recommend` takes it."""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from deploy import cli
from tests.unit.savings.clusters import DAY, GIB, NOW, dumped, shop


class Told(NamedTuple):
    """Of one resource of a pod or a workload, in a week; `seconds` are samples."""

    p50: float
    p99: float
    max: float
    seconds: float


class AgentServer:
    """One node's agent, as far as its history is asked for: by kind, name and metric."""

    def __init__(self, node: str, told: Mapping[tuple[str, str, str], Told]) -> None:
        self.node, self.told = node, told
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str) -> object:
        parts = urlsplit(path)
        if parts.path == "/api/v1/node":
            return {"name": self.node}
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert asked["window"] == "168h"
        values = [
            {
                "labels": {"namespace": "shop", kind: f"shop/{name}" if kind == "workload" else name},
                "value": told.seconds if asked["agg"] == "count" else getattr(told, asked["agg"]),
            }
            for (kind, name, metric), told in self.told.items()
            if (kind, metric) == (asked["kind"], asked["metric"])
        ]
        return {"tier": "5m-mean", "values": values}


def _handler(server: AgentServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(server.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


WEEK = 7 * DAY
WEB = "Deployment/web"


def of_pod(name: str, seconds: float, cores: float, memory: float) -> dict[tuple[str, str, str], Told]:
    return {
        ("pod", name, "cpu"): Told(cores / 2, cores, 2 * cores, seconds),
        ("pod", name, "memory"): Told(memory / 2, memory, memory, seconds),
    }


def of_workload(name: str, seconds: float, cores: float, memory: float) -> dict[tuple[str, str, str], Told]:
    return {("workload", name, metric): told for (_, _, metric), told in of_pod(name, seconds, cores, memory).items()}


def answered(capsys: pytest.CaptureFixture[str], path: Path, *servers: AgentServer) -> Any:
    try:
        agents = [argument for server in servers for argument in ("--agent", server.url)]
        given = ["recommend", "-f", str(path), "--until", NOW, *agents, "-o", "json"]
        assert (cli.app(given, standalone_mode=False) or 0) == 0
        return json.loads(capsys.readouterr().out)
    finally:
        for server in servers:
            server.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return dumped(tmp_path / "dump.json", *shop())


def test_the_busiest_pod_of_a_week_decides_and_its_seconds_are_the_history(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = [
        AgentServer("a", of_pod("web-5d9c7b-0", WEEK, 0.2, 1.0 * GIB)),
        AgentServer("b", of_pod("web-5d9c7b-1", WEEK, 0.4, 2.0 * GIB)),
        AgentServer("c", of_pod("web-5d9c7b-2", WEEK, 0.2, 1.0 * GIB)),
    ]
    found = answered(capsys, path, *servers)
    (row,) = found["containers"]
    assert (row["source"], row["days"], row["points"]) == ("agents", 7.0, 3 * WEEK)
    assert row["cpu"]["recommended_request"] == 460
    assert row["memory"]["recommended_request"] == pytest.approx(2.3 * GIB, rel=1e-3)
    assert "of shop/web-5d9c7b-1 in a week" in row["cpu"]["detail"]
    assert not any("agent" in note for note in found["notes"])


def test_an_hour_of_seconds_is_no_week_and_lowers_nothing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = answered(capsys, path, AgentServer("a", of_pod("web-5d9c7b-0", 3600, 0.2, 1.0 * GIB)))["containers"]
    assert row["days"] == 0.04
    assert row["memory"]["reason"] == "too little history"
    assert row["memory"]["recommended_request"] == row["memory"]["request"]


def test_pods_that_are_gone_count_by_what_their_workload_used_on_the_node(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = of_pod("web-5d9c7b-0", 3600, 0.2, 1.0 * GIB) | of_workload(WEB, WEEK, 0.5, 3.0 * GIB)
    gone = of_workload("Deployment/deleted", WEEK, 4.0, 9.0 * GIB)
    (row,) = answered(capsys, path, AgentServer("a", told | gone))["containers"]
    assert row["days"] == 7.0
    assert row["cpu"]["recommended_request"] == 575
    assert row["memory"]["recommended_request"] == pytest.approx(3.45 * GIB, rel=1e-3)
    assert "of pods of web in a week" in row["cpu"]["detail"]


def test_nodes_whose_agent_was_not_asked_are_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answered(capsys, path, AgentServer("b", of_pod("web-5d9c7b-1", WEEK, 0.4, 2.0 * GIB)))
    assert "no agent of 2 of 3 nodes was asked, so what ran there is not known (a, c)" in found["notes"]
