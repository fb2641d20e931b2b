"""A backtest: fleets of recorded pods, the models under test, and their results. Pure."""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np

from agent.backtest import metrics, oracle, replay
from agent.backtest.engine import RESOURCES, BacktestPromise, FleetBank, fleet_models
from agent.backtest.metrics import Scores
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.policy import PredictionPolicy
from agent.predict_server.prediction import target_note
from shared.errors import HeadroomError
from shared.node_kind import NodeKind, node_kind

HOUR_SECONDS = 3600.0
DAY_HOURS = 24
WEEK_HOURS = 7 * DAY_HOURS
UNOWNED = -1  # among workloads
_SHARED = ""  # the training that all models share


@dataclass(frozen=True)
class RecordedFleet:
    """Recorded usage, capped and filled, and the schedule of its pods, split at gaps."""

    recorded: RecordedUsage
    schedule: PodSchedule

    def parts(self, count: int) -> list["RecordedFleet"]:
        """About `count` fleets of consecutive nodes, each with only the series it needs."""
        bounds = np.linspace(0, self.schedule.nodes, min(count, self.schedule.nodes) + 1).astype(np.intp)
        return [self._nodes(first, end) for first, end in itertools.pairwise(bounds.tolist())]

    def _nodes(self, first: int, end: int) -> "RecordedFleet":
        schedule = self.schedule
        pods = slice(*np.searchsorted(schedule.node, [first, end]))
        series, places = np.unique(schedule.series[pods], return_inverse=True)
        whole = self.recorded
        recorded = replace(
            whole,
            usage=whole.usage[series],
            limits=whole.limits[series],
            workloads=whole.workloads[series] if len(whole.workloads) else whole.workloads,
        )
        return RecordedFleet(
            recorded,
            PodSchedule(schedule.node[pods] - first, places, schedule.first[pods], schedule.end[pods], end - first),
        )


@dataclass(frozen=True)
class Trial:
    """The tested models by name, at these targets and horizons, under a policy, on cpu (0) or memory (1)."""

    resource: int
    models: tuple[str, ...]
    target_percents: tuple[float, ...]
    horizons_hours: tuple[int, ...]
    policy: PredictionPolicy


class Played(NamedTuple):
    """The promises of every hour, and the outcomes; arrays of shape (hours, nodes). `at` are ticks."""

    at: Rows
    requested: Floats
    came: Mapping[int, Floats]  # by horizon in hours
    promised: Mapping[BacktestPromise, Floats]
    cpu_seconds: Mapping[str, float]  # by model, including everything it would need alone
    interval_seconds: float  # of the usage that was replayed, and what a sample is of it
    aggregate: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one target and horizon; target is null for a model without one, as is any unknown value.

    It is of usage in intervals of `resolution_seconds`, by their `aggregate`, and says nothing of what is shorter.
    `target_note` says what the target cannot mean on one node within the recording.
    """

    source: str
    model: str
    resource: str
    horizon_hours: int
    target_percent: float | None
    violation_percent: float
    violation_percent_p90_node: float
    severity_percent: float
    savings_percent: float
    oracle_savings_percent: float
    withdrawn_percent_per_day: float
    kept_24h_percent: float | None
    first_week_violation_percent: float | None
    first_day_violation_percent: float
    resolution_seconds: float
    aggregate: str | None
    target_note: str | None
    nodes: int
    predictions: int
    cpu_seconds: float


def play(fleet: RecordedFleet, trial: Trial, ticked: Callable[[int], None] = lambda ticks: None) -> Played:
    """Replays the fleet to all models; calls `ticked` with the number of ticks passed, about every hour."""
    recorded, schedule = fleet.recorded, fleet.schedule
    hour_ticks = round(HOUR_SECONDS / recorded.interval_seconds)
    at = np.arange(hour_ticks - 1, recorded.ticks, hour_ticks)
    horizons = trial.horizons_hours
    came = oracle.future_peaks(recorded, schedule, at, [hours * hour_ticks for hours in horizons])
    models = fleet_models(trial.models, trial.resource, horizons, trial.policy, trial.target_percents)
    bank = FleetBank(schedule, trial.resource, horizons, trial.policy)
    requested = np.zeros((len(at), schedule.nodes))
    promised: dict[BacktestPromise, Floats] = defaultdict(lambda: np.zeros((len(at), schedule.nodes)))
    spent: dict[str, float] = defaultdict(float)
    for tick in replay.ticks(recorded, schedule):
        with _timed(spent, _SHARED):
            samples = bank.train(tick)
        for model in models:
            with _timed(spent, model.name):
                model.train(samples)
        row, rest = divmod(tick.index + 1, hour_ticks)
        if rest:
            continue
        requested[row - 1] = schedule.sums(tick.pods, tick.limits)
        with _timed(spent, _SHARED):
            situation = bank.situation(tick)
            bank.promise(situation)
        for model in models:
            with _timed(spent, model.name):
                for promise, peaks in model.peaks(situation).items():
                    promised[promise][row - 1] = peaks
        ticked(hour_ticks)
    shared = spent.pop(_SHARED)
    seconds = {name: own + shared for name, own in spent.items()}
    by_horizon = dict(zip(horizons, came, strict=True))
    return Played(at, requested, by_horizon, dict(promised), seconds, recorded.interval_seconds, recorded.aggregate)


def joined(parts: Sequence[Played]) -> Played:
    """The results of a fleet's parts as one."""
    first = parts[0]

    def side_by_side(arrays: Iterator[Floats]) -> Floats:
        return np.concatenate(list(arrays), axis=1)

    return Played(
        first.at,
        side_by_side(part.requested for part in parts),
        {hours: side_by_side(part.came[hours] for part in parts) for hours in first.came},
        {promise: side_by_side(part.promised[promise] for part in parts) for promise in first.promised},
        {name: sum(part.cpu_seconds[name] for part in parts) for name in first.cpu_seconds},
        first.interval_seconds,
        first.aggregate,
    )


