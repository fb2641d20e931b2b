"""`peak-mix` under many constants on one replay: what its formula looks at is worked out once, the rest for each trial.

The parts are the agent's own, all nodes of an hour at once; a test holds the promises to those of a backtest.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from agent.backtest import oracle, replay
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server import calibration, peak_mix
from agent.predict_server.calibration import DRIFT_DAYS, DRIFT_HOURS, HOUR_SECONDS
from agent.predict_server.daily import DAY_SECONDS, DailyMeans
from agent.predict_server.debts import POWER, STEP, Debts, violated
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
        week, two_weeks = daily[:, :POD_DAYS].max(axis=1), daily.max(axis=1)
        return NodeArrays(week, two_weeks, self.daily.max(axis=1), self.mean, self.age_days)


class Rehearsed(NamedTuple):
    """A replay: every hour, and what was requested, of shape (hours, nodes). `by_hour` is what came within 1, 2, to 24
    hours, shape (24, hours, nodes), NaN where the recording ends before.
    """

    hours: Sequence[Hour]
    by_hour: Floats
    requested: Floats

    @property
    def came(self) -> Floats:
        """Within the whole horizon."""
        whole: Floats = self.by_hour[-1]
        return whole


def rehearsed(recorded: RecordedUsage, schedule: PodSchedule) -> Rehearsed:
    """Plays the recording once."""
    hour_ticks = round(HOUR_SECONDS / recorded.interval_seconds)
    at = np.arange(hour_ticks - 1, recorded.ticks, hour_ticks)
    by_hour = oracle.future_peaks(recorded, schedule, at, [hours * hour_ticks for hours in range(1, DAY_HOURS + 1)])
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
        if len(hours) == 1:  # a model keeps means from when it is first asked
            means = DailyMeans(NODE_DAYS, schedule.nodes)
    return Rehearsed(hours, by_hour, np.array([hour.ceilings for hour in hours]))


Formula = Callable[[Hour, NodeArrays], Forecast]


def shipped(weights: Weights = WEIGHTS) -> Formula:
    """The agent's own formula."""
    return lambda hour, nodes: peak_mix.forecast(hour.pods, nodes, weights)


class _Promises:
    """Those of one target, of shape (hours, nodes)."""

    def __init__(self, of: Rehearsed, target: float, held_hours: int, step: float, power: float) -> None:
        count = of.requested.shape[1]
        self._of, self._target = of, target
        self._held, self._debts = Held(count, held_hours), Debts(DAY_HOURS, count, step, power)
        self.made = np.zeros(of.requested.shape)

    def hear(self, place: int) -> None:
        """By the hour of that place: which promises are broken, and that a horizon has passed."""
        earlier = np.arange(max(0, place - DAY_HOURS), place)
        if not len(earlier):
            return
        reached = self._of.by_hour[place - earlier - 1, earlier]
        made = np.array([self._of.hours[one].time for one in earlier.tolist()])
        broken = violated(self.made[earlier], reached)
        self._debts.watch(made, broken, self._of.hours[place].time, np.zeros(broken.shape[1], np.int64))
        if place >= DAY_HOURS:
            self._debts.settle(self._target, broken[0])

    def make(self, place: int, expected: Forecast, tail: calibration.FittedTail, days: Floats) -> None:
        hour = self._of.hours[place]
        margin = calibration.margins(tail, days, self._target, BUILT_IN)
        self._held.raise_to(expected.peaks(margin, self._debts.withheld(), hour.usage, hour.ceilings), hour.time)
        ends_run = self._debts.ends_run(hour.time)
        self.made[place] = np.where(ends_run, hour.ceilings, self._held.peaks(hour.ceilings))


def promised(
    of: Rehearsed,
    formula: Formula,
    targets: Sequence[float],
    held_hours: int = HELD_HOURS,
    step: float = STEP,
    power: float = POWER,
) -> dict[float, Floats]:
    """What is promised for 24 hours for each target (percent), every hour; shape (hours, nodes)."""
    count = of.requested.shape[1]
    outcomes, memory_from = Outcomes(DAY_HOURS, count), np.full(count, float(_NEVER))
    promises = {target: _Promises(of, target, held_hours, step, power) for target in targets}
    for place, hour in enumerate(of.hours):
        for one in promises.values():
            one.hear(place)
        due = max(0, place - DAY_HOURS)
        outcomes.settle(of.hours[due].time if place >= DAY_HOURS else np.nan, of.came[due], hour.time)
        expected = formula(hour, hour.nodes(memory_from))
        outcomes.predict(expected.base, expected.scale, hour.age_days, hour.time)
        if int(hour.time // HOUR_SECONDS) % DAY_HOURS == 0 and len(drifted := np.flatnonzero(outcomes.drifted())):
            memory_from[drifted] = hour.time // DAY_SECONDS - DRIFT_DAYS + 1
            outcomes.forget(drifted, but_hours=DRIFT_HOURS)
            anew = formula(hour, hour.nodes(memory_from))
            outcomes.expect(drifted, anew.base[drifted], anew.scale[drifted])
        learned = outcomes.tails()
        for one in promises.values():
            one.make(place, expected, *learned)
    return {target: one.made for target, one in promises.items()}
