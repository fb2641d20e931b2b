"""Chooses the constants of `peak-mix` by cross-validation, on August of Bitbrains alone.

Replayed are cpu on nodes of 64 cores, static and churned, cpu on nodes of 16 cores, and memory. A fold is one of three
groups of VMs, packed on nodes of their own, in one of four weeks: twelve in all. A promise is a quantile of what comes,
so it is scored as quantiles are, by the pinball loss. In points of requests, that is

    what is lent and stays lent for 24 h - what is used beyond the promise / target

A promise that is broken as often as its target allows has the best expectation; one broken more often loses more by the
excess than it gains in savings, one broken less often the other way round. A fold's score is the mean over the four
fleets and over targets of 0.1, 1 and 5 %.

Constants are tried one at a time, in their order, the others as they are in use then, until a whole round changes none.
The best value over all folds takes the place of the one in use if

- it is better by more than one standard error of the difference over folds,
- it is better held out: for each fold a value is chosen by the folds that share neither its VMs nor its week, and
  scored on this one,
- the promise is kept with it in every column of August in docs/explanation/prediction.md, packed as there, see `Kept`;
  a value with which it is not is left out, and the next best is looked at.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.backtest import metrics
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.peak_mix import HELD_HOURS, WEIGHTS, Weights
from tests.bench import peak_mix_trials
from tests.bench.peak_mix_trials import Rehearsed
from tests.bench.recorded import COLUMNS, DAY_HOURS, TARGET_PERCENTS, WEEK_HOURS, scenario

AUGUST = COLUMNS[:4]
PACKINGS = 5
GROUPS = 3
WEEKS = (
    slice(DAY_HOURS, WEEK_HOURS),
    slice(WEEK_HOURS, 2 * WEEK_HOURS),
    slice(2 * WEEK_HOURS, 3 * WEEK_HOURS),
    slice(3 * WEEK_HOURS, None),
)
FIRST_WEEK, LATER = WEEKS[0], slice(WEEK_HOURS, None)
DEFAULT_TARGET = 1.0
MOST_FIRST_WEEK_PERCENT = 3.0
MOST_WITHDRAWN_PERCENT = 5.0
HELD = "held_hours"
Constants = Mapping[str, float]
IN_USE: Constants = {**dataclasses.asdict(WEIGHTS), HELD: float(HELD_HOURS)}
VALUES: dict[str, tuple[float, ...]] = {
    "base": (0.8, 0.85, 0.9, 0.95, 1.0),
    "own": (0.1, 0.15, 0.25, 0.35, 0.5),
    "own_first_week": (0.25, 0.5, 0.7, 1.0),
    "young_days": (2 / 24, 6 / 24, 12 / 24, 1.0, 2.0),
    "young_peak": (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8),
    "least_peak": (0.02, 0.05, 0.1, 0.2, 0.4),
    "unknown_week": (0.0, 0.35, 0.7, 1.0, 1.5),
    "scale_first_week": (1.0, 1.25, 1.5, 2.0),
    "least_spread": (0.4, 0.6, 0.8, 1.0, 1.2),
    HELD: (1, 4, 10, 16, 24),
}


class Fleet(NamedTuple):
    """A replay of August, and by node the group of its VMs."""

    replay: Rehearsed
    group: Rows


class Kept(NamedTuple):
    """How a fleet's promise was kept, in percent: by target from day 7 on, and on days 1 to 7 and withdrawn at 1 %."""

    violations: Mapping[float, float]
    first_week: float
    withdrawn_per_day: float

    @property
    def is_kept(self) -> bool:
        return (
            all(percent <= 2 * target for target, percent in self.violations.items())
            and self.first_week <= MOST_FIRST_WEEK_PERCENT
            and self.withdrawn_per_day <= MOST_WITHDRAWN_PERCENT
        )


class Choice(NamedTuple):
    """What folds say of one constant; scores in points. `gain` is the best value's over the one in use."""

    best: float
    gain: float
    gain_error: float
    best_held_out: float
    in_use_held_out: float

    @property
    def is_better(self) -> bool:
        return self.gain > self.gain_error and self.best_held_out > self.in_use_held_out


def hourly_points(promised: Floats, came: Floats, requested: Floats, target_percent: float) -> Floats:
    """Of every hour and node, in the unit of `requested`; NaN where the horizon is not in the recording."""
    lent = np.maximum(requested - promised, 0.0)
    windows = np.lib.stride_tricks.sliding_window_view(lent, DAY_HOURS + 1, axis=0)
    stays = np.full(lent.shape, np.nan)
    stays[: len(windows)] = windows.min(axis=-1)
    points: Floats = stays - np.maximum(came - promised, 0.0) * 100 / target_percent
    return points


