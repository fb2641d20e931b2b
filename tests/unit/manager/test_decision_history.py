"""What was decided survives the process that decided it: kept in one ConfigMap, bounded, and read by the next."""

from dataclasses import replace

import pytest

from manager.autoscaler.reporting import answers, decision_log
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.reporting.decision_log import DecisionHistory
from shared import names
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.configmap_store import ConfigMapStore
from shared.kube.errors import Conflict
from tests.unit.manager.rounds import two_groups


class Kept(ConfigMapStore):
    """The ConfigMap's text as one process after the other finds it."""

    def __init__(self) -> None:
        client = Client(Connection("http://127.0.0.1:1"), "test")
        super().__init__(client, "ns", names.DECISIONS_CONFIG_MAP, decision_log.KEY)
        self.text: str | None = None
        self.writes = 0
        self.error: Exception | None = None

    def read(self) -> tuple[str | None, str]:
        return self.text, "1"

    def write(self, text: str, annotations: object = None) -> str:
        if self.error is not None:
            raise self.error
        self.text, self.writes = text, self.writes + 1
        return "2"


def rounds(*numbers: int) -> list[Plan]:
    """Brief, the newest first."""
    return [answers.brief(answers.plan(two_groups(number))) for number in numbers]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_the_history_of_decisions_survives_a_restart_and_is_marked_as_earlier(kept: Kept) -> None:
    first = rounds(2, 1)
    before = DecisionHistory(kept)
    before.store(first, 0.0)
    assert before.earlier == ()

    after = DecisionHistory(kept)
    after.store([], 0.0)
    assert [each.iteration for each in after.earlier] == [2, 1]
    assert list(after.earlier) == first

    after.store(rounds(1), 0.0)
    third = DecisionHistory(kept)
    third.store([], 0.0)
    assert [each.iteration for each in third.earlier] == [1, 2, 1]


def test_what_is_known_is_not_written_again_and_what_is_new_not_at_once(kept: Kept) -> None:
    kept_here = DecisionHistory(kept)
    made = rounds(1)
    kept_here.store(made, 0.0)
    kept_here.store(made, 100.0)
    assert kept.writes == 1
    more = [*rounds(2), *made]
    kept_here.store(more, 100.0)
    assert kept.writes == 2
    newest = [*rounds(3), *more]
    kept_here.store(newest, 100.0 + decision_log.INTERVAL_SECONDS / 2)
    assert kept.writes == 2
    kept_here.store(newest, 100.0 + decision_log.INTERVAL_SECONDS)
    assert kept.writes == 3


def test_it_stays_within_its_bound_and_loses_the_oldest(kept: Kept) -> None:
    (one,) = rounds(1)
    many = [replace(one, iteration=number) for number in range(5000, 0, -1)]
    DecisionHistory(kept).store(many, 0.0)
    assert kept.text is not None
    assert len(kept.text.encode()) <= decision_log.STORED_BYTES + 2
    reader = DecisionHistory(kept)
    reader.store([], 0.0)
    assert reader.earlier[0].iteration == 5000
    assert 10 < len(reader.earlier) < 5000


@pytest.mark.parametrize("text", ["{", '[{"process": 1}]', "[" * 5000, "null"])
def test_what_is_no_history_is_passed_by(kept: Kept, text: str) -> None:
    kept.text = text
    reader = DecisionHistory(kept)
    reader.store(rounds(1), 0.0)
    assert reader.earlier == ()
    assert kept.writes == 1


def test_a_write_that_another_manager_came_before_is_made_up_for(kept: Kept) -> None:
    ours = DecisionHistory(kept)
    ours.store([], 0.0)
    theirs = DecisionHistory(kept)
    theirs.store(rounds(7), 0.0)
    kept.error = Conflict(409, "Conflict", "the object has been modified")
    made = rounds(1)
    ours.store(made, 0.0)
    kept.error = None
    ours.store(made, 100.0)
    assert [each.iteration for each in ours.earlier] == [7]
    assert kept.writes == 2
