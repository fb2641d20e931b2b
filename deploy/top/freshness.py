"""What is wrong with the table: data that is old, and loops of the manager that take too long."""

import msgspec

from deploy.manager_api import ManagerApi
from manager.nodeside.answers import Nodes
from shared import durations
from shared.errors import HeadroomError

QUIET_SECONDS = 3.0  # the manager may legitimately take that long to answer
LATE_REPORTS = 3  # so many intervals without a report from any node are no coincidence


class _Health(msgspec.Struct, frozen=True):
    overdue_loops: dict[str, float] = {}


def newest_report_seconds(answer: Nodes, silent_seconds: float) -> float | None:
    """The age of the newest report of any node, in an answer of that age; None before the first report."""
    newest = min((age for row in answer.nodes if (age := answer.report_seconds(row)) is not None), default=None)
    return None if newest is None else newest + silent_seconds


def stale_data(silent_seconds: float, report_seconds: float | None, report_interval_seconds: float) -> list[str]:
    """Why the numbers stand still, each with the age of the data.

    `silent_seconds`: since the manager's last answer; `report_seconds`: the age of the newest report of any node.
    """
    found = []
    if silent_seconds > QUIET_SECONDS:
        found.append(f"the manager does not answer: the table is {durations.render(int(silent_seconds))} old")
    if report_seconds is not None and report_seconds > LATE_REPORTS * report_interval_seconds:
        found.append(f"no report arrives: the newest report is {durations.render(int(report_seconds))} old")
    return found


def late_loops(manager: ManagerApi) -> list[str]:
    """Which of the manager's loops take too long, a line each; none while it does not answer."""
    try:
        overdue = msgspec.json.decode(manager.get("/healthz").content, type=_Health).overdue_loops
    except (HeadroomError, msgspec.MsgspecError):
        return []
    return [f"{loop}: the current iteration has run for {seconds:.0f} s" for loop, seconds in overdue.items()]
