"""The embedded scheduler asks extenders as kube-scheduler does, and gets by without those it may leave out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI, Request, Response

from deploy.local.scheduler import configuration
from deploy.local.scheduler.configuration import ExtenderConfig
from deploy.local.scheduler.extender import ExtenderFailed, Extenders
from deploy.local.scheduler.scheduler import Placement, cluster_of, decide
from shared import web
from shared.errors import InvalidInput
from tests.unit.local.test_scheduler_filtering import node, pod

NODES = [node("a"), node("b"), node("c", unschedulable=True)]
SAMPLE = Path("deploy/scheduler/kube-scheduler-config.yaml")


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

    def extenders(self, **fields: Any) -> Extenders:
        config = {"urlPrefix": f"{self.server.url}/x/", "filterVerb": "filter", "prioritizeVerb": "prioritize"}
        return Extenders([msgspec.convert({**config, "nodeCacheCapable": True, **fields}, ExtenderConfig)])

    def decide(self, requests: dict[str, Any] | None = None, **fields: Any) -> Placement:
        extenders = self.extenders(**fields)
        try:
            return decide(pod(requests=requests or {"cpu": "1"}), cluster_of(NODES, []), extenders)
        finally:
            extenders.close()


@pytest.fixture
def other() -> Iterator[Other]:
    found = Other()
    yield found
    found.server.close()


def test_an_extender_is_asked_about_the_nodes_that_fit(other: Other) -> None:
    assert other.decide() == Placement("a")
    filtered, scored = other.asked
    assert filtered["NodeNames"] == scored["NodeNames"] == ["a", "b"]
    assert filtered["Pod"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


def test_a_node_it_filters_out_is_not_chosen_and_nobody_is_asked_for_a_score_of_the_only_one(other: Other) -> None:
    other.answers["filter"] = {"NodeNames": ["b"], "FailedNodes": {"a": "too busy"}}
    assert other.decide() == Placement("b")
    assert len(other.asked) == 1


def test_its_reasons_are_told_beside_the_schedulers_own_and_it_is_asked_again(other: Other) -> None:
    other.answers["filter"] = {
        "NodeNames": [],
        "FailedNodes": {"a": "too busy"},
        "FailedAndUnresolvableNodes": {"b": "never"},
    }
    expected = "0/3 nodes are available: 1 never, 1 node(s) were unschedulable, 1 too busy."
    assert other.decide() == Placement("", expected, again=True)


def test_its_scores_count_with_its_weight_beside_the_schedulers_own(other: Other) -> None:
    other.answers["prioritize"] = [{"Host": "a", "Score": 3}, {"Host": "b", "Score": 4}, {"Host": "z", "Score": 10}]
    assert other.decide() == Placement("b")
    extenders = other.extenders(weight=3)
    assert extenders.scores(pod(), NODES[:2]) == {"a": 90, "b": 120}
    extenders.close()


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, {"NodeNames": ["b"]}),
        (200, "nonsense"),
        (200, {"Error": "I have no idea"}),
        (200, {"NodeNames": ["b", "elsewhere"]}),
    ],
)
def test_one_that_fails_is_left_out_where_that_is_allowed(other: Other, status: int, answer: object) -> None:
    other.status, other.answers["filter"] = status, answer
    assert other.decide(ignorable=True) == Placement("a")
    with pytest.raises(ExtenderFailed, match="/x/"):
        other.decide(ignorable=False)


def test_one_that_is_not_there_adds_nothing_to_the_scores() -> None:
    config = ExtenderConfig("http://127.0.0.1:1/x", filter_verb="filter", prioritize_verb="prioritize", ignorable=True)
    extenders = Extenders([config])
    assert decide(pod(), cluster_of(NODES, []), extenders) == Placement("a")
    extenders.close()


def test_the_sample_and_the_written_configuration_can_be_read(tmp_path: Path) -> None:
    (sample,) = configuration.load(SAMPLE).extenders
    file = tmp_path / "scheduler.yaml"
    configuration.write(file, "http://127.0.0.1:8080", leaderElection={"leaderElect": False})
    (written,) = configuration.load(file).extenders
    for extender in (sample, written):
        assert extender.url_prefix.endswith(":8080/scheduler")
        assert (extender.filter_verb, extender.prioritize_verb) == ("filter", "prioritize")
        assert extender.node_cache_capable
        assert extender.ignorable
    assert (sample.timeout_seconds, written.timeout_seconds) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("extenders: [", "(document)"),
        ("kind: Pod\napiVersion: kubescheduler.config.k8s.io/v1", "kind"),
        ("extenders: [{filterVerb: filter}]", "extenders[0]: .*urlPrefix"),
        ("extenders: [{urlPrefix: http://x, bindVerb: bind}]", "extenders[0]: .*bindVerb"),
        ("extenders: [{urlPrefix: http://x, weight: 0}]", "extenders[0].weight"),
        ("extenders: [{urlPrefix: http://x}]", "extenders[0].nodeCacheCapable"),
        ("extenders: [{urlPrefix: x, nodeCacheCapable: true, httpTimeout: soon}]", "extenders[0].httpTimeout: 'soon'"),
    ],
)
def test_a_configuration_that_means_nothing_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "scheduler.yaml"
    head = "" if "kind" in text else "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1\n"
    file.write_text(head + text)
    pattern = named.replace("[", r"\[").replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(InvalidInput, match=pattern):
        configuration.load(file)
