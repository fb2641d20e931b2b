"""One model's histogram as people look at it: few bars, in whole milli-cores and bytes. Pure."""

from typing import NamedTuple

import numpy as np

from agent.predict_server.bank import Bank
from shared.api.nodemetric import MOST_BARS

PERCENTILES = np.array([0.50, 0.95, 0.98, 0.99])
SHARES = 10_000


class Distribution(NamedTuple):
    """`shares[i]` ten-thousandths of the weight lie from `bounds[i]` to `bounds[i + 1]`.

    `percentiles` are those of `PERCENTILES`, each the end of its bucket as the models read it.
    """

    bounds: tuple[int, ...]
    shares: tuple[int, ...]
    percentiles: tuple[int, ...]


def of(bank: Bank, row: int, units: float) -> Distribution | None:
    """The distribution in this fraction of a core or a byte; None without a sample. Neighbouring buckets are merged
    into few bars.
    """
    histograms, rows = bank.histograms, np.array([row])
    if histograms.empty(rows)[0]:
        return None
    first, end = int(histograms.first[row]), int(histograms.last[row]) + 1
    edges = np.arange(first, end, -(-(end - first) // MOST_BARS))
    weights = histograms.weights[row, first:end]
    shares = np.add.reduceat(weights, edges - first) / weights.sum()
    starts = np.append(histograms.buckets.starts, histograms.buckets.starts[-1])  # the last bucket has no end
    return Distribution(
        bounds=tuple(np.rint(starts[np.append(edges, end)] * units).astype(np.int64).tolist()),
        shares=tuple(np.rint(shares * SHARES).astype(np.int64).tolist()),
        percentiles=tuple(np.ceil(histograms.percentiles(rows, PERCENTILES)[0] * units).astype(np.int64).tolist()),
    )
