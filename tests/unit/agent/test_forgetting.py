"""What a Node's annotations ask for is forgotten, once each, and nothing else is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.metric_cache import series
from shared import durations, names
from shared.api import forgetting
from tests.unit.agent.pods import NOW, pod
from tests.unit.agent.test_calibrated import Hourly, office, peak_milli

WEB = "default/Deployment/web"


def annotated(life: Hourly, *, node: str | None = None, workloads: object = None, ago_seconds: float = 0) -> float:
    """Asks for it; answers until when."""
    until = float(int(life.clock.now() - ago_seconds))
    texts = {}
    if node is not None:
        texts[names.ANNOTATION_FORGET] = node or durations.timestamp(until)
    if workloads is not None:
        texts[names.ANNOTATION_FORGET_WORKLOADS] = json.dumps(workloads)
    life.server.heed(texts)
    return until


def test_a_node_forgets_everything_once_and_goes_on_as_a_new_one(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    before = life.live(30, lambda _: 8.0)
    until = annotated(life, node="")
    life.live(0.25, lambda _: 1.0)
    assert life.server.model_count == 0
    *_, after = (life.step(900.0, lambda _: 1.0) for _ in range(8))
    young = Hourly(tmp_path / "young")
    *_, alike = (young.step(900.0, lambda _: 1.0) for _ in range(8))
    assert peak_milli(after) == peak_milli(alike) < peak_milli(before)
    assert after.prod is not None
    assert after.prod.samples == 8
    assert [one.kept.outcomes for one in after.promises] == [0, 2]
    assert after.last_forgotten == ("", until)
    assert not after.policy_problem


def test_after_a_restart_it_is_not_forgotten_once_more(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    life.live(5, office)
    until = annotated(life, node="")
    life.live(0.25, office)  # written at once, as a crash may come
    again = Hourly(tmp_path, life.clock)
    assert again.server.model_count == 0
    again.live(2, office)
    annotated(again, node=durations.timestamp(until))
    found = again.live(2, office)
    assert found.prod is not None
    assert found.prod.samples == 16
    assert found.last_forgotten == ("", until)


def test_a_workload_is_forgotten_with_its_pods_and_others_stay(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    mine = [replace(pod(name, cpu="8", age_seconds=10**7), workload=WEB) for name in "ab"]
    pods = [*mine, pod("c", cpu="4", age_seconds=10**7)]
    life.live(5, office, pods)
    annotated(life, workloads={WEB: durations.timestamp(life.clock.now())})
    life.live(0.25, office, pods)
    found = [life.server.history(key) for key in (*(one.uid for one in pods), series.PROD_PEAK)]
    assert [one is None for one in found] == [True, True, False, False]
    assert life.predict(*pods).last_forgotten == (WEB, float(int(life.clock.now() - 900)))


@pytest.mark.parametrize(
    ("node", "workloads", "problem"),
    [
        ("yesterday", None, "forget-prediction: 'yesterday': not an RFC 3339 instant"),
        ("9999-01-01T00:00:00Z", None, "forget node: lies in the future"),
        (None, [], "expected a JSON object"),
        (None, {WEB: 5}, "expected a JSON object"),
        (None, {"web": "2026-01-01T00:00:00Z"}, "'web': expected NAMESPACE/KIND/NAME"),
        (None, {WEB: "noon"}, "'noon': not an RFC 3339 instant"),
        (None, {f"a/b/{n}": "2026-01-01T00:00:00Z" for n in range(65)}, "expected at most 64 workloads"),
    ],
)
def test_what_means_nothing_is_refused_by_name_and_forgets_nothing(
    tmp_path: Path, node: str | None, workloads: Any, problem: str
) -> None:
    life = Hourly(tmp_path)
    life.live(1, office)
    count = life.server.model_count
    annotated(life, node=node, workloads=workloads)
    found = life.live(0.25, office)
    assert problem in found.policy_problem
    assert life.server.model_count == count
    assert found.last_forgotten is None
    life.server.heed({})
    assert not life.live(0.25, office).policy_problem


def test_a_bad_annotation_does_not_keep_the_other_from_being_heeded(tmp_path: Path) -> None:
    life = Hourly(tmp_path)
    life.live(1, office)
    annotated(life, node="", workloads={"web": "noon"})
    found = life.live(0.25, office)
    assert life.server.model_count == 0
    assert "expected NAMESPACE/KIND/NAME" in found.policy_problem


def test_only_what_is_past_and_new_is_due_and_what_is_remembered_is_bounded() -> None:
    wanted = forgetting.Wanted({"a/b/c": NOW, "a/b/d": NOW - 10, "a/b/e": NOW + 1})
    found = forgetting.due(wanted, {"a/b/d": NOW - 10}, NOW)
    assert found.until == {"a/b/c": NOW}
    assert found.problems == ("Node annotation: forget a/b/e: lies in the future",)
    many = {f"a/b/{number}": float(number) for number in range(200)}
    assert set(forgetting.newest(many).values()) == set(map(float, range(135, 200)))
