"""The committed figures, and the table of the documentation that shows them: `python -m tests.bench.committed`."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.row import Row

FIGURES = Path(__file__).with_name("figures.json")
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
OF_ITS_OWN = "replay."  # the documentation has tables of its own for what is compared with several others
HEADINGS = ("figure", "value", "reach", "baseline beside it", "ratio", "peers, measured apart")

Figures = Mapping[str, Mapping[str, Any]]  # by the figure's name, with the measure that it is from


def load(path: Path = FIGURES) -> dict[str, dict[str, Any]]:
    """What the file has; nothing where there is none."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def keep(path: Path, measure: str, rows: Iterable[Row], *, whole: bool = True) -> None:
    """Writes the rows of a measure, in the place of all that it had if they are `whole`: names can change.

    A figure that says of no measure that it is from it is from none that there is, and goes.
    """
    new = {row.figure: {**asdict(row), "ratio": row.ratio, "measure": measure} for row in rows}
    gone = {None, measure} if whole else {None}
    others = {name: figure for name, figure in load(path).items() if figure.get("measure") not in gone}
    found = sorted((others | new).items(), key=lambda item: item[1]["measure"])
    path.write_text(json.dumps(dict(found), indent=1) + "\n")


def table(figures: Figures) -> str:
    """The Markdown table of the documentation, in the order of the measures.

    Of a measure with a target only rows with a target or peers are shown. A baseline is described once in a row.
    """
    with_target = {figure["measure"] for figure in figures.values() if figure["target"] is not None}
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    above = ""
    for name, figure in figures.items():
        unit, target, ratio = figure["unit"], figure["target"], figure["ratio"]
        beside_a_target = target is None and figure["measure"] in with_target and not figure.get("peers")
        if beside_a_target or figure["measure"].startswith(OF_ITS_OWN):
            continue
        baseline = "the same" if figure["baseline"] == above else figure["baseline"]
        above = figure["baseline"]
        cells = [name, f"{figure['value']:.3g} {unit}", "" if target is None else f"{target:g}"]
        cells += [f"{baseline}: {figure['baseline_value']:.3g}", "" if ratio is None else f"{ratio:.2g}"]
        lines.append(f"| {' | '.join([*cells, figure.get('peers', '')])} |")
    return "\n".join(lines)


def documented(text: str) -> str:
    """The first table of the documentation."""
    return text[text.index("| figure |") :].split("\n\n", 1)[0]


def document(path: Path = DOCUMENT) -> None:
    """Renews the table of the documentation."""
    text = path.read_text()
    path.write_text(text.replace(documented(text), table(load())))


if __name__ == "__main__":
    document()
    sys.exit(0)
