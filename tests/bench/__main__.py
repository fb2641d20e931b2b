"""Prints the table of figures with the ratio to the baseline each was measured beside: `python -m tests.bench`."""

import argparse
import importlib
import pkgutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

import tests.bench
from tests.bench import committed
from tests.bench.committed import Figures
from tests.bench.row import Measure, Row
from tests.support.apiserver import EMBEDDED, REAL


def measures(only: Collection[str], cluster: str) -> Iterator[tuple[str, Measure]]:
    """What every module beside this one measures that offers `measures()`, or `measures_on(cluster)` where that
    matters; each by its module and function, and its number where a function measures several things.
    """
    for module in pkgutil.iter_modules(tests.bench.__path__):
        if module.name.startswith("__") or (only and module.name not in only):
            continue
        found = importlib.import_module(f"tests.bench.{module.name}")
        offered: Iterable[Measure] = ()
        if hasattr(found, "measures"):
            offered = found.measures()
        elif hasattr(found, "measures_on"):
            offered = found.measures_on(cluster)
        counted: Counter[str] = Counter()
        for measure in offered:
            name = f"{module.name}.{(measure.func if isinstance(measure, partial) else measure).__name__}"
            counted[name] += 1
            yield name if counted[name] == 1 else f"{name} {counted[name]}", measure


def header(before: Figures | None) -> str:
    columns = ["figure", "value", "unit", "reach", "baseline", "baseline value", "ratio"]
    columns += [] if before is None else ["before", "change"]
    columns.append("peers")
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def line(row: Row, before: Figures | None) -> str:
    """One row of a Markdown table; with its ratio of before, and how much of that it is now."""
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
    reach = "" if row.target is None else f"{row.target:g}"
    cells = [row.figure, f"{row.value:.4g}", row.unit, reach, row.baseline, f"{row.baseline_value:.4g}", ratio]
    if before is not None:
        then = before.get(row.figure, {}).get("ratio")
        cells += [f"{then:.3g}", f"x {row.ratio / then:.2f}"] if then and row.ratio else ["", ""]
    cells.append(row.peers)
    return f"| {' | '.join(cells)} |"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the rows to this file as JSON, beside others that it has")
    parser.add_argument(
        "--against",
        type=Path,
        nargs="?",
        const=committed.FIGURES,
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
    before = committed.load(options.against) if options.against else None
    print(header(before), flush=True)
    failed = False
    for name, measure in measures(options.only, options.cluster):
        began = time.monotonic()
        rows: list[Row] = []
        whole = True
        try:
            for row in measure():
                print(line(row, before), flush=True)
                rows.append(row)
        except Exception:
            whole = False
            print(f"{name} failed:\n{traceback.format_exc()}", file=sys.stderr)
        failed |= not whole
        if options.out and rows:
            committed.keep(options.out, name, rows, whole=whole)
        print(f"{name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if options.out and options.out.resolve() == committed.FIGURES:
        committed.document()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
