"""`peak-mix` under many constants on one replay: what its formula looks at is worked out once, the rest for each trial.

The parts are the agent's own, and promises are those of `fleet_peak_mix`; a test holds the two together.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from agent.backtest import oracle, replay
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server import calibration, peak_mix
from agent.predict_server.calibration import DRIFT_DAYS, DRIFT_HOURS, HOUR_SECONDS
from agent.predict_server.daily import DAY_SECONDS, DailyMeans
from agent.predict_server.decay import Floats
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
from shared.api.predictionprior import BUILT_IN

DAY_HOURS = 24
_NEVER = -(2**31)


class Hour(NamedTuple):
    """What is known when an hour's promise is made. Arrays are by node; `daily` are maxima by day, today's first."""

    time: float  # Unix seconds
    pods: PodArrays
    daily: Floats  # shape (nodes, NODE_DAYS)
    mean: Floats
    age_days: Floats
    usage: Floats
    ceilings: Floats

    def nodes(self, memory_from: Floats) -> NodeArrays:
        """As far as each node remembers: from the day of that number since 1970."""
        days = int(self.time // DAY_SECONDS) - np.arange(NODE_DAYS)
        daily = np.where(days >= memory_from[:, np.newaxis], self.daily, 0.0)
        return NodeArrays(daily[:, :POD_DAYS].max(axis=1), daily.max(axis=1), self.mean, self.age_days)


class Rehearsed(NamedTuple):
    """A replay: every hour, and what came and was requested, of shape (hours, nodes)."""

    hours: Sequence[Hour]
    came: Floats
    requested: Floats


def rehearsed(recorded: RecordedUsage, schedule: PodSchedule) -> Rehearsed:
    """Plays the recording once."""
    hour_ticks = round(HOUR_SECONDS / recorded.interval_seconds)
    at = np.arange(hour_ticks - 1, recorded.ticks, hour_ticks)
    came = oracle.future_peaks(recorded, schedule, at, [DAY_HOURS * hour_ticks])[0]
    pods, nodes = Maxima(len(schedule.node), resources=1), Maxima(schedule.nodes, resources=1)
    means, every = DailyMeans(NODE_DAYS, schedule.nodes), np.arange(schedule.nodes)
    hours = []
    for tick in replay.ticks(recorded, schedule):
        usage = schedule.sums(tick.pods, tick.usage)
        pods.add(tick.pods, tick.usage[:, np.newaxis], tick.time)
        nodes.add(every, usage[:, np.newaxis], tick.time)
        means.observe(usage, tick.time)
        if (tick.index + 1) % hour_ticks:
            continue
        own = pods.over(tick.pods, POD_DAYS - 1)[:, 0]
        hours.append(
            Hour(
                tick.time,
                PodArrays(tick.node, tick.limits, own, tick.age_seconds / DAY_SECONDS),
                nodes.newest_first(every)[:, :, 0].astype(np.float64),
                means.means(),
                np.full(schedule.nodes, (tick.time - recorded.start) / DAY_SECONDS),
                usage,
                schedule.sums(tick.pods, tick.limits),
            )
        )
    return Rehearsed(hours, came, np.array([hour.ceilings for hour in hours]))


Formula = Callable[[Hour, NodeArrays], Forecast]


def shipped(weights: Weights = WEIGHTS) -> Formula:
    """The agent's own formula."""
    return lambda hour, nodes: peak_mix.forecast(hour.pods, nodes, weights)


def promised(
    of: Rehearsed, formula: Formula, targets: Sequence[float], held_hours: int = HELD_HOURS
) -> dict[float, Floats]:
    """What is promised for 24 hours for each target (percent), every hour; shape (hours, nodes)."""
    count = of.requested.shape[1]
    outcomes, memory_from = Outcomes(DAY_HOURS, count), np.full(count, float(_NEVER))
    holds = {target: Held(count, held_hours) for target in targets}
    found: dict[float, list[Floats]] = {target: [] for target in targets}
    for place, hour in enumerate(of.hours):
        due = max(0, place - DAY_HOURS)
        outcomes.settle(of.hours[due].time if place >= DAY_HOURS else np.nan, of.came[due], hour.time)
        expected = formula(hour, hour.nodes(memory_from))
        outcomes.predict(expected.base, expected.scale, hour.age_days, hour.time)
        if int(hour.time // HOUR_SECONDS) % DAY_HOURS == 0:
            drifted = np.flatnonzero(outcomes.drifted())
            outcomes.forget(drifted, but_hours=DRIFT_HOURS)
            memory_from[drifted] = hour.time // DAY_SECONDS - DRIFT_DAYS + 1
        tail, days = outcomes.tails()
        for target, held in holds.items():
            margin = calibration.margins(tail, days, target, BUILT_IN)
            held.raise_to(expected.peaks(margin, hour.usage, hour.ceilings), hour.time)
            found[target].append(held.peaks(hour.ceilings))
    return {target: np.array(peaks) for target, peaks in found.items()}
