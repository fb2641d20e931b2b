"""The embedded scheduler asks its extender as kube-scheduler does, and gets by without it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from deploy.local.scheduler.extender import Extender
from deploy.local.scheduler.scheduler import ScheduleResult, cluster_of, decide
from shared import web
from tests.unit.local.test_scheduler_filtering import node, pod

NODES = [node("a"), node("b"), node("c", unschedulable=True)]


class Other:
    """An extender that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, object] = {"filter": {"NodeNames": ["a", "b"]}, "prioritize": []}
        self.status = 200
        app = FastAPI()

        @app.post("/x/{verb}")
        async def answer(verb: str, request: Request) -> Response:
            self.asked.append(await request.json())
            return Response(json.dumps(self.answers[verb]), self.status)

        self.server = web.server(app, "127.0.0.1:0")
        self.server.start()

    def decide(self) -> ScheduleResult:
        extender = Extender(f"{self.server.url}/x")
        try:
            return decide(pod(requests={"cpu": "1"}), cluster_of(NODES, []), extender)
        finally:
            extender.close()


@pytest.fixture
def other() -> Iterator[Other]:
    found = Other()
    yield found
    found.server.close()


def test_an_extender_is_asked_about_the_nodes_that_fit(other: Other) -> None:
    assert other.decide() == ScheduleResult("a")
    filtered, scored = other.asked
    assert filtered["NodeNames"] == scored["NodeNames"] == ["a", "b"]
    assert filtered["Pod"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


def test_a_node_it_filters_out_is_not_chosen_and_nobody_is_asked_for_a_score_of_the_only_one(other: Other) -> None:
    other.answers["filter"] = {"NodeNames": ["b"], "FailedNodes": {"a": "too busy"}}
    assert other.decide() == ScheduleResult("b")
    assert len(other.asked) == 1


def test_its_reasons_are_told_beside_the_schedulers_own_and_it_is_asked_again(other: Other) -> None:
    other.answers["filter"] = {
        "NodeNames": [],
        "FailedNodes": {"a": "too busy"},
        "FailedAndUnresolvableNodes": {"b": "never"},
    }
    expected = "0/3 nodes are available: 1 never, 1 node(s) were unschedulable, 1 too busy."
    assert other.decide() == ScheduleResult("", expected, again=True)


def test_its_scores_count_beside_the_schedulers_own(other: Other) -> None:
    other.answers["prioritize"] = [{"Host": "a", "Score": 3}, {"Host": "b", "Score": 4}, {"Host": "z", "Score": 10}]
    assert other.decide() == ScheduleResult("b")


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, {"NodeNames": ["b"]}),
        (200, "nonsense"),
        (200, {"Error": "I have no idea"}),
    ],
)
def test_one_that_fails_is_left_out(other: Other, status: int, answer: object) -> None:
    other.status, other.answers["filter"] = status, answer
    assert other.decide() == ScheduleResult("a")


def test_one_that_is_not_there_adds_nothing_to_the_scores() -> None:
    extender = Extender("http://127.0.0.1:1/x")
    assert decide(pod(), cluster_of(NODES, []), extender) == ScheduleResult("a")
    extender.close()
