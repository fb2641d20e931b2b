"""The cost of the last day: `GET /api/v1/costs`."""

from dataclasses import dataclass

import numpy as np

from manager.autoscaler.planning.iteration import Iteration
from manager.trends import Trends
from shared import durations
from shared.clock import Clock

_CLUSTER = ""


@dataclass(frozen=True)
class CostHistory:
    """Per hour, in the currency of the prices; each list has a value for each of `times` (RFC 3339).

    The parts are those of `cost_per_hour` of groups and decisions: `used` is held as Mid and Batch, and not bought. A
    value is exact to seven digits, and null where the autoscaler was held up and counted nothing.
    """

    times: list[str]
    total: list[float | None]
    idle: list[float | None]
    offered: list[float | None]
    used: list[float | None]


class CostTrend:
    """One series of a few kB. Safe for any thread."""

    def __init__(self, clock: Clock) -> None:
        self._trends = Trends(4, clock)

    def note(self, of: Iteration) -> None:
        """Takes the cost of a finished iteration, if the last one taken is long enough ago."""
        cost = of.cost
        known = (np.nan,) * 4 if of.blocked_reason else (cost.total, cost.idle, cost.offered, cost.used)
        self._trends.record(lambda: {_CLUSTER: np.array(known, np.float32)})

    def answer(self) -> CostHistory:
        times, rows = self._trends.read(_CLUSTER)
        values = ([None if np.isnan(value) else round(value, 6) for value in row] for row in rows)
        return CostHistory([durations.timestamp(time) for time in times], *values)
