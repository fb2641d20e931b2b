"""When a report is due, and why. Pure except for its own memory; times come from a clock that never goes back."""

import enum
from dataclasses import dataclass

from agent.predict_server.prediction import NodePrediction
from shared.quantity import Resources


class ReportReason(enum.StrEnum):
    PERIODIC = "Periodic"
    CHANGED = "PredictionChanged"
    FORCED = "Forced"
    PRESSURE = "Pressure"


@dataclass(frozen=True)
class Intervals:
    """All in seconds."""

    report: float
    check: float
    force: float


@dataclass(frozen=True)
class ReportedValues:
    """The values of a report that readers act upon at once; no claim counts as zero."""

    peak: Resources
    reclaimable: Resources

    @classmethod
    def of(cls, prediction: NodePrediction) -> "ReportedValues":
        answer = prediction.reclaimable
        return cls(answer.peak, answer.result) if answer else NOTHING_CLAIMED


NOTHING_CLAIMED = ReportedValues(Resources(), Resources())


PRESSED_SECONDS = 10.0  # between two reports of one pressure


class Schedule:
    """Periodic reports keep a fixed schedule; between them it checks the claim and retries failed reports.

    Pressure is reported as soon as it appears, and again while it lasts.
    """

    def __init__(self, now: float, first_after: float) -> None:
        self._next_periodic = now + first_after
        self._next_check = now + first_after  # before the first report there is no value to compare with
        self._retry_at: float | None = None
        self._owed: ReportReason | None = None
        self._reported = NOTHING_CLAIMED
        self._reported_at = now
        self._pressed_again = now  # before then no pressure is reported

    def idle(self, now: float, intervals: Intervals, *, pressed: bool = False) -> bool:
        """Whether no report can be due, regardless of the claim."""
        if self._retry_at is not None:
            return now < self._retry_at
        if pressed and now >= self._pressed_again:
            return False
        self._next_periodic = min(self._next_periodic, now + intervals.report)  # a shorter interval acts at once
        return now < min(self._next_periodic, self._next_check)

    def due(
        self,
        now: float,
        intervals: Intervals,
        claim: ReportedValues,
        threshold_percent: float,
        *,
        pressed: bool = False,
    ) -> ReportReason | None:
        """The reason to report now; the caller then reports success or failure. A failed report has priority."""
        if self.idle(now, intervals, pressed=pressed):
            return None
        is_beat = now >= self._next_periodic
        if is_beat:
            self._next_periodic += intervals.report * (1 + (now - self._next_periodic) // intervals.report)
        if self._retry_at is not None:
            return self._owed
        if pressed and now >= self._pressed_again:
            return ReportReason.PRESSURE
        if is_beat:
            return ReportReason.PERIODIC
        self._next_check = now + intervals.check
        if differs(self._reported, claim, threshold_percent):
            return ReportReason.CHANGED
        return ReportReason.FORCED if now - self._reported_at > intervals.force else None

    def succeeded(self, now: float, claim: ReportedValues, *, pressed: bool = False) -> None:
        self._retry_at = self._owed = None
        self._reported, self._reported_at = claim, now
        self._pressed_again = now + PRESSED_SECONDS if pressed else now

    def failed(self, now: float, reason: ReportReason, retry_after: float) -> None:
        self._owed, self._retry_at = reason, now + retry_after


def differs(before: ReportedValues, now: ReportedValues, threshold_percent: float) -> bool:
    """Whether any amount changed by more than the threshold, relative to the reported one, up or down.

    From zero every change counts.
    """
    pairs = zip((*before.peak, *before.reclaimable), (*now.peak, *now.reclaimable), strict=True)
    return any(abs(new - old) * 100 > threshold_percent * old for old, new in pairs)
