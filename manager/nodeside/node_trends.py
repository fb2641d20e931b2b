"""What nodes used, requested, promised and offered in the last day, so that plots need not begin with their reader.

Samples are 20 s apart at first. When there is no room for more, every other one goes, until they are about 10 minutes
apart; from then on the oldest one goes. A node takes 6 kB, and beyond `MOST_NODES` only the sums over all of them are
kept. Nothing outlives the process.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from manager.nodeside.answers import Amount, NodeRow
from shared import durations
from shared.clock import Clock

FIRST_INTERVAL_SECONDS = 20.0
LAST_INTERVAL_SECONDS = 640.0
SAMPLES = 144  # 25.6 hours of the last interval
MOST_NODES = 10_000
AMOUNTS = ("used", "requested", "predicted_peak", "mid", "prod_used")
CLUSTER = ""  # the name of the sums over all nodes

# One row for cpu and one for memory of each amount; one column for each sample. NaN is what was not known.
_Series: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class AmountSeries:
    """One amount over time; null where it was not known."""

    cpu_milli: list[int | None]
    memory_bytes: list[int | None]


@dataclass(frozen=True)
class NodeTrend:
    """One node, or all nodes together where `node` is empty; each series has a value for each of `times` (RFC 3339).

    Memory is exact to seven digits. A sum leaves out nodes of which the amount was not known.
    """

    node: str
    times: list[str]
    used: AmountSeries
    requested: AmountSeries
    predicted_peak: AmountSeries
    mid: AmountSeries
    prod_used: AmountSeries


class NodeTrends:
    """The trends of all nodes that there are. A clock that is set back begins them anew."""

    def __init__(self, rows: Callable[[], Iterable[NodeRow]], clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._lock = threading.Lock()
        self._interval = FIRST_INTERVAL_SECONDS
        self._times: list[float] = []
        self._series: dict[str, _Series] = {}

    def record(self) -> None:
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
            sampled = _sample(list(self._rows()))
            self._make_room()
            self._series = {name: self._series.get(name, _nothing()) for name in sampled}
            for name, values in sampled.items():
                self._series[name][:, len(self._times)] = values
            self._times.append(now)

    def answer(self, name: str = CLUSTER) -> NodeTrend:
        """Of a node without a trend, all is null."""
        with self._lock:
            times = [durations.timestamp(time) for time in self._times]
            series = self._series.get(name, _nothing())[:, : len(times)].tolist()
        pairs = zip(series[::2], series[1::2], strict=True)
        return NodeTrend(name, times, *(AmountSeries(_whole(cpu), _whole(memory)) for cpu, memory in pairs))

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


def _nothing() -> _Series:
    return np.full((2 * len(AMOUNTS), SAMPLES), np.nan, np.float32)


def _sample(rows: Sequence[NodeRow]) -> dict[str, _Series]:
    known = np.array([_values(row) for row in rows], np.float64).reshape(-1, 2 * len(AMOUNTS))
    sums = np.where(np.isnan(known).all(axis=0), np.nan, np.nansum(known, axis=0))
    by_name = {CLUSTER: sums.astype(np.float32)}
    if len(rows) <= MOST_NODES:
        by_name |= {row.name: values for row, values in zip(rows, known.astype(np.float32), strict=True)}
    return by_name


def _values(row: NodeRow) -> list[float]:
    amounts: list[Amount | None] = [getattr(row, amount) for amount in AMOUNTS]
    return [
        value
        for amount in amounts
        for value in ((np.nan, np.nan) if amount is None else (amount.cpu_milli, amount.memory_bytes))
    ]


def _whole(values: Iterable[float]) -> list[int | None]:
    return [None if np.isnan(value) else round(value) for value in values]
