"""The autoscaler's journal keeps what mattered, and a file of it that may go away at any time."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from manager.autoscaler.cluster_state.state import Incident, IncidentKind
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import answers
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.reporting.decision_log import DecisionLog
from shared.errors import InvalidInput
from tests.unit.manager.objects import NOW
from tests.unit.manager.rounds import held, two_groups


def acting(number: int) -> Iteration:
    """A round that has done what it decided."""
    made = two_groups(number)
    return replace(made, actions=tuple(replace(action, done=True) for action in made.actions))


def numbers(decision_log: DecisionLog) -> list[int]:
    return [each.iteration for each in decision_log.iterations()]


def test_rounds_that_do_something_are_kept_with_all_they_say() -> None:
    decision_log = DecisionLog()
    for number in (1, 2):
        decision_log.note(acting(number))
    assert decision_log.iterations() == [answers.plan(acting(2)), answers.plan(acting(1))]


def test_advice_that_nobody_follows_is_told_once() -> None:
    decision_log = DecisionLog()
    for number in (1, 2, 3):
        decision_log.note(two_groups(number))
    assert numbers(decision_log) == [1]


def test_a_round_that_ends_like_the_one_before_is_no_news() -> None:
    decision_log = DecisionLog()
    for number, why in enumerate(["cluster unhealthy", "cluster unhealthy", "not leader"], start=1):
        decision_log.note(held(why, number))
    decision_log.note(two_groups(4, actions=()))
    decision_log.note(two_groups(5, actions=()))
    assert numbers(decision_log) == [4, 3, 1]
    assert decision_log.latest is not None
    assert decision_log.latest.number == 5


def test_what_fails_in_the_same_way_every_time_is_told_once() -> None:
    decision_log = DecisionLog()
    for number, error in enumerate(["forbidden", "forbidden", "no quota"], start=1):
        made = two_groups(number)
        decision_log.note(replace(made, actions=tuple(replace(action, error=error) for action in made.actions)))
    assert numbers(decision_log) == [3, 1]


def test_what_has_happened_since_is_news() -> None:
    decision_log = DecisionLog()
    decision_log.note(held("quiet", 1))
    decision_log.note(
        Iteration(2, NOW, blocked_reason="quiet", incidents=(Incident(IncidentKind.REGISTERED, "a", 2, 30.0),))
    )
    assert numbers(decision_log) == [2, 1]
    assert decision_log.iterations()[0].incidents[0].what == "registered"


def test_the_oldest_rounds_go_first_by_number_and_by_size() -> None:
    decision_log = DecisionLog(capacity=3)
    for number in range(1, 6):
        decision_log.note(acting(number))
    assert numbers(decision_log) == [5, 4, 3]
    assert [each.iteration for each in decision_log.iterations(1)] == [5]
    size = len(msgspec.json.encode(answers.plan(acting(1))))
    small = DecisionLog(most_bytes=2 * size + 10)
    for number in range(1, 6):
        small.note(acting(number))
    assert numbers(small) == [5, 4]


def test_what_is_brief_names_few_pods_and_counts_them_all() -> None:
    decision_log = DecisionLog()
    decision_log.note(two_groups(1))
    (short,), (whole,) = decision_log.iterations(brief=True), decision_log.iterations()
    assert [len(row.pods) for row in whole.pending] == [row.count for row in whole.pending] == [1, 5]
    assert [(len(row.pods), row.count) for row in short.pending] == [(1, 1), (3, 5)]
    assert short.options == whole.options


def test_the_last_round_is_told_also_when_it_is_no_news() -> None:
    decision_log = DecisionLog()
    assert decision_log.plan() is None
    for number in (1, 2):
        decision_log.note(held("not leader", number))
    assert decision_log.plan() == answers.plan(held("not leader", 2))
    assert decision_log.plan() is decision_log.plan(), "worked out once"


def test_every_round_that_is_kept_is_a_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"older": true}\n')
    decision_log = DecisionLog(str(path))
    decision_log.note(two_groups(1))
    decision_log.note(held("not leader", 2))
    lines = path.read_bytes().splitlines()
    assert len(lines) == 3
    assert [msgspec.json.decode(line, type=Plan).iteration for line in lines[1:]] == [1, 2]


def test_lines_go_to_standard_output_where_that_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    DecisionLog("-").note(two_groups(7))
    assert msgspec.json.decode(capsys.readouterr().out, type=Plan).iteration == 7


def test_a_file_that_cannot_be_written_is_refused_at_start_and_survived_later(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--decisions-log: decisionsLog: .*missing"):
        DecisionLog(str(tmp_path / "missing" / "decisions"))
    folder = tmp_path / "there"
    folder.mkdir()
    decision_log = DecisionLog(str(folder / "decisions"))
    (folder / "decisions").unlink()
    folder.rmdir()
    decision_log.note(two_groups(1))
    assert numbers(decision_log) == [1]
