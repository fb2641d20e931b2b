"""Runs conformance files through the product's own functions: `python -m tests.conformance CASES [--groups a,b]`."""

import argparse
import functools
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from shared.errors import InvalidInput
from tests.conformance import differences, matching, reading, rows
from tests.conformance.adapters import Adapter, all_adapters

UNKNOWN_SHAPE = "(unknown shape)"


def check(row: rows.Row, adapter: Adapter) -> list[str]:
    """What is wrong with the adapter's answer; nothing when it passes. Raises Unanswered and KnownDifference."""
    given = reading.watched(row.input)
    try:
        got = adapter(given)
        found = list(matching.differences(row.expected, got, tolerance=row.tolerance))
    except (matching.Unanswered, matching.KnownDifference):
        raise
    except Exception as error:
        return [f"the adapter raised {type(error).__name__}: {error}"]
    problems = found + [f"input{path}: nothing has read it" for path in reading.ignored(row.group, given)]
    reason = differences.KNOWN.get(row.id)
    if reason is None:
        return problems
    if problems:
        raise matching.KnownDifference(reason)
    return [f"listed as a known difference ({reason}), and there is none"]


@dataclass
class Tally:
    """How many rows of each group passed, failed and were skipped, and the known differences by their reason."""

    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)
    by_reason: dict[str, list[str]] = field(default_factory=dict)

    def judge(self, row: rows.Row, adapter: Adapter) -> None:
        try:
            problems = check(row, adapter)
        except matching.Unanswered:
            self.skipped[row.group] += 1
            return
        except matching.KnownDifference as reason:
            self.differing[row.group] += 1
            self.by_reason.setdefault(str(reason), []).append(row.id)
            return
        if problems:
            self.failed[row.group] += 1
            print(f"FAILED {row.file} {row.id}", *problems, sep="\n    ")
        else:
            self.passed[row.group] += 1

    def print(self) -> None:
        counts = {name: getattr(self, attribute) for name, attribute in _COUNTED.items()}
        for group in sorted({group for count in counts.values() for group in count}):
            print(f"{group}: {', '.join(f'{count[group]} {name}' for name, count in counts.items())}")
        for reason, ids in sorted(self.by_reason.items()):
            print(f"known difference: {reason}: {', '.join(ids)}")

    def print_total(self) -> None:
        print(", ".join(f"{getattr(self, attribute).total()} {name}" for name, attribute in _COUNTED.items()))


_COUNTED = {"passed": "passed", "failed": "failed", "skipped": "skipped", "known differences": "differing"}


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
    """Exit status 0 when every row passed or is a known difference, 1 when any failed or was skipped, 2 when the input
    is unusable.
    """
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("cases", type=Path, help="a file in the cases format, or a folder of them")
    parser.add_argument("--groups", default="", help="only these groups, separated by commas")
    options = parser.parse_args(argv)
    wanted = {name for name in options.groups.split(",") if name}
    adapters = all_adapters()
    tally = Tally()
    written = scenario_tests()
    told: dict[str, list[str]] = {"scenarios, each a test that carries the id": [], "scenarios without a test": []}
    with_test, without_test = told.values()
    try:
        for row in rows.read(options.cases):
            if isinstance(row, InvalidInput):
                tally.failed[UNKNOWN_SHAPE] += 1
                print(f"FAILED {row}")
                continue
            if wanted and row.group not in wanted:
                continue
            if row.scenario:
                (with_test if test_name(row.id) in written else without_test).append(row.id)
            elif row.group not in adapters:
                tally.skipped[row.group] += 1
            else:
                tally.judge(row, adapters[row.group])
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    tally.print()
    for heading, ids in told.items():
        if ids:
            print(f"{heading}: {', '.join(ids)}")
    tally.print_total()
    return 1 if tally.failed or tally.skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
