"""Recorded usage from the tables that backtests read, each series scaled by its own maximum, as units differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deploy.backtest import tables
from shared.errors import InvalidInput

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One machine: shares of its peak at times from 0."""

    seconds: Floats
    shares: Floats

    def at(self, seconds: float) -> float:
        """The share at that time, interpolated between two samples; the series repeats after its end."""
        length = float(self.seconds[-1])
        return float(np.interp(seconds % length if length > 0 else 0.0, self.seconds, self.shares))


def load(path: Path) -> Sequence[Series]:
    """Every series with at least two samples. Raises InvalidInput naming the file, line and column."""
    samples = tables.samples(path, "cpu_cores")  # any unit, as each series is scaled
    of_each = (samples.codes == number for number in range(len(samples.names)))
    found = [_scaled(samples.times[own], samples.values[own]) for own in of_each if np.count_nonzero(own) > 1]
    if not found:
        raise InvalidInput(source=str(path), field="(document)", value="", problem="no series with two samples in it")
    return found


def _scaled(seconds: Floats, values: Floats) -> Series:
    order = np.argsort(seconds, kind="stable")
    return Series(seconds[order] - seconds.min(), values[order] / (float(values.max()) or 1.0))
