"""The last day of workloads and of their pods: whole, bounded, and honest about what was not measured."""

from collections.abc import Collection, Iterator

import msgspec
import pytest
from fastapi import FastAPI

from manager import trends
from manager.nodeside import workload_trends
from manager.nodeside.node_trends import AmountSeries
from manager.nodeside.noderesource.report import NodeReport, ReportedUsage
from manager.nodeside.workload_trends import WorkloadTrend, WorkloadTrends
from manager.pods import PodRecord, record
from shared import durations, web
from shared.clock import ManualClock
from tests.support import schemas
from tests.support.local_http import LOCAL_HTTP
from tests.unit.manager import objects
from tests.unit.manager.objects import GIB, NOW


def pod(name: str, cpu: int, owner: str = "") -> PodRecord:
    replaced_by = ("StatefulSet", owner) if owner else None
    return record(objects.pod(name, on="a", cpu=str(cpu), owner=replaced_by, namespace="shop"))


class Town:
    """One node; `used` has the milli-cores of its pods that are measured."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.running = [pod("db-0", 2, "db"), pod("db-1", 2, "db"), pod("alone", 1)]
        self.used = {"db-0": 500, "alone": 100}
        self.trends = WorkloadTrends(self, self.clock)

    def names(self) -> set[str]:
        return {"a"}

    def pods(self, name: str) -> Collection[PodRecord]:
        return self.running

    def report(self, name: str) -> NodeReport | None:
        used = {f"shop/{name}": ReportedUsage("", cpu, GIB) for name, cpu in self.used.items()}
        return objects.node_report(name, update_time=self.clock.now(), pods=used)

    def live(self) -> None:
        self.trends.record()
        self.clock.advance(trends.FIRST_INTERVAL_SECONDS)


@pytest.fixture
def town() -> Town:
    return Town()


@pytest.fixture
def api(town: Town) -> Iterator[str]:
    app = FastAPI()
    app.include_router(workload_trends.router(town.trends))
    server = web.server(app, "127.0.0.1:0")
    server.start()
    yield f"{server.url}/api/v1/workloads"
    server.close()


def test_a_workload_is_the_sum_of_its_pods_as_far_as_they_are_measured(town: Town, api: str) -> None:
    town.live()
    town.used = {"db-0": 700, "db-1": 300}
    town.live()
    answer = LOCAL_HTTP.get(f"{api}/shop/StatefulSet/db/history")
    assert list(schemas.problems(answer.json(), schemas.published("workload_history"))) == []
    found = msgspec.json.decode(answer.content, type=WorkloadTrend)
    times = [durations.timestamp(NOW), durations.timestamp(NOW + 20)]
    assert (found.namespace, found.kind, found.name, found.pod) == ("shop", "StatefulSet", "db", "")
    assert (found.times, found.used.cpu_milli, found.used.memory_bytes) == (times, [500, 1000], [GIB, 2 * GIB])
    assert found.requested == AmountSeries([4000, 4000], [2 * GIB, 2 * GIB])


def test_each_pod_has_a_trend_and_one_that_no_controller_made_is_a_workload(town: Town, api: str) -> None:
    town.live()
    one = LOCAL_HTTP.get(f"{api}/shop/StatefulSet/db/history", params={"pod": "db-1"}).json()
    assert (one["pod"], one["used"]["cpu_milli"], one["requested"]["cpu_milli"]) == ("db-1", [None], [2000])
    for pod_name in ("", "alone"):
        alone = LOCAL_HTTP.get(f"{api}/shop/Pod/alone/history", params={"pod": pod_name}).json()
        assert (alone["used"]["cpu_milli"], alone["requested"]["cpu_milli"]) == ([100], [1000])


def test_what_is_not_remembered_is_null(town: Town) -> None:
    town.live()
    assert town.trends.answer("shop", "Deployment", "db").used == AmountSeries([None], [None])
    town.running = []
    town.live()
    assert town.trends.answer("shop", "StatefulSet", "db").requested.cpu_milli == [None, None]


def test_of_very_many_those_that_request_most_are_remembered(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_trends, "MOST_WORKLOADS", 1)
    monkeypatch.setattr(workload_trends, "MOST_PODS", 2)
    for _ in range(3):
        town.live()
        town.running = town.running[::-1]  # their order does not decide
    assert town.trends.answer("shop", "StatefulSet", "db").requested.cpu_milli == [4000] * 3
    assert town.trends.answer("shop", "Pod", "alone").requested.cpu_milli == [None] * 3
    assert town.trends.answer("shop", "StatefulSet", "db", "db-0").requested.cpu_milli == [2000] * 3
    assert town.trends.answer("shop", "Pod", "alone", "alone").requested.cpu_milli == [None] * 3


def test_bare_pods_alike_have_a_trend_together_and_each_its_own(town: Town) -> None:
    town.running = [pod("burner-1", 1), pod("burner-2", 3)]
    town.used = {"burner-1": 100, "burner-2": 200}
    town.live()
    together = town.trends.answer("shop", "Pod", "burner-*")
    assert (together.used.cpu_milli, together.requested.cpu_milli) == ([300], [4000])
    for answer in (
        town.trends.answer("shop", "Pod", "burner-*", "burner-2"),
        town.trends.answer("shop", "Pod", "burner-2"),
    ):
        assert (answer.used.cpu_milli, answer.requested.cpu_milli) == ([200], [3000])
