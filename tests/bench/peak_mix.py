"""How good `peak-mix` is on recorded usage, and how its constants were chosen.

`python -m tests.bench.peak_mix TRACES_DIR` prints the table of docs/explanation/prediction-measurements.md, with
`--month 2013-09` that of another month of Bitbrains, in files of the same form. With `--choose` it chooses each
constant anew on August of Bitbrains and the hostile series, see `peak_mix_choice`; with `--others` it prints what
other models come to; with `--reproduce` it holds the other predictors against independent measurements, with `--rules`
the rules that were measured, see `independent`.
The traces are not part of the repository.
"""

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.backtest import metrics, study
from agent.backtest.study import RecordedFleet, Trial
from agent.predict_server import policy
from agent.settings import AgentSettings
from tests.bench import independent, peak_mix_choice
from tests.bench.recorded import (
    COLUMNS,
    DAY_HOURS,
    TARGET_PERCENTS,
    WEEK_HOURS,
    Replayed,
    hostile_scenario,
    replayed,
    scenario,
    scores,
)

SETTLED_HOURS = 14 * DAY_HOURS

AUGUST = "2013-08"
OTHERS = ("n-sigma-v2", "max(n-sigma-v2,resource-central)", "percentile", "borg-default")
OTHERS_NODES = 20  # at least


class Reach(NamedTuple):
    """At a target of 1 %, in percent: violated at most, saved at least."""

    violated: float
    saved: float


REACH = {
    "Aug": Reach(1.0, 63.5),
    "Aug churn 48 h": Reach(1.0, 58.3),
    "16-core": Reach(2.0, 55.8),
    "memory": Reach(1.7, 68.0),
    "replicas 8": Reach(3.0, 17.5),
    "replicas 30": Reach(3.0, 19.5),
    "replicas 100": Reach(3.0, 15.0),
    "memory replicas 30": Reach(5.0, 38.0),
    "hostile": Reach(1.1, 31.0),
}


def _table(directory: Path, seeds: int, month: str = AUGUST) -> None:
    """Violated ± standard error over nodes / saved, in percent, by target; the rest at 1 %."""
    targets = " | ".join(f"{target:g} %" for target in TARGET_PERCENTS)
    print(f"| | nodes | {targets} | day 1 | days 2-7 | p90 node | withdrawn a day | longest run | oracle's | reach |")
    print("|---|" + "---|" * (len(TARGET_PERCENTS) + 8))
    for column in COLUMNS:
        if month == AUGUST or not column.of_machines:
            of = column._replace(file=column.file.replace(AUGUST, month))
            name = column.name if month == AUGUST else column.name.replace("Aug", month)
            _row(name, replayed(*scenario(directory, of, seeds)), column.of_machines)
    if month != AUGUST:
        return
    _row("hostile", replayed(*hostile_scenario()), of_machines=False)


def _others(directory: Path, _: int) -> None:
    """Violated / saved, in percent, by other models at their defaults, on the first nodes of one packing."""
    print(f"| | nodes | {' | '.join(f'`{model}`' for model in OTHERS)} |\n|---|---|" + "---|" * len(OTHERS))
    for column in COLUMNS:
        if column.of_machines:
            continue
        recorded, schedule = scenario(directory, column, 1)
        unit = 2.0**20 if column.of_memory else 1.0  # histograms count bytes
        recorded = replace(recorded, usage=recorded.usage * unit, limits=recorded.limits * unit)
        fleet = RecordedFleet(recorded, schedule)
        fleet = fleet.parts(max(1, schedule.nodes // OTHERS_NODES))[0]
        trial = Trial(int(column.of_memory), OTHERS, (), (DAY_HOURS,), policy.from_settings(AgentSettings()))
        found = study.results(column.name, trial, study.play(fleet, trial))
        cells = [f"{one.violation_percent:.1f} / {one.savings_percent:.1f}" for one in found]
        print(f"| {column.name} | {fleet.schedule.nodes} | {' | '.join(cells)} |", flush=True)


def _row(name: str, of: Replayed, of_machines: bool) -> None:
    first = DAY_HOURS if of_machines else WEEK_HOURS
    judged = {target: scores(of, target, slice(first, None)) for target in TARGET_PERCENTS}
    cells = [
        f"{one.violation_percent:.2f} ± {_error(of, target, first):.2f} / {one.savings_percent:.1f}"
        for target, one in judged.items()
    ]
    early = (slice(0, DAY_HOURS), slice(DAY_HOURS, WEEK_HOURS))
    day, week = (f"{scores(of, 1.0, hours).violation_percent:.1f}" for hours in early)
    one, reach = judged[1.0], REACH.get(name)
    cells += [day, "" if of_machines else week, f"{one.violation_percent_p90_node:.1f}"]
    cells += [f"{one.withdrawn_percent_per_day:.1f}", f"{_longest_run(of)} h", f"{one.oracle_savings_percent:.1f}"]
    aim = f"{reach.violated:g} / {reach.saved:g}" if reach else ""
    print(f"| {name} | {of.requested.shape[1]} | {' | '.join(cells)} | {aim} |", flush=True)


def _error(of: Replayed, target: float, first: int) -> float:
    by_node = _broken(of, target)[first:].mean(axis=0) * 100
    return float(by_node.std(ddof=1) / np.sqrt(len(by_node)))


def _broken(of: Replayed, target: float) -> NDArray[np.bool_]:
    """Of the promises whose horizon is in the recording."""
    known = ~np.isnan(of.came).any(axis=1)
    return metrics.violations(np.minimum(of.promised[target], of.requested)[known], of.came[known])


def _longest_run(of: Replayed) -> int:
    """Hours in a row, after two weeks, in which a promise at 1 % is broken on one node."""
    later = _broken(of, 1.0)[SETTLED_HOURS:]
    runs = (len(list(run)) for node in later.T for broken, run in itertools.groupby(node.tolist()) if broken)
    return max(runs, default=0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--month", default=AUGUST)
    reports = parser.add_mutually_exclusive_group()
    reports.add_argument("--choose", dest="report", action="store_const", const=peak_mix_choice.report)
    reports.add_argument("--others", dest="report", action="store_const", const=_others)
    reports.add_argument("--reproduce", dest="report", action="store_const", const=independent.report)
    reports.add_argument("--rules", dest="report", action="store_const", const=independent.report_rules)
    options = parser.parse_args(arguments)
    if options.report is None:
        _table(options.traces, options.seeds, options.month)
    else:
        options.report(options.traces, options.seeds)


if __name__ == "__main__":
    main()
