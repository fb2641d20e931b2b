"""A file's share of the suite's time, whatever the pace of the machine."""

import json
from pathlib import Path

import pytest

from tests.support import budgets

BUDGETED = {"a.py": 10.0, "b.py": 20.0, "c.py": 30.0}


@pytest.mark.parametrize("pace", [0.5, 1.0, 10.0])
def test_no_file_is_beyond_its_share_where_all_take_longer_or_less_long(pace: float) -> None:
    assert not list(budgets.beyond({file: seconds * pace for file, seconds in BUDGETED.items()}, BUDGETED))


def test_files_that_grow_or_are_new_and_long_are_beyond_their_share_the_worst_first() -> None:
    measured = BUDGETED | {"b.py": 60.0, "new.py": 5.0, "short.py": 0.5}
    assert list(budgets.beyond(measured, BUDGETED)) == [("b.py", 60.0, 20.0), ("new.py", 5.0, 0.0)]


def test_what_was_measured_renews_the_shares_and_what_is_gone_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tests" / "budgets.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"embedded": {"old.py": 1.0, "gone.py": 1.0}, "apiserver": {"old.py": 4.0}}))
    monkeypatch.setattr(budgets, "FILE", file)
    for name in ("old.py", "new.py"):
        (tmp_path / name).touch()
    budgets.write("embedded", {"new.py": 2.04})
    assert budgets.read("embedded") == {"new.py": 2.0, "old.py": 1.0}
    assert budgets.read("apiserver") == {"old.py": 4.0}
    assert budgets.read("none yet") == {}


def test_a_file_beyond_its_share_is_named_in_ci_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "read", lambda kind: BUDGETED)
    measured = BUDGETED | {"b.py": 60.0}
    monkeypatch.delenv("CI", raising=False)
    usual = list(budgets.lines("embedded", measured))
    assert usual[1] == "   60.0 s  b.py"
    monkeypatch.setenv("CI", "true")
    assert list(budgets.lines("embedded", measured))[len(usual) :] == [
        "BEYOND ITS SHARE: b.py took 60.0 s, and its share is 20.0 s"
    ]
