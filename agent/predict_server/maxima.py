"""Daily maxima of many models: the peaks of the last two weeks, in a few bytes per model."""

import math

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows

DAYS = 15  # today and two weeks, so that every weekday occurs twice
SECONDS_PER_DAY = 86400.0


class Maxima:
    """Per model and day (UTC) the largest sample of each resource; 0 on days without one.

    An agent's resources are cpu in cores and memory in bytes; a replay may have only one. Not thread-safe. Values are
    rounded up to single precision, so that no maximum is below one of its samples.
    """

    def __init__(self, rows: int = 0, resources: int = 2) -> None:
        self.values: NDArray[np.float32] = np.zeros((rows, DAYS, resources), np.float32)
        self.day = -(2**62)  # the latest day with samples, counted from 1970

    def resize(self, rows: int) -> None:
        """Makes room for `rows` models; new ones are empty."""
        more = np.zeros((rows - len(self.values), *self.values.shape[1:]), np.float32)
        self.values = np.concatenate([self.values, more])

    def clear(self, row: int) -> None:
        self.values[row] = 0.0

    def add(self, rows: Rows, amounts: Floats, time: float) -> None:
        """Records one sample of each (distinct) row at `time` (Unix seconds), shape (rows, resources)."""
        self.turn_to(time)
        today = self.day % DAYS
        rounded = amounts.astype(np.float32)
        below = rounded < amounts
        rounded[below] = np.nextafter(rounded[below], np.float32(np.inf))
        self.values[rows, today] = np.maximum(self.values[rows, today], rounded)

    def turn_to(self, time: float) -> None:
        """Clears the days up to `time`. If the clock went back, the latest day continues."""
        day = math.floor(time / SECONDS_PER_DAY)
        for late in range(max(self.day + 1, day - DAYS + 1), day + 1):
            self.values[:, late % DAYS] = 0.0
        self.day = max(self.day, day)

    def set_clock(self, before: float, time: float) -> None:
        """Shifts all days when the clock is set from `before` to `time`; no day passes by that."""
        moved = math.floor(time / SECONDS_PER_DAY) - math.floor(before / SECONDS_PER_DAY)
        self.values = np.roll(self.values, moved, axis=1)
        self.day += moved

    def keep(self, rows: Rows, days: int) -> None:
        """Clears all but the newest `days`."""
        self.values[np.ix_(rows, (self.day - np.arange(days, DAYS)) % DAYS)] = 0.0

    def newest_first(self, rows: Rows) -> NDArray[np.float32]:
        """All days of the rows, shape (rows, DAYS, resources), today first."""
        return self.values[rows][:, [(self.day - back) % DAYS for back in range(DAYS)]]

    def put(self, rows: Rows, newest_first: NDArray[np.float32], day: int) -> None:
        """Replaces those rows by the result of `newest_first` on that day."""
        self.turn_to(day * SECONDS_PER_DAY)
        self.values[rows] = 0.0
        for back in range(self.day - day, DAYS):
            self.values[rows, (self.day - back) % DAYS] = newest_first[:, back - (self.day - day)]

    def over(self, rows: Rows, days: int) -> Floats:
        """The largest sample of today and the `days` days before (DAYS - 1 at most); shape (rows, resources)."""
        places = [(self.day - back) % DAYS for back in range(min(days, DAYS - 1) + 1)]
        largest: Floats = self.values[rows][:, places].max(axis=1, initial=0.0).astype(np.float64)
        return largest
