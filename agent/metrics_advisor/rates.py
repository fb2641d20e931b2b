"""Counters to rates. A counter that goes back, or jumps beyond reason, gives no rate and starts over."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Monotonic: TypeAlias = Callable[[], float]  # seconds since an arbitrary start, never going back

# Scheduler ticks may assign an interval slightly more CPU time than its length.
PLAUSIBLE_EXCESS = 1.25
MIN_PERIOD_SECONDS = 0.01  # below it the counters' granularity dominates


class CounterReading(NamedTuple):
    """A CPU time counter at an instant of a clock that never goes back."""

    cpu_seconds: float
    at_seconds: float


def cores(before: CounterReading, now: CounterReading, cpu_count: int) -> float | None:
    """Cores used between two readings, 0 to `cpu_count`; None for implausible readings."""
    period_seconds = now.at_seconds - before.at_seconds
    if period_seconds < MIN_PERIOD_SECONDS:
        return None
    rate = (now.cpu_seconds - before.cpu_seconds) / period_seconds
    return min(rate, float(cpu_count)) if 0 <= rate <= cpu_count * PLAUSIBLE_EXCESS else None


def cores_of_many(cpu_seconds: Floats, period_seconds: Floats, cpu_count: int) -> Floats:
    """The same for many, from the differences of their readings; NaN for implausible ones."""
    sane = period_seconds >= MIN_PERIOD_SECONDS
    rates = np.divide(cpu_seconds, period_seconds, out=np.full_like(cpu_seconds, np.nan), where=sane)
    plausible = (rates >= 0) & (rates <= cpu_count * PLAUSIBLE_EXCESS)
    return np.where(plausible, np.minimum(rates, cpu_count), np.nan)


def share(before: tuple[int, int], now: tuple[int, int]) -> float | None:
    """The growth of a part relative to its whole, 0 to 1, from two readings of (part, whole).

    0 without growth; None when a counter went back, or the part outgrew the whole.
    """
    part, whole = now[0] - before[0], now[1] - before[1]
    if not 0 <= part <= whole:
        return None
    return part / whole if whole else 0.0


def per_second(before: int, now: int, period_seconds: float, most: float) -> float | None:
    """The growth of a counter per second, 0 to `most`; None for implausible readings."""
    if period_seconds < MIN_PERIOD_SECONDS:
        return None
    rate = (now - before) / period_seconds
    return rate if 0 <= rate <= most else None