def node_kinds(fleet: RecordedFleet) -> list[NodeKind | None]:
    """Each node's kind, by the pods that run in the middle of the recording; None for a node without any then."""
    recorded, schedule = fleet.recorded, fleet.schedule
    pods: list[list[tuple[float, int | None]]] = [[] for _ in range(schedule.nodes)]
    for pod in schedule.present(recorded.ticks // 2).tolist():
        series = schedule.series[pod]
        workload = int(recorded.workloads[series]) if len(recorded.workloads) else UNOWNED
        pods[schedule.node[pod]].append((float(recorded.limits[series]), None if workload == UNOWNED else workload))
    return [node_kind(each) for each in pods]


def warm_up_hours(hours: int, horizon_hours: int) -> int:
    """The hours before the first judged prediction: a week, or a day if the recording is too short for that."""
    return WEEK_HOURS if hours >= WEEK_HOURS + horizon_hours + DAY_HOURS else DAY_HOURS


def results(source: str, trial: Trial, played: Played) -> list[Result]:
    """Scores of every promise, in the order of models, horizons and targets. Raises HeadroomError for a recording that
    is too short.
    """
    order = {name: place for place, name in enumerate(trial.models)}
    promises = sorted(played.promised, key=lambda one: (order[one.model], one.horizon_hours, one.target_percent or 0))
    return [_result(source, trial, played, promise) for promise in promises]


def _result(source: str, trial: Trial, played: Played, promise: BacktestPromise) -> Result:
    warm = warm_up_hours(len(played.at), promise.horizon_hours)

    def scored(hours: slice) -> Scores:
        peaks, came = played.promised[promise], played.came[promise.horizon_hours]
        return metrics.scores(peaks[hours], came[hours], played.requested[hours])

    try:
        scores = scored(slice(warm, None))
    except ValueError as error:
        recorded = f"{len(played.at)} h of usage are too short for a horizon of {promise.horizon_hours} h"
        raise HeadroomError(f"{source}: {recorded} after {warm} h to learn") from error
    first_week = scored(slice(DAY_HOURS, warm)).violation_percent if warm > DAY_HOURS else None
    return Result(
        source=source,
        resource=RESOURCES[trial.resource],
        **promise._asdict(),
        **vars(scores) | {"kept_24h_percent": None if np.isnan(scores.kept_24h_percent) else scores.kept_24h_percent},
        first_week_violation_percent=first_week,
        first_day_violation_percent=scored(slice(0, DAY_HOURS)).violation_percent,
        resolution_seconds=played.interval_seconds,
        aggregate=played.aggregate or None,
        target_note=_note(promise, len(played.at)),
        cpu_seconds=round(played.cpu_seconds[promise.model], 3),
    )


def _note(promise: BacktestPromise, hours: int) -> str | None:
    if promise.target_percent is None:
        return None
    return target_note(promise.horizon_hours * HOUR_SECONDS, promise.target_percent, hours // DAY_HOURS) or None


@contextmanager
def _timed(spent: dict[str, float], name: str) -> Iterator[None]:
    began = time.process_time()
    yield
    spent[name] += time.process_time() - began
