"""Named rows of numbers over the last day, in bounded memory.

Samples are 20 s apart at first. When there is no room for more, every other one goes, until they are about 10 minutes
apart; from then on the oldest one goes. Nothing outlives the process.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.clock import Clock

FIRST_INTERVAL_SECONDS = 20.0
LAST_INTERVAL_SECONDS = 640.0
SAMPLES = 144  # 25.6 hours of the last interval

Sample: TypeAlias = NDArray[np.float32]  # one value for each row of a series; NaN is what was not known


class Trends:
    """Series of `rows` numbers each, which share their times. A clock that is set back begins them anew.

    A series takes 576 bytes for each row. One that a sample leaves out is dropped. Safe for any thread.
    """

    def __init__(self, rows: int, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._lock = threading.Lock()
        self._interval = FIRST_INTERVAL_SECONDS
        self._times: list[float] = []
        self._series: dict[str, Sample] = {}

    def record(self, sample: Callable[[], Mapping[str, Sample]]) -> None:
        """Takes a sample, if the last one is long enough ago."""
        now = self._clock.now()
        with self._lock:
            since = now - self._times[-1] if self._times else self._interval
            if 0 <= since < self._interval - FIRST_INTERVAL_SECONDS / 2:  # turns are not exactly on time
                return
            if since < 0:
                self._times.clear()
                self._series.clear()
                self._interval = FIRST_INTERVAL_SECONDS
            sampled = sample()
            self._make_room()
            self._series = {name: self._series.get(name, self._nothing()) for name in sampled}
            for name, values in sampled.items():
                self._series[name][:, len(self._times)] = values
            self._times.append(now)

    def read(self, name: str) -> tuple[list[float], list[list[float]]]:
        """The times (Unix seconds), and each row's values; all of them are NaN for a name without a series."""
        with self._lock:
            times = self._times.copy()
            return times, self._series.get(name, self._nothing())[:, : len(times)].tolist()

    def read_some(self, names: Iterable[str]) -> tuple[list[float], dict[str, list[list[float]]]]:
        """Reads several series at once, by name; names without a series are left out."""
        with self._lock:
            times = self._times.copy()
            found = {name: self._series[name] for name in names if name in self._series}
            return times, {name: series[:, : len(times)].tolist() for name, series in found.items()}

    def _nothing(self) -> Sample:
        return np.full((self._rows, SAMPLES), np.nan, np.float32)

    def _make_room(self) -> None:
        if len(self._times) < SAMPLES:
            return
        if self._interval < LAST_INTERVAL_SECONDS:
            self._interval *= 2
            kept = slice(None, None, 2)
        else:
            kept = slice(1, None)
        self._times = self._times[kept]
        for series in self._series.values():
            series[:, : len(self._times)] = series[:, kept]
            series[:, len(self._times) :] = np.nan
