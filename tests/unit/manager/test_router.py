"""The autoscaler's API: groups, decisions, and plans for what is not there yet."""

import contextlib
import json
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cluster_state.cost import Cost, KindCost, RequestedCost
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.http.plan_request import Overrides, PlanRequest
from manager.autoscaler.http.router import MAX_BODY_BYTES, router
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.cluster_view import open_view
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.reporting.cost_division import LabelCosts, NamespaceCosts
from manager.autoscaler.reporting.cost_trend import CostTrend
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared import web
from shared.api.core import Node, NodeStatus, Pod, Quantities
from shared.clock import ManualClock
from tests.support import schemas
from tests.support.local_http import LOCAL_HTTP
from tests.unit.manager import rounds
from tests.unit.manager.clouds import MemoryCloud
from tests.unit.manager.objects import NOW

JSON = {"content-type": "application/json"}
SETTINGS = AutoscalerSettings(cloud_provider="simulated", nodes=("0:5:a", "0:5:b"))
POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}


MACHINE: Quantities = {"cpu": "4", "memory": "8Gi", "pods": "110"}


class Planner:
    """Plans for an empty cluster, whose cloud has two groups of machines with 4 cores."""

    def __init__(self) -> None:
        self.decision_log = DecisionLog()
        self.cost_trend = CostTrend(ManualClock(NOW))
        cloud = MemoryCloud(Group("a", 0, 5, 0), Group("b", 0, 5, 0))
        cloud.model = FilePricing()
        cloud.given_template = Node(status=NodeStatus(capacity=MACHINE, allocatable=MACHINE))
        self._guard = Guard(cloud, decision_settings.load(SETTINGS).ownership)
        self.is_blind = False

    def observe(self) -> None:
        self._guard.observe()

    def plan_question(self, more: Sequence[Pod], config: DecisionSettings) -> Iteration:
        if self.is_blind:
            raise Unavailable("memory", "", "not observed")
        objects = ClusterObjects(NOW, pods=tuple(more))
        view = open_view(objects, self._guard, Registry(), config, chance=random.Random(0))
        return iteration_plan.plan(view, dry_run=True).iteration

    def close(self) -> None:
        self._guard.close()


PLANNER = Planner()


@contextlib.contextmanager
def served(planner: Planner) -> Iterator[str]:
    planner.observe()
    app = FastAPI()
    app.include_router(router(planner, SETTINGS))
    server = web.server(app, "127.0.0.1:0")
    server.start()
    yield f"{server.url}/api/v1"
    server.close()
    planner.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(PLANNER) as url:
        yield url