def choice(by_value: Mapping[float, Floats], in_use: float) -> Choice:
    """Chooses among the scores of each value, of shape (groups, weeks)."""
    values, table = list(by_value), np.array(list(by_value.values()))
    used = by_value[in_use]
    best = int(np.argmax(table.mean(axis=(1, 2))))
    gains = table[best] - used
    held_out = []
    for group, week in np.ndindex(used.shape):
        apart = np.delete(np.delete(table, group, axis=1), week, axis=2)
        held_out.append(table[int(np.argmax(apart.mean(axis=(1, 2)))), group, week])
    return Choice(
        best=values[best],
        gain=float(gains.mean()),
        gain_error=float(gains.std(ddof=1) / np.sqrt(gains.size)),
        best_held_out=float(np.mean(held_out)),
        in_use_held_out=float(used.mean()),
    )


def report(directory: Path, seeds: int) -> None:
    """Prints a table for each round, with a row for each constant, and what is chosen."""
    fleets = [_fleet(*scenario(directory, column, seeds, GROUPS)) for column in AUGUST]
    columns = [peak_mix_trials.rehearsed(*scenario(directory, column, PACKINGS)) for column in AUGUST]
    constants, changed = dict(IN_USE), True
    while changed:
        changed = False
        print("\n| constant | in use | scores (promise not kept) | best | gain | held out: chosen, in use | |")
        print("|---|---|---|---|---|---|---|")
        for name, values in VALUES.items():
            used, broken = constants[name], set[float]()
            by_value = {value: folds(fleets, {**constants, name: value}) for value in values}
            while True:
                found = choice({value: of for value, of in by_value.items() if value not in broken}, used)
                if not found.is_better or is_kept(columns, {**constants, name: found.best}):
                    break
                broken.add(found.best)
            print(_row(name, used, by_value, broken, found), flush=True)
            if found.is_better:
                constants[name], changed = found.best, True
    print(f"\nchosen: {constants}\nas in the code: {constants == IN_USE}")


def _fleet(recorded: RecordedUsage, schedule: PodSchedule) -> Fleet:
    group = schedule.series[np.searchsorted(schedule.node, np.arange(schedule.nodes))] % GROUPS
    return Fleet(peak_mix_trials.rehearsed(recorded, schedule), group)


def folds(fleets: Sequence[Fleet], constants: Constants) -> Floats:
    """The score of each fold under these constants, the mean over fleets and targets; shape (groups, weeks)."""
    scores = [
        _by_fold(of, group, peaks, target) for of, group in fleets for target, peaks in _promised(of, constants).items()
    ]
    mean: Floats = np.mean(scores, axis=0)
    return mean


def is_kept(columns: Sequence[Rehearsed], constants: Constants) -> bool:
    """Whether the promise is kept in each of them."""
    return all(_kept(of, _promised(of, constants)).is_kept for of in columns)


def _promised(of: Rehearsed, constants: Constants) -> dict[float, Floats]:
    weights = Weights(**{name: value for name, value in constants.items() if name != HELD})
    return peak_mix_trials.promised(of, peak_mix_trials.shipped(weights), TARGET_PERCENTS, int(constants[HELD]))


def _by_fold(of: Rehearsed, group: Rows, promised: Floats, target: float) -> Floats:
    hourly = hourly_points(promised, of.came, of.requested, target)
    judged = np.asarray(~np.isnan(hourly).any(axis=1))

    def fold(nodes: Rows, week: slice) -> float:
        hours = np.flatnonzero(judged[week]) + (week.start or 0)
        part = np.ix_(hours, nodes)
        return float(hourly[part].sum() / of.requested[part].sum() * 100)

    return np.array([[fold(np.flatnonzero(group == one), week) for week in WEEKS] for one in range(GROUPS)])


def _kept(of: Rehearsed, promised: Mapping[float, Floats]) -> Kept:
    def scores(target: float, hours: slice) -> metrics.Scores:
        return metrics.scores(promised[target][hours], of.came[hours], of.requested[hours])

    later = {target: scores(target, LATER) for target in promised}
    return Kept(
        {target: each.violation_percent for target, each in later.items()},
        scores(DEFAULT_TARGET, FIRST_WEEK).violation_percent,
        later[DEFAULT_TARGET].withdrawn_percent_per_day,
    )


def _row(name: str, used: float, by_value: Mapping[float, Floats], broken: set[float], found: Choice) -> str:
    def said(value: float, of: Floats) -> str:
        points = f"{value:.3g}: {of.mean():.2f}"
        return f"({points})" if value in broken else points

    scores = ", ".join(said(*each) for each in by_value.items())
    verdict = "taken" if found.is_better else "stands"
    return (
        f"| `{name}` | {used:.3g} | {scores} | {found.best:.3g} | {found.gain:.2f} ± {found.gain_error:.2f} "
        f"| {found.best_held_out:.2f}, {found.in_use_held_out:.2f} | {verdict} |"
    )
