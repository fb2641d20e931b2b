"""The committed figures are those of the measures that there are, and the documentation shows them."""

import gc
from pathlib import Path

from tests.bench import committed
from tests.bench.__main__ import measures
from tests.bench.row import Row
from tests.support.apiserver import EMBEDDED, REAL

# Needs a machine that is a real node.
ELSEWHERE = {"isolation"}


def test_every_measure_has_its_figures_and_every_figure_its_measure() -> None:
    collecting = gc.get_threshold()
    there = {name for cluster in (EMBEDDED, REAL) for name, _ in measures((), cluster)}
    gc.set_threshold(*collecting)  # some measure with the manager's own
    kept = {figure.get("measure", name) for name, figure in committed.load().items()}
    without = {name.partition(".")[0] for name in there - kept} - ELSEWHERE
    assert (kept - there, without) == (set(), set())


def test_the_table_of_the_documentation_is_that_of_the_committed_figures() -> None:
    assert committed.documented(committed.DOCUMENT.read_text()) == committed.table(committed.load())


def test_what_a_measure_finds_replaces_what_it_found_before_whatever_the_names(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    committed.keep(path, "a.plan", [Row("plan -> 2,595 nodes", 2.0, "s", 1.0, "plain", 4.0)])
    committed.keep(path, "b.other", [Row("other", 1.0, "s", None, "plain", 0.0)])
    committed.keep(path, "a.plan", [Row("plan -> 2,626 nodes", 1.0, "s", 1.0, "plain", 4.0, peers="theirs: 9 s")])
    found = committed.load(path)
    assert list(found) == ["plan -> 2,626 nodes", "other"]
    assert committed.table(found).split("\n")[2:] == [
        "| plan -> 2,626 nodes | 1 s | 1 | plain: 4 | 0.25 | theirs: 9 s |",
        "| other | 1 s |  | the same: 0 |  |  |",
    ]
