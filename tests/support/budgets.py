"""What share of the suite's time each file has: `make budgets` writes what the last whole runs measured.

A share is compared with the others' of the same run, so that a slow or busy machine changes nothing.
"""

import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE = Path(__file__).parents[1] / "budgets.json"
MEASURED = "seconds"  # folder in pytest's cache: what the last run on each kind of cluster took
GROWTH = 1.5
SLACK_SECONDS = 3.0  # the noise of a file that takes next to nothing

Seconds = Mapping[str, float]  # by file


def read(cluster_kind: str) -> Seconds:
    """The seconds that each file took when the budgets were written."""
    shares: dict[str, dict[str, float]] = json.loads(FILE.read_text())
    return shares.get(cluster_kind, {})


def beyond(measured: Seconds, budgeted: Seconds) -> Iterator[tuple[str, float, float]]:
    """Files that took more than their share, with the seconds they took and the share, the worst first."""
    paces = [measured[file] / share for file, share in budgeted.items() if share >= 1.0 and file in measured]
    pace = statistics.median(paces or [1.0])
    excess = {file: seconds - budgeted.get(file, 0.0) * pace * GROWTH for file, seconds in measured.items()}
    for file in sorted(excess, key=lambda file: -excess[file]):
        if excess[file] > SLACK_SECONDS * max(1.0, pace):
            yield file, measured[file], budgeted.get(file, 0.0) * pace


def slowest(measured: Seconds, count: int = 10) -> list[tuple[str, float]]:
    return sorted(measured.items(), key=lambda item: -item[1])[:count]


def write(cluster_kind: str, measured: Seconds) -> None:
    """Renews the shares of what was measured, and forgets files that are gone."""
    root = FILE.parents[1]
    shares: dict[str, Seconds] = json.loads(FILE.read_text())
    known = {**shares.get(cluster_kind, {}), **{file: round(seconds, 1) for file, seconds in measured.items()}}
    shares[cluster_kind] = {file: known[file] for file in sorted(known) if (root / file).exists()}
    FILE.write_text(json.dumps(shares, indent=1) + "\n")


def last_runs(cache: Path) -> dict[str, Seconds]:
    """What the last runs measured, by kind of cluster. `cache` is pytest's."""
    return {file.stem: json.loads(file.read_text()) for file in sorted((cache / "d" / MEASURED).glob("*.json"))}


def lines(cluster_kind: str, measured: Seconds) -> Iterator[str]:
    """The slowest files, and in CI those beyond their share."""
    yield f"the slowest files, of {len(measured)} on the {cluster_kind} cluster:"
    for file, seconds in slowest(measured):
        yield f"{seconds:7.1f} s  {file}"
    if not os.environ.get("CI"):
        return
    for file, seconds, share in beyond(measured, read(cluster_kind)):
        yield f"BEYOND ITS SHARE: {file} took {seconds:.1f} s, and its share is {share:.1f} s"


if __name__ == "__main__":
    for kind, found in last_runs(FILE.parents[1] / ".pytest_cache").items():
        if sys.argv[1] == "write":
            write(kind, found)
        else:
            print("\n".join(lines(kind, found)))
