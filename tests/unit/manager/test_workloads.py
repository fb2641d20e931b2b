"""What workloads request and use: each pod counts once, and what is not measured is not said to be nothing."""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI

from manager.nodeside import workloads
from manager.nodeside.answers import Amount
from manager.nodeside.noderesource.report import NodeReport, ReportedUsage
from manager.nodeside.workloads import WorkloadPodRow, WorkloadPods, WorkloadRow, WorkloadsAnswer, WorkloadTable
from manager.pods import PodRecord, record
from shared import web
from shared.clock import ManualClock
from shared.quantity import Resources
from tests.support.local_http import LOCAL_HTTP
from tests.unit.manager import objects
from tests.unit.manager.objects import GIB, NOW


def pod(
    key: str, node: str, owner: tuple[str, str] | None = None, phase: str = "Running", **requests: str
) -> PodRecord:
    namespace, _, name = key.partition("/")
    asked = {f"kubernetes.io/{each.replace('_', '-')}" if "_" in each else each: requests[each] for each in requests}
    labels = {"pod-template-hash": "5d9c"}
    made = objects.pod(name, on=node, requests=asked, phase=phase, owner=owner, namespace=namespace, labels=labels)
    return record(made)


def report(node: str, usages: dict[str, tuple[int, int]], age_seconds: float = 10) -> NodeReport:
    pods = {key: ReportedUsage("", *used) for key, used in usages.items()}
    return objects.node_report(node, update_time=NOW - age_seconds, pods=pods)


WEB = ("ReplicaSet", "web-5d9c")
PODS = [
    pod("shop/web-5d9c-1", "a", WEB, cpu="2", memory="1Gi"),
    pod("shop/web-5d9c-2", "b", WEB, cpu="2", memory="1Gi"),
    pod("shop/web-5d9c-3", "old", WEB, cpu="2", memory="1Gi"),
    pod("shop/done", "a", WEB, phase="Succeeded", cpu="8"),
    pod("batch/sort-1", "a", ("Job", "sort"), mid_cpu="3k", mid_memory="2Gi"),
    pod("batch/alone", "b", cpu="500m", memory="1Gi"),
]
REPORTS = {
    "a": report("a", {"shop/web-5d9c-1": (500, GIB), "batch/sort-1": (2500, GIB), "shop/done": (9, 9)}),
    "b": report("b", {"shop/web-5d9c-2": (1500, GIB), "gone/gone": (1, 1)}),
    "old": report("old", {"shop/web-5d9c-3": (7, 7)}, age_seconds=3600),
}


class Cluster:
    """The caches, and how often all of them was read."""

    def __init__(self) -> None:
        self.reads = 0

    def names(self) -> set[str]:
        self.reads += 1
        return {*REPORTS, "empty"}

    def pods(self, name: str) -> Collection[PodRecord]:
        return [each for each in PODS if each.node == name]

    def report(self, name: str) -> NodeReport | None:
        return REPORTS.get(name)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def api(cluster: Cluster, clock: ManualClock) -> Iterator[str]:
    app = FastAPI()
    peaks = {"shop/web-5d9c-1": Resources(900, GIB), "batch/web-5d9c-2": Resources(1, 1)}
    table = WorkloadTable(cluster, clock, lambda nodes: peaks if "a" in nodes else {})
    app.include_router(workloads.router(table))
    server = web.server(app, "127.0.0.1:0")
    server.start()
    yield f"{server.url}/api/v1/workloads"
    server.close()


def listed(api: str, **query: Any) -> WorkloadsAnswer:
    answer = LOCAL_HTTP.get(api, params=query)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=WorkloadsAnswer)


def names(answer: WorkloadsAnswer) -> list[str]:
    return [row.name for row in answer.workloads]


def test_pods_add_up_by_what_replaces_them_and_an_old_report_measures_none(api: str) -> None:
    assert listed(api).workloads == [
        WorkloadRow("batch", "Pod", "alone", ["prod"], 1, 1, Amount(500, GIB), 0, None),
        WorkloadRow("batch", "Job", "sort", ["mid"], 1, 1, Amount(3000, 2 * GIB), 1, Amount(2500, GIB)),
        WorkloadRow("shop", "Deployment", "web", ["prod"], 3, 3, Amount(6000, 3 * GIB), 2, Amount(2000, 2 * GIB)),
    ]


def test_rows_come_in_the_wanted_order_and_what_is_not_known_comes_last(api: str) -> None:
    assert names(listed(api, order="cpu_used", descending=True)) == ["sort", "web", "alone"]
    assert names(listed(api, order="cpu_used")) == ["web", "sort", "alone"]
    assert names(listed(api, order="tier")) == ["sort", "alone", "web"]
    assert names(listed(api, descending=True)) == ["web", "sort", "alone"]


