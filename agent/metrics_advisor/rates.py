"""Counters to rates. A counter that went back, or forward beyond reason, tells nothing and starts anew."""

from typing import NamedTuple

NANOSECONDS = 1e9

# Ticks of the scheduler may put a little more CPU time into an interval than the interval had.
PLAUSIBLE_EXCESS = 1.25
MIN_PERIOD_SECONDS = 0.01  # below it the granularity of the counters is all one would see


class Reading(NamedTuple):
    """A CPU time counter at an instant of a clock that never goes back."""

    cpu_seconds: float
    at_seconds: float


def cores(before: Reading, now: Reading, cpu_count: int) -> float | None:
    """Cores used between two readings, 0 to about `cpu_count`; None when they cannot say."""
    period = now.at_seconds - before.at_seconds
    if period < MIN_PERIOD_SECONDS:
        return None
    rate = (now.cpu_seconds - before.cpu_seconds) / period
    return rate if 0 <= rate <= cpu_count * PLAUSIBLE_EXCESS else None
