"""The rows kept in data/ hold, and the runner can tell when they do not."""

import json
from pathlib import Path

import pytest

from tests.conformance import __main__ as runner
from tests.conformance import differences, matching, rows
from tests.conformance.adapters import all_adapters

# Rows that the product has no answer to, by design.
UNANSWERED = {
    "its pods are told in words",
}

DATA = Path(__file__).parent / "data"
ADAPTERS = all_adapters()
ALL_ROWS = [row for row in rows.read(DATA) if isinstance(row, rows.Row)]
ROWS = [row for row in ALL_ROWS if row.group in ADAPTERS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.group}-{row.id}")
def test_the_product_gives_the_expected_answer(row: rows.Row) -> None:
    try:
        wrong = runner.check(row, ADAPTERS[row.group])
    except matching.Unanswered as why:
        wrong = [] if str(why) in UNANSWERED else [f"unanswered: {why}"]
    except matching.KnownDifference:
        wrong = []
    assert wrong == []


def test_what_a_row_says_of_a_node_is_heard() -> None:
    own = {"node.koordinator.sh/colocation-strategy": '{"metricReportIntervalSeconds": 20}'}
    answer = ADAPTERS["nodemetric_spec"]({"colocation-config": '{"enable": true}', "nodeAnnotations": own})
    assert not list(matching.differences({"spec": {"reportIntervalSeconds": 20}}, answer))


def test_of_two_resource_lists_only_common_keys_stay() -> None:
    lists = {"a": {"cpu": "10"}, "b": {"memory": "1Gi", "cpu": "6"}}
    assert ADAPTERS["resource_util"](lists) == {"cpu": "6"}


@pytest.mark.parametrize(
    ("expected", "got", "agrees"),
    [
        ({"a": 1}, {"a": 1, "extra": 2}, True),
        ({"a": 1}, {}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": None}, {}, False),
        ([1, 2], [1, 2, 3], False),
        ({"cpu_milli": 5_000_000}, {"cpu_milli": 5_000_001}, False),
        ({"memory": 5_000_000}, {"memory": 5_000_001}, True),
        ({"memory": 5_000_000}, {"memory": 5_000_002}, False),
        (1.0, 1.0 + 1e-10, True),
        (1.0, 1.0 + 1e-8, False),
        ("x", "y", False),
    ],
)
def test_an_answer_agrees_only_within_the_tolerances(expected: object, got: object, agrees: bool) -> None:
    assert (not list(matching.differences(expected, got))) is agrees


@pytest.mark.parametrize(
    ("cases", "last_line", "status"),
    [
        (
            [{"id": "1", "group": "no-such-group", "input": {}, "expected": {}}],
            "0 passed, 0 failed, 1 skipped, 0 known differences",
            1,
        ),
        (
            [{"id": "1", "group": "no-such-group", "input": "words", "expected": {}, "scenario": True}],
            "0 passed, 0 failed, 0 skipped, 0 known differences",
            0,
        ),
        (
            [
                {
                    "id": "1",
                    "group": "resource_diff",
                    "input": {"old": "1", "new": "2", "threshold": 2},
                    "expected": {"diff": True},
                }
            ],
            "0 passed, 1 failed, 0 skipped, 0 known differences",
            1,
        ),
        (
            [
                {
                    "id": "1",
                    "group": "resource_diff",
                    "input": {"old": "1", "new": "2", "threshold": 2},
                    "expected": {"diff": False},
                }
            ],
            "1 passed, 0 failed, 0 skipped, 0 known differences",
            0,
        ),
    ],
)
def test_the_runner_counts_and_exits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cases: list[object], last_line: str, status: int
) -> None:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": cases}))
    assert runner.main([str(file)]) == status
    assert capsys.readouterr().out.splitlines()[-1] == last_line


