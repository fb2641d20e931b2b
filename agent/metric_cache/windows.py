"""Aggregates over a window, from the ring that reaches back far enough."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from agent.metric_cache import aggregate
from agent.metric_cache.aggregate import Aggregation, Values
from agent.metric_cache.ring import Columns, Ring
from agent.metric_cache.series import Kind, Metric, SeriesKey

STEP_SECONDS = 300  # of the week ring
HOUR, QUARTER = range(2)  # the rings of single seconds
NODE_WIDE = frozenset({Kind.NODE, Kind.SYSTEM, Kind.PROD_PEAK, Kind.CLASS})
ENTITIES = frozenset({Kind.POD, Kind.WORKLOAD})
USAGE = (Metric.CPU, Metric.MEMORY)
RELINQUISHED_SECONDS = 1800  # reports, each minute, read less; what reads more leaves no pages of the file in memory

_CHUNK_SAMPLES = 1 << 18  # per read: 1 MiB

Sequences = TypeVar("Sequences", Sequence[SeriesKey], Columns)


class Window(NamedTuple):
    """Seconds, both included."""

    first: int
    last: int


class Windows:
    """Reads the rings, which the holder of `lock` may change. Long reads hold it for a part at a time."""

    def __init__(self, hour: Ring, quarter: Ring, week: Ring, lock: threading.Lock) -> None:
        self._hour, self._quarter, self._week = hour, quarter, week
        self._lock = lock

    @property
    def _last_second(self) -> int:
        return max(self._hour.last, self._quarter.last)

    def window(self, seconds: int, until: int | None) -> Window:
        """The seconds up to and including `until` (None: the last one written)."""
        end = self._last_second if until is None else until
        return Window(end - seconds + 1, end)

    def is_fine(self, window: Window) -> bool:
        """Whether single seconds answer: they reach back far enough, or no other samples reach further."""
        gone_by = self._last_second - self._hour.rows
        return window.first > gone_by or self._week.last < 0 or self._week.first * STEP_SECONDS > gone_by

    def aggregate(
        self, how: Aggregation, window_seconds: int, until: int | None, wanted: Callable[[SeriesKey], bool] | None
    ) -> dict[SeriesKey, float]:
        """The aggregates of the `wanted` series (None: all); series without a sample are absent."""
        window = self.window(window_seconds, until)
        fine = self.is_fine(window)
        with self._lock:
            quarter = list(filter(wanted, self._quarter.columns)) if wanted else list(self._quarter.columns)
            held: Iterable[SeriesKey] = self._hour.columns if fine else self._hour.columns | self._week.columns
            others = list(filter(wanted, held)) if wanted else list(held)
        return self.answer(how, window, quarter, fine=True) | self.answer(how, window, others, fine=fine)

    def answer(
        self, how: Aggregation, window: Window, keys: Sequence[SeriesKey], *, fine: bool
    ) -> dict[SeriesKey, float]:
        """`keys` are all in the same ring of single seconds."""
        if not keys:
            return {}
        if fine:
            return self._from_seconds(how, window, keys)
        coarse = self._from_week(how, window, keys)
        # The exact last sample is better than a mean.
        return coarse | self._from_seconds(how, window, keys) if how is Aggregation.LAST else coarse

    def _from_seconds(self, how: Aggregation, window: Window, keys: Sequence[SeriesKey]) -> dict[SeriesKey, float]:
        ring = self._hour if find_home(keys[0]) == HOUR else self._quarter
        answer: dict[SeriesKey, float] = {}
        with self._lock:
            slots = ring.held(*window)
        for part in split_reads(keys, len(slots)):
            with self._lock:
                known, columns = _held(ring, part)
                samples = ring.read(slots, columns)
            answer |= _known(known, aggregate.aggregate(samples, how), how)
        if len(slots) > RELINQUISHED_SECONDS:
            with self._lock:
                ring.relinquish()
        return answer

    def _from_week(self, how: Aggregation, window: Window, keys: Sequence[SeriesKey]) -> dict[SeriesKey, float]:
        answer: dict[SeriesKey, float] = {}
        first, last = (second // STEP_SECONDS for second in window)
        with self._lock:
            slots = self._week.held(first, last)
            rest = self._hour.held(max(first, self._week.last + 1) * STEP_SECONDS, window.last)
        for part in split_reads(keys, len(slots) + len(rest)):
            rows = np.full((3, len(slots) + 1, len(part)), np.nan, np.float32)
            with self._lock:
                places, columns = _places(self._week, part)
                for plane in range(len(rows)):
                    rows[plane, :-1, places] = self._week.read(slots, columns, plane).T
                places, columns = _places(self._hour, part)
                rows[:, -1, places] = aggregate.summary(self._hour.read(rest, columns))
            means, maxima, counts = rows
            answer |= _known(part, aggregate.aggregate_rows(means, maxima, counts, how), how)
        return answer


def find_home(key: SeriesKey) -> int:
    """The index of the ring of single seconds that holds a series."""
    hour = key.kind in NODE_WIDE or (key.kind in ENTITIES and key.metric in USAGE)
    return HOUR if hour else QUARTER


def split_reads(whole: Sequences, rows: int) -> Iterator[Sequences]:
    """Pieces whose width limits `rows` of them to one read."""
    width = max(1, _CHUNK_SAMPLES // max(1, rows))
    for first in range(0, len(whole), width):
        yield whole[first : first + width]


def _places(ring: Ring, keys: Sequence[SeriesKey]) -> tuple[Columns, Columns]:
    """The positions of those `keys` that the ring has, and their columns."""
    columns = np.fromiter((ring.columns.get(key, -1) for key in keys), np.intp, len(keys))
    places = np.flatnonzero(columns >= 0)
    return places, columns[places]


def _held(ring: Ring, keys: Sequence[SeriesKey]) -> tuple[Sequence[SeriesKey], Columns]:
    """Those of `keys` that the ring still has, and their columns."""
    places, columns = _places(ring, keys)
    return (keys if len(places) == len(keys) else [keys[place] for place in places]), columns


def _known(keys: Sequence[SeriesKey], values: Values, how: Aggregation) -> dict[SeriesKey, float]:
    """The values of series with at least one sample."""
    known = values > 0 if how is Aggregation.COUNT else ~np.isnan(values)
    return dict(itertools.compress(zip(keys, values.tolist(), strict=True), known.tolist()))
