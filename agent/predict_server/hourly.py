"""Numbers by hour, for the last four weeks."""

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.calibration import HOUR_SECONDS, WINDOW_HOURS
from agent.predict_server.daily import Arrays, Singles

_NEVER = -1


class HourlyWindow:
    """A row of `columns` numbers for each hour, in single precision; NaN for an unknown hour.

    Times are Unix seconds; an hour's place is its number since 1970 modulo 672.
    """

    def __init__(self, columns: int) -> None:
        self.rows: Singles = np.full((WINDOW_HOURS, columns), np.nan, np.float32)
        self.last_hour = _NEVER

    def advance(self, time: float) -> bool:
        """Drops hours more than four weeks before `time`; returns whether a new hour has begun."""
        hour = int(time // HOUR_SECONDS)
        if hour == self.last_hour:
            return False
        if self.last_hour != _NEVER and hour > self.last_hour:
            begun = np.arange(self.last_hour + 1, min(hour, self.last_hour + WINDOW_HOURS) + 1)
            self.rows[begun % WINDOW_HOURS] = np.nan
        self.last_hour = hour
        return True

    def at(self, time: float) -> Singles:
        """The row of that hour, to read or write; one of the last four weeks."""
        row: Singles = self.rows[int(time // HOUR_SECONDS) % WINDOW_HOURS]
        return row

    def newest_first(self) -> Singles:
        """All rows, this hour's first."""
        ordered: Singles = np.roll(self.rows[::-1], (self.last_hour + 1) % WINDOW_HOURS, axis=0)
        return ordered

    def set_clock(self, seconds: float) -> None:
        """The clock was set forward by that much, or back if below 0: shifts all hours to the new clock."""
        hours = round(seconds / HOUR_SECONDS)
        if self.last_hour != _NEVER:
            self.rows = np.roll(self.rows, hours, axis=0)
            self.last_hour = max(0, self.last_hour + hours)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of the state, for a checkpoint."""
        return {"rows": self.rows, "last_hour": np.array([self.last_hour])}

    @classmethod
    def of_arrays(cls, arrays: Arrays, columns: int) -> "HourlyWindow":
        """Restores the result of `arrays`. Raises KeyError, IndexError and ValueError."""
        window = cls(columns)
        rows, last_hour = np.asarray(arrays["rows"], np.float32), np.asarray(arrays["last_hour"], np.int64)
        if rows.shape != window.rows.shape or (rows < 0).any() or np.isinf(rows).any():
            raise ValueError(f"hourly rows must be {WINDOW_HOURS} of {columns} amounts")
        window.rows, window.last_hour = rows, max(_NEVER, int(last_hour[0]))
        return window
