"""Recorded usage on a regular grid of ticks, with the place and time of each pod. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from agent.metric_cache.aggregate import Aggregation, aggregate
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows

FILLED_GAP_SECONDS = 3600.0


@dataclass(frozen=True)
class RecordedUsage:
    """The usage of one resource by some series (pods, VMs, or machines).

    `usage` has shape (series, ticks); NaN is a missing sample. `limits`, shape (series,), are the requests. `start` is
    the first tick in Unix seconds. `workloads`, shape (series,), number the owners that replace the series' pods, -1
    without one; empty where unknown.
    """

    usage: Floats
    limits: Floats
    start: float
    interval_seconds: float
    workloads: Rows = field(default_factory=lambda: np.zeros(0, np.intp))
    aggregate: str = ""  # what a sample is of its interval, as mean, max or p90; empty where unknown

    @property
    def ticks(self) -> int:
        return int(self.usage.shape[1])

    def times(self) -> Floats:
        """Unix seconds of every tick."""
        return self.start + self.interval_seconds * np.arange(self.ticks, dtype=np.float64)

    def in_steps(self, seconds: float, how: Aggregation) -> "RecordedUsage":
        """Takes finer samples as an agent that trains at this interval does: one number for each interval."""
        each = round(seconds / self.interval_seconds)
        if each <= 1 or not math.isclose(each * self.interval_seconds, seconds):
            return self
        steps = self.ticks // each
        parts = self.usage[:, : steps * each].reshape(len(self.usage), steps, each)
        usage = np.stack([aggregate(parts[:, step].T.astype(np.float32), how) for step in range(steps)], axis=1)
        return replace(self, usage=usage, interval_seconds=seconds, aggregate=str(how))

    def capped_and_filled(self) -> "RecordedUsage":
        """Caps usage at the limit and carries the last sample over gaps of up to an hour."""
        usage = np.minimum(self.usage, self.limits[:, np.newaxis])
        longest = int(FILLED_GAP_SECONDS // self.interval_seconds)
        for series in np.flatnonzero(np.isnan(usage).any(axis=1)):
            row = usage[series]
            for first, end in zip(*_runs(np.isnan(row)), strict=True):
                if first > 0 and end - first <= longest:
                    row[first:end] = row[first - 1]
        return replace(self, usage=usage)


@dataclass(frozen=True)
class PodSchedule:
    """The node of each pod: rows are pods in the order of their nodes, all arrays have shape (pods,).

    Pod p replays the samples of `series[p]` from tick `first[p]` up to, not including, `end[p]`.
    """

    node: Rows
    series: Rows
    first: Rows
    end: Rows
    nodes: int

    def __post_init__(self) -> None:
        if (np.diff(self.node) < 0).any():
            raise ValueError("pods must be in the order of their nodes")

    def present(self, tick: int) -> Rows:
        """The pods that run at a tick, in the order of their nodes."""
        return np.flatnonzero((self.first <= tick) & (tick < self.end))

    def sums(self, pods: Rows, amounts: Floats) -> Floats:
        """The sum of the amounts of `pods` on each node; shape (nodes,)."""
        return np.bincount(self.node[pods], weights=amounts, minlength=self.nodes).astype(np.float64, copy=False)

    def split_at_gaps(self, recorded: RecordedUsage) -> "PodSchedule":
        """Ends a pod at a missing sample; it returns as another pod, without history."""
        missing: NDArray[np.bool_] = np.isnan(recorded.usage)
        whole = ~np.any(missing, axis=1)[self.series]
        pieces = [self._rows(np.flatnonzero(whole))]
        for pod in np.flatnonzero(~whole):
            first = self.first[pod]
            starts, ends = _runs(~missing[self.series[pod], first : self.end[pod]])
            parts = np.full(len(starts), pod)
            pieces.append(replace(self._rows(parts), first=first + starts, end=first + ends))
        return joined(pieces, self.nodes)

    def _rows(self, rows: Rows) -> "PodSchedule":
        return replace(self, node=self.node[rows], series=self.series[rows], first=self.first[rows], end=self.end[rows])


def joined(schedules: Sequence[PodSchedule], nodes: int) -> PodSchedule:
    """One schedule with the pods of several, on the same nodes."""
    node = np.concatenate([schedule.node for schedule in schedules])
    first = np.concatenate([schedule.first for schedule in schedules])
    order = np.lexsort((first, node))
    series = np.concatenate([schedule.series for schedule in schedules])
    end = np.concatenate([schedule.end for schedule in schedules])
    return PodSchedule(node[order], series[order], first[order], end[order], nodes)


def side_by_side(schedules: Sequence[PodSchedule]) -> PodSchedule:
    """One schedule of several fleets: the nodes of each follow those of the one before."""
    offsets = np.cumsum([0, *(schedule.nodes for schedule in schedules)])
    moved = [
        replace(schedule, node=schedule.node + offset)
        for schedule, offset in zip(schedules, offsets[:-1].tolist(), strict=True)
    ]
    return joined(moved, int(offsets[-1]))


def _runs(flags: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """The start and the end of each run of True."""
    edges = np.diff(flags.astype(np.int8), prepend=0, append=0)
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
