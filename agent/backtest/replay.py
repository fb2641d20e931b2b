"""Plays recorded usage back tick by tick, all nodes of a tick at once. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows


@dataclass(frozen=True, slots=True)
class ReplayTick:
    """The agents' view at one moment. `pods` are rows of the schedule in the order of their nodes.

    `node`, `usage`, `limits`, `age_seconds` and `workload` (see `RecordedUsage`) have a place for each of these pods.
    """

    index: int
    time: float  # Unix seconds
    pods: Rows
    node: Rows
    usage: Floats
    limits: Floats
    age_seconds: Floats
    workload: Rows


def ticks(recorded: RecordedUsage, schedule: PodSchedule) -> Iterator[ReplayTick]:
    """Every tick of the recording, in order. Usage must be capped and the schedule split at gaps."""
    changes = set(schedule.first.tolist()) | set(schedule.end.tolist())
    by_tick = np.ascontiguousarray(recorded.usage.T)
    pods = node = series = workload = np.zeros(0, np.intp)
    workloads = recorded.workloads if len(recorded.workloads) else np.full(len(recorded.limits), -1)
    for index, time in enumerate(recorded.times().tolist()):
        if index in changes:
            pods = schedule.present(index)
            node, series = schedule.node[pods], schedule.series[pods]
            workload = workloads[series]
        age_seconds = recorded.interval_seconds * (index - schedule.first[pods]).astype(np.float64)
        yield ReplayTick(
            index, time, pods, node, by_tick[index, series], recorded.limits[series], age_seconds, workload
        )
