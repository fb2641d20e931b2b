"""One number from the samples of a window, for every series at once. Pure."""

import enum

import numpy as np
from numpy.typing import NDArray

from agent.metric_cache.ring_file import Samples

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
    counts = len(samples) - np.isnan(samples).sum(axis=0, dtype=np.int64)
    if how is Aggregation.COUNT:
        return np.asarray(counts, np.float64)
    if how is Aggregation.AVG:
        sums: Values = np.nansum(samples, axis=0, dtype=np.float64)
        return _quotients(sums, counts)
    if how is Aggregation.MAX:
        return np.asarray(np.fmax.reduce(samples, axis=0), np.float64)
    return _last(samples)


def summary(samples: Samples) -> Samples:
    """The rows that summarise `samples`, of shape (3, series): means, maxima and counts."""
    counts = len(samples) - np.isnan(samples).sum(axis=0, dtype=np.int64)
    means = _quotients(np.nansum(samples, axis=0, dtype=np.float64), counts)
    maxima = np.fmax.reduce(samples, axis=0, initial=np.nan)
    return np.array([means, maxima, counts], np.float32)


def aggregate_rows(means: Samples, maxima: Samples, counts: Samples, how: Aggregation) -> Values:
    """Equals `aggregate`, for rows that each summarise `counts` samples, all of shape (rows, series).

    Average, maximum and count are exact for the samples themselves; a percentile is one of the rows' means, and the
    last value is the last row's mean.
    """
    if means.size == 0 or how not in (Aggregation.AVG, Aggregation.MAX, Aggregation.COUNT):
        return aggregate(means, how)
    if how is Aggregation.MAX:
        return aggregate(maxima, how)
    totals: Values = np.nansum(counts, axis=0, dtype=np.float64)
    if how is Aggregation.COUNT:
        return totals
    sums: Values = np.nansum(means.astype(np.float64) * counts, axis=0)
    return _quotients(sums, totals)


def percentile(samples: Samples, p: float) -> Values:
    """The sample at Koordinator's index of each ascending series; never interpolated."""
    ordered = np.ascontiguousarray(samples.T)
    ordered.sort(axis=1)  # NaN sorts last
    counts = len(samples) - np.isnan(samples).sum(axis=0, dtype=np.int64)
    indexes = percentile_index(counts, p)
    return np.asarray(np.take_along_axis(ordered, indexes[:, np.newaxis], axis=1)[:, 0], np.float64)


def percentile_index(count: int | NDArray[np.int64], p: float) -> NDArray[np.int64]:
    """int(n * p) - 1, at least 0, with the product in float32 as Koordinator's metric cache computes it."""
    product = np.asarray(count, np.float32) * np.float32(p)
    return np.maximum(0, product.astype(np.int64) - 1)


def _quotients(sums: Values, counts: NDArray[np.integer] | Values) -> Values:
    """NaN for zero divided by zero."""
    averages = np.full(len(sums), np.nan)
    np.divide(sums, counts, out=averages, where=counts > 0)
    return averages


def _last(samples: Samples) -> Values:
    from_end = np.argmax(~np.isnan(samples[::-1]), axis=0)
    picked = np.take_along_axis(samples, (len(samples) - 1 - from_end)[np.newaxis], axis=0)
    return np.asarray(picked[0], np.float64)
