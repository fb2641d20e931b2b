"""Usage over time as shares of a request, 0..1; the same seed and time always give the same value. Pure."""

import enum
import math
from collections.abc import Callable
from typing import NamedTuple

DAY_SECONDS = 86_400.0
BURST_SLOT_SECONDS = 20.0
BURST_PROBABILITY = 0.2
JOB_SECONDS = 90.0
IDLE_SECONDS = 60.0  # of a burner, before it uses all that it requests
JOB_SHARE = 0.4  # the share of time in which a batch pod has work

_MASK = (1 << 64) - 1


class UsedShare(NamedTuple):
    """The used share of the requests."""

    cpu: float
    memory: float


class Curve(enum.StrEnum):
    """The shapes, by their names in a pod's annotation."""

    DIURNAL = "diurnal"
    BURSTY = "bursty"
    BATCH = "batch"
    STEADY = "steady"
    BURNER = "burner"


def share(curve: Curve, seed: int, seconds: float) -> UsedShare:
    """Usage at `seconds` of simulated time, with noise that changes every second."""
    shape = _SHAPES[curve](seed, seconds)
    second = math.floor(seconds)
    return UsedShare(
        _bounded(shape.cpu * (1 + 0.15 * _noise(seed, second))),
        _bounded(shape.memory * (1 + 0.01 * _noise(seed + 1, second))),
    )


def uniform(seed: int, step: int) -> float:
    """A number in [0, 1), determined by seed and step: splitmix64, which needs no state."""
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)


def _diurnal(seed: int, seconds: float) -> UsedShare:
    """One wave a day; the peaks of different pods are within four hours of each other."""
    wave = math.sin(2 * math.pi * (seconds / DAY_SECONDS + uniform(seed, 0) / 6))
    return UsedShare(0.35 + 0.25 * wave, 0.55 + 0.08 * wave)


def _bursty(seed: int, seconds: float) -> UsedShare:
    slot = math.floor(seconds / BURST_SLOT_SECONDS)
    bursts = uniform(seed, slot) < BURST_PROBABILITY
    return UsedShare(0.4 if bursts else 0.06, 0.45)


def _batch(seed: int, seconds: float) -> UsedShare:
    """Consecutive jobs, each of which fills its memory as it runs."""
    progress = (seconds / JOB_SECONDS + uniform(seed, 0)) % 1.0
    if progress >= JOB_SHARE:
        return UsedShare(0.05, 0.3)
    return UsedShare(0.45, 0.3 + 0.1 * progress / JOB_SHARE)


def _steady(seed: int, seconds: float) -> UsedShare:
    return UsedShare(0.2 + 0.2 * uniform(seed, 0), 0.5)


def _burner(seed: int, seconds: float) -> UsedShare:
    """Idle at first, so that what it requests is lent; then it takes all of it back."""
    return UsedShare(0.05 if seconds < IDLE_SECONDS else 1.0, 0.3)


_SHAPES: dict[Curve, Callable[[int, float], UsedShare]] = {
    Curve.DIURNAL: _diurnal,
    Curve.BURSTY: _bursty,
    Curve.BATCH: _batch,
    Curve.STEADY: _steady,
    Curve.BURNER: _burner,
}


def _noise(seed: int, second: int) -> float:
    """Approximates a standard normal distribution: the sum of twelve uniform numbers, minus six."""
    return sum(uniform(seed, second * 12 + index) for index in range(12)) - 6


def _bounded(value: float) -> float:
    return min(1.0, max(0.0, value))
