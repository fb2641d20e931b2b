"""The peak of a node for a target instead of a margin: how often usage may exceed the promise. Pure.

One formula for all targets and horizons, over the pods of any number of nodes at once, for one resource:

    k     = 0.96 + 0.04 clip((node's peak of a week / sum own_i - 0.7) / 0.3, 0, 1)
    base  = k (w sum own_i + (1 - w) node)
    scale = spread sqrt(sum size_i (own_i + 0.1 size_i) (1 + 0.5 (1 - age_i / 7 d))^2)
    share = min(1, withheld + 0.5 (1 - min(1, age of the node / 1 d)))
    peak  = min(ceiling, max(usage, 0.9 base, base + margin scale + share (ceiling - base)))

own_i is the largest sample of pod i in a week, size_i its request (or its usage, if larger), age_i the time since the
first observation of the pod or its workload, ceiling the most that all pods can use. A pod younger than a day counts
with a peak of at least 20 % of its request. k is larger where pods peak together, as replicas do: their common peak is
the sum of their own, and the independent uncertainty of many pods is little beside it. `node` is the mean of the node's
own peaks of one and of two weeks: it reflects how far pods peak together, and the pods that ran in place of today's.
The scale is that of a sum of independent pods, so few large pods widen the margin by themselves; spread = 0.6 + 1 -
sqrt(mean / node) is larger for a node that is mostly idle and sometimes busy. w is 0.25. In a node's first week, pods
have not had every occasion to peak together: then w is 0.7 and the scale 1.25 times as large. On its first day it has
not seen all hours of a day, hence its share. What is withheld is for broken promises, see `debts`; from 1 on the peak
is the most that can be used. As long as a node has a debt, its peak of two weeks takes the place of that of one, and a
drift makes it forget nothing: what has surprised it once does so again.

The margin is a number of scales, by target and horizon, from `calibration`; it is not negative and never smaller for a
stricter target. Every term but k grows with every pod: another pod lowers the peak by no more than k may fall.
`tests/bench/peak_mix_choice.py` chooses the constants, docs/explanation/prediction-measurements.md has the table.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.calibration import HOUR_SECONDS
from agent.predict_server.daily import Arrays
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows

POD_DAYS = 8  # today and a week
NODE_DAYS = 15  # today and two weeks
WEEK_DAYS = 7.0
LEAST_OF_BASE = 0.9  # a node without a debt promises a little less than its margin says, but no less than this
HELD_HOURS = 10  # how long a predicted peak stays promised


@dataclass(frozen=True)
class Weights:
    """The constants of the formula."""

    base: float = 0.96
    first_day: float = 0.5
    together: float = 0.7
    own: float = 0.25
    own_first_week: float = 0.7
    young_days: float = 1.0
    young_peak: float = 0.2
    least_peak: float = 0.1
    unknown_week: float = 0.5
    scale_first_week: float = 1.25
    least_spread: float = 0.6


WEIGHTS = Weights()


@dataclass(frozen=True)
class PodArrays:
    """Arrays of shape (pods,), in any order. `own` are the largest samples of a week, see `maxima`."""

    node: Rows
    requests: Floats
    own: Floats
    age_days: Floats


@dataclass(frozen=True)
class NodeArrays:
    """Arrays of shape (nodes,): the largest samples of the node's series in one and two weeks, its mean, its age.

    `unforgotten_peak` is that of two weeks with what a drift made the node forget.
    """

    week_peak: Floats
    two_weeks_peak: Floats
    unforgotten_peak: Floats
    mean: Floats
    age_days: Floats


@dataclass(frozen=True)
class Forecast:
    """Arrays of shape (nodes,): `base` combines the sum of pods' peaks and the node's, `together` is the node's peak of
    a week as a share of the sum of pods' own, `unseen` the share of the room that a node of less than a day promises.
    `longer` is the base of a node with a debt.
    """

    base: Floats
    longer: Floats
    scale: Floats
    together: Floats
    unseen: Floats

    def peaks(self, margin: Floats, withheld: Floats, usage: Floats, ceilings: Floats) -> Floats:
        """The peaks for a margin and for what debts withhold, by node: never below current usage, never above the most
        that can be used.

        A ceiling is what all pods may use; where 1 is withheld it is what the peak is.
        """
        base = np.where(withheld > 0, self.longer, self.base)
        room = np.maximum(0.0, ceilings - base)
        expected = base + margin * self.scale + np.minimum(withheld + self.unseen, 1.0) * room
        peaks: Floats = np.minimum(ceilings, np.maximum(np.maximum(usage, LEAST_OF_BASE * self.base), expected))
        return peaks


def forecast(pods: PodArrays, nodes: NodeArrays, weights: Weights = WEIGHTS) -> Forecast:
    """The likely peak (`base`), and its uncertainty (`scale`)."""
    count = len(nodes.mean)
    young = np.where(pods.age_days < weights.young_days, weights.young_peak * pods.requests, 0.0)
    own = np.maximum(pods.own, young)
    size = np.maximum(pods.requests, own)
    unknown = 1 + weights.unknown_week * (1 - np.minimum(pods.age_days, WEEK_DAYS) / WEEK_DAYS)
    variance = np.bincount(pods.node, size * (own + weights.least_peak * size) * unknown**2, count)
    own_sum: Floats = np.bincount(pods.node, own, count).astype(np.float64)
    node = (nodes.week_peak + nodes.two_weeks_peak) / 2
    first_week = nodes.age_days < WEEK_DAYS
    share = np.where(first_week, weights.own_first_week, weights.own)
    idle = np.sqrt(np.minimum(1.0, nodes.mean / np.where(node > 0, node, 1.0)))
    spread = np.where(first_week, weights.scale_first_week, 1.0) * (weights.least_spread + 1 - idle)
    sums = np.where(own_sum > 0, own_sum, 1.0)

    def base(node: Floats, peak: Floats) -> Floats:
        common = np.clip((peak / sums - weights.together) / (1 - weights.together), 0.0, 1.0)
        factor = weights.base + (1 - weights.base) * common
        based: Floats = factor * (share * own_sum + (1 - share) * node)
        return based

    return Forecast(
        base=base(node, nodes.week_peak),
        longer=base(nodes.unforgotten_peak, nodes.unforgotten_peak),
        scale=spread * np.sqrt(variance),
        together=nodes.week_peak / sums,
        unseen=weights.first_day * (1 - np.minimum(1.0, nodes.age_days)),
    )


class Held:
    """The largest peak of the last hours, by node: the lent amount is the least that could be lent in that time.

    Arriving and departing pods move a prediction up and down. Holding it for ten hours more than halves the withdrawals
    of lent capacity, and costs less than one percent of requests in lending.
    """

    def __init__(self, nodes: int = 1, hours: int = HELD_HOURS) -> None:
        self.hourly: Floats = np.zeros((nodes, hours))  # this hour's first
        self.hour = -1

    def raise_to(self, peaks: Floats, time: float) -> None:
        """Records the present prediction, by node."""
        hour = int(time // HOUR_SECONDS)
        passed = min(max(hour - self.hour, 0), self.hourly.shape[1])
        if passed:
            self.hourly = np.roll(self.hourly, passed, axis=1)
            self.hourly[:, :passed] = 0.0
        self.hour = hour
        self.hourly[:, 0] = np.maximum(self.hourly[:, 0], peaks)

    def peaks(self, ceilings: Floats) -> Floats:
        """The promise, never above the most that today's pods may use."""
        peaks: Floats = np.minimum(ceilings, self.hourly.max(axis=1))
        return peaks

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of the state, for a checkpoint."""
        return {"hourly": self.hourly, "hour": np.array([self.hour])}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> "Held":
        """Restores the result of `arrays`. Raises KeyError and ValueError."""
        hourly = np.array(arrays["hourly"], np.float64)
        if hourly.ndim != 2 or hourly.shape[1] != HELD_HOURS or not (hourly >= 0).all():
            raise ValueError(f"held peaks must be rows of {HELD_HOURS} hours")
        held = cls(len(hourly))
        held.hourly, held.hour = hourly, int(np.asarray(arrays["hour"], np.int64)[0])
        return held
