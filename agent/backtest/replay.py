"""Plays recorded usage back tick by tick, all nodes of a tick at once, to any number of models. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows


@dataclass(frozen=True, slots=True)
class ReplayTick:
    """What agents see at one moment. `pods` are rows of the schedule in the order of their nodes.

    `node`, `usage`, `limits` and `age_seconds` have a place for each of these pods.
    """

    index: int
    time: float  # Unix seconds
    pods: Rows
    node: Rows
    usage: Floats
    limits: Floats
    age_seconds: Floats


class ReplayedModel(Protocol):
    """A model that answers for all nodes at once."""

    def observe(self, tick: ReplayTick) -> None:
        """Takes in the samples of a tick."""
        ...

    def peaks(self, tick: ReplayTick) -> Floats:
        """What each node may rise to, by what was observed up to and with this tick; shape (nodes,)."""
        ...


def ticks(recorded: RecordedUsage, schedule: PodSchedule) -> Iterator[ReplayTick]:
    """Every tick of the recording, in order. Usage must be capped and the schedule split at gaps."""
    changes = set(schedule.first.tolist()) | set(schedule.end.tolist())
    by_tick = np.ascontiguousarray(recorded.usage.T)
    pods = node = series = np.zeros(0, np.intp)
    for index, time in enumerate(recorded.times().tolist()):
        if index in changes:
            pods = schedule.present(index)
            node, series = schedule.node[pods], schedule.series[pods]
        age_seconds = recorded.interval_seconds * (index - schedule.first[pods]).astype(np.float64)
        yield ReplayTick(index, time, pods, node, by_tick[index, series], recorded.limits[series], age_seconds)


class Replay(NamedTuple):
    """Arrays of shape (evaluations, nodes); `peaks` has one for each model, `at` are the ticks of the evaluations."""

    at: Rows
    limits: Floats
    peaks: Mapping[str, Floats]


def replay(
    recorded: RecordedUsage, schedule: PodSchedule, models: Mapping[str, ReplayedModel], *, every_ticks: int
) -> Replay:
    """Shows every tick to every model and asks each for its peaks after every `every_ticks` of them."""
    at = np.arange(every_ticks - 1, recorded.ticks, every_ticks)
    limits = np.zeros((len(at), schedule.nodes))
    peaks = {name: np.zeros((len(at), schedule.nodes)) for name in models}
    for tick in ticks(recorded, schedule):
        for model in models.values():
            model.observe(tick)
        row, rest = divmod(tick.index + 1, every_ticks)
        if rest == 0:
            limits[row - 1] = schedule.sums(tick.pods, tick.limits)
            for name, model in models.items():
                peaks[name][row - 1] = model.peaks(tick)
    return Replay(at, limits, peaks)
