"""What agents tell of a week, as `headroom recommend` takes it."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.command_line import Run
from tests.support.http_server import HttpServer, Request
from tests.unit.savings.clusters import DAY, GIB, NOW, shop
from tests.unit.savings.conftest import Command, Dump


class Told(NamedTuple):
    """Of one resource of a pod or a workload, in a week; `seconds` are samples."""

    p50: float
    p99: float
    max: float
    seconds: float


class AgentServer(HttpServer):
    """One node's agent, as far as its history is asked for: by kind, name and metric."""

    def __init__(self, node: str, told: Mapping[tuple[str, str, str], Told]) -> None:
        super().__init__()
        self.node, self.told = node, told
        self.units = {"cpu": "cores", "memory": "bytes"}

    def answer(self, request: Request) -> tuple[int, bytes]:
        parts = urlsplit(request.path)
        if parts.path == "/api/v1/node":
            return 200, json.dumps({"name": self.node}).encode()
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
        unit = "samples" if asked["agg"] == "count" else self.units[asked["metric"]]
        return 200, json.dumps({"tier": "5m-mean", "unit": unit, "values": values}).encode()


WEEK = 7 * DAY
WEB = "Deployment/web"


def of_pod(name: str, seconds: float, cores: float, memory: float) -> dict[tuple[str, str, str], Told]:
    return {
        ("pod", name, "cpu"): Told(cores / 2, cores, 2 * cores, seconds),
        ("pod", name, "memory"): Told(memory / 2, memory, memory, seconds),
    }


def of_workload(name: str, seconds: float, cores: float, memory: float) -> dict[tuple[str, str, str], Told]:
    return {("workload", name, metric): told for (_, _, metric), told in of_pod(name, seconds, cores, memory).items()}


def answered(recommend: Command, dump: Dump, *servers: AgentServer) -> Any:
    try:
        agents = [argument for server in servers for argument in ("--agent", server.url)]
        return recommend.answer("-f", dump(*shop()), "--until", NOW, *agents)
    finally:
        for server in servers:
            server.close()


def test_the_busiest_pod_of_a_week_decides_and_its_seconds_are_the_history(recommend: Command, dump: Dump) -> None:
    servers = [
        AgentServer("a", of_pod("web-5d9c7b-0", WEEK, 0.2, 1.0 * GIB)),
        AgentServer("b", of_pod("web-5d9c7b-1", WEEK, 0.4, 2.0 * GIB)),
        AgentServer("c", of_pod("web-5d9c7b-2", WEEK, 0.2, 1.0 * GIB)),
    ]
    found = answered(recommend, dump, *servers)
    (row,) = found["containers"]
    assert (row["source"], row["days"], row["points"]) == ("agents", 7.0, 3 * WEEK)
    assert row["cpu"]["recommended_request"] == 460
    assert row["memory"]["recommended_request"] == pytest.approx(2.3 * GIB, rel=1e-3)
    assert "of shop/web-5d9c7b-1 in a week" in row["cpu"]["detail"]
    assert not any("agent" in note for note in found["notes"])


def test_an_hour_of_seconds_is_no_week_and_lowers_nothing(recommend: Command, dump: Dump) -> None:
    (row,) = answered(recommend, dump, AgentServer("a", of_pod("web-5d9c7b-0", 3600, 0.2, 1.0 * GIB)))["containers"]
    assert row["days"] == 0.04
    assert row["memory"]["reason"] == "too little history"
    assert row["memory"]["recommended_request"] == row["memory"]["request"]


def test_pods_that_are_gone_count_by_what_their_workload_used_on_the_node(recommend: Command, dump: Dump) -> None:
    told = of_pod("web-5d9c7b-0", 3600, 0.2, 1.0 * GIB) | of_workload(WEB, WEEK, 0.5, 3.0 * GIB)
    gone = of_workload("Deployment/deleted", WEEK, 4.0, 9.0 * GIB)
    (row,) = answered(recommend, dump, AgentServer("a", told | gone))["containers"]
    assert row["days"] == 7.0
    assert row["cpu"]["recommended_request"] == 575
    assert row["memory"]["recommended_request"] == pytest.approx(3.45 * GIB, rel=1e-3)
    assert "of pods of web in a week" in row["cpu"]["detail"]


def test_nodes_whose_agent_was_not_asked_are_named(recommend: Command, dump: Dump) -> None:
    found = answered(recommend, dump, AgentServer("b", of_pod("web-5d9c7b-1", WEEK, 0.4, 2.0 * GIB)))
    assert "no agent of 2 of 3 nodes was asked, so what ran there is not known (a, c)" in found["notes"]


def test_amounts_in_another_unit_are_refused(headroom: Run, dump: Dump) -> None:
    server = AgentServer("a", of_pod("web-5d9c7b-0", WEEK, 0.2, 1.0 * GIB))
    server.units["memory"] = "MiB"
    try:
        status, _, err = headroom("recommend", "-f", dump(*shop()), "--agent", server.url)
    finally:
        server.close()
    assert (status, "memory in 'MiB', expected bytes" in err) == (1, True)
