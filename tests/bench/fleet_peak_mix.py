"""`peak-mix` for all nodes of a replay at once: the agent's own parts, combined as in the agent. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from agent.backtest.recording import PodSchedule
from agent.backtest.replay import ReplayTick
from agent.predict_server import calibration, peak_mix
from agent.predict_server.calibration import DRIFT_DAYS, DRIFT_HOURS, HOUR_SECONDS
from agent.predict_server.daily import DAY_SECONDS, DailyMeans
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.maxima import Maxima
from agent.predict_server.outcomes import Outcomes
from agent.predict_server.peak_mix import (
    HELD_HOURS,
    NODE_DAYS,
    POD_DAYS,
    WEIGHTS,
    Forecast,
    Held,
    NodeArrays,
    PodArrays,
    Weights,
)
from shared.api.predictionprior import BUILT_IN, Tail

DAY_HOURS = 24


class FleetPeakMix:
    """One model on every node; answers for several targets (percent) of one horizon, see `peaks`."""

    def __init__(
        self,
        schedule: PodSchedule,
        *,
        horizon_hours: int,
        target_percents: Sequence[float],
        weights: Weights = WEIGHTS,
        prior: Tail = BUILT_IN,
        held_hours: int = HELD_HOURS,
    ) -> None:
        self._weights, self._prior = weights, prior
        self._pods = Maxima(len(schedule.node), resources=1)
        self._nodes = Maxima(schedule.nodes, resources=1)
        self._pods_since = np.full(len(schedule.node), np.inf)  # Unix seconds of the first sample
        self._nodes_since = np.inf
        self._means = DailyMeans(NODE_DAYS, schedule.nodes)
        self._rows = np.arange(schedule.nodes)
        self._usage = np.zeros(schedule.nodes)
        self._hour = -1
        self.outcomes = Outcomes(horizon_hours, schedule.nodes)
        self._promised = {target: Held(schedule.nodes, held_hours) for target in target_percents}

    def observe(self, tick: ReplayTick) -> None:
        """Records the samples of a tick."""
        self._pods.add(tick.pods, tick.usage[:, np.newaxis], tick.time)
        self._pods_since[tick.pods] = np.minimum(self._pods_since[tick.pods], tick.time)
        self._nodes_since = min(self._nodes_since, tick.time)
        self._usage = np.bincount(tick.node, tick.usage, len(self._rows)).astype(np.float64)
        self._nodes.add(self._rows, self._usage[:, np.newaxis], tick.time)
        self._means.observe(self._usage, tick.time)
        self.outcomes.observe(tick.node, tick.usage, self._pods_since[tick.pods], tick.time)

    def peaks(self, tick: ReplayTick) -> Mapping[float, Floats]:
        """The promises for each target, by node; the first call in an hour makes that hour's prediction."""
        expected = self._forecast(tick)
        hour = int(tick.time // HOUR_SECONDS)
        self.outcomes.judge(tick.time)
        if hour != self._hour:
            self.outcomes.predict(expected.base, expected.scale, self._node_ages_days(tick), tick.time)
            self._hour = hour
            if hour % DAY_HOURS == 0:
                self._shorten_memory_after_drift()
        tail, days = self.outcomes.tails()
        ceilings = np.bincount(tick.node, tick.limits, len(self._rows)).astype(np.float64)
        promised = {}
        for target, held in self._promised.items():
            margin = calibration.margins(tail, days, target, self._prior)
            held.raise_to(expected.peaks(margin, self._usage, ceilings), tick.time)
            promised[target] = held.peaks(ceilings)
        return promised

    def _shorten_memory_after_drift(self) -> None:
        drifted = np.flatnonzero(self.outcomes.drifted())
        self.outcomes.forget(drifted, but_hours=DRIFT_HOURS)
        self._nodes.keep(drifted, DRIFT_DAYS)

    def _forecast(self, tick: ReplayTick) -> Forecast:
        pods = PodArrays(
            tick.node,
            tick.limits,
            _largest(self._pods, tick.pods, POD_DAYS),
            np.maximum(tick.time - self._pods_since[tick.pods], 0.0) / DAY_SECONDS,
        )
        nodes = NodeArrays(
            _largest(self._nodes, self._rows, POD_DAYS),
            _largest(self._nodes, self._rows, NODE_DAYS),
            self._means.means(),
            self._node_ages_days(tick),
        )
        return peak_mix.forecast(pods, nodes, self._weights)

    def _node_ages_days(self, tick: ReplayTick) -> Floats:
        return np.full(len(self._rows), max(0.0, tick.time - self._nodes_since) / DAY_SECONDS)


def _largest(maxima: Maxima, rows: Rows, days: int) -> Floats:
    """The largest samples of the newest `days`, today among them; shape (rows,)."""
    return maxima.over(rows, days - 1)[:, 0]
