"""Terms that `peak-mix` does not have, each beside the shipped formula on all columns.

`weekday` is the node's peak on the weekdays that the horizon covers, one and two weeks ago. `arrivals` is what pods
that are to come may add: the largest rise of the node's peak from one day to the next (`rise`), or the way to what the
fleet's nodes use on average of their capacity, as a scheduler fills the emptiest ones first (`fill`).

Violations / savings are at 1 % for 24 hours. Beside them is what would be lent if all promises were multiplied by the
one number that makes 1 % of them break: how much a term knows, whatever the margin makes of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from agent.backtest import metrics
from agent.predict_server.decay import Floats
from agent.predict_server.peak_mix import Forecast, NodeArrays
from tests.bench import peak_mix_trials
from tests.bench.peak_mix_trials import Formula, Hour, Rehearsed
from tests.bench.recorded import COLUMNS, DAY_HOURS, WEEK_HOURS, scenario

TARGET = 1.0
WEEK_DAYS = 7


def weekday(share: float) -> Formula:
    """The node's own peaks, with `share` of those of the same weekdays in the place of one of all days."""

    def formula(hour: Hour, nodes: NodeArrays) -> Forecast:
        covered = hour.daily[:, [WEEK_DAYS - 1, WEEK_DAYS, 2 * WEEK_DAYS - 1, 2 * WEEK_DAYS]]
        same = np.where(nodes.age_days >= WEEK_DAYS, covered.max(axis=1), nodes.week_peak)
        return _shipped(hour, _mixed(nodes, same, share))

    return formula


def rise(share: float) -> Formula:
    """Adds a share of the largest rise of the node's peak from one day to the next."""

    def formula(hour: Hour, nodes: NodeArrays) -> Forecast:
        seen = (hour.daily > 0).cumprod(axis=1)[:, 1:]
        rises = np.where(seen, hour.daily[:, :-1] - hour.daily[:, 1:], 0.0).max(axis=1)
        return _plus(_shipped(hour, nodes), share * np.maximum(rises, 0.0))

    return formula


def fill(share: float) -> Formula:
    """Adds a share of what a node uses less than the fleet's nodes do on average of their capacity."""

    def formula(hour: Hour, nodes: NodeArrays) -> Forecast:
        average = hour.mean.sum() / max(float(hour.ceilings.sum()), 1e-12)
        return _plus(_shipped(hour, nodes), share * np.maximum(average * hour.ceilings - hour.mean, 0.0))

    return formula


IDEAS: Mapping[str, Formula] = {
    "as shipped": peak_mix_trials.shipped(),
    "weekday, half": weekday(0.5),
    "weekday, alone": weekday(1.0),
    "arrivals, rise 0.25": rise(0.25),
    "arrivals, rise 0.5": rise(0.5),
    "arrivals, fill 0.1": fill(0.1),
    "arrivals, fill 0.25": fill(0.25),
}


def report(directory: Path, seeds: int) -> None:
    """Prints a row for each idea."""
    cells: dict[str, list[str]] = {name: [] for name in IDEAS}
    for column in COLUMNS:
        of = peak_mix_trials.rehearsed(*scenario(directory, column, seeds))
        first = DAY_HOURS if column.of_machines else WEEK_HOURS
        for name, formula in IDEAS.items():
            cells[name].append(said(of, formula, first))
    print(f"| | {' | '.join(column.name for column in COLUMNS)} |\n|---|" + "---|" * len(COLUMNS))
    for name, row in cells.items():
        print(f"| {name} | {' | '.join(row)} |")


def said(of: Rehearsed, formula: Formula, first: int) -> str:
    promised = peak_mix_trials.promised(of, formula, (TARGET,))[TARGET][first:]
    came, requested = of.came[first:], of.requested[first:]
    scores = metrics.scores(promised, came, requested)
    at_target = metrics.scores(promised * hindsight(promised, came), came, requested)
    return f"{scores.violation_percent:.1f} / {scores.savings_percent:.1f}, {at_target.savings_percent:.1f}"


def hindsight(promised: Floats, came: Floats) -> float:
    """What promises have to be multiplied by for 1 % of them to break."""
    judged = ~np.isnan(came).any(axis=1)
    ratios = came[judged] / np.maximum(promised[judged], 1e-12)
    return float(np.quantile(ratios, 1 - TARGET / 100))


def _shipped(hour: Hour, nodes: NodeArrays) -> Forecast:
    return peak_mix_trials.shipped()(hour, nodes)


def _mixed(nodes: NodeArrays, other: Floats, share: float) -> NodeArrays:
    node = (1 - share) * (nodes.week_peak + nodes.two_weeks_peak) / 2 + share * other
    return replace(nodes, week_peak=node, two_weeks_peak=node)


def _plus(of: Forecast, more: Floats) -> Forecast:
    return replace(of, base=of.base + more)
