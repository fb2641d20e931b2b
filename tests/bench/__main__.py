"""Prints the table of figures with the ratio to the baseline each was measured beside: `python -m tests.bench`."""

import argparse
import importlib
import json
import pkgutil
import sys
from dataclasses import asdict
from pathlib import Path

import tests.bench
from tests.bench.row import Row
from tests.support.apiserver import EMBEDDED, REAL


def measure(only: set[str], cluster: str = EMBEDDED) -> list[Row]:
    """The rows of every module beside this one that offers `rows()`, or `rows_on(cluster)` where that matters."""
    found: list[Row] = []
    for module in pkgutil.iter_modules(tests.bench.__path__):
        if module.name.startswith("__") or (only and module.name not in only):
            continue
        measured = importlib.import_module(f"tests.bench.{module.name}")
        if hasattr(measured, "rows"):
            print(f"measuring {module.name} ...", file=sys.stderr)
            found += measured.rows()
        elif hasattr(measured, "rows_on"):
            print(f"measuring {module.name} on the {cluster} API server ...", file=sys.stderr)
            found += measured.rows_on(cluster)
    return found


def render(rows: list[Row]) -> str:
    """A Markdown table, one row a figure."""
    lines = ["| figure | value | unit | reach | baseline | baseline value | ratio |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        reach = "" if row.target is None else f"{row.target:g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
        lines.append(
            f"| {row.figure} | {row.value:.4g} | {row.unit} | {reach} | {row.baseline} "
            f"| {row.baseline_value:.4g} | {ratio} |"
        )
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the rows to this file as JSON")
    parser.add_argument(
        "--cluster",
        choices=(EMBEDDED, REAL),
        default=EMBEDDED,
        help="the API server of what needs one: the embedded one, or a real one from KUBEBUILDER_ASSETS or PATH",
    )
    parser.add_argument("only", nargs="*", help="only these modules of tests/bench")
    options = parser.parse_args(argv)
    rows = measure(set(options.only), options.cluster)
    print(render(rows))
    if options.out:
        options.out.write_text(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
