"""One minor version of skew, both ways: recordings of other versions are read by this one, and what this version writes
and answers has all that they read.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from deploy import explain, plan_by_manager
from deploy.access import CURRENT
from deploy.backtest import from_agent
from deploy.backtest.server import Access
from deploy.manager_api import ManagerApi
from deploy.top import command as top
from manager.nodeside.noderesource import report
from shared.api.nodemetric import NodeMetric
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.quantity import Resources
from tests.skew import recordings
from tests.skew.__main__ import NODE, schemas
from tests.support.http_server import HttpServer, Request
from tests.support.schemas import problems

RECORDINGS = recordings.supported()
every_recording = pytest.mark.parametrize("recorded", RECORDINGS.values(), ids=RECORDINGS)

Recorded = dict[str, Any]


class Replay(HttpServer):
    """Answers what was recorded, by path; keeps the questions."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.questions: list[bytes] = []
        super().__init__()

    def answer(self, request: Request) -> tuple[int, bytes]:
        self.questions += [request.body] if request.body else []
        found = self._answers.get(request.path.partition("?")[0])
        return (404, b"{}") if found is None else (200, json.dumps(found).encode())


def lost(old: Any, new: Any, roots: tuple[Any, Any], at: str = "$") -> Iterator[str]:
    """What a reader of the schema `old` misses in values of the schema `new`."""
    old, new = resolved(old, roots[0]), resolved(new, roots[1])
    if "anyOf" in old or "anyOf" in new:
        for each in new.get("anyOf", [new]):
            if all(list(lost(choice, each, roots, at)) for choice in old.get("anyOf", [old])):
                yield f"{at}: {each} is new"
        return
    if old.get("type") != new.get("type") and (old.get("type"), new.get("type")) != ("number", "integer"):
        yield f"{at}: {new.get('type')} instead of {old.get('type')}"
        return
    if unknown := set(new.get("enum", ())) - set(old.get("enum", new.get("enum", ()))):
        yield f"{at}: the values {sorted(unknown)} are new"
    for name, each in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{at}.{name}: is gone"
        else:
            yield from lost(each, new["properties"][name], roots, f"{at}.{name}")
    yield from (f"{at}.{name}: may be missing" for name in set(old.get("required", ())) - set(new.get("required", ())))
    for inner in ("items", "additionalProperties"):
        if isinstance(old.get(inner), dict) and isinstance(new.get(inner), dict):
            yield from lost(old[inner], new[inner], roots, f"{at}[]")


def resolved(schema: Any, root: Any) -> Any:
    return root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def test_a_version_that_may_run_beside_this_one_is_recorded() -> None:
    assert RECORDINGS
    assert not recordings.is_released(recordings.CURRENT) or recordings.CURRENT in RECORDINGS


@every_recording
def test_a_manager_of_this_version_reads_reports_of_the_other(recorded: Recorded) -> None:
    metric = recorded["node_metric"]
    found = report.read(msgspec.json.decode(json.dumps(metric), type=NodeMetric))
    assert (found.problem, found.unread_spec) == (None, None)
    assert found.reclaimable == Resources.parse(metric["status"]["prodReclaimableMetric"]["resource"]["resources"])
    assert len(found.pods) == len(metric["status"]["podsMetric"])


@every_recording
def test_an_agent_of_this_version_reads_specs_of_the_other(recorded: Recorded) -> None:
    spec = recorded["node_metric"]["spec"]
    assert json.loads(msgspec.json.encode(msgspec.convert(spec, NodeMetricSpec))) == spec


@every_recording
def test_commands_of_this_version_read_answers_of_the_other(recorded: Recorded) -> None:
    manager, agent = Replay(recorded["manager"]), Replay(recorded["agent"])
    try:
        with closing(ManagerApi(manager.url)) as api:
            assert NODE in top.run(api, style="wide", sorting="mid", containing="")
            assert NODE in explain.asked(api, NODE, "table")
        plan, groups = plan_by_manager.plan(
            manager.url, access=CURRENT, namespace="ns", files=(), overrides={"scale_down_enabled": False}
        )
        assert msgspec.to_builtins(groups)["groups"] or not recorded["manager"]["/api/v1/groups"]["groups"]
        assert plan.cost_per_hour is not None
        assert from_agent.judged(agent.url, 1.0, Access()).models
        (question,) = manager.questions
        known = recorded["schemas"]["plan request"]
        assert json.loads(question).keys() <= resolved(known, known)["properties"].keys()
    finally:
        manager.close()
        agent.close()


@every_recording
def test_the_recorded_answers_are_those_of_the_recorded_schemas(recorded: Recorded) -> None:
    paths = {"nodes": "nodes", "explain": f"nodes/{NODE}", "groups": "groups", "plan": "plan"}
    for name, path in paths.items():
        assert list(problems(recorded["manager"][f"/api/v1/{path}"], recorded["schemas"][name])) == []


@every_recording
@pytest.mark.parametrize("name", schemas())
def test_what_this_version_writes_and_answers_has_all_that_the_other_reads(recorded: Recorded, name: str) -> None:
    new = schemas()[name]
    # What a version promises binds from its release on; until then it is compared with itself.
    binds = recorded["version"] != recordings.CURRENT or recordings.is_released(recordings.CURRENT)
    old = recorded["schemas"][name] if binds else new
    if name == "plan request":  # which the other way round is asked by an older command
        old, new = new, old
        assert not [each for each in lost(new, old, (new, old)) if each.endswith("is gone")]
        return
    old, new = (each.get("openAPIV3Schema", each) for each in (old, new))
    assert list(lost(old, new, (old, new))) == []


@pytest.mark.parametrize(
    ("new", "problem"),
    [
        ({"properties": {"a": {"type": "string"}}}, "$.a: may be missing"),
        ({"properties": {"b": {"type": "string"}}, "required": ["a"]}, "$.a: is gone"),
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, "$.a: integer instead of string"),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}, ""),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["a"]}, "$.a: {'type"),
    ],
)
def test_what_an_older_reader_misses_is_named(new: dict[str, Any], problem: str) -> None:
    old = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    found = list(lost(old, {"type": "object", **new}, (old, new)))
    assert [each[: len(problem)] for each in found] == ([problem] if problem else [])
