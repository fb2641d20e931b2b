"""The node's models by key (node, system, classes, pods, workloads), their statistics in one bank per resource."""

import math
from collections.abc import Collection, Sequence

import numpy as np

from agent.predict_server import histogram
from agent.predict_server.bank import Bank
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.maxima import Maxima

_FIRST_ROWS = 64
NO_HISTORY = 0  # the row of an entity without observations: it stays empty

# A minimum for any half-life: late training steps must not count as a gap.
SHORTEST_HOLE_SECONDS = 600.0


class ModelTable:
    """Not thread-safe. Times are Unix seconds."""

    def __init__(self, *, cpu_half_life_seconds: float, memory_half_life_seconds: float) -> None:
        self.cpu = Bank(histogram.CPU, cpu_half_life_seconds)
        self.memory = Bank(histogram.MEMORY, memory_half_life_seconds)
        self.maxima = Maxima()
        self.samples = np.zeros(0, np.int64)
        self.first_observed = np.zeros(0)
        self.last_updated = np.zeros(0)
        self.rows: dict[str, int] = {}
        self.time = -math.inf  # the latest time of any call
        self._free: list[int] = []

    @property
    def banks(self) -> tuple[Bank, Bank]:
        """cpu in cores and memory in bytes, in this order."""
        return self.cpu, self.memory

    def train(self, keys: Sequence[str], usages: Floats, time: float) -> None:
        """Gives each of the (distinct) keys one sample of weight 1, shape (keys, 2); a new key gets a model.

        After a half-life without samples, a model's history starts over: its content will mostly be the new samples.
        """
        if not keys:
            return
        self._follow_clock(time)
        rows = self.claim(keys, time)
        broken = self.last_updated[rows] < time - self._longest_hole_seconds
        self.first_observed[rows[broken]] = time
        for bank, values in zip(self.banks, usages.T, strict=True):
            bank.add(rows, values, time)
        self.maxima.add(rows, usages, time)
        self.samples[rows] += 1
        self.last_updated[rows] = time

    def claim(self, keys: Collection[str], time: float) -> Rows:
        """The rows of `keys`, with empty models first observed at `time` for those that had none."""
        for key in keys:
            if key not in self.rows:
                self.rows[key] = self._new_row(time)
        return np.array([self.rows[key] for key in keys], np.intp)

    def observed_since(self, key: str, time: float) -> float | None:
        """The start, in Unix seconds, of the samples of `key`; None when they stopped too long before `time`."""
        row = self.rows.get(key)
        if row is None or self.last_updated[row] < time - self._longest_hole_seconds:
            return None
        return float(self.first_observed[row])

    def samples_of(self, key: str) -> int:
        """The number of training steps behind the model; 0 for an unknown key."""
        row = self.rows.get(key)
        return 0 if row is None else int(self.samples[row])

    def forget(self, keys: Collection[str]) -> None:
        """Drops those models; other models can use their rows."""
        for key in keys:
            row = self.rows.pop(key)
            self.cpu.clear(row)
            self.memory.clear(row)
            self.maxima.clear(row)
            self._free.append(row)

    def change_half_lives(self, *, cpu_seconds: float, memory_seconds: float, time: float) -> None:
        self._follow_clock(time)
        self.cpu.change_half_life(cpu_seconds, time)
        self.memory.change_half_life(memory_seconds, time)

    def set_clock(self, seconds: float) -> None:
        """The clock was set forward by that much, or back if below 0: shifts all times to the new clock.

        No time has passed, so this adds no history and forgets nothing.
        """
        if not math.isfinite(self.time):
            return
        for bank in self.banks:
            bank.set_clock(self.time, self.time + seconds)
        self.maxima.set_clock(self.time, self.time + seconds)
        self.first_observed += seconds
        self.last_updated += seconds
        self.time += seconds

    @property
    def _longest_hole_seconds(self) -> float:
        """The longest pause between two samples that does not interrupt a history."""
        return max(SHORTEST_HOLE_SECONDS, min(self.cpu.half_life_seconds, self.memory.half_life_seconds))

    def _follow_clock(self, time: float) -> None:
        """After a clock was set back, dates all knowledge to the present.

        With a date in the future it would outweigh every new sample until then.
        """
        if time < self.time:
            self.set_clock(time - self.time)
        self.time = time

    def _new_row(self, time: float) -> int:
        if not self._free:
            self._grow(max(_FIRST_ROWS, 2 * self.cpu.rows))
        row = self._free.pop()
        self.samples[row] = 0
        self.first_observed[row] = self.last_updated[row] = time
        return row

    def _grow(self, rows: int) -> None:
        before = self.cpu.rows
        self.cpu.resize(rows)
        self.memory.resize(rows)
        self.maxima.resize(rows)
        self.samples = np.concatenate([self.samples, np.zeros(rows - before, np.int64)])
        self.first_observed = np.concatenate([self.first_observed, np.zeros(rows - before)])
        self.last_updated = np.concatenate([self.last_updated, np.zeros(rows - before)])
        self._free = list(range(rows - 1, max(before - 1, NO_HISTORY), -1))
