"""Histograms of many models as one array (model x bucket), updated and read in one vector operation.

The rules are those of VPA's recommender (`pkg/recommender/util/histogram.go`), which Koordinator ports: which bucket
takes a value, when a bucket counts as empty, which buckets are merged and saved, which bound of a bucket a percentile
returns. Results are equal to the bit, except for the starts of buckets: Go's power and Python's differ by up to 6e-15
of a value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.decay import Floats

Rows = NDArray[np.intp]

DEFAULT_EPSILON = 0.0001  # a thousandth of VPA's smallest sample weight, 0.1


@dataclass(frozen=True)
class Buckets:
    """`starts[b]` is where bucket b begins; `bounds[b - 1]` the smallest value that falls into bucket b or above.

    The two differ in their last bits: VPA finds a bucket by a logarithm, which does not invert its starts exactly.
    """

    starts: Floats
    bounds: Floats
    epsilon: float

    @property
    def count(self) -> int:
        return len(self.starts)

    def find(self, values: Floats) -> Rows:
        """Each value's bucket; the first for values below the range, the last for values above."""
        return np.searchsorted(self.bounds, values, side="right")


def exponential(*, max_value: float, first_bucket_size: float, ratio: float, epsilon: float) -> Buckets:
    """Buckets each `ratio` times as wide as the one before. Raises ValueError."""
    if max_value <= 0 or first_bucket_size <= 0 or ratio <= 1 or epsilon <= 0:
        raise ValueError("max_value, first_bucket_size and epsilon must be above 0, ratio above 1")

    def find(value: float) -> int:
        if value < first_bucket_size:
            return 0
        return int(math.log(value * (ratio - 1) / first_bucket_size + 1) / math.log(ratio))

    count = math.ceil(math.log(max_value * (ratio - 1) / first_bucket_size + 1) / math.log(ratio)) + 1
    starts = np.array([first_bucket_size * (ratio**bucket - 1) / (ratio - 1) for bucket in range(count)])
    return Buckets(starts, _bounds(starts, find), epsilon)


def _bounds(starts: Floats, find: Callable[[float], int]) -> Floats:
    """The exact double at which `find` steps up to each bucket but the first, by bisection around its start.

    A lookup among these gives `find`'s result for every double, without its logarithm.
    """
    bounds = []
    for bucket, start in enumerate(starts.tolist()[1:], 1):
        below, above = start * (1 - 1e-9), start * (1 + 1e-9)
        while (middle := (below + above) / 2) not in (below, above):
            if find(middle) >= bucket:
                above = middle
            else:
                below = middle
        bounds.append(above)
    return np.array(bounds)


# Koordinator's ranges: 25 milli-cores to 1024 cores, 5 MiB to 2 TiB, 5 % a bucket.
CPU = exponential(max_value=1024, first_bucket_size=0.025, ratio=1.05, epsilon=DEFAULT_EPSILON)
MEMORY = exponential(max_value=2**41, first_bucket_size=5 * 2**20, ratio=1.05, epsilon=DEFAULT_EPSILON)


