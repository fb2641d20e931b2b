"""The age of the data on the screen, and its cause: warns when the numbers of the table stop changing."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared import durations

QUIET_SECONDS = 3.0  # the manager may legitimately take that long to answer
LATE_REPORTS = 3  # so many intervals without a report from any node are no coincidence


@dataclass(frozen=True)
class Seen:
    """The inputs for the warnings.

    `silent_seconds`: since the manager's last answer; `report_seconds`: the age of the newest report of any node (None:
    there is none).
    """

    silent_seconds: float
    report_seconds: float | None
    report_interval_seconds: float


def warnings(seen: Seen) -> list[str]:
    """Why the numbers are older than they look, each with the age of the data; empty while the numbers are fresh."""
    known = seen.report_seconds
    found = []
    if seen.silent_seconds > QUIET_SECONDS:
        found.append(f"the manager does not answer: the table is {durations.render(int(seen.silent_seconds))} old")
    if known is not None and known > LATE_REPORTS * seen.report_interval_seconds:
        found.append(f"no report arrives: the newest report is {durations.render(int(known))} old")
    return found


def newest_report_seconds(ages: Sequence[float | None]) -> float | None:
    return min((age for age in ages if age is not None), default=None)
