"""Outcomes of predictions: made once an hour, judged when their horizon has passed. Pure, for any number of nodes.

A prediction covers the pods that ran when it was made. At every sample, the usage of those still present is summed, and
the largest sum is the actual peak; pods that arrived later do not count.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.predict_server.calibration import (
    DRIFT_HOURS,
    EARLY_DAYS,
    HOUR_SECONDS,
    LONGEST_GAP_SECONDS,
    TAIL_PERCENT,
    WINDOW_HOURS,
    FittedTail,
)
from agent.predict_server.daily import Arrays, Singles, restore
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows

_NEVER = -1


class JudgedPrediction(NamedTuple):
    """A prediction whose horizon has passed: its time, and by node the predicted and the actual peak."""

    made: float
    base: Floats
    largest: Floats


class Outcomes:
    """The predictions of the last horizon that have no outcome yet, and the residuals of the last four weeks.

    Arrays have the shape (nodes, hours); an hour's place is its number since 1970 modulo their length. There is room
    for one prediction more than the horizon has hours, because one may be made before the oldest is due.
    """

    def __init__(self, horizon_hours: int, nodes: int = 1) -> None:
        self.horizon_hours = horizon_hours
        places = horizon_hours + 1
        self.made: Floats = np.full(places, np.nan)  # Unix seconds; NaN without a pending prediction
        self.base: Floats = np.zeros((nodes, places))
        self.scale: Floats = np.zeros((nodes, places))
        self.largest: Floats = np.zeros((nodes, places))
        self.early: NDArray[np.bool_] = np.zeros((nodes, places), np.bool_)
        self.residuals: Singles = np.full((nodes, WINDOW_HOURS), np.nan, np.float32)
        self.residuals_early: NDArray[np.bool_] = np.zeros((nodes, WINDOW_HOURS), np.bool_)
        self.last_hour = _NEVER
        self.last_sample = np.nan

    def observe(
        self,
        node: Rows,
        usage: Floats,
        since: Floats,
        time: float,
        longest_gap_seconds: float = LONGEST_GAP_SECONDS,
        capacity: float = np.inf,
    ) -> None:
        """Records the usage of each pod; `since` is its first observation. All have shape (pods,). No node uses more
        than its capacity, which the rate between two samples may exceed by what the clock was off.

        After a gap in the samples, or a step of the clock, pending predictions cannot be judged and are dropped.
        """
        if not 0 <= time - self.last_sample <= longest_gap_seconds:
            self.made[:] = np.nan
        self.last_sample = time
        waiting = self.waiting()
        if not len(waiting):
            return
        # A pod counts in the predictions made from its first sample on.
        first = np.searchsorted(self.made[waiting], since, side="left")
        nodes, places = len(self.base), len(waiting) + 1
        sums = np.bincount(node * places + first, usage, nodes * places).reshape(nodes, places)[:, :-1].cumsum(axis=1)
        self.largest[:, waiting] = np.maximum(self.largest[:, waiting], np.minimum(sums, capacity))

    def waiting(self) -> Rows:
        """The places of predictions without an outcome, the oldest first."""
        places = np.flatnonzero(~np.isnan(self.made))
        return places[np.argsort(self.made[places], kind="stable")]

    def judge(self, time: float) -> list[JudgedPrediction]:
        """Turns predictions whose horizon has passed into residuals, and forgets those of more than four weeks ago.

        Returns the judged predictions, the oldest first.
        """
        self._forget_until(int(time // HOUR_SECONDS))
        due = np.flatnonzero(self.made <= time - self.horizon_hours * HOUR_SECONDS)
        judged = [self._judged(place) for place in due[np.argsort(self.made[due], kind="stable")].tolist()]
        self._forget_early()
        return judged

    def settle(self, made: float, largest: Floats, time: float) -> None:
        """Judges the prediction made at `made`, if it is still pending, by an outcome observed elsewhere."""
        self._forget_until(int(time // HOUR_SECONDS))
        for place in np.flatnonzero(self.made == made).tolist():
            self.largest[:, place] = largest
            self._judged(place)
        self._forget_early()

    def _judged(self, place: int) -> JudgedPrediction:
        made, scale = float(self.made[place]), self.scale[:, place]
        base, largest = self.base[:, place].copy(), self.largest[:, place].copy()
        known = scale > 0
        column = (int(made // HOUR_SECONDS) + self.horizon_hours) % WINDOW_HOURS
        self.residuals[:, column] = np.where(known, (largest - base) / np.where(known, scale, 1.0), np.nan)
        self.residuals_early[:, column] = self.early[:, place]
        self.made[place] = np.nan
        return JudgedPrediction(made, base, largest)

    def _forget_early(self) -> None:
        """Drops predictions on a short history once there are enough on a longer one."""
        judged = ~np.isnan(self.residuals)
        mature = np.count_nonzero(judged & ~self.residuals_early, axis=1) >= 24
        self.residuals[mature[:, np.newaxis] & self.residuals_early] = np.nan

    def set_clock(self, seconds: float) -> None:
        """The clock was set forward by that much, or back if below 0: shifts all times to the new clock."""
        hours = round(seconds / HOUR_SECONDS)
        if self.last_hour != _NEVER:
            self.residuals = np.roll(self.residuals, hours, axis=1)
            self.residuals_early = np.roll(self.residuals_early, hours, axis=1)
            self.last_hour = max(0, self.last_hour + hours)
        self.last_sample += seconds
        waiting = self.waiting()
        made = self.made[waiting] + seconds
        places = (made // HOUR_SECONDS).astype(np.int64) % len(self.made)
        self.made[:] = np.nan
        self.made[places] = made
        for values in (self.base, self.scale, self.largest, self.early):
            values[:, places] = values[:, waiting]

    def predict(self, base: Floats, scale: Floats, node_age_days: Floats, time: float) -> None:
        """Records this hour's prediction, by node; call it once an hour."""
        place = int(time // HOUR_SECONDS) % len(self.made)
        self.made[place] = time
        self.base[:, place], self.scale[:, place] = base, scale
        self.largest[:, place] = 0.0
        self.early[:, place] = node_age_days < EARLY_DAYS

    def predicted_in(self, time: float) -> bool:
        """Whether that hour has a prediction."""
        return bool((self.made // HOUR_SECONDS == time // HOUR_SECONDS).any())

    def tails(self) -> tuple[FittedTail, Floats]:
        """The tail of each node's residuals, and the days of residuals behind it; shapes (nodes,)."""
        known = ~np.isnan(self.residuals)
        counts = np.count_nonzero(known, axis=1)
        above = np.maximum(1, np.ceil(counts * TAIL_PERCENT / 100)).astype(np.intp)
        most = math.ceil(WINDOW_HOURS * TAIL_PERCENT / 100)
        largest = np.partition(np.where(known, self.residuals, -np.inf), WINDOW_HOURS - most, axis=1)[:, -most:]
        largest = np.sort(largest, axis=1)[:, ::-1].astype(np.float64)
        in_tail = np.arange(most) < np.minimum(above, counts)[:, np.newaxis]
        quantile = np.where(counts > 0, np.take_along_axis(largest, above[:, np.newaxis] - 1, axis=1)[:, 0], 0.0)
        mean = np.where(in_tail, largest, 0.0).sum(axis=1) / above
        return FittedTail(quantile, np.where(counts > 0, mean - quantile, 0.0)), counts / 24

    def drifted(self) -> NDArray[np.bool_]:
        """Nodes whose last 72 residuals all lie above 90 % of the earlier ones, or all below 10 % of them.

        Three days include at least one working day, so no week-end causes this. It needs a week of earlier residuals.
        Call it once a day, then `forget` these nodes' residuals and keep only the last days of their own maxima.
        """
        by_age = np.roll(self.residuals[:, ::-1], (self.last_hour + 1) % WINDOW_HOURS, axis=1)
        recent, before = by_age[:, :DRIFT_HOURS], by_age[:, DRIFT_HOURS:]
        enough = ~np.isnan(recent).any(axis=1) & (np.count_nonzero(~np.isnan(before), axis=1) >= 7 * 24)
        drifted = np.zeros(len(recent), np.bool_)
        for node in np.flatnonzero(enough):
            low, high = np.nanpercentile(before[node], [TAIL_PERCENT, 100 - TAIL_PERCENT])
            drifted[node] = recent[node].min() > high or recent[node].max() < low
        return drifted

    def forget(self, nodes: Rows, *, but_hours: int = 0) -> None:
        """Drops the residuals of nodes, except those of the last `but_hours`."""
        ages = (self.last_hour - np.arange(WINDOW_HOURS)) % WINDOW_HOURS
        self.residuals[np.ix_(nodes, np.flatnonzero(ages >= but_hours))] = np.nan

    def expect(self, nodes: Rows, base: Floats, scale: Floats) -> None:
        """Those nodes, shape (n,), are now expected to peak elsewhere than the last prediction says, for good: what is
        kept of earlier predictions is said anew from there.
        """
        place = int(np.nanargmax(self.made))
        old_base, old_scale = self.base[nodes, place], self.scale[nodes, place]
        known = (old_scale > 0) & (scale > 0)
        nodes, lower = nodes[known], (old_base - base)[known, np.newaxis]
        ratio = (scale[known] / old_scale[known])[:, np.newaxis]
        shift = lower / scale[known][:, np.newaxis]
        self.residuals[nodes] = (self.residuals[nodes] / ratio + shift).astype(np.float32)
        self.base[nodes] -= lower
        self.scale[nodes] *= ratio

    def _forget_until(self, hour: int) -> None:
        """Clears the places of the hours that began since the last call."""
        if self.last_hour == _NEVER or hour < self.last_hour:
            self.last_hour = hour
            return
        begun = np.arange(self.last_hour + 1, min(hour, self.last_hour + WINDOW_HOURS) + 1)
        self.residuals[:, begun % WINDOW_HOURS] = np.nan
        self.last_hour = hour

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of the state, for a checkpoint."""
        return {
            "made": self.made,
            "base": self.base,
            "scale": self.scale,
            "largest": self.largest,
            "early": self.early,
            "residuals": self.residuals,
            "residuals_early": self.residuals_early,
            "clock": np.array([self.last_hour, self.last_sample]),
        }

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> "Outcomes":
        """Restores the result of `arrays`. Raises KeyError and ValueError."""
        nodes, places = np.shape(arrays["base"])
        outcomes = cls(places - 1, nodes)
        own = outcomes.arrays()
        restore(own, arrays)
        outcomes.last_hour, outcomes.last_sample = int(own["clock"][0]), float(own["clock"][1])
        return outcomes
