"""The table of figures is printed as it is measured, and what fails costs the others nothing."""

import json
from pathlib import Path

import pytest

import tests.bench
from tests.bench import __main__ as bench
from tests.bench import committed

BROKEN = """
def measures():
    return broken, fine

def broken():
    yield Row("first", 1.0, "s", None, "plain", 2.0)
    raise RuntimeError("no such cgroup")

def fine():
    return [Row("second", 3.0, "s", 2.5, "plain", 2.0, peers="theirs: 9 s")]
"""
ON_A_CLUSTER = """
def measures_on(cluster):
    return (lambda: [Row(f"on {cluster}", 1.0, "s", None, "plain", 0.0)],)
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("table_broken", BROKEN), ("table_on_a_cluster", ON_A_CLUSTER), ("table_without", "")):
        (tmp_path / f"{name}.py").write_text("from tests.bench.row import Row\n" + text)
    monkeypatch.setattr(tests.bench, "__path__", [str(tmp_path)])


def test_what_fails_loses_no_other_row_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[2:] == [
        "| first | 1 | s |  | plain | 2 | 0.5 |  |",
        "| second | 3 | s | 2.5 | plain | 2 | 1.5 | theirs: 9 s |",
        "| on embedded | 1 | s |  | plain | 0 |  |  |",
    ]
    assert "table_broken.broken failed" in err
    assert "no such cgroup" in err


def test_without_a_file_the_committed_figures_are_what_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = committed.load()
    assert figures
    assert all(each["value"] >= 0 and each["figure"] == figure for figure, each in figures.items())
    monkeypatch.setattr(committed, "FIGURES", tmp_path / "figures.json")
    committed.FIGURES.write_text(json.dumps({"second": {"ratio": 3.0}}))
    bench.main(["table_broken", "--against"])
    assert capsys.readouterr().out.splitlines()[-1].endswith("| 1.5 | 3 | x 0.50 | theirs: 9 s |")


def test_figures_are_kept_by_name_and_compared_by_their_ratios(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "figures.json"
    kept.write_text(
        json.dumps({"second": {"ratio": 1.0}, "of another module": {"ratio": 2.0, "measure": "another.one"}})
    )
    assert bench.main(["table_broken", "--against", str(kept), "--out", str(kept)]) == 1
    first, second = capsys.readouterr().out.splitlines()[2:]
    assert first.endswith("| 0.5 |  |  |  |")
    assert second.endswith("| 1.5 | 1 | x 1.50 | theirs: 9 s |")
    found = json.loads(kept.read_text())
    assert {figure: each["ratio"] for figure, each in found.items()} == {
        "first": 0.5,
        "of another module": 2.0,
        "second": 1.5,
    }
