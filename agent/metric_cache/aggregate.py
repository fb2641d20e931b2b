"""One number out of the samples of a window, for every series at once. Pure."""

import enum

import numpy as np
from numpy.typing import NDArray

from agent.metric_cache.ring import Samples

Values = NDArray[np.float64]


class Aggregation(enum.StrEnum):
    """Koordinator's aggregation names, and the maximum."""

    AVG = "avg"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"
    MAX = "max"
    LAST = "last"
    COUNT = "count"


_PERCENTILES = {Aggregation.P50: 0.5, Aggregation.P90: 0.9, Aggregation.P95: 0.95, Aggregation.P99: 0.99}


def aggregate(samples: Samples, how: Aggregation) -> Values:
    """`samples` (seconds, series) -> (series,); NaN for a series without a sample, whose count is 0."""
    if samples.size == 0:
        return np.full(samples.shape[1], 0.0 if how is Aggregation.COUNT else np.nan)
    if how in _PERCENTILES:
        return percentile(samples, _PERCENTILES[how])
    counts = np.count_nonzero(~np.isnan(samples), axis=0)
    if how is Aggregation.COUNT:
        return np.asarray(counts, np.float64)
    if how is Aggregation.AVG:
        sums: Values = np.nansum(samples, axis=0, dtype=np.float64)
        averages = np.full(len(sums), np.nan)
        np.divide(sums, counts, out=averages, where=counts > 0)
        return averages
    if how is Aggregation.MAX:
        return np.asarray(np.fmax.reduce(samples, axis=0), np.float64)
    return _last(samples)


def percentile(samples: Samples, p: float) -> Values:
    """The sample at Koordinator's index of each ascending series; never interpolated."""
    if not np.isnan(samples).any():
        index = percentile_index(len(samples), p)
        return np.asarray(np.partition(samples, index, axis=0)[index], np.float64)
    ordered = np.sort(samples, axis=0)  # NaN goes last
    counts = np.count_nonzero(~np.isnan(samples), axis=0)
    indexes = np.array([percentile_index(n, p) for n in range(len(samples) + 1)])[counts]
    return np.asarray(np.take_along_axis(ordered, indexes[np.newaxis], axis=0)[0], np.float64)


def percentile_index(count: int, p: float) -> int:
    """int(n * p) - 1, at least 0, with the product in float32 as Koordinator's metric cache computes it."""
    return max(0, int(np.float32(count) * np.float32(p)) - 1)


def _last(samples: Samples) -> Values:
    from_end = np.argmax(~np.isnan(samples[::-1]), axis=0)
    picked = np.take_along_axis(samples, (len(samples) - 1 - from_end)[np.newaxis], axis=0)
    return np.asarray(picked[0], np.float64)
