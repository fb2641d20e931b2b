"""A report goes out on its beat, when the claim changes, when it has become old, and again until it arrives."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from agent.reporter.schedule import Intervals, ReportedValues, ReportReason, Schedule, differs
from shared.quantity import Resources

INTERVALS = Intervals(report=60, check=20, force=600)
CLAIM = ReportedValues(Resources(1000, 1000), Resources(500, 500))


def due(
    schedule: Schedule, now: float, claim: ReportedValues = CLAIM, intervals: Intervals = INTERVALS
) -> ReportReason | None:
    return schedule.due(now, intervals, claim, 5.0)


def reported(now: float = 0.0) -> Schedule:
    schedule = Schedule(now, first_after=0.0)
    assert due(schedule, now) is ReportReason.PERIODIC
    schedule.succeeded(now, CLAIM)
    return schedule


def test_the_first_report_waits_for_its_random_time() -> None:
    schedule = Schedule(0.0, first_after=12.0)
    assert due(schedule, 11.9) is None
    assert due(schedule, 12.0) is ReportReason.PERIODIC


def test_periodic_reports_keep_their_beat_however_late_they_are_noticed() -> None:
    schedule = reported()
    assert [due(schedule, now) for now in (59.9, 61.5, 119.9, 120.0)] == [
        None,
        ReportReason.PERIODIC,
        None,
        ReportReason.PERIODIC,
    ]


def test_beats_missed_are_not_made_up_for() -> None:
    schedule = reported()
    assert due(schedule, 1000.0) is ReportReason.PERIODIC
    schedule.succeeded(1000.0, CLAIM)
    assert due(schedule, 1001.0) is None


def test_a_shorter_interval_acts_at_once() -> None:
    schedule = reported()
    assert due(schedule, 6.0, intervals=Intervals(report=5, check=20, force=600)) is None
    assert due(schedule, 11.0, intervals=Intervals(report=5, check=20, force=600)) is ReportReason.PERIODIC


def test_a_changed_claim_is_reported_at_the_next_check() -> None:
    schedule = reported()
    changed = ReportedValues(Resources(1000, 1000), Resources(600, 500))
    assert due(schedule, 19.0, changed) is ReportReason.CHANGED
    schedule.succeeded(19.0, changed)
    assert due(schedule, 25.0) is None
    assert due(schedule, 39.0, changed) is None


def test_an_old_report_is_followed_by_a_forced_one() -> None:
    seldom = Intervals(report=10_000, check=20, force=600)
    schedule = reported()
    assert due(schedule, 600.0, intervals=seldom) is not ReportReason.FORCED
    schedule.succeeded(600.0, CLAIM)
    assert due(schedule, 1200.0, intervals=seldom) is None
    assert due(schedule, 1221.0, intervals=seldom) is ReportReason.FORCED


def test_beats_missed_while_reports_failed_are_not_made_up_for() -> None:
    schedule = reported()
    assert due(schedule, 60.0) is ReportReason.PERIODIC
    schedule.failed(60.0, ReportReason.PERIODIC, retry_after=600.0)
    assert due(schedule, 660.0) is ReportReason.PERIODIC
    schedule.succeeded(660.0, CLAIM)
    assert due(schedule, 661.0) is None
    assert due(schedule, 720.0) is ReportReason.PERIODIC


@given(st.lists(st.floats(0.1, 30.0), max_size=60))
def test_no_interval_passes_without_a_report_while_looks_come_in_time(steps: list[float]) -> None:
    schedule, now, last = reported(), 0.0, 0.0
    for step in steps:
        now += step
        if due(schedule, now):
            schedule.succeeded(now, CLAIM)
            last = now
        assert now - last <= INTERVALS.report + 30.0


amounts = st.integers(0, 10**6)
claims = st.builds(ReportedValues, *2 * [st.builds(Resources, amounts, amounts)])


@given(claims, claims, st.integers(0, 200))
def test_a_difference_is_there_exactly_when_one_amount_moved_by_more_than_the_threshold(
    before: ReportedValues, now: ReportedValues, percent: int
) -> None:
    pairs = zip((*before.peak, *before.reclaimable), (*now.peak, *now.reclaimable), strict=True)
    moved = [old != new if old == 0 else Fraction(abs(new - old), old) > Fraction(percent, 100) for old, new in pairs]
    assert differs(before, now, percent) is any(moved)


@given(
    st.lists(
        st.tuples(st.floats(0.1, 45), claims, st.sampled_from(["arrives", "fails"]), st.floats(0, 120)), max_size=80
    )
)
def test_a_report_that_failed_stays_owed_until_one_arrives_and_none_comes_before_its_time(
    story: list[tuple[float, ReportedValues, str, float]],
) -> None:
    schedule, now, owed, retry_at = reported(), 0.0, None, 0.0
    for step, claim, fate, retry_after in story:
        now += step
        reason = due(schedule, now, claim)
        if owed is not None:
            assert reason == (owed if now >= retry_at else None)
        if reason is None:
            continue
        if fate == "arrives":
            schedule.succeeded(now, claim)
            owed = None
        else:
            schedule.failed(now, reason, retry_after)
            owed, retry_at = reason, now + retry_after


@given(st.lists(st.tuples(st.floats(0.1, 30), claims), max_size=80))
def test_a_changed_claim_never_waits_longer_than_one_check(story: list[tuple[float, ReportedValues]]) -> None:
    schedule, now, last, stale_since = reported(), 0.0, CLAIM, None
    for step, claim in story:
        now += step
        if stale_since is None and differs(last, claim, 5.0):
            stale_since = now
        reason = due(schedule, now, claim)
        if reason is not None:
            schedule.succeeded(now, claim)
            last, stale_since = claim, None
        elif not differs(last, claim, 5.0):
            stale_since = None
        assert stale_since is None or now - stale_since <= INTERVALS.check


def test_pressure_is_due_at_once_again_after_a_while_and_waits_for_a_report_that_failed() -> None:
    schedule = reported()
    assert schedule.due(1.0, INTERVALS, CLAIM, 5.0, pressed=True) is ReportReason.PRESSURE
    schedule.succeeded(1.0, CLAIM, pressed=True)
    assert schedule.due(10.9, INTERVALS, CLAIM, 5.0, pressed=True) is None
    assert schedule.due(11.0, INTERVALS, CLAIM, 5.0, pressed=True) is ReportReason.PRESSURE
    schedule.failed(11.0, ReportReason.PRESSURE, retry_after=3.0)
    assert schedule.due(13.9, INTERVALS, CLAIM, 5.0, pressed=True) is None
    assert schedule.due(14.0, INTERVALS, CLAIM, 5.0) is ReportReason.PRESSURE
    schedule.succeeded(14.0, CLAIM)
    assert schedule.due(15.0, INTERVALS, CLAIM, 5.0) is None
    assert schedule.due(16.0, INTERVALS, CLAIM, 5.0, pressed=True) is ReportReason.PRESSURE
