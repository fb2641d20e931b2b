"""How often one model kept its promises on this node, and how much lent capacity was taken back. Pure.

Percentages are those of a backtest (`agent.backtest.metrics`), over the promises of the last four weeks that have an
outcome. Pairs and the last axes of arrays are cpu in cores and memory in bytes.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from agent.predict_server.calibration import HOUR_SECONDS, WINDOW_HOURS
from agent.predict_server.daily import DAY_SECONDS, Arrays, Singles
from agent.predict_server.debts import violated
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.hourly import HourlyWindow
from agent.predict_server.models import Outcome
from agent.predict_server.states import Parts

VIOLATION_TOLERANCE = 1e-6  # relative: amounts are in single precision

_PROMISED, _REALISED, _LENT = slice(0, 2), slice(2, 4), slice(4, 6)
_COLUMNS = 6
_WAITING_COLUMNS = 5  # the time, the promise, the lent share of requests
_DAY_HOURS = 24

Pair: TypeAlias = tuple[float, float]


class PromiseRecord(NamedTuple):
    """The outcomes of promises for one horizon; without outcomes all percentages are 0.

    violation: broken promises. severity: mean excess over the promise in percent of the actual peak, over all promises.
    over_estimate: the promise's excess over the actual peak. lent: mean share of requests above the promise. coverage:
    the share of hours in the four weeks with an outcome.
    """

    horizon_seconds: float
    outcomes: int
    violation_percents: Pair
    severity_percents: Pair = (0.0, 0.0)
    over_estimate_percents: Pair = (0.0, 0.0)
    lent_percents: Pair = (0.0, 0.0)

    @property
    def coverage_percent(self) -> float:
        return 100 * self.outcomes / WINDOW_HOURS


class Totals(NamedTuple):
    """Sums over outcomes. `excess` sums the excess over the promise, as a share of the actual peak."""

    outcomes: int = 0
    violations: Pair = (0.0, 0.0)
    excess: Pair = (0.0, 0.0)
    promised: Pair = (0.0, 0.0)
    realised: Pair = (0.0, 0.0)

    def plus(self, other: "Totals") -> "Totals":
        return Totals(self.outcomes + other.outcomes, *map(_pair, np.add(self[1:], other[1:])))

    @classmethod
    def of(cls, promised: Singles, realised: Singles) -> "Totals":
        """The record of outcomes, shape (outcomes, 2)."""
        broken = realised > promised * (1 + VIOLATION_TOLERANCE)
        excess = np.where(broken, realised - promised, 0.0) / np.where(realised > 0, realised, 1.0)
        sums = (each.sum(axis=0, dtype=np.float64) for each in (broken, excess, promised, realised))
        return cls(len(promised), *map(_pair, sums))


NO_OUTCOMES = Totals()


class WithdrawalRecord(NamedTuple):
    """The share of lent capacity that is taken back per day, in percent, over the last `window_seconds`."""

    window_seconds: int
    percents_per_day: Pair


class Record:
    """The promises of one model: those without an outcome yet, and those of the last four weeks with one."""

    def __init__(self, horizons_seconds: Sequence[float]) -> None:
        self.horizons_seconds = tuple(horizons_seconds)
        self._waiting: dict[float, dict[float, Floats]] = {seconds: {} for seconds in horizons_seconds}
        self._judged = {seconds: HourlyWindow(_COLUMNS) for seconds in horizons_seconds}
        self._kept: tuple[PromiseRecord, ...] | None = None  # until something changes

    def of_horizons(self, horizons_seconds: Sequence[float]) -> "Record":
        """The same for those horizons; a new horizon starts empty."""
        if tuple(horizons_seconds) == self.horizons_seconds:
            return self
        record = Record(horizons_seconds)
        for seconds in self.horizons_seconds:
            if seconds in record._judged:
                record._waiting[seconds], record._judged[seconds] = self._waiting[seconds], self._judged[seconds]
        return record

    def advance(self, time: float) -> None:
        """Drops promises older than four weeks, and those that can no longer get an outcome."""
        for seconds, window in self._judged.items():
            if window.advance(time):
                self._kept = None
                oldest = time - seconds - 2 * HOUR_SECONDS
                for made in [made for made in self._waiting[seconds] if not oldest <= made <= time]:
                    del self._waiting[seconds][made]

    def promise(self, peaks: Floats, requested: Floats, time: float) -> None:
        """Records a promise, shape (horizons, 2), and the share of `requested` that it lends."""
        for by_time, peak in zip(self._waiting.values(), peaks, strict=False):
            lent = np.maximum(requested - peak, 0.0) / np.where(requested > 0, requested, 1.0)
            by_time[time] = np.concatenate([[time], peak, lent])

    def settle(self, outcome: Outcome) -> Floats | None:
        """Records the outcome of a promise for one node, and returns the promise; None without one."""
        waiting = self._waiting.get(outcome.horizon_seconds, {}).pop(outcome.predicted_at, None)
        if waiting is None:
            return None
        row = np.concatenate([waiting[1:3], outcome.realised[0], waiting[3:]])
        self._judged[outcome.horizon_seconds].at(outcome.predicted_at + outcome.horizon_seconds)[:] = row
        self._kept = None
        promised: Floats = waiting[1:3]
        return promised

    def broken(self, seconds: float, made: Floats, reached: Floats) -> tuple[Rows, Floats] | None:
        """Which of the open promises of a horizon, made at these times, are broken by what was used since, shape
        (promises, 2): their places and amounts; None for none.
        """
        by_time = self._waiting.get(seconds, {})
        places = [place for place, one in enumerate(made.tolist()) if one in by_time]
        if not places:
            return None
        promised = np.stack([by_time[float(made[place])][1:3] for place in places])
        of = violated(promised, reached[places]).any(axis=1)
        return (np.array(places)[of], promised[of]) if of.any() else None

    def kept(self) -> tuple[PromiseRecord, ...]:
        """The kept promises by horizon."""
        if self._kept is None:
            self._kept = tuple(_kept(seconds, window.rows) for seconds, window in self._judged.items())
        return self._kept

    def set_clock(self, seconds: float) -> None:
        for window in self._judged.values():
            window.set_clock(seconds)
        for horizon, by_time in self._waiting.items():
            rows = (np.concatenate([[made + seconds], row[1:]]) for made, row in by_time.items())
            self._waiting[horizon] = {float(row[0]): row for row in rows}

    def parts(self) -> dict[str, Arrays]:
        """All of the state, for a checkpoint."""
        return {
            str(seconds): {
                "waiting": np.array(list(self._waiting[seconds].values())).reshape(-1, _WAITING_COLUMNS),
                **self._judged[seconds].arrays(),
            }
            for seconds in self.horizons_seconds
        }

    @classmethod
    def restored(cls, parts: Parts) -> "Record":
        """Restores the result of `parts`. Raises KeyError, IndexError and ValueError."""
        record = cls([float(name) for name in parts])
        for seconds, arrays in zip(record.horizons_seconds, parts.values(), strict=True):
            waiting = np.asarray(arrays["waiting"], np.float64)
            if waiting.ndim != 2 or waiting.shape[1] != _WAITING_COLUMNS or not np.isfinite(waiting).all():
                raise ValueError(f"promises that wait must be rows of {_WAITING_COLUMNS} numbers")
            record._waiting[seconds] = {float(row[0]): row for row in waiting}
            record._judged[seconds] = HourlyWindow.of_arrays(arrays, _COLUMNS)
        return record


def _kept(horizon_seconds: float, rows: Singles) -> PromiseRecord:
    known = rows[~np.isnan(rows[:, 0])]
    totals = Totals.of(known[:, _PROMISED], known[:, _REALISED])

    def percents(part: Floats | Pair, whole: Pair | int) -> Pair:
        return _pair(100 * np.asarray(part) / np.where(np.asarray(whole) > 0, whole, 1.0))

    return PromiseRecord(
        horizon_seconds,
        totals.outcomes,
        percents(totals.violations, totals.outcomes),
        percents(totals.excess, totals.outcomes),
        percents(np.subtract(totals.promised, totals.realised), totals.realised),
        percents(known[:, _LENT].sum(axis=0, dtype=np.float64), totals.outcomes),
    )


class Loans:
    """The least amount lent in each hour of the last four weeks."""

    def __init__(self) -> None:
        self._least = HourlyWindow(2)

    def lend(self, amounts: Floats, time: float) -> None:
        """Records the lent amount, shape (2,)."""
        self._least.advance(time)
        row = self._least.at(time)
        row[:] = np.fmin(row, amounts)

    def withdrawn(self) -> tuple[WithdrawalRecord, ...]:
        """Over the last 24 hours, and over all."""
        newest_first = self._least.newest_first()
        return tuple(
            WithdrawalRecord(int(hours * HOUR_SECONDS), withdrawn_percents_per_day(newest_first[: hours + 1]))
            for hours in (_DAY_HOURS, WINDOW_HOURS)
        )

    def set_clock(self, seconds: float) -> None:
        self._least.set_clock(seconds)

    def arrays(self) -> Arrays:
        """All of the state, for a checkpoint."""
        return self._least.arrays()

    def restore(self, arrays: Arrays) -> None:
        """Restores the result of `arrays`. Raises KeyError, IndexError and ValueError."""
        self._least = HourlyWindow.of_arrays(arrays, 2)


def withdrawn_percents_per_day(lent: Singles) -> Pair:
    """The daily share taken back, from the lent amount by hour, the newest first, shape (hours, 2).

    An unknown hour says nothing about the one before or after it.
    """
    later, earlier = lent[:-1].astype(np.float64), lent[1:].astype(np.float64)
    both = ~np.isnan(later) & ~np.isnan(earlier)
    taken_back = np.where(both, np.maximum(earlier - later, 0.0), 0.0).sum(axis=0)
    whole = np.where(both, earlier, 0.0).sum(axis=0)
    hours_a_day = DAY_SECONDS / HOUR_SECONDS
    return _pair(100 * hours_a_day * taken_back / np.where(whole > 0, whole, 1.0))


def _pair(amounts: Floats) -> Pair:
    cpu, memory = amounts.tolist()
    return cpu, memory
