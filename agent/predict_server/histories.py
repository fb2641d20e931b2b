"""The past as a predictor reads it: decayed statistics and maxima of entities, directly from the bank.

Amounts are arrays whose last axis has two places: cpu in cores, memory in bytes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from agent.metric_cache.series import Usage
from agent.predict_server import distribution
from agent.predict_server.decay import Floats
from agent.predict_server.distribution import Distribution
from agent.predict_server.histogram import Rows
from agent.predict_server.table import NO_HISTORY, ModelTable
from shared.quantity import MILLI_PER_CORE

Candidates: TypeAlias = Mapping[str, Floats]  # peaks by a name people can read


class History(NamedTuple):
    """The statistics of one entity: decayed mean and population stdev, and the history behind them.

    `first_observed` is in Unix seconds; `samples` counts training steps. `distributions` are of cpu and memory, empty
    without a sample.
    """

    mean: Usage
    stdev: Usage
    samples: int
    first_observed: float
    distributions: tuple[Distribution, ...] = ()


class Histories:
    """Statistics of some entities, a row for each of `keys` in every result, read from the bank on demand: valid until
    the next training step.

    An entity without observations has zeros.
    """

    def __init__(self, table: ModelTable, keys: Sequence[str]) -> None:
        self.keys = tuple(keys)
        self._table = table
        self._rows: Rows = np.array([table.rows.get(key, NO_HISTORY) for key in keys], np.intp)
        self._percentiles: dict[tuple[float, ...], Floats] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def means(self) -> Floats:
        """Shape (rows, 2)."""
        return np.stack([bank.moments.means[self._rows] for bank in self._table.banks], axis=1)

    @property
    def stdevs(self) -> Floats:
        """Population standard deviations; shape (rows, 2)."""
        return np.stack([bank.moments.stdevs(self._rows) for bank in self._table.banks], axis=1)

    def percentiles(self, ps: Floats) -> Floats:
        """The upper edge of the bucket of each resource's own p (0 to 1); `ps` has shape (2,), the result (rows, 2)."""
        asked = tuple(ps.tolist())
        if asked not in self._percentiles:  # several models need the same one, which takes long to compute
            found = [
                bank.histograms.percentiles(self._rows, np.array([p]))
                for bank, p in zip(self._table.banks, asked, strict=True)
            ]
            self._percentiles[asked] = np.concatenate(found, axis=1)
        return self._percentiles[asked]

    def maxima(self, days: int) -> Floats:
        """The largest samples of today and the `days` days before; shape (rows, 2)."""
        return self._table.maxima.over(self._rows, days)

    def daily_maxima(self) -> Floats:
        """The largest samples of each day, today's first; shape (rows, days, 2), 0 on days without samples."""
        return self._table.maxima.newest_first(self._rows).astype(np.float64)

    def first(self) -> History:
        """The history of the first entity."""
        units = zip(self._table.banks, (MILLI_PER_CORE, 1), strict=True)
        found = [distribution.of(bank, int(self._rows[0]), unit) for bank, unit in units]
        return History(
            mean=Usage(*self.means[0].tolist()),
            stdev=Usage(*self.stdevs[0].tolist()),
            samples=int(self.samples[0]),
            first_observed=float(self.first_observed[0]),
            distributions=tuple(each for each in found if each is not None),
        )

    @property
    def samples(self) -> Floats:
        """The number of training steps behind each; shape (rows,)."""
        return self._table.samples[self._rows].astype(np.float64)

    @property
    def first_observed(self) -> Floats:
        """Unix seconds; shape (rows,)."""
        return self._table.first_observed[self._rows]
