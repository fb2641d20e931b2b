"""All models' histograms and moments of one resource, under one decay rule."""

import math

import numpy as np

from agent.predict_server import decay
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Buckets, Histograms, Rows
from agent.predict_server.moments import Moments


class Bank:
    """Row r of each part is the same model. An infinite half-life never decays.

    Not thread-safe. Times are Unix seconds. If a clock goes back without `set_clock`, newer samples weigh less.
    """

    def __init__(self, buckets: Buckets, half_life_seconds: float, rows: int = 0) -> None:
        self.half_life_seconds = half_life_seconds
        self.histograms = Histograms(buckets, rows)
        self.moments = Moments(rows)
        self.references = np.full(rows, decay.ZERO_TIME)

    @property
    def rows(self) -> int:
        return len(self.references)

    def resize(self, rows: int) -> None:
        """Makes room for `rows` models; new ones are empty."""
        self.histograms.resize(rows)
        self.moments.resize(rows)
        self.references = np.concatenate([self.references, np.full(rows - self.rows, decay.ZERO_TIME)])

    def clear(self, row: int) -> None:
        """Empties one model, for another owner."""
        self.histograms.clear(row)
        self.moments.clear(row)
        self.references[row] = decay.ZERO_TIME

    def add(self, rows: Rows, values: Floats, time: float, weights: float | Floats = 1.0) -> None:
        """Adds to each (distinct) row one value observed at `time`."""
        decayed = weights * self.weights_at(rows, time)
        self.histograms.add(rows, values, decayed)
        self.moments.add(rows, values, decayed)

    def subtract(self, rows: Rows, values: Floats, time: float, weights: float | Floats = 1.0) -> None:
        """Removes from each (distinct) row one value observed at `time`. The moments keep it: they cannot remove."""
        self.histograms.subtract(rows, values, weights * self.weights_at(rows, time))

    def weights_at(self, rows: Rows, time: float) -> Floats:
        """The amount that weight 1 at `time` adds to each row; moves references that lie too far in the past."""
        late = rows[decay.must_shift(self.references[rows], time, self.half_life_seconds)]
        if len(late):
            self._shift(late, decay.rounded_reference(time, self.half_life_seconds))
        return decay.sample_weights(self.references[rows], time, self.half_life_seconds)

    def _shift(self, rows: Rows, reference: float | Floats) -> None:
        self._scale(rows, decay.shift_factors(self.references[rows], reference, self.half_life_seconds))
        self.references[rows] = reference

    def _scale(self, rows: Rows, factors: Floats) -> None:
        self.histograms.scale(rows, factors)
        self.moments.scale(rows, factors)

    def change_half_life(self, half_life_seconds: float, time: float) -> None:
        """Decays by another half-life from `time` on; existing samples keep their weight at that time."""
        if half_life_seconds != self.half_life_seconds:
            self._restate(time, time, half_life_seconds)

    def set_clock(self, before: float, time: float) -> None:
        """Continues at `time` with the weights of the time `before`, like the clock."""
        self._restate(before, time, self.half_life_seconds)

    def _restate(self, before: float, time: float, half_life_seconds: float) -> None:
        """Makes weights of the time `before` as large at `time`, and decays them by that half-life from then on."""
        reference = decay.rounded_reference(time, half_life_seconds)
        present = np.exp2((self.references - before) / self.half_life_seconds)
        self._scale(np.arange(self.rows), present * math.exp2((time - reference) / half_life_seconds))
        # An empty model keeps the zero time, as if it never had another half-life.
        self.references = np.where(self.moments.weights > 0, reference, decay.ZERO_TIME)
        self.half_life_seconds = half_life_seconds
