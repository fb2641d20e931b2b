"""Expects a peak no higher than the largest usage of the last seven days, and a margin."""

from headroom_api.predictors import Candidates, Parameters, Predictor, Situation

DAYS = 7
DEFAULT_MARGIN_PERCENT = 10.0


class RecentMaximum(Predictor):
    """The maximum of all pods together, with the policy's safety margin, or 10 % if the policy sets none."""

    default_margin_percent = DEFAULT_MARGIN_PERCENT

    def __init__(self, parameters: Parameters) -> None:
        self._factor = parameters.with_margin(DEFAULT_MARGIN_PERCENT)

    def peak(self, situation: Situation) -> Candidates:
        """Arrays of shape (nodes, 2), cpu in cores and memory in bytes; the largest of them is the peak.

        The floor keeps the requests of pods that are too young to have a maximum.
        """
        return {
            "recent-maximum": situation.whole.maxima(DAYS) * self._factor,
            "cold-pods": situation.cold_floor(),
        }
