"""The mean usage of entities on each of the last days. Pure; `maxima` has the largest samples.

Days are UTC days, the newest first in every array. When the clock goes back, the day continues; when it jumps forward,
the days between have no samples.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.decay import Floats

DAY_SECONDS = 86_400

Singles = NDArray[np.float32]
Arrays = Mapping[str, NDArray[np.generic]]


def restore(own: Arrays, stored: Arrays) -> None:
    """Copies each of the stored arrays into that of the same name. Raises KeyError, and ValueError for another type or
    shape.
    """
    for name, into in own.items():
        found = np.asarray(stored[name])
        if found.shape != into.shape or found.dtype != into.dtype:
            raise ValueError(f"{name} must be {into.dtype} of shape {into.shape}")
        into[...] = found


class DailyMeans:
    """The mean of all samples of the last days, a row for each entity."""

    def __init__(self, days: int, rows: int = 0) -> None:
        self.sums: Floats = np.zeros((rows, days))
        self.counts: Floats = np.zeros((rows, days))
        self.day: int | None = None

    def observe(self, samples: Floats, time: float) -> None:
        """Records one sample for every row."""
        days, self.day = _passed(self.day, time)
        _shift(self.sums, days)
        _shift(self.counts, days)
        self.sums[:, 0] += samples
        self.counts[:, 0] += 1

    def means(self) -> Floats:
        """Shape (rows,); 0 without samples."""
        means: Floats = self.sums.sum(axis=1) / np.maximum(self.counts.sum(axis=1), 1.0)
        return means

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of the state, for a checkpoint."""
        day = np.array([-1 if self.day is None else self.day])
        return {"sums": self.sums, "counts": self.counts, "day": day}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> "DailyMeans":
        """Restores the result of `arrays`. Raises KeyError and ValueError."""
        sums, counts = np.array(arrays["sums"], np.float64), np.array(arrays["counts"], np.float64)
        if sums.ndim != 2 or counts.shape != sums.shape or not ((sums >= 0).all() and (counts >= 0).all()):
            raise ValueError("daily means must be sums and counts of rows of days")
        means = cls(sums.shape[1])
        day = int(np.asarray(arrays["day"], np.int64)[0])
        means.sums, means.counts, means.day = sums, counts, None if day < 0 else day
        return means


def _passed(day: int | None, time: float) -> tuple[int, int]:
    """The number of days since `day`, and the present day."""
    today = int(time // DAY_SECONDS)
    return (0, today) if day is None else (max(0, today - day), max(day, today))


def _shift(values: NDArray[np.floating], days: int) -> None:
    """Inserts new days in front and drops the oldest ones."""
    if days:
        kept = values[:, : max(0, values.shape[1] - days)].copy()
        values[:, : min(days, values.shape[1])] = 0.0
        values[:, min(days, values.shape[1]) :] = kept