def test_a_known_difference_is_counted_apart_with_its_reason_and_must_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    differs: dict[str, object] = {**GOOD, "id": "differs", "expected": {"diff": True}}
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": [differs, GOOD]}))
    monkeypatch.setattr(differences, "KNOWN", {"differs": "on purpose"})
    assert runner.main([str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "known difference: on purpose: differs" in lines
    assert lines[-1] == "1 passed, 0 failed, 0 skipped, 1 known differences"
    monkeypatch.setattr(differences, "KNOWN", {"good": "on purpose"})
    assert runner.main([str(file)]) == 1
    assert "listed as a known difference (on purpose), and there is none" in capsys.readouterr().out


def test_an_unusable_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.json"
    file.write_text("{")
    assert runner.main([str(file)]) == 2
    assert "cases.json" in capsys.readouterr().err


GOOD_INPUT: dict[str, object] = {"old": "1", "new": "2", "threshold": 2}
GOOD: dict[str, object] = {
    "id": "good",
    "group": "resource_diff",
    "input": GOOD_INPUT,
    "expected": {"diff": False},
}


@pytest.mark.parametrize(
    ("unknown", "words"),
    [
        ({"id": "1"}, "a row needs input and expected"),
        ({"input": 1, "expected": 2}, "a row needs one of group, area, category, kind"),
        ("a row in words", "a row needs input and expected"),
        ({**GOOD, "tolerance": "some"}, "cases[0].tolerance: 'some'"),
        ({**GOOD, "input": ["not", "an", "object"]}, "the adapter raised"),
        ({**GOOD, "input": None}, "the adapter raised"),
        ({**GOOD, "expected": {"diff": {"2": True}}}, "expected {'2': True}"),
    ],
)
def test_a_row_of_unknown_shape_is_a_failure_that_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unknown: object, words: str
) -> None:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": [unknown, GOOD]}))
    assert runner.main([str(file)]) == 1
    lines = capsys.readouterr().out
    assert words in lines
    assert lines.splitlines()[-1] == "1 passed, 1 failed, 0 skipped, 0 known differences"


def test_cases_that_are_no_list_are_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text('{"cases": {"id": "1"}}')
    (tmp_path / "b.json").write_text(json.dumps({"cases": [GOOD]}))
    assert runner.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped, 0 known differences"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({**GOOD_INPUT, "unit": "cpu"}, "input.unit"),
        ({**GOOD_INPUT, "more": {"nested": 1}}, "input.more"),
    ],
)
def test_input_that_nothing_has_read_is_a_failure(given: object, path: str) -> None:
    row = rows.Row("cases.json", "1", "resource_diff", given, {"diff": False}, 0.0, scenario=False)
    assert runner.check(row, ADAPTERS["resource_diff"]) == [f"{path}: nothing has read it"]
    for_people = rows.Row("cases.json", "1", "resource_diff", {**GOOD_INPUT, "note": "x"}, {}, 0.0, scenario=False)
    assert runner.check(for_people, ADAPTERS["resource_diff"]) == []


def test_every_scenario_has_a_test_that_carries_its_id() -> None:
    written = runner.scenario_tests()
    assert [row.id for row in ALL_ROWS if row.scenario and runner.test_name(row.id) not in written] == []


def test_a_scenario_without_a_test_is_listed_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"id": "nowhere-77", "group": "g", "input": "words", "expected": {}, "scenario": True}
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [told]}))
    assert runner.main([str(tmp_path)]) == 0
    assert "scenarios without a test: nowhere-77" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("expected", "agrees"),
    [
        ({"2": 4.0, "3": 9.0}, True),
        ({"2": 5.0}, False),
        ([[2, 4.0]], True),
        ([{"x": 3, "y": 9.0}], True),
        ([[3, 4.0]], False),
    ],
)
def test_a_question_inside_the_answer_is_asked(expected: object, agrees: bool) -> None:
    squared = matching.Asked(lambda number: number * number, "x", "y")
    assert (not list(matching.differences(expected, squared))) is agrees


def test_a_claim_inside_the_answer_is_judged() -> None:
    positive = matching.Holds(lambda claimed: isinstance(claimed, int) and claimed > 0)
    assert not list(matching.differences({"a": 1}, {"a": positive}))
    assert list(matching.differences({"a": -1}, {"a": positive}))
