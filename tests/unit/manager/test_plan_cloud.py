"""The cloud for questions, which are asked beside the rounds."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.errors import Later, NoAnswer, NotAsked, Unavailable
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.environment import PlanCloud
from shared.api.core import Node
from tests.unit.manager.clouds import NODE, MemoryCloud

OURS = Ownership({"web": None})
SECONDS = 20.0  # that a question may take


class HangingCloud(MemoryCloud):
    """Its template hangs as its refresh does, when it is told to."""

    def __init__(self, *groups: Group) -> None:
        super().__init__(*groups)
        self.no_template = threading.Event()
        self.no_template.set()
        self.asked = threading.Event()

    def refresh(self) -> None:
        self.asked.set()
        super().refresh()

    def template(self, group: str) -> Node:
        self.asked.set()
        self.no_template.wait(30)
        return super().template(group)


@pytest.fixture
def cloud() -> Iterator[HangingCloud]:
    found = HangingCloud(Group("web", 0, 5, 1))
    yield found
    found.no_template.set()
    if found.hang is not None:
        found.hang.set()


def asking(cloud: MemoryCloud, guard: Guard, seconds: float = SECONDS) -> PlanCloud:
    found = PlanCloud(cloud, guard, deadline_seconds=seconds)
    found.begin()
    return found


@contextlib.contextmanager
def doing(work: "threading.Thread", begun: threading.Event) -> Iterator[None]:
    """While `work` is under way."""
    begun.clear()
    work.start()
    assert begun.wait(SECONDS)
    assert work.is_alive()
    yield
    assert work.is_alive()


def test_a_question_is_answered_while_the_cloud_is_refreshed(cloud: HangingCloud) -> None:
    guard = Guard(cloud, OURS)
    guard.observe()
    cloud.hang = threading.Event()
    with doing(threading.Thread(target=guard.observe, daemon=True), cloud.asked):
        question = asking(cloud, guard)
        assert question.observed.groups["web"].group.target_size == 1
        assert (question.template("web"), list(question.machine_types())) == (NODE, ["m"])


def test_the_cloud_is_refreshed_while_a_question_is_answered(cloud: HangingCloud) -> None:
    guard = Guard(cloud, OURS)
    guard.observe()
    cloud.no_template.clear()
    question = asking(cloud, guard)
    with doing(threading.Thread(target=lambda: question.template("web"), daemon=True), cloud.asked):
        cloud.listed = [Group("web", 0, 5, 4)]
        assert guard.observe().groups["web"].group.target_size == 4


def test_a_question_waits_for_a_silent_cloud_once_and_not_for_each_answer(cloud: HangingCloud) -> None:
    guard = Guard(cloud, OURS)
    guard.observe()
    cloud.no_template.clear()
    question = asking(cloud, guard, seconds=0.05)
    with pytest.raises(NoAnswer):
        question.template("web")
    with pytest.raises(NotAsked):
        question.gpus()
    cloud.no_template.set()
    with pytest.raises(Later):  # whether it has ended by now or not
        question.gpus()


def test_a_question_stays_at_what_was_seen_while_rounds_go_on(cloud: HangingCloud) -> None:
    guard = Guard(cloud, OURS)
    with pytest.raises(Unavailable):
        asking(cloud, guard)
    guard.observe()
    question = asking(cloud, guard)
    cloud.listed = [Group("web", 0, 5, 4)]
    guard.observe()
    assert question.observed.groups["web"].group.target_size == 1
    question.begin()
    assert question.observed.groups["web"].group.target_size == 4


def test_templates_are_asked_for_again_once_the_cloud_was_observed_again(cloud: HangingCloud) -> None:
    guard = Guard(cloud, OURS)
    guard.observe()
    question = asking(cloud, guard)
    assert question.template("web") == NODE
    cloud.given_template = Node(status=NODE.status, spec=NODE.spec)
    question.begin()
    assert question.template("web") is not cloud.given_template
    guard.observe()
    question.begin()
    assert question.template("web") is cloud.given_template


def test_nothing_is_known_after_a_refresh_that_failed(cloud: HangingCloud) -> None:
    guard = Guard(cloud, OURS)
    guard.observe()
    cloud.outage = Unavailable("memory", "", "out")
    with pytest.raises(Unavailable, match="out"):
        guard.observe()
    with pytest.raises(Later):
        asking(cloud, guard)
