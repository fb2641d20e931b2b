"""When a report is due, and why. Pure but for its own memory; every time is of a clock that never goes back."""

import enum
from dataclasses import dataclass

from agent.predict_server.prediction import Prediction
from shared.quantity import Resources


class Reason(enum.StrEnum):
    PERIODIC = "Periodic"
    CHANGED = "PredictionChanged"
    FORCED = "Forced"


@dataclass(frozen=True)
class Intervals:
    """All in seconds."""

    report: float
    check: float
    force: float


@dataclass(frozen=True)
class Claim:
    """What a report says that others act upon at once; nothing claimed is zero."""

    peak: Resources
    reclaimable: Resources

    @classmethod
    def of(cls, prediction: Prediction) -> "Claim":
        answer = prediction.reclaimable
        return cls(answer.peak, answer.result) if answer else NOTHING_CLAIMED


NOTHING_CLAIMED = Claim(Resources(), Resources())


class Schedule:
    """Periodic reports keep their own beat; between them the claim is looked at, and failures are made up for."""

    def __init__(self, now: float, first_after: float) -> None:
        self._next_periodic = now + first_after
        self._next_check = now + first_after  # before the first report there is nothing to compare with
        self._retry_at: float | None = None
        self._owed: Reason | None = None
        self._reported = NOTHING_CLAIMED
        self._reported_at = now

    def idle(self, now: float, intervals: Intervals) -> bool:
        """Whether nothing can be due, whatever the claim."""
        if self._retry_at is not None:
            return now < self._retry_at
        self._next_periodic = min(self._next_periodic, now + intervals.report)  # a shorter interval acts at once
        return now < min(self._next_periodic, self._next_check)

    def due(self, now: float, intervals: Intervals, claim: Claim, threshold_percent: float) -> Reason | None:
        """The reason to report now; the caller then says how that went. A failed report is due before all others."""
        if self.idle(now, intervals):
            return None
        is_beat = now >= self._next_periodic
        if is_beat:
            self._next_periodic += intervals.report * (1 + (now - self._next_periodic) // intervals.report)
        if self._retry_at is not None:
            return self._owed
        if is_beat:
            return Reason.PERIODIC
        self._next_check = now + intervals.check
        if differs(self._reported, claim, threshold_percent):
            return Reason.CHANGED
        return Reason.FORCED if now - self._reported_at > intervals.force else None

    def succeeded(self, now: float, claim: Claim) -> None:
        self._retry_at = self._owed = None
        self._reported, self._reported_at = claim, now

    def failed(self, now: float, reason: Reason, retry_after: float) -> None:
        self._owed, self._retry_at = reason, now + retry_after


def differs(before: Claim, now: Claim, threshold_percent: float) -> bool:
    """Whether any amount changed by more than the threshold, relative to what was reported, up or down.

    From zero every change counts.
    """
    pairs = zip((*before.peak, *before.reclaimable), (*now.peak, *now.reclaimable), strict=True)
    return any(abs(new - old) * 100 > threshold_percent * old for old, new in pairs)
