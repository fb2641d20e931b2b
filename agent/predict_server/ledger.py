"""Outcomes of promises: every hour a promise begins, and its pods' usage is followed until the horizon has passed.

The outcome is the same for every model asked at that time; `records` keep what each model promised.
"""

from collections.abc import Sequence

import numpy as np

from agent.predict_server import states
from agent.predict_server.calibration import HOUR_SECONDS, LONGEST_GAP_SECONDS
from agent.predict_server.daily import Arrays
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.models import Outcome
from agent.predict_server.outcomes import Outcomes

RESOURCES = 2  # cpu and memory


class Ledger:
    """The promises of the node series `nodes`. Not thread-safe. Times are Unix seconds.

    After a longer gap between samples, earlier promises get no outcome.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        horizons_seconds: Sequence[float],
        longest_gap_seconds: float = LONGEST_GAP_SECONDS,
    ) -> None:
        self.nodes = tuple(nodes)
        self._longest_gap_seconds = longest_gap_seconds
        self.by_horizon = {
            seconds: [Outcomes(hours(seconds), len(self.nodes)) for _ in range(RESOURCES)]
            for seconds in horizons_seconds
        }

    def observe(
        self, node: Rows, usages: Floats, since: Floats, time: float, capacity: Sequence[float] = (np.inf, np.inf)
    ) -> list[Outcome]:
        """Records each pod's usage, shape (pods, 2); `since` is its first observation, and `capacity` the most that a
        node can use. Returns the outcomes due now.

        The system counts as a pod of its own. The promised amount stays 0; each model's record fills it in.
        """
        found = []
        for seconds, outcomes in self.by_horizon.items():
            for resource, one in enumerate(outcomes):
                one.observe(node, usages[:, resource], since, time, self._longest_gap_seconds, capacity[resource])
            for cpu, memory in zip(*(one.judge(time) for one in outcomes), strict=True):
                realised = np.stack([cpu.largest, memory.largest], 1)
                found.append(Outcome(self.nodes, cpu.made, seconds, np.zeros_like(realised), realised))
        return found

    def open(self, seconds: float) -> tuple[Floats, Floats]:
        """The promises of a horizon without an outcome, the oldest first: when they were made, and the most that was
        used by now; shapes (promises,) and (promises, nodes, 2).
        """
        cpu, memory = self.by_horizon[seconds]
        places = cpu.waiting()
        reached = np.stack([cpu.largest[:, places].T, memory.largest[:, places].T], axis=2)
        return cpu.made[places], reached

    def begun(self, time: float) -> bool:
        """Whether the promises of that hour are being followed."""
        return all(outcomes[0].predicted_in(time) for outcomes in self.by_horizon.values())

    def begin(self, time: float) -> None:
        """Follows the outcome of a promise made now; once an hour is enough."""
        nothing, ever = np.zeros(len(self.nodes)), np.full(len(self.nodes), np.inf)
        for outcomes in self.by_horizon.values():
            if not outcomes[0].predicted_in(time):
                for one in outcomes:
                    one.predict(nothing, nothing, ever, time)

    def set_clock(self, seconds: float) -> None:
        for outcomes in self.by_horizon.values():
            for one in outcomes:
                one.set_clock(seconds)

    def parts(self) -> dict[str, Arrays]:
        """All of the state, for a checkpoint."""
        return {
            _name(seconds, resource): one.arrays()
            for seconds, outcomes in self.by_horizon.items()
            for resource, one in enumerate(outcomes)
        }

    def restore(self, parts: states.Parts) -> None:
        """Restores the result of `parts`; unknown horizons start empty. Raises ValueError."""
        for seconds in self.by_horizon:
            names = [_name(seconds, resource) for resource in range(RESOURCES)]
            if not parts.keys() >= set(names):
                continue
            try:
                found = [Outcomes.of_arrays(parts[name]) for name in names]
            except (KeyError, IndexError) as error:
                raise ValueError(f"outcomes lack {error}") from error
            if not all(one.horizon_hours == hours(seconds) and len(one.base) == len(self.nodes) for one in found):
                raise ValueError(f"outcomes are of another size than {names}")
            if not np.array_equal(found[0].made, found[1].made, equal_nan=True):
                raise ValueError("what was predicted of cpu and memory does not match")
            self.by_horizon[seconds] = found


def hours(seconds: float) -> int:
    """A horizon in whole hours, at least one."""
    return max(1, round(seconds / HOUR_SECONDS))


def _name(seconds: float, resource: int) -> str:
    return f"{hours(seconds)}h {('cpu', 'memory')[resource]}"
