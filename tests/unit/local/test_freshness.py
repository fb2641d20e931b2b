"""A table whose numbers stand still says so, with the age of the data."""

from dataclasses import replace

import pytest

from agent.reporter.schedule import Intervals, ReportedValues, ReportReason, Schedule
from deploy.local import freshness, profile, screen
from deploy.local.freshness import Seen
from deploy.local.profile import ProfileName
from deploy.local.screen import Amount, Nodes, Row, Table
from shared.quantity import Resources

FRESH = Seen(silent_seconds=0.5, report_seconds=4.0, report_interval_seconds=20.0)
AMOUNT = Amount(1000, 1 << 30)
ROW = Row(
    name="n1",
    simulated=False,
    allocatable=AMOUNT,
    requested=AMOUNT,
    used=AMOUNT,
    predicted_peak=None,
    reclaimable=None,
    mid=AMOUNT,
    reason="why",
    reported="2026-01-01T00:00:00Z",
    report_reason="PredictionChanged",
)
ANSWER = Nodes(cluster="headroom-1", time="2026-01-01T00:00:07Z", nodes=[ROW])


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (FRESH, []),
        (
            replace(FRESH, write_problem="database or disk is full", report_seconds=42.0),
            ["the API server takes no writes: the newest report is 42s old (database or disk is full)"],
        ),
        (
            replace(FRESH, write_problem="refused", report_seconds=None),
            ["the API server takes no writes: there is no report (refused)"],
        ),
        (replace(FRESH, silent_seconds=90.0), ["the manager does not answer: the table is 1m30s old"]),
        (replace(FRESH, report_seconds=61.0), ["no report arrives: the newest report is 1m1s old"]),
    ],
)
def test_every_source_of_stale_data_is_said_with_its_age(seen: Seen, expected: list[str]) -> None:
    assert freshness.warnings(seen) == expected


def test_the_table_shows_why_and_when_each_node_reported_last() -> None:
    shown = screen.plain(Table(ANSWER, "caption", silent_seconds=30.0))
    assert "last report" in shown
    assert "PredictionChanged / 37s ago" in shown


def test_the_terminal_names_what_is_stale_below_the_table() -> None:
    table = Table(ANSWER, "12:00:00  headroom-1", warnings=["the API server takes no writes: ..."])
    assert table.footer == "12:00:00  headroom-1\nSTALE: the API server takes no writes: ..."
    assert "STALE" in str(screen.rich_table(table).caption)


@pytest.mark.parametrize("name", list(ProfileName))
def test_a_fast_report_can_come_between_two_periodic_ones(name: ProfileName) -> None:
    times = profile.PROFILES[name]
    assert 2 * times.check_prediction_interval_seconds < times.reporting_interval_seconds


def test_in_the_demo_a_node_at_rest_reports_in_turn_periodically_and_forced_and_a_change_at_the_next_check() -> None:
    times = profile.PROFILES[ProfileName.DEMO]
    intervals = Intervals(
        times.reporting_interval_seconds, times.check_prediction_interval_seconds, times.force_update_interval_seconds
    )
    schedule, seen = Schedule(0.0, 1.0), list[ReportReason]()
    for second in range(100):
        cores = 2000 if second < 90 else 3000
        claim = ReportedValues(Resources(cores, 1 << 30), Resources(1000, 1 << 30))
        reason = schedule.due(second, intervals, claim, 5)
        if reason is not None:
            schedule.succeeded(second, claim)
            seen.append(reason)
    at_rest = [ReportReason.PERIODIC, ReportReason.FORCED]
    assert seen[:8] == at_rest * 4
    assert ReportReason.CHANGED in seen[8:]
