"""What was promised for a node, once an hour, and what came of it: outcomes for predictors and for whoever trusts them.

For each horizon and resource the promises are `Outcomes` whose base is the promised peak and whose scale is 1, so that
a residual is by how much more was used than was promised, and a positive one is a violation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from agent.predict_server import states
from agent.predict_server.calibration import HOUR_SECONDS, LONGEST_GAP_SECONDS
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.models import Outcome
from agent.predict_server.outcomes import Outcomes

RESOURCES = 2  # cpu and memory


class Kept(NamedTuple):
    """How often, in percent of the judged promises of the last four weeks, more was used: cpu and memory."""

    horizon_seconds: float
    outcomes: int
    violation_percents: tuple[float, float]


class Ledger:
    """The promises of one model for the node series `nodes`. Not thread-safe. Times are Unix seconds.

    A longer gap between samples leaves what was promised before it without a judgement.
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
            seconds: [Outcomes(_hours(seconds), len(self.nodes)) for _ in range(RESOURCES)]
            for seconds in horizons_seconds
        }

    def observe(self, node: Rows, usages: Floats, since: Floats, time: float) -> list[Outcome]:
        """Takes in what each pod uses, shape (pods, 2); `since` is when it was first seen. Answers what is judged now.

        The system counts as a pod of its own.
        """
        found = []
        for seconds, outcomes in self.by_horizon.items():
            for resource, one in enumerate(outcomes):
                one.observe(node, usages[:, resource], since, time, self._longest_gap_seconds)
            judged = zip(*(one.judge(time) for one in outcomes), strict=True)
            for cpu, memory in judged:
                promised, realised = np.stack([cpu.base, memory.base], 1), np.stack([cpu.largest, memory.largest], 1)
                found.append(Outcome(self.nodes, cpu.made, seconds, promised, realised))
        return found

    def promise(self, peaks: Floats, time: float) -> None:
        """Notes what is promised, shape (horizons, nodes, 2) in the order of the horizons; once an hour is enough."""
        scale = np.ones(len(self.nodes))
        ever = np.full(len(self.nodes), np.inf)  # the first promises count as all others
        for outcomes, by_node in zip(self.by_horizon.values(), peaks, strict=True):
            if outcomes[0].predicted_in(time):
                continue
            for resource, one in enumerate(outcomes):
                one.predict(by_node[:, resource], scale, ever, time)

    def kept(self, node: int = 0) -> tuple[Kept, ...]:
        """How the promises to one node were kept, by horizon."""

        def judged(seconds: float, outcomes: Sequence[Outcomes]) -> Kept:
            excesses = [one.residuals[node][~np.isnan(one.residuals[node])] for one in outcomes]
            counts = [max(1, len(each)) for each in excesses]
            violated = [int(np.count_nonzero(each > 0)) for each in excesses]
            cpu, memory = (100 * each / count for each, count in zip(violated, counts, strict=True))
            return Kept(seconds, len(excesses[0]), (cpu, memory))

        return tuple(judged(seconds, outcomes) for seconds, outcomes in self.by_horizon.items())

    def set_clock(self, seconds: float) -> None:
        for outcomes in self.by_horizon.values():
            for one in outcomes:
                one.set_clock(seconds)

    def state(self) -> bytes:
        """All of it, for a checkpoint."""
        return states.encode(
            {
                _name(seconds, resource): one.arrays()
                for seconds, outcomes in self.by_horizon.items()
                for resource, one in enumerate(outcomes)
            }
        )

    def restore(self, state: bytes) -> None:
        """Takes up an earlier state, if any; horizons that it does not know begin anew. Raises ValueError."""
        parts = states.decode(state) if state else {}
        for seconds in self.by_horizon:
            names = [_name(seconds, resource) for resource in range(RESOURCES)]
            if not parts.keys() >= set(names):
                continue
            try:
                found = [Outcomes.of_arrays(parts[name]) for name in names]
            except (KeyError, IndexError) as error:
                raise ValueError(f"outcomes lack {error}") from error
            if not all(one.horizon_hours == _hours(seconds) and len(one.base) == len(self.nodes) for one in found):
                raise ValueError(f"outcomes are of another size than {names}")
            if not np.array_equal(found[0].made, found[1].made, equal_nan=True):
                raise ValueError("what was predicted of cpu and memory does not match")
            self.by_horizon[seconds] = found


def _hours(seconds: float) -> int:
    return max(1, round(seconds / HOUR_SECONDS))


def _name(seconds: float, resource: int) -> str:
    return f"{_hours(seconds)}h {('cpu', 'memory')[resource]}"