def test_rows_are_found_by_a_part_of_their_name_or_by_their_tier_and_come_in_pages(api: str) -> None:
    assert names(listed(api, text=" SHOP/dep")) == ["web"]
    assert names(listed(api, text="mid")) == ["sort"]
    page = listed(api, offset=1, limit=1)
    assert (page.total, page.matching, page.offset, names(page)) == (3, 3, 1, ["sort"])
    none = listed(api, text="nothing")
    assert (none.total, none.matching, none.workloads) == (3, 0, [])


def test_the_pods_of_one_workload_are_told_with_the_thirstiest_first(api: str) -> None:
    answer = msgspec.json.decode(LOCAL_HTTP.get(f"{api}/shop/Deployment/web").content, type=WorkloadPods)
    assert answer.total == 3
    assert answer.pods == [
        WorkloadPodRow("web-5d9c-2", "b", "prod", Amount(2000, GIB), Amount(1500, GIB)),
        WorkloadPodRow("web-5d9c-1", "a", "prod", Amount(2000, GIB), Amount(500, GIB), Amount(900, GIB)),
        WorkloadPodRow("web-5d9c-3", "old", "prod", Amount(2000, GIB), None),
    ]
    alone = LOCAL_HTTP.get(f"{api}/batch/Pod/alone").json()
    assert [each["node"] for each in alone["pods"]] == ["b"]
    few = LOCAL_HTTP.get(f"{api}/shop/Deployment/web", params={"limit": 1}).json()
    assert (few["total"], len(few["pods"])) == (3, 1)


def test_a_workload_without_pods_is_named_and_a_query_that_cannot_be_is_refused(api: str) -> None:
    missing = LOCAL_HTTP.get(f"{api}/shop/Deployment/nothing")
    assert missing.status_code == 404
    assert missing.json() == {"detail": "no active pod on a node belongs to 'shop/Deployment/nothing'"}
    for query in ({"limit": 0}, {"limit": 501}, {"offset": -1}, {"order": "colour"}, {"text": "x" * 301}):
        assert LOCAL_HTTP.get(api, params=query).status_code == 422, query


def test_many_who_ask_are_told_of_one_count_until_it_is_old(api: str, cluster: Cluster, clock: ManualClock) -> None:
    for text in ("", "web", "mid"):
        listed(api, text=text)
    assert cluster.reads == 1
    before = listed(api).time
    clock.advance(workloads.KEPT_SECONDS)
    assert listed(api).time > before
    assert cluster.reads == 2


def test_bare_pods_alike_are_one_row_and_others_stay_apart() -> None:
    ends = ["burner-1", "burner-12", "made-x7k2b", "made-q9zzz", "web-front", "web-after", "one-1", "plain"]
    running = [pod(f"lab/{name}", "a", cpu="1", memory="1Gi") for name in ends]
    running += [pod("shop/burner-3", "a", cpu="1"), pod("lab/burner-4", "a", ("Job", "burner-4"), cpu="1")]
    measured = report("a", {"lab/burner-1": (500, GIB), "lab/burner-12": (200, GIB), "lab/made-x7k2b": (1, 1)})

    class Lab(Cluster):
        def names(self) -> set[str]:
            return {"a"}

        def pods(self, name: str) -> Collection[PodRecord]:
            return running

        def report(self, name: str) -> NodeReport | None:
            return measured

    found = {(row.namespace, row.kind, row.name): row for row in workloads.rows(Lab(), NOW)}
    assert sorted(found) == [
        ("lab", "Job", "burner-4"),
        ("lab", "Pod", "burner-*"),
        ("lab", "Pod", "made-*"),
        ("lab", "Pod", "one-1"),
        ("lab", "Pod", "plain"),
        ("lab", "Pod", "web-after"),
        ("lab", "Pod", "web-front"),
        ("shop", "Pod", "burner-3"),
    ]
    burners = found["lab", "Pod", "burner-*"]
    assert (burners.pods, burners.requested, burners.measured_pods) == (2, Amount(2000, 2 * GIB), 2)
    assert (burners.used, burners.nodes, burners.tiers) == (Amount(700, 2 * GIB), 1, ["prod"])
    table = WorkloadTable(Lab(), ManualClock(NOW))
    told = table.pods("lab", "Pod", "burner-*", 9)
    assert told is not None
    assert [each.name for each in told.pods] == ["burner-1", "burner-12"]
    assert table.pods("lab", "Pod", "nothing-*", 9) is None
