"""How accurate the predicted peaks were, and the results of lending by them. Pure.

Every array has shape (evaluations, nodes), with one evaluation an hour. The lent amount is the pods'
requests above the promised peak; the oracle is the actual peak within the horizon. Rows whose horizon the recording
does not cover (NaN) count for neither violations nor savings.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.decay import Floats

VIOLATION_TOLERANCE = 1e-9  # relative: sums of the same samples in another order are no violation
EVALUATIONS_PER_DAY = 24


@dataclass(frozen=True)
class Scores:
    """Percentages unless the name says otherwise.

    violation: broken promises; p90_node: over the nodes' own rates. severity: mean excess over the promise in percent
    of the actual peak, over all promises. savings: the lent share of requests; oracle_savings: the same with the
    oracle's peak. withdrawn_percent_per_day: the share of the lent amount taken back per day. kept_24h: the share
    of it that stays for a day.
    """

    violation_percent: float
    violation_percent_p90_node: float
    severity_percent: float
    savings_percent: float
    oracle_savings_percent: float
    withdrawn_percent_per_day: float
    kept_24h_percent: float
    nodes: int
    predictions: int


def scores(peaks: Floats, oracle: Floats, requested: Floats) -> Scores:
    """Judges one model; pass only the evaluations that count. Raises ValueError without any."""
    judged = ~np.isnan(oracle).any(axis=1)
    if not judged.any():
        raise ValueError("no evaluation has its whole horizon in the recording")
    promised, came, limits = (array[judged] for array in (np.minimum(peaks, requested), oracle, requested))
    broken = violations(promised, came)
    by_node = broken.mean(axis=0) * 100
    excess = np.where(broken, came - promised, 0.0) / np.where(came > 0, came, 1.0)
    lent = np.maximum(requested - peaks, 0.0)
    taken_back = np.maximum(-np.diff(lent, axis=0), 0.0)
    return Scores(
        violation_percent=float(broken.mean() * 100),
        violation_percent_p90_node=float(np.percentile(by_node, 90)),
        severity_percent=float(excess.mean() * 100),
        savings_percent=_percent(limits.sum() - promised.sum(), limits.sum()),
        oracle_savings_percent=_percent(limits.sum() - came.sum(), limits.sum()),
        withdrawn_percent_per_day=_percent(taken_back.sum(), lent[:-1].sum()) * EVALUATIONS_PER_DAY,
        kept_24h_percent=_kept(lent),
        nodes=promised.shape[1],
        predictions=promised.size,
    )


def violations(peaks: Floats, oracle: Floats) -> NDArray[np.bool_]:
    """Where usage exceeded the promise."""
    return np.asarray(oracle > peaks * (1 + VIOLATION_TOLERANCE))


def _kept(lent: Floats) -> float:
    if len(lent) <= EVALUATIONS_PER_DAY:
        return float("nan")
    through_the_day = np.lib.stride_tricks.sliding_window_view(lent, EVALUATIONS_PER_DAY + 1, axis=0).min(axis=-1)
    return _percent(through_the_day.sum(), lent[: len(through_the_day)].sum())


def _percent(part: float, whole: float) -> float:
    return float(part / whole * 100) if whole else 0.0
