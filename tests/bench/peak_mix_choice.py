"""Chooses each constant of `peak-mix` by cross-validation, on August of Bitbrains alone (CPU, 64 cores).

A fold is one of three groups of VMs, packed on nodes of their own, in one of four weeks: twelve in all, each with the
static and the churned nodes. The score of a fold, in points of requests, is the mean over both and over the targets of

    savings kept for 24 h - 5 max(0, log2(realised rate / (2 target)))

so what is withdrawn within a day is not counted as lent, and each doubling of the rate beyond twice the target costs 5
points, more than it can gain in savings. Too low a rate costs the savings it forgoes.

Constants are tried one at a time, the others as they are in use. The value chosen is the one with the best mean over
all folds. What is held out: for each fold a value is chosen by the folds that share neither its VMs nor its week, and
scored on this one. A value in use stands where the best is better by no more than one standard error of the
difference over folds.
"""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.backtest.metrics import Scores
from agent.backtest.recording import PodSchedule, RecordedUsage
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.peak_mix import HELD_HOURS, WEIGHTS, Weights
from tests.bench.recorded import COLUMNS, DAY_HOURS, TARGET_PERCENTS, WEEK_HOURS, Replayed, replayed, scenario, scores

GROUPS = 3
WEEKS = (
    slice(DAY_HOURS, WEEK_HOURS),
    slice(WEEK_HOURS, 2 * WEEK_HOURS),
    slice(2 * WEEK_HOURS, 3 * WEEK_HOURS),
    slice(3 * WEEK_HOURS, None),
)
POINTS_A_DOUBLING = 5.0
HELD = "held_hours"
IN_USE = {**dataclasses.asdict(WEIGHTS), HELD: float(HELD_HOURS)}
OTHERS: dict[str, tuple[float, ...]] = {
    "base": (0.8, 0.85, 0.95, 1.0),
    "own": (0.1, 0.15, 0.35, 0.5),
    "own_first_week": (0.25, 0.5, 1.0),
    "young_days": (1 / 24, 6 / 24),
    "young_peak": (0.2, 0.3, 0.6, 0.8),
    "least_peak": (0.02, 0.05, 0.2),
    "unknown_week": (0.0, 0.35, 1.0),
    "scale_first_week": (1.0, 1.5, 2.0),
    "least_spread": (0.4, 0.6, 1.0, 1.2),
    HELD: (1, 4, 16, 24),
}


class Choice(NamedTuple):
    """What folds say of one constant; scores in points. `gain` is the best value's over the one in use."""

    best: float
    gain: float
    gain_error: float
    best_held_out: float
    in_use_held_out: float
    best_worst_fold: float
    in_use_worst_fold: float

    @property
    def beyond_noise(self) -> bool:
        return self.gain > self.gain_error and self.best_held_out > self.in_use_held_out


def points(of: Scores, target_percent: float) -> float:
    """The score of one target in a fold."""
    over = max(of.violation_percent / (2 * target_percent), 1.0)
    return of.savings_percent * of.kept_24h_percent / 100 - POINTS_A_DOUBLING * float(np.log2(over))


def choice(by_value: dict[float, Floats], in_use: float) -> Choice:
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
        best_worst_fold=float(table[best].min()),
        in_use_worst_fold=float(used.min()),
    )


def report(directory: Path, seeds: int) -> None:
    """Prints the mean score of every value, then a table with a row for each constant."""
    fleets = [scenario(directory, column, seeds, GROUPS) for column in COLUMNS[:2]]

    def by_fold(name: str, value: float) -> Floats:
        weights = WEIGHTS if name == HELD else dataclasses.replace(WEIGHTS, **{name: value})
        held = int(value) if name == HELD else HELD_HOURS
        mean: Floats = np.mean([_by_fold(*fleet, weights, held) for fleet in fleets], axis=0)
        return mean

    used = by_fold(HELD, HELD_HOURS)
    rows = []
    for name, others in OTHERS.items():
        by_value = {IN_USE[name]: used} | {value: by_fold(name, value) for value in others}
        means = ", ".join(f"{value:.3g}: {by_value[value].mean():.2f}" for value in sorted(by_value))
        print(f"{name}: {means}", flush=True)
        rows.append(_row(name, choice(by_value, IN_USE[name])))
    print("\n| constant | in use | best | gain | held out: chosen, in use | worst fold: best, in use | |")
    print("|---|---|---|---|---|---|---|", *rows, sep="\n")


def _by_fold(recorded: RecordedUsage, schedule: PodSchedule, weights: Weights, held_hours: int) -> Floats:
    """Scores of shape (groups, weeks)."""
    of = replayed(recorded, schedule, weights, held_hours=held_hours)
    group = schedule.series[np.searchsorted(schedule.node, np.arange(schedule.nodes))] % GROUPS
    return np.array([[_points_of(of, week, np.flatnonzero(group == one)) for week in WEEKS] for one in range(GROUPS)])


def _points_of(of: Replayed, hours: slice, nodes: Rows) -> float:
    return float(np.mean([points(scores(of, target, hours, nodes), target) for target in TARGET_PERCENTS]))


def _row(name: str, of: Choice) -> str:
    verdict = (
        "stands" if of.best == IN_USE[name] else "beyond the noise" if of.beyond_noise else "stands: within the noise"
    )
    return (
        f"| `{name}` | {IN_USE[name]:.3g} | {of.best:.3g} | {of.gain:.2f} ± {of.gain_error:.2f} "
        f"| {of.best_held_out:.2f}, {of.in_use_held_out:.2f} | {of.best_worst_fold:.1f}, {of.in_use_worst_fold:.1f} "
        f"| {verdict} |"
    )
