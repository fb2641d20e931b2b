"""How many scales of `peak_mix` a target takes, learned from what came of earlier predictions. Pure.

The residual of a prediction is (what came - base) / scale. Its tail is taken for a generalised Pareto one: beyond the
90 % quantile u, with a mean excess b and the shape 0.7, at most `target` of residuals are above

    margin = max(0, u + b h(10 % / target)),   h(t) = (t^0.7 - 1) / 0.7 * (1 - 0.7)

A month has few independent days. So u and b of a node are mixed with a prior: after D days of outcomes u counts
D / (D + 25) and b, which rests on the few largest, D / (D + 100).
"""

from typing import NamedTuple

import numpy as np

from agent.predict_server.decay import Floats

HOUR_SECONDS = 3600
WINDOW_HOURS = 28 * 24
TAIL_PERCENT = 10.0
TAIL_SHAPE = 0.7
QUANTILE_PRIOR_DAYS = 25.0
EXCESS_PRIOR_DAYS = 100.0
EARLY_DAYS = 6.0  # predictions on a shorter history are no measure of later ones
LONGEST_GAP_SECONDS = 900.0
# A node that changed its role is to forget what it was: outcomes and its own peaks, but for these last ones.
DRIFT_HOURS = 72
DRIFT_DAYS = 4


class Tail(NamedTuple):
    """The tail of residuals: its 90 % quantile and the mean excess above, each a number or one by node."""

    quantile: Floats
    excess: Floats


PRIOR = Tail(np.array(0.082), np.array(0.047))
# A fleet may move the prior within these: what it says is pooled from what many nodes say of themselves.
LEAST_PRIOR = Tail(np.array(0.0), np.array(0.024))
LARGEST_PRIOR = Tail(np.array(0.3), np.array(0.15))


def margins(tail: Tail, days: Floats, target_percent: float, prior: Tail = PRIOR) -> Floats:
    """Scales to add for a target in percent, by node; `days` are how many days of outcomes each tail rests on."""
    quantile_weight = days / (days + QUANTILE_PRIOR_DAYS)
    excess_weight = days / (days + EXCESS_PRIOR_DAYS)
    quantile = quantile_weight * tail.quantile + (1 - quantile_weight) * prior.quantile
    excess = excess_weight * tail.excess + (1 - excess_weight) * prior.excess
    beyond = ((TAIL_PERCENT / target_percent) ** TAIL_SHAPE - 1) / TAIL_SHAPE * (1 - TAIL_SHAPE)
    margin: Floats = np.maximum(0.0, quantile + excess * beyond)
    return margin


def pooled_prior(tails: Tail, days: Floats) -> Tail:
    """A prior for new nodes from the tails of a fleet, shape (nodes,): medians, held within fixed bounds.

    A node counts by its days of outcomes, up to a week's worth, and the built-in prior counts as 20 nodes.
    """
    weights = np.append(np.minimum(days, 7.0) / 7.0, 20.0)
    quantile = _weighted_median(np.append(tails.quantile, PRIOR.quantile), weights)
    excess = _weighted_median(np.append(tails.excess, PRIOR.excess), weights)
    return Tail(
        np.clip(quantile, LEAST_PRIOR.quantile, LARGEST_PRIOR.quantile),
        np.clip(excess, LEAST_PRIOR.excess, LARGEST_PRIOR.excess),
    )


def _weighted_median(values: Floats, weights: Floats) -> Floats:
    known = np.isfinite(values) & (weights > 0)
    order = np.argsort(values[known], kind="stable")
    reached = np.cumsum(weights[known][order])
    return np.asarray(values[known][order][np.searchsorted(reached, reached[-1] / 2)])
