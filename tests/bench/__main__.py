"""Prints the table of figures with the ratio to the baseline each was measured beside: `python -m tests.bench`."""

import argparse
import importlib
import json
import pkgutil
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tests.bench
from tests.bench.row import Measure, Row
from tests.support.apiserver import EMBEDDED, REAL

Before = Mapping[str, Mapping[str, Any]]

FIGURES = Path(__file__).with_name("figures.json")  # the committed ones


def measures(only: Collection[str], cluster: str) -> Iterator[tuple[str, Measure]]:
    """What every module beside this one measures that offers `measures()`, or `measures_on(cluster)` where that
    matters.
    """
    for module in pkgutil.iter_modules(tests.bench.__path__):
        if module.name.startswith("__") or (only and module.name not in only):
            continue
        found = importlib.import_module(f"tests.bench.{module.name}")
        if hasattr(found, "measures"):
            yield from ((module.name, measure) for measure in found.measures())
        elif hasattr(found, "measures_on"):
            yield from ((module.name, measure) for measure in found.measures_on(cluster))


def header(before: Before | None) -> str:
    columns = ["figure", "value", "unit", "reach", "baseline", "baseline value", "ratio"]
    columns += [] if before is None else ["before", "change"]
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def line(row: Row, before: Before | None) -> str:
    """One row of a Markdown table; with its ratio of before, and how much of that it is now."""
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
    reach = "" if row.target is None else f"{row.target:g}"
    cells = [row.figure, f"{row.value:.4g}", row.unit, reach, row.baseline, f"{row.baseline_value:.4g}", ratio]
    if before is not None:
        then = before.get(row.figure, {}).get("ratio")
        cells += [f"{then:.3g}", f"x {row.ratio / then:.2f}"] if then and row.ratio else ["", ""]
    return f"| {' | '.join(cells)} |"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the rows to this file as JSON, beside others that it has")
    parser.add_argument(
        "--against",
        type=Path,
        nargs="?",
        const=FIGURES,
        help="compare with the rows of such a file, by default with the committed figures",
    )
    parser.add_argument(
        "--cluster",
        choices=(EMBEDDED, REAL),
        default=EMBEDDED,
        help="the API server of what needs one: the embedded one, or a real one from KUBEBUILDER_ASSETS or PATH",
    )
    parser.add_argument("only", nargs="*", help="only these modules of tests/bench")
    options = parser.parse_args(argv)
    before = json.loads(options.against.read_text()) if options.against else None
    print(header(before), flush=True)
    failed = False
    for name, measure in measures(options.only, options.cluster):
        try:
            for row in measure():
                print(line(row, before), flush=True)
                if options.out:
                    _keep(row, options.out)
        except Exception:
            failed = True
            print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr)
    return int(failed)


def _keep(row: Row, path: Path) -> None:
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows[row.figure] = {**asdict(row), "ratio": row.ratio}
    path.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