class Histograms:
    """Bucket weights of `rows` models. Weights of one call go to distinct rows.

    Not thread-safe, and without time or decay: see `bank`.
    """

    def __init__(self, buckets: Buckets, rows: int = 0) -> None:
        self.buckets = buckets
        self.weights = np.zeros((rows, buckets.count))
        self.totals = np.zeros(rows)
        # The first and last non-empty bucket, as VPA keeps them: last and first if all are empty.
        self.first = np.full(rows, buckets.count - 1)
        self.last = np.zeros(rows, np.intp)

    def resize(self, rows: int) -> None:
        """Makes room for `rows` models; new ones are empty."""
        more = Histograms(self.buckets, rows - len(self.totals))
        self.weights = np.concatenate([self.weights, more.weights])
        self.totals = np.concatenate([self.totals, more.totals])
        self.first = np.concatenate([self.first, more.first])
        self.last = np.concatenate([self.last, more.last])

    def clear(self, row: int) -> None:
        self.weights[row] = 0.0
        self.totals[row] = 0.0
        self.trim(np.array([row]))

    def add(self, rows: Rows, values: Floats, weights: Floats) -> None:
        """Adds to each row one value with its weight."""
        found = self.buckets.find(values)
        grown = self.weights[rows, found] + weights
        self.weights[rows, found] = grown
        self.totals[rows] += weights
        counts = grown >= self.buckets.epsilon
        self.widen(rows[counts], found[counts], found[counts])

    def subtract(self, rows: Rows, values: Floats, weights: Floats) -> None:
        """Subtracts from each row one value with its weight; a remainder below epsilon becomes 0."""
        found = self.buckets.find(values)
        self.weights[rows, found] = self._significant(self.weights[rows, found] - weights)
        self.totals[rows] = self._significant(self.totals[rows] - weights)
        self.trim(rows)

    def counting(self, rows: Rows) -> Floats:
        """The weights from the first to the last non-empty bucket. The others are too small to count."""
        columns = np.arange(self.buckets.count)
        inside = (columns >= self.first[rows, np.newaxis]) & (columns <= self.last[rows, np.newaxis])
        return np.where(inside, self.weights[rows], 0.0)

    def widen(self, rows: Rows, first: Rows, last: Rows) -> None:
        """Marks these buckets of each row as non-empty, however small their weight."""
        self.first[rows] = np.minimum(self.first[rows], first)
        self.last[rows] = np.maximum(self.last[rows], last)

    def scale(self, rows: Rows, factors: Floats) -> None:
        """Multiplies every weight of each row by its factor."""
        self.weights[rows] *= factors[:, np.newaxis]
        self.totals[rows] *= factors
        self.trim(rows)

    def trim(self, rows: Rows) -> None:
        """Finds the first and last non-empty bucket again."""
        filled = self.weights[rows] >= self.buckets.epsilon
        some = filled.any(axis=1)
        end = self.buckets.count - 1
        self.first[rows] = np.where(some, filled.argmax(axis=1), end)
        self.last[rows] = np.where(some, end - filled[:, ::-1].argmax(axis=1), 0)

    def empty(self, rows: Rows) -> NDArray[np.bool_]:
        return np.asarray(self.weights[rows, self.first[rows]] < self.buckets.epsilon)

    def percentiles(self, rows: Rows, ps: Floats) -> Floats:
        """Shape (rows, ps): the end of the bucket where each p (0..1, clamped) of the weight is reached.

        The last bucket of the layout has no end and gives its start; an empty histogram gives 0.
        """
        first, last = self.first[rows], self.last[rows]
        low, high = int(first.min(initial=self.buckets.count)), int(last.max(initial=0)) + 1
        if low >= high:
            return np.zeros((len(rows), len(ps)))
        reached = _sums(self.weights.T[low:high, rows])
        # Weights before the first bucket are too small to count, and few histograms have any.
        leading = reached[np.minimum(first, high) - low - 1, np.arange(len(rows))] * (first > low)
        if len(few := np.flatnonzero(leading)):
            counting = np.arange(low, high)[:, np.newaxis] >= first[few]
            reached[:, few] = _sums(self.weights.T[low:high, rows[few]] * counting)
        found = low + _search_columns(reached, np.clip(ps, 0.0, 1.0)[:, np.newaxis] * self.totals[rows])
        ends = np.append(self.buckets.starts[1:], self.buckets.starts[-1])
        result = ends[np.minimum(np.maximum(found, first), last)]
        result[:, self.empty(rows)] = 0.0
        return np.asarray(result.T)

    def _significant(self, weights: Floats) -> Floats:
        return np.where(weights < self.buckets.epsilon, 0.0, weights)


def _sums(weights: Floats) -> Floats:
    """The sum up to each bucket (buckets, models), added in VPA's order: bucket by bucket, each over all models."""
    sums = np.ascontiguousarray(weights)
    for before, bucket in pairwise(sums):
        bucket += before
    return sums


def _search_columns(ascending: Floats, thresholds: Floats) -> Rows:
    """The number of values of each column (values, columns) below each of its thresholds (thresholds, columns).

    `np.searchsorted` of every column at once: one bisection whose steps all columns and thresholds take together.
    """
    left, columns = ascending.shape
    values = ascending.ravel()
    found: Rows = np.broadcast_to(np.arange(columns), thresholds.shape).copy()
    while left > 1:
        half = left // 2
        found += (values.take(found + (half - 1) * columns) < thresholds) * np.intp(half * columns)
        left -= half
    found += (values.take(found) < thresholds) * np.intp(columns)
    return np.asarray(found // columns)
