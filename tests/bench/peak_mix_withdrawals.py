"""What it costs to withdraw less of what `peak-mix` lends at 1 %, and why it is withdrawn.

A promise is held for some hours: what is lent is the least of what could be lent in that time. For each such time the
first table has what is withdrawn a day, in percent of what is lent, and the savings. The second says what came with
withdrawals, by their size: that pods of the node requested less than an hour before, that the node used more than in
all of the two weeks before, or neither, which are pods that come and margins that are learned.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.backtest import metrics
from agent.predict_server.decay import Floats
from agent.predict_server.peak_mix import HELD_HOURS
from tests.bench import peak_mix_trials
from tests.bench.peak_mix_trials import Rehearsed
from tests.bench.recorded import COLUMNS, DAY_HOURS, WEEK_HOURS, scenario

TARGET = 1.0
HOLDS_HOURS = (1, 4, HELD_HOURS, 24, 48, WEEK_HOURS)
CHURNED = tuple(
    column._replace(name=f"{column.name} churn 48 h", churn_hours=COLUMNS[1].churn_hours) for column in COLUMNS[2:4]
)


class Reasons(NamedTuple):
    """What is withdrawn a day, in points of requests, and the percentages of it that came with each reason."""

    points_per_day: float
    requests_fell: float
    used_more_than_ever: float


def report(directory: Path, seeds: int) -> None:
    """Prints a row of both tables for each column."""
    print(f"| withdrawn a day / savings | {' | '.join(f'{hours} h' for hours in HOLDS_HOURS)} | by reasons |")
    print("|---|" + "---|" * (len(HOLDS_HOURS) + 1))
    for column in (*COLUMNS, *CHURNED):
        of = peak_mix_trials.rehearsed(*scenario(directory, column, seeds))
        first = DAY_HOURS if column.of_machines else WEEK_HOURS
        predicted = peak_mix_trials.promised(of, peak_mix_trials.shipped(), (TARGET,), held_hours=1)[TARGET]
        cells = []
        for hours in HOLDS_HOURS:
            peaks = held(predicted, hours, of.requested)[first:]
            scores = metrics.scores(peaks, of.came[first:], of.requested[first:])
            cells.append(f"{scores.withdrawn_percent_per_day:.1f} / {scores.savings_percent:.1f}")
        why = reasons(of, held(predicted, HELD_HOURS, of.requested), first)
        print(
            f"| {column.name} | {' | '.join(cells)} | {why.points_per_day:.1f} points: {why.requests_fell:.0f} %, "
            f"{why.used_more_than_ever:.0f} % |",
            flush=True,
        )


def held(predicted: Floats, hours: int, ceilings: Floats) -> Floats:
    """What is promised where each prediction counts for so many hours; shape (hours, nodes)."""
    padded = np.concatenate([np.zeros((hours - 1, predicted.shape[1])), predicted])
    largest = np.lib.stride_tricks.sliding_window_view(padded, hours, axis=0).max(axis=-1)
    peaks: Floats = np.minimum(largest, ceilings)
    return peaks


def reasons(of: Rehearsed, promised: Floats, first: int) -> Reasons:
    """Why what was lent from the hour `first` on was withdrawn."""
    requested = of.requested[first:]
    taken_back = np.maximum(-np.diff(np.maximum(requested - promised[first:], 0.0), axis=0), 0.0)
    fell = np.diff(requested, axis=0) < 0
    most = np.array([hour.daily.max(axis=1) for hour in of.hours[first:]])
    record = ~fell & (np.diff(most, axis=0) > 0)
    total = max(float(taken_back.sum()), 1e-12)
    return Reasons(
        total / float(requested[:-1].sum()) * DAY_HOURS * 100,
        float(taken_back[fell].sum()) / total * 100,
        float(taken_back[record].sum()) / total * 100,
    )
