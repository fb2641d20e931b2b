"""Chooses the constants of `peak-mix` by cross-validation, on August of Bitbrains and the hostile series alone.

Replayed are ten kinds of node (`ALLOWED`), at a target of 1 %. A fold is a group of VMs on nodes of their
own in a week: three by three of each kind; those of the hostile series are every third of them. The score is, as a mean
over kinds, in points of requests:

    what is lent - 3 for each percent of promises that are broken beyond what the kind is allowed

Constants are tried one at a time, in their order, the others as they are in use then, until a whole round changes none.
The best value takes the place of the one in use if it is better held out as well: for each fold a value is chosen by
the folds that share neither its kind nor its VMs nor its week, and what it lends and breaks there is scored. A value
with which a kind breaks more than it is allowed, packed as in the table of
docs/explanation/prediction-measurements.md, is left out.

The constants of a node's first days (`first_day`, `own_first_week`, `scale_first_week`, `young_days`) are not tried, as
days before the eighth are not scored.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.backtest import metrics
from agent.predict_server import debts
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.peak_mix import HELD_HOURS, WEIGHTS, Weights
from tests.bench import peak_mix_replay
from tests.bench.peak_mix_replay import Rehearsed
from tests.bench.recorded import COLUMNS, WEEK_HOURS, Column, hostile_scenario, scenario

TARGET_PERCENT = 1.0
BROKEN_COSTS = 3.0
PACKINGS = 2
# Of a month's promises, in percent: what is aimed at, and twice the target of a kind without an aim.
ALLOWED: Mapping[str, float] = {
    "Aug": 1.0,
    "Aug churn 48 h": 1.0,
    "16-core": 2.0,
    "memory": 1.7,
    "memory churn 48 h": 2.0,
    "replicas 30": 3.0,
    "memory replicas 30": 5.0,
    "half replicas": 2.0,
    "growth": 2.0,
    "hostile": 1.1,
}
GROUPS = 3
WEEKS = tuple(slice(week * WEEK_HOURS, (week + 1) * WEEK_HOURS) for week in (1, 2, 3))
HELD, STEP, POWER = "held_hours", "step", "power"
Constants = Mapping[str, float]
IN_USE: Constants = {
    **dataclasses.asdict(WEIGHTS),
    HELD: float(HELD_HOURS),
    STEP: debts.STEP,
    POWER: debts.POWER,
}
VALUES: dict[str, tuple[float, ...]] = {
    STEP: (0.2, 1 / 3, 0.5),
    POWER: (2.0, 3.0, 4.0, 5.0),
    "together": (0.6, 0.7, 0.8),
    "base": (0.94, 0.96, 0.98),
    "own": (0.2, 0.25, 0.3),
    "least_spread": (0.5, 0.6, 0.7),
    "unknown_week": (0.3, 0.5, 0.7),
    "least_peak": (0.05, 0.1, 0.2),
    "young_peak": (0.1, 0.2, 0.3),
    HELD: (4, 10, 16),
}


class Fleet(NamedTuple):
    """A replay of one kind of node, and by node the group of its VMs."""

    kind: str
    replay: Rehearsed
    group: Rows


class Folds(NamedTuple):
    """What is broken and lent in each fold, in percent; shape (kinds, groups, weeks)."""

    broken: Floats
    lent: Floats


class Choice(NamedTuple):
    """What folds say of one constant; scores in points."""

    best: float
    gain: float
    best_held_out: float
    in_use_held_out: float

    @property
    def is_better(self) -> bool:
        return self.gain > 0 and self.best_held_out > self.in_use_held_out


def score(broken: Floats, lent: Floats, allowed: Floats) -> float:
    """The score of folds, of shape (kinds, ...), in points."""
    of_kinds = (values.reshape(len(values), -1).mean(axis=1) for values in (lent, broken))
    lends, breaks = of_kinds
    return float(np.mean(lends - BROKEN_COSTS * np.maximum(0.0, breaks - allowed)))


def choice(by_value: Mapping[float, Folds], in_use: float, allowed: Floats) -> Choice:
    """Chooses among values of one constant by their folds."""

    def best_of(tables: Sequence[Folds], kinds: Floats) -> int:
        return int(np.argmax([score(table.broken, table.lent, kinds) for table in tables]))

    values, tables = list(by_value), list(by_value.values())
    best, used = best_of(tables, allowed), by_value[in_use]
    broken, lent = np.empty(used.lent.shape), np.empty(used.lent.shape)
    for fold in np.ndindex(used.lent.shape):
        chosen = tables[best_of([_apart(table, fold) for table in tables], np.delete(allowed, fold[0]))]
        broken[fold], lent[fold] = chosen.broken[fold], chosen.lent[fold]
    scores = [score(table.broken, table.lent, allowed) for table in (tables[best], used)]
    return Choice(values[best], scores[0] - scores[1], score(broken, lent, allowed), scores[1])


def _apart(of: Folds, fold: tuple[int, ...]) -> Folds:
    """The folds that share nothing with that one."""

    def apart(table: Floats) -> Floats:
        for axis, place in enumerate(fold):
            table = np.delete(table, place, axis=axis)
        return table

    return Folds(apart(of.broken), apart(of.lent))


def report(directory: Path, seeds: int) -> None:
    """Prints a table for each round, with a row for each constant, and what is chosen."""
    columns = [column for column in COLUMNS if column.name in ALLOWED]
    fleets = [*(_fleet(directory, column, seeds) for column in columns), _hostile()]
    packed = {column.name: peak_mix_replay.rehearsed(*scenario(directory, column, PACKINGS)) for column in columns}
    packed["hostile"] = fleets[-1].replay
    allowed = np.array([ALLOWED[fleet.kind] for fleet in fleets])
    constants, changed = dict(IN_USE), True

    @cache
    def scored(of: tuple[tuple[str, float], ...]) -> Folds:
        return folds(fleets, dict(of))

    while changed:
        changed = False
        print(
            "\n| constant | in use | scores | best | gain | held out: chosen, in use | |\n|---|---|---|---|---|---|---|"
        )
        for name, values in VALUES.items():
            by_value = {value: scored(tuple({**constants, name: value}.items())) for value in values}
            tried, broken = dict(by_value), set[float]()
            while (found := choice(tried, constants[name], allowed)).is_better:
                if is_kept(packed, {**constants, name: found.best}):
                    break
                del tried[found.best]
                broken.add(found.best)
            print(_row(name, constants[name], by_value, broken, found, allowed), flush=True)
            if found.is_better:
                constants[name], changed = found.best, True
    print(f"\nchosen: {constants}\nas in the code: {constants == IN_USE}")


def _fleet(directory: Path, column: Column, seeds: int) -> Fleet:
    recorded, schedule = scenario(directory, column, seeds, GROUPS)
    first = schedule.series[np.searchsorted(schedule.node, np.arange(schedule.nodes))]
    group = (np.arange(schedule.nodes) if column.replicas else first) % GROUPS  # a node of replicas is of one VM
    return Fleet(column.name, peak_mix_replay.rehearsed(recorded, schedule), group)


def _hostile() -> Fleet:
    replay = peak_mix_replay.rehearsed(*hostile_scenario())
    return Fleet("hostile", replay, np.arange(replay.requested.shape[1]) % GROUPS)


def folds(fleets: Sequence[Fleet], constants: Constants) -> Folds:
    """What is broken and lent under these constants."""
    found = [_by_fold(of.replay, of.group, _promised(of.replay, constants)) for of in fleets]
    return Folds(np.array([one.broken for one in found]), np.array([one.lent for one in found]))


def is_kept(packed: Mapping[str, Rehearsed], constants: Constants) -> bool:
    """Whether no kind breaks more than it is allowed, to the digits of the table."""

    def broken_percent(of: Rehearsed) -> float:
        later = slice(WEEK_HOURS, None)
        return metrics.scores(_promised(of, constants)[later], of.came[later], of.requested[later]).violation_percent

    return all(round(broken_percent(of), 2) <= ALLOWED[kind] for kind, of in packed.items())


def _promised(of: Rehearsed, constants: Constants) -> Floats:
    weights = Weights(**{name: value for name, value in constants.items() if name not in (HELD, STEP, POWER)})
    formula, held = peak_mix_replay.shipped(weights), int(constants[HELD])
    found = peak_mix_replay.promised(of, formula, (TARGET_PERCENT,), held, constants[STEP], constants[POWER])
    return found[TARGET_PERCENT]


def _by_fold(of: Rehearsed, group: Rows, promised: Floats) -> Folds:
    def scores(week: slice, one: int) -> metrics.Scores:
        nodes = np.flatnonzero(group == one)
        return metrics.scores(promised[week, nodes], of.came[week, nodes], of.requested[week, nodes])

    found = [[scores(week, one) for week in WEEKS] for one in range(GROUPS)]
    return Folds(
        np.array([[each.violation_percent for each in row] for row in found]),
        np.array([[each.savings_percent for each in row] for row in found]),
    )


def _row(
    name: str, used: float, by_value: Mapping[float, Folds], broken: set[float], found: Choice, allowed: Floats
) -> str:
    def said(value: float, of: Folds) -> str:
        points = f"{value:.3g}: {score(of.broken, of.lent, allowed):.2f}"
        return f"({points})" if value in broken else points

    scores = ", ".join(said(*each) for each in by_value.items())
    return (
        f"| `{name}` | {used:.3g} | {scores} | {found.best:.3g} | {found.gain:.2f} "
        f"| {found.best_held_out:.2f}, {found.in_use_held_out:.2f} | {'taken' if found.is_better else 'stands'} |"
    )
