"""How many scales of `peak_mix` a target needs, learned from the outcomes of earlier predictions. Pure.

The residual of a prediction is (actual - base) / scale. Its tail is modelled as a generalised Pareto one: beyond the 90
% quantile u, with a mean excess b and the shape 0.7, at most `target` of residuals are above

    margin = max(0, u + b h(10 % / target)),   h(t) = (t^0.7 - 1) / 0.7 * (1 - 0.7)

A month has few independent days. So u and b of a node are mixed with a prior, the fleet's or a built-in one: after D
days of outcomes u has the weight D / (D + 25) and b, which rests on the few largest residuals, D / (D + 100).
"""

from typing import NamedTuple

import numpy as np

from agent.predict_server.decay import Floats
from shared.api.predictionprior import BUILT_IN
from shared.api.predictionprior import Tail as Prior

HOUR_SECONDS = 3600
WINDOW_HOURS = 28 * 24
TAIL_PERCENT = 10.0
TAIL_SHAPE = 0.7
QUANTILE_PRIOR_DAYS = 25.0
EXCESS_PRIOR_DAYS = 100.0
EARLY_DAYS = 6.0  # predictions on a shorter history say little about later ones
LONGEST_GAP_SECONDS = 900.0
# A node that changed its role must forget its past: outcomes and its own peaks, except these last ones.
DRIFT_HOURS = 72
DRIFT_DAYS = 4


class FittedTail(NamedTuple):
    """The tail of residuals: its 90 % quantile and the mean excess above, each a number or one per node."""

    quantile: Floats
    excess: Floats


def margins(tail: FittedTail, days: Floats, target_percent: float, prior: Prior = BUILT_IN) -> Floats:
    """Scales to add for a target in percent, by node; `days` are the days of outcomes behind each tail."""
    quantile_weight = days / (days + QUANTILE_PRIOR_DAYS)
    excess_weight = days / (days + EXCESS_PRIOR_DAYS)
    quantile = quantile_weight * tail.quantile + (1 - quantile_weight) * prior.quantile
    excess = excess_weight * tail.excess + (1 - excess_weight) * prior.excess
    beyond = ((TAIL_PERCENT / target_percent) ** TAIL_SHAPE - 1) / TAIL_SHAPE * (1 - TAIL_SHAPE)
    margin: Floats = np.maximum(0.0, quantile + excess * beyond)
    return margin
