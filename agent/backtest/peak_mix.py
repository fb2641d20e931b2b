"""`peak-mix` for all nodes of a replay at once: the agent's own parts, put together as the agent puts them. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from agent.backtest.recording import PodSchedule
from agent.backtest.replay import ReplayTick
from agent.predict_server import calibration, peak_mix
from agent.predict_server.calibration import DRIFT_DAYS, DRIFT_HOURS, HOUR_SECONDS
from agent.predict_server.daily import Arrays, DailyMaxima, DailyMeans
from agent.predict_server.decay import Floats
from agent.predict_server.outcomes import Outcomes
from agent.predict_server.peak_mix import NODE_DAYS, POD_DAYS, WEIGHTS, Forecast, Held, NodeFacts, PodFacts, Weights
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
    ) -> None:
        self._weights, self._prior = weights, prior
        self._pods = DailyMaxima(POD_DAYS, len(schedule.node))
        self._nodes = DailyMaxima(NODE_DAYS, schedule.nodes)
        self._means = DailyMeans(NODE_DAYS, schedule.nodes)
        self._rows = np.arange(schedule.nodes)
        self._usage = np.zeros(schedule.nodes)
        self._hour = -1
        self.outcomes = Outcomes(horizon_hours, schedule.nodes)
        self._promised = {target: Held(schedule.nodes) for target in target_percents}

    def observe(self, tick: ReplayTick) -> None:
        """Takes in the samples of a tick."""
        self._pods.observe(tick.pods, tick.usage, tick.time)
        self._usage = np.bincount(tick.node, tick.usage, len(self._rows)).astype(np.float64)
        self._nodes.observe(self._rows, self._usage, tick.time)
        self._means.observe(self._usage, tick.time)
        self.outcomes.observe(tick.node, tick.usage, self._pods.since[tick.pods], tick.time)

    def peaks(self, tick: ReplayTick) -> Mapping[float, Floats]:
        """What is promised for each target, by node; makes the prediction of the hour on its first call in it."""
        expected = self._forecast(tick)
        hour = int(tick.time // HOUR_SECONDS)
        self.outcomes.judge(tick.time)
        if hour != self._hour:
            ages = self._nodes.ages_days(self._rows, tick.time)
            self.outcomes.predict(expected.base, expected.scale, ages, tick.time)
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

    def arrays(self) -> dict[str, Arrays]:
        """All of the state, by part."""
        held = {f"held {target}": promised.arrays() for target, promised in self._promised.items()}
        return {
            "pods": self._pods.arrays(),
            "nodes": self._nodes.arrays(),
            "means": self._means.arrays(),
            "outcomes": self.outcomes.arrays(),
            "hour": {"hour": np.array([self._hour])},
            **held,
        }

    def restore(self, arrays: Mapping[str, Arrays]) -> None:
        """Takes up what `arrays` gave. Raises KeyError and ValueError."""
        self._pods = DailyMaxima.of_arrays(arrays["pods"])
        self._nodes = DailyMaxima.of_arrays(arrays["nodes"])
        self._means = DailyMeans.of_arrays(arrays["means"])
        self.outcomes = Outcomes.of_arrays(arrays["outcomes"])
        self._hour = int(np.asarray(arrays["hour"]["hour"], np.int64)[0])
        self._promised = {target: Held.of_arrays(arrays[f"held {target}"]) for target in self._promised}

    def _forecast(self, tick: ReplayTick) -> Forecast:
        pods = PodFacts(
            tick.node,
            tick.limits,
            self._pods.largest(tick.pods, POD_DAYS),
            self._pods.ages_days(tick.pods, tick.time),
        )
        nodes = NodeFacts(
            self._nodes.largest(self._rows, POD_DAYS),
            self._nodes.largest(self._rows, NODE_DAYS),
            self._means.means(),
            self._nodes.ages_days(self._rows, tick.time),
        )
        return peak_mix.forecast(pods, nodes, self._weights)