def planned(url: str, **body: Any) -> Any:
    answer = LOCAL_HTTP.post(f"{url}/plan", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert list(schemas.problems(found, schemas.published("plan"))) == []
    return found


def test_before_the_first_round_nothing_is_known() -> None:
    with served(Planner()) as url:
        assert LOCAL_HTTP.get(f"{url}/groups").json()["time"] is None
        assert LOCAL_HTTP.get(f"{url}/decisions").json() == {
            "cluster": "",
            "latest": None,
            "iterations": [],
            "earlier": [],
        }


def test_groups_and_decisions_are_those_of_the_journal(url: str) -> None:
    decision_log = DecisionLog()
    for number in (1, 2, 3):
        decision_log.note(replace(rounds.everything(), number=number))
    planner = Planner()
    planner.decision_log = decision_log
    app = FastAPI()
    app.include_router(router(planner, SETTINGS))
    server = web.server(app, "127.0.0.1:0")
    server.start()
    try:
        groups = LOCAL_HTTP.get(f"{server.url}/api/v1/groups").json()
        decisions = LOCAL_HTTP.get(f"{server.url}/api/v1/decisions?limit=2").json()
        brief = LOCAL_HTTP.get(f"{server.url}/api/v1/decisions?limit=1&brief=true").json()
    finally:
        server.close()
        planner.close()
    assert list(schemas.problems(groups, schemas.published("groups"))) == []
    assert list(schemas.problems(decisions, schemas.published("decisions"))) == []
    assert [each["id"] for each in groups["groups"]] == ["small"]
    assert (decisions["latest"]["iteration"], [each["iteration"] for each in decisions["iterations"]]) == (3, [3, 2])
    assert [len(each["pending"][1]["pods"]) for each in (brief["latest"], *brief["iterations"])] == [3, 3]


def test_every_answer_names_the_cluster_it_is_about() -> None:
    settings = msgspec.structs.replace(SETTINGS, cluster_name="prod-1")
    planner = Planner()
    planner.observe()
    app = FastAPI()
    app.include_router(router(planner, settings))
    server = web.server(app, "127.0.0.1:0")
    server.start()
    asked = ["groups", "autoscaler/nodes", "decisions"]

    def named(path: str) -> str:
        answer = LOCAL_HTTP.get(f"{server.url}/api/v1/{path}").json()
        return str(answer["cluster"])

    try:
        assert {named(path) for path in asked} == {"prod-1"}  # before the first round, too
        planner.decision_log.note(planner.plan_question((), decision_settings.load(settings)))
        assert {named(path) for path in asked} == {"prod-1"}
        assert planned(f"{server.url}/api/v1")["cluster"] == "prod-1"
        planner.decision_log.note(replace(rounds.shrinking(), cluster="prod-1"))
        planner.cost_trend.note(rounds.shrinking())
        assert len(LOCAL_HTTP.get(f"{server.url}/api/v1/costs").json()["total"]) == 1
        assert named("autoscaler/nodes/idle") == "prod-1"
    finally:
        server.close()
        planner.close()


def test_every_node_says_why_it_is_still_here(url: str) -> None:
    PLANNER.decision_log.note(rounds.shrinking())
    answer = LOCAL_HTTP.get(f"{url}/autoscaler/nodes").json()
    assert list(schemas.problems(answer, schemas.published("nodes_left"))) == []
    rows = {row["node"]: row for row in answer["scale_down"]["nodes"]}
    idle = LOCAL_HTTP.get(f"{url}/autoscaler/nodes/idle").json()
    assert list(schemas.problems(idle, schemas.published("node_left"))) == []
    assert (idle["answer"], idle["moves"]) == (rows["idle"], {"ns/web": "alone"})
    brief = LOCAL_HTTP.get(f"{url}/decisions?brief=true").json()["latest"]
    assert {row["standing"] for row in brief["scale_down"]["nodes"]} == {"goes", "unneeded", "leaving", "gone"}
    missing = LOCAL_HTTP.get(f"{url}/autoscaler/nodes/nowhere")
    assert (missing.status_code, missing.json()) == (404, {"detail": "nothing is known of Node 'nowhere'"})
    PLANNER.decision_log.note(rounds.held("not leading"))
    held = LOCAL_HTTP.get(f"{url}/autoscaler/nodes/idle")
    assert (held.status_code, held.json()) == (404, {"detail": "nothing is known of Node 'idle': not leading"})
    assert LOCAL_HTTP.get(f"{url}/autoscaler/nodes").json()["blocked_reason"] == "not leading"


def test_without_a_question_it_is_planned_for_what_waits(url: str) -> None:
    answer = LOCAL_HTTP.post(f"{url}/plan", headers=JSON, timeout=30)
    assert (answer.status_code, answer.json()["outcome"]) == (200, "no pod needs a new node")


def test_pods_that_are_not_there_yet_are_planned_for(url: str) -> None:
    plan = planned(url, pods=[POD], copies=3)
    (decision,) = plan["decisions"]
    assert (decision["what"], decision["to_size"], decision["done"], plan["dry_run"]) == ("increase", 3, False, True)
    assert plan["pending"][0]["pods"] == ["default/web-0", "default/web-1", "default/web-2"]
    assert plan["options"][0]["rank"]["nodes_price"] > 0


def test_the_api_page_says_what_may_be_asked(url: str) -> None:
    paths = LOCAL_HTTP.get(f"{url.removesuffix('/api/v1')}/openapi.json").json()["paths"]
    body = paths["/api/v1/plan"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    overrides = body["properties"]["overrides"]
    assert list(schemas.problems({"expander": "price", "max_cpu": 100}, overrides)) == []
    assert list(schemas.problems({"max_cpu": "many"}, overrides)) != []
    assert body["properties"].keys() == {*PlanRequest.__struct_fields__}
    assert overrides["properties"].keys() == {*Overrides.__struct_fields__}


def test_settings_may_be_others_for_once(url: str) -> None:
    plan = planned(url, pods=[POD], copies=3, overrides={"max_nodes_total": 1})
    assert sum(each["to_size"] for each in plan["decisions"]) == 1
    assert planned(url, pods=[POD], copies=3)["decisions"][0]["to_size"] == 3, "for once alone"
    steps = planned(url, pods=[POD], overrides={"expander": "least-nodes,price"})["steps"]
    assert [each["expander"] for each in steps] == ["least-nodes", "price"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", ["(body)"]),
        ('{"pod": []}', ["pod"]),
        ('{"copies": 0}', ["copies", ">= 1"]),
        (json.dumps({"pods": [POD], "overrides": {"expander": "cheap"}}), ["overrides: expander: 'cheap'"]),
        (json.dumps({"overrides": {"expander_preset": "mine"}}), ["overrides.expander_preset: 'mine'"]),
        (json.dumps({"overrides": {"prices": "/etc/passwd"}}), ["prices"]),
        (json.dumps({"overrides": {"max_cpu": -1}}), ["overrides.max_cpu: -1"]),
        (json.dumps({"pods": [POD, {**POD, "kind": "Deployment"}]}), ["pods[1].kind: 'Deployment'"]),
        (json.dumps({"pods": [{**POD, "spec": {"nodeName": "n"}}]}), ["pods[0].spec.nodeName", "n"]),
        (json.dumps({"pods": [{"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}]}), ["pods[0]"]),
        (json.dumps({"pods": [{**POD, "metadata": {"name": "x" * 254}}]}), ["pods[0].metadata.name", "253"]),
        (json.dumps({"pods": [{**POD, "metadata": {"namespace": "x" * 254}}]}), ["pods[0].metadata.namespace"]),
        (json.dumps({"pods": [{"spec": {"overhead": {"cpu": "-1"}}}]}), ["pods[0].spec", "-1", "negative"]),
        (json.dumps({"pods": [{"spec": {"containers": 3}}]}), ["pods[0].spec.containers: 3"]),
        (json.dumps({"pods": [POD] * 11, "copies": 10_000}), ["copies", "100000"]),
    ],
)
def test_a_question_that_means_nothing_is_refused_by_field(url: str, body: str, words: list[str]) -> None:
    answer = LOCAL_HTTP.post(f"{url}/plan", content=body, headers=JSON)
    assert answer.status_code == 400
    for word in ["POST /api/v1/plan", *words]:
        assert word in answer.json()["detail"]


def test_however_many_ask_one_plan_is_made_at_a_time_and_probes_are_answered() -> None:
    """The server has some forty threads for whatever waits: plans must not take them all."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    class Slow(Planner):
        def plan_question(self, more: Sequence[Pod], config: DecisionSettings) -> Iteration:
            begun.release()
            assert go_on.wait(60)
            raise Unavailable("memory", "", "not observed")

    app = FastAPI()
    app.include_router(router(Slow(), SETTINGS))
    app.get("/readyz")(lambda: "ready")
    server = web.server(app, "127.0.0.1:0")
    server.start()
    try:
        with ThreadPoolExecutor(60) as askers:
            asked = [
                askers.submit(LOCAL_HTTP.post, f"{server.url}/api/v1/plan", headers=JSON, timeout=60) for _ in range(60)
            ]
            assert begun.acquire(timeout=60)
            try:
                assert LOCAL_HTTP.get(f"{server.url}/readyz", timeout=60).text == '"ready"'
                assert not begun.acquire(blocking=False)
            finally:
                go_on.set()
            assert {each.result().status_code for each in asked} == {503}
    finally:
        server.close()


def test_what_is_too_large_or_cannot_be_known_is_told_as_such(url: str) -> None:
    assert LOCAL_HTTP.post(f"{url}/plan", content=b" " * (MAX_BODY_BYTES + 1), headers=JSON).status_code == 413
    PLANNER.is_blind = True
    try:
        answer = LOCAL_HTTP.post(f"{url}/plan", headers=JSON)
    finally:
        PLANNER.is_blind = False
    assert (answer.status_code, "not observed" in answer.text) == (503, True)


KINDS = (
    KindCost("few", {"team": "web", "pod-template-hash": "1"}, RequestedCost(1.0, 0.0)),
    KindCost("many", {"team": "data", "pod-template-hash": "2"}, RequestedCost(2.0, 0.0)),
    KindCost("many", {"team": "web", "app": "shop"}, RequestedCost(2.5, 0.0)),
    KindCost("lent", {}, RequestedCost(1.0, 2.0)),
)


@contextlib.contextmanager
def dividing() -> Iterator[tuple[str, Planner]]:
    """The address of the costs of `KINDS`."""
    planner = Planner()
    planner.decision_log.note(replace(rounds.everything(), cost=Cost(idle=0.5, by_kind=KINDS)))
    with served(planner) as url:
        yield f"{url}/costs", planner


def test_namespaces_come_by_their_cost_and_only_as_many_as_asked_for() -> None:
    with dividing() as (url, planner):
        found = LOCAL_HTTP.get(f"{url}/namespaces", params={"limit": 2}).json()
        assert list(schemas.problems(found, schemas.published("namespace_costs"))) == []
        assert (found["total"], found["idle"], found["label_keys"]) == (3, 0.5, ["team", "app"])
        assert found["namespaces"] == [
            {"namespace": "many", "requested": 4.5, "used": 0.0},
            {"namespace": "lent", "requested": 1.0, "used": 2.0},
        ]
        for limit in (0, 1001, "many"):
            assert LOCAL_HTTP.get(f"{url}/namespaces", params={"limit": limit}).status_code == 422
        planner.decision_log.note(rounds.held("the cloud does not answer"))
        assert LOCAL_HTTP.get(f"{url}/namespaces").json()["namespaces"] == []


def test_costs_by_label_have_a_row_for_pods_without_it_and_only_as_many_as_asked_for() -> None:
    with dividing() as (url, planner):
        found = LOCAL_HTTP.get(f"{url}/labels", params={"key": "team"}).json()
        assert list(schemas.problems(found, schemas.published("label_costs"))) == []
        assert (found["key"], found["total"], found["idle"], found["label_keys"]) == ("team", 3, 0.5, ["team", "app"])
        assert found["values"] == [
            {"value": "web", "requested": 3.5, "used": 0.0},
            {"value": None, "requested": 1.0, "used": 2.0},
            {"value": "data", "requested": 2.0, "used": 0.0},
        ]
        assert len(LOCAL_HTTP.get(f"{url}/labels", params={"key": "team", "limit": 1}).json()["values"]) == 1
        absent = LOCAL_HTTP.get(f"{url}/labels", params={"key": "example.com/owner"}).json()["values"]
        assert absent == [{"value": None, "requested": 6.5, "used": 2.0}]
        planner.decision_log.note(rounds.held("the cloud does not answer"))
        assert LOCAL_HTTP.get(f"{url}/labels", params={"key": "team"}).json()["values"] == []


@pytest.mark.parametrize(
    "query", [{}, {"key": ""}, {"key": "a b"}, {"key": "-a"}, {"key": "a/b/c"}, {"key": "x" * 64}, {"key": "a\n"}]
)
def test_what_is_no_key_of_a_label_is_refused(query: dict[str, str]) -> None:
    with dividing() as (url, _):
        assert LOCAL_HTTP.get(f"{url}/labels", params=query).status_code == 422


def test_no_costs_are_divided_before_the_first_iteration() -> None:
    nothing: dict[str, object] = {"time": None, "total": 0, "idle": None, "label_keys": []}
    with served(Planner()) as url:
        assert LOCAL_HTTP.get(f"{url}/costs/namespaces").json() == nothing | {"namespaces": []}
        by_team = LOCAL_HTTP.get(f"{url}/costs/labels", params={"key": "team"}).json()
        assert by_team == nothing | {"key": "team", "values": []}


def test_the_published_schemas_of_divided_costs_are_those_of_the_answers() -> None:
    assert schemas.published("namespace_costs") == msgspec.json.schema(NamespaceCosts)
    assert schemas.published("label_costs") == msgspec.json.schema(LabelCosts)
