"""What entities used at most, and on average, on each of the last days: 32 bytes a pod and resource. Pure.

Days are UTC days, the newest first in every array. A clock that goes back continues the day it was on; one that jumps
forward passes the days between as days without samples.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows

DAY_SECONDS = 86_400

Singles = NDArray[np.float32]
Arrays = Mapping[str, NDArray[np.generic]]


class DailyMaxima:
    """The largest sample of each day, a row for each entity; `since` is when each was first seen (Unix seconds).

    `since` is infinite for a row that has never had a sample.
    """

    def __init__(self, days: int, rows: int = 0) -> None:
        self.values: Singles = np.zeros((rows, days), np.float32)
        self.since: Floats = np.full(rows, np.inf)
        self.day: int | None = None

    def resize(self, rows: int) -> None:
        """Makes room for `rows` entities; new ones are empty."""
        more = DailyMaxima(self.values.shape[1], rows - len(self.values))
        self.values = np.concatenate([self.values, more.values])
        self.since = np.concatenate([self.since, more.since])

    def clear(self, rows: Rows) -> None:
        self.values[rows] = 0.0
        self.since[rows] = np.inf

    def observe(self, rows: Rows, samples: Floats, time: float) -> None:
        """Takes in one sample for each of `rows`, which are distinct."""
        days, self.day = _passed(self.day, time)
        _shift(self.values, days)
        self.values[rows, 0] = np.maximum(self.values[rows, 0], samples)
        self.since[rows] = np.minimum(self.since[rows], time)

    def inherit(self, rows: Rows, ancestors: Rows) -> None:
        """Merges each ancestor's history into a row's own: the larger of both counts, and the longer time."""
        self.values[rows] = np.maximum(self.values[rows], self.values[ancestors])
        self.since[rows] = np.minimum(self.since[rows], self.since[ancestors])

    def keep(self, rows: Rows, days: int) -> None:
        """Forgets all but the newest `days`."""
        self.values[rows, days:] = 0.0

    def largest(self, rows: Rows, days: int) -> Floats:
        """The largest sample of the newest `days`, today among them; shape (rows,)."""
        largest: Floats = self.values[rows, :days].max(axis=1, initial=0.0).astype(np.float64)
        return largest

    def ages_days(self, rows: Rows, time: float) -> Floats:
        """For how many days each row has been seen; 0 for one that has not."""
        return np.maximum(time - self.since[rows], 0.0) / DAY_SECONDS

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of the state, for a checkpoint."""
        day = np.array([-1 if self.day is None else self.day])
        return {"values": self.values, "since": self.since, "day": day}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> "DailyMaxima":
        """Takes up what `arrays` gave. Raises KeyError and ValueError."""
        values = np.array(arrays["values"], np.float32)
        since = np.array(arrays["since"], np.float64)
        if values.ndim != 2 or since.shape != values.shape[:1] or not (values >= 0).all() or np.isnan(since).any():
            raise ValueError("daily maxima must be rows of days, each with the time it was first seen")
        maxima = cls(values.shape[1])
        day = int(np.asarray(arrays["day"], np.int64)[0])
        maxima.values, maxima.since, maxima.day = values, since, None if day < 0 else day
        return maxima


class DailyMeans:
    """The mean of all samples of the last days, a row for each entity."""

    def __init__(self, days: int, rows: int = 0) -> None:
        self.sums: Floats = np.zeros((rows, days))
        self.counts: Floats = np.zeros((rows, days))
        self.day: int | None = None

    def observe(self, samples: Floats, time: float) -> None:
        """Takes in one sample for every row."""
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
        """Takes up what `arrays` gave. Raises KeyError and ValueError."""
        sums, counts = np.array(arrays["sums"], np.float64), np.array(arrays["counts"], np.float64)
        if sums.ndim != 2 or counts.shape != sums.shape or not ((sums >= 0).all() and (counts >= 0).all()):
            raise ValueError("daily means must be sums and counts of rows of days")
        means = cls(sums.shape[1])
        day = int(np.asarray(arrays["day"], np.int64)[0])
        means.sums, means.counts, means.day = sums, counts, None if day < 0 else day
        return means


def _passed(day: int | None, time: float) -> tuple[int, int]:
    """How many days have passed since `day`, and which one it is now."""
    today = int(time // DAY_SECONDS)
    return (0, today) if day is None else (max(0, today - day), max(day, today))


def _shift(values: NDArray[np.floating], days: int) -> None:
    """Makes room for new days in front; the oldest ones are forgotten."""
    if days:
        kept = values[:, : max(0, values.shape[1] - days)].copy()
        values[:, : min(days, values.shape[1])] = 0.0
        values[:, min(days, values.shape[1]) :] = kept
