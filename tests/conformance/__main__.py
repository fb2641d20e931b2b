"""Runs conformance files through the product's own functions: `python -m tests.conformance CASES [--groups a,b]`."""

import argparse
import functools
import re
import sys
from collections import Counter
from pathlib import Path

from shared.errors import InvalidInput
from tests.conformance import matching, reading, rows
from tests.conformance.adapters import Adapter, all_adapters

UNKNOWN_SHAPE = "(unknown shape)"


def check(row: rows.Row, adapter: Adapter) -> list[str]:
    """What is wrong with the adapter's answer; nothing when it passes. Raises Unanswered."""
    given = reading.watched(row.input)
    try:
        got = adapter(given)
        found = list(matching.differences(row.expected, got, tolerance=row.tolerance))
    except matching.Unanswered:
        raise
    except Exception as error:
        return [f"the adapter raised {type(error).__name__}: {error}"]
    return found + [f"input{path}: nothing has read it" for path in reading.ignored(row.group, given)]


def _judge(row: rows.Row, adapter: Adapter, passed: Counter[str], failed: Counter[str], skipped: Counter[str]) -> None:
    try:
        problems = check(row, adapter)
    except matching.Unanswered:
        skipped[row.group] += 1
        return
    if problems:
        failed[row.group] += 1
        print(f"FAILED {row.file} {row.id}", *problems, sep="\n    ")
    else:
        passed[row.group] += 1


def test_name(scenario: str) -> str:
    """What the test of a scenario begins with."""
    return "test_" + re.sub(r"\W", "_", scenario)


@functools.cache
def scenario_tests(folder: Path = Path(__file__).parents[1]) -> str:
    """The names of all tests, of which those of scenarios carry their ids."""
    return "\n".join(
        line.strip()
        for path in folder.rglob("test_*.py")
        for line in path.read_text().splitlines()
        if "def test_" in line
    )


def main(argv: list[str]) -> int:
    """Exit status 0 when every row passed, 1 when any failed or was skipped, 2 when the input is unusable."""
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("cases", type=Path, help="a file in the cases format, or a folder of them")
    parser.add_argument("--groups", default="", help="only these groups, separated by commas")
    options = parser.parse_args(argv)
    wanted = {name for name in options.groups.split(",") if name}
    adapters = all_adapters()
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    written = scenario_tests()
    told: dict[str, list[str]] = {"scenarios, each a test that carries the id": [], "scenarios without a test": []}
    with_test, without_test = told.values()
    try:
        for row in rows.read(options.cases):
            if isinstance(row, InvalidInput):
                failed[UNKNOWN_SHAPE] += 1
                print(f"FAILED {row}")
                continue
            if wanted and row.group not in wanted:
                continue
            if row.scenario:
                (with_test if test_name(row.id) in written else without_test).append(row.id)
            elif row.group not in adapters:
                skipped[row.group] += 1
            else:
                _judge(row, adapters[row.group], passed, failed, skipped)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    for group in sorted(passed.keys() | failed.keys() | skipped.keys()):
        print(f"{group}: {passed[group]} passed, {failed[group]} failed, {skipped[group]} skipped")
    for heading, ids in told.items():
        if ids:
            print(f"{heading}: {', '.join(ids)}")
    print(f"{passed.total()} passed, {failed.total()} failed, {skipped.total()} skipped")
    return 1 if failed or skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
