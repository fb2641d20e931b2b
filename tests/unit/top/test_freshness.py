"""A table whose numbers stand still says so, with the age of the data."""

import pytest

from agent.reporter.schedule import Intervals, ReportedValues, ReportReason, Schedule
from deploy.local import profile
from deploy.local.options import ProfileName
from deploy.top import freshness
from deploy.top.command import printed_table
from manager.nodeside.answers import Amount, NodeRow, Nodes
from shared.quantity import Resources

AMOUNT = Amount(1000, 1 << 30)
ROW = NodeRow(
    name="n1",
    simulated=False,
    allocatable=AMOUNT,
    requested=AMOUNT,
    used=AMOUNT,
    predicted_peak=None,
    reclaimable=None,
    mid=AMOUNT,
    batch=AMOUNT,
    reason="why",
    reported="2026-01-01T00:00:00Z",
    report_reason="PredictionChanged",
)
ANSWER = Nodes(cluster="headroom-1", time="2026-01-01T00:00:07Z", nodes=[ROW])


@pytest.mark.parametrize(
    ("silent_seconds", "report_seconds", "expected"),
    [
        (0.5, 4.0, []),
        (0.5, None, []),
        (90.0, 4.0, ["the manager does not answer: the table is 1m30s old"]),
        (0.5, 61.0, ["no report arrives: the newest report is 1m1s old"]),
    ],
)
def test_every_source_of_stale_data_is_said_with_its_age(
    silent_seconds: float, report_seconds: float | None, expected: list[str]
) -> None:
    assert freshness.stale_data(silent_seconds, report_seconds, report_interval_seconds=20.0) == expected


def test_a_table_that_is_printed_says_how_old_each_report_is_and_what_is_stale_below_it() -> None:
    text = printed_table(ANSWER, 30.0, ["no report arrives: ..."])
    heading, line, caption, stale, end = text.split("\n")
    assert heading.split()[-2:] == ["AGE", "WHY"]
    assert line.split()[-2:] == ["37s", "why"]
    assert caption.endswith("headroom-1")
    assert (stale, end) == ("STALE: no report arrives: ...", "")


@pytest.mark.parametrize("name", list(ProfileName))
def test_a_fast_report_can_come_between_two_periodic_ones(name: ProfileName) -> None:
    times = profile.PROFILES[name].agent
    assert 2 * times["checkPredictionInterval"] < times["reportingInterval"]


def test_in_the_demo_a_node_at_rest_reports_in_turn_periodically_and_forced_and_a_change_at_the_next_check() -> None:
    times = profile.PROFILES[ProfileName.DEMO].agent
    intervals = Intervals(times["reportingInterval"], times["checkPredictionInterval"], times["forceUpdateInterval"])
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
