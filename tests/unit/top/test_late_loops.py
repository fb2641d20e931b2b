"""What the live table says of a manager that is late."""

from prometheus_client import CollectorRegistry

from deploy.manager_api import ManagerApi
from deploy.top import freshness
from manager import http
from manager.nodeside.answers import Status
from manager.nodeside.decisions import KnownNode
from manager.nodeside.fleet_answers import FleetPrediction, PriorRow
from manager.nodeside.node_trends import NodeTrends
from shared import web
from shared.clock import ManualClock


class NoNodes:
    def states(self) -> list[KnownNode]:
        return []

    def state(self, name: str) -> KnownNode | None:
        return None


class OverdueLoops:
    def __init__(self, overdue: dict[str, float]) -> None:
        self._overdue = overdue

    def silent(self) -> dict[str, float]:
        return {}

    def overdue(self) -> dict[str, float]:
        return self._overdue


def test_an_overdue_round_is_read_from_the_managers_health_and_told_beside_the_table() -> None:
    overdue = {"autoscaler": 31.4}
    app = http.application(
        reader=NoNodes(),
        trends=NodeTrends(dict, ManualClock()),
        registry=CollectorRegistry(),
        status=lambda: Status("local", True, False, [], True, "ns/cm", None, overdue),
        fleet=lambda: FleetPrediction([], PriorRow("built-in", 0, None, []), [], 0),
        loops=OverdueLoops(overdue),
        version="1",
        now=lambda: 0.0,
    )
    server = web.server(app, "127.0.0.1:0")
    server.start()
    try:
        manager = ManagerApi(server.url)
        assert freshness.late_loops(manager) == ["autoscaler: the current iteration has run for 31 s"]
        overdue.clear()
        assert freshness.late_loops(manager) == []
    finally:
        server.close()
    assert freshness.late_loops(manager) == []
