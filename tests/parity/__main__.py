"""`python -m tests.parity record|report`: records what kube-apiserver answers; compares, and writes docs/parity.md."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.parity import compare, report
from tests.parity.accepted import unaccepted
from tests.parity.areas import AREAS
from tests.parity.behaviours import Area
from tests.support.apiserver import EmbeddedApiServer, RealApiServer


def record(areas: Sequence[Area]) -> None:
    with tempfile.TemporaryDirectory() as directory, contextlib.closing(RealApiServer(Path(directory))) as server:
        for area in areas:
            compare.save(area.name, compare.answers(server, area))
            print(f"{area.name}: {len(area.behaviours)} behaviours recorded")


def write_report(areas: Sequence[Area]) -> int:
    """Writes the list; prints, and counts, the differences that nobody accepted."""
    recorded = {area.name: compare.load(area.name) for area in areas}
    with tempfile.TemporaryDirectory() as directory, contextlib.closing(EmbeddedApiServer(Path(directory))) as server:
        found = {area.name: compare.found(recorded[area.name], compare.answers(server, area)) for area in areas}
    outstanding = [
        f"{area.name}: {sentence}: {item}"
        for area in areas
        for sentence, items in found[area.name].items()
        for item in unaccepted(area.name, sentence, items)
    ]
    print(*outstanding, f"{len(outstanding)} differences outstanding", sep="\n")
    if len(areas) == len(AREAS):
        report.PAGE.write_text(report.page(recorded, found, areas), encoding="utf-8")
    return len(outstanding)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("command", choices=("record", "report"))
    parser.add_argument("--area", action="append", choices=[area.name for area in AREAS], help="only these")
    arguments = parser.parse_args()
    areas = [area for area in AREAS if not arguments.area or area.name in arguments.area]
    if arguments.command == "record":
        record(areas)
        return 0
    return 1 if write_report(areas) else 0


if __name__ == "__main__":
    sys.exit(main())
