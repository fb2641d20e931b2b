"""The agent's own predictors beside independent measurements of the same rules, on the same traces and protocol.

Protocol: nodes packed at random, first fit by requests; a promise every hour from day 7 on (Google: from 24 hours on),
for 24 hours; what came is the largest sum of what the pods of that time used. Numbers are violations / savings in
percent. `RULES` were measured by a NumPy version of the protocol that shares no code with this product, over five
packings; `BEFORE` through the agent's own code before its faults were mended, every three hours, on 23 nodes of 64
cores, on the first 40 of 16 cores, or on 150 machines drawn at random.
Where the two differ by more than a point from what agents predict, the same replay is made by those rules in their
place, see `other_rules`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from agent.backtest import study
from agent.backtest.metrics import Scores
from agent.backtest.study import RecordedFleet, Result, Trial
from agent.predict_server import policy
from agent.predict_server.policy import PredictionPolicy
from agent.settings import AgentSettings
from tests.bench import other_rules
from tests.bench.recorded import COLUMNS as RECORDED
from tests.bench.recorded import DAY_HOURS, HOUR_SECONDS, HOUR_TICKS, WEEK_HOURS, Column, scenario

MEASURED = ("Aug", "Aug churn 48 h", "16-core", "memory", "Google cpu", "Google mem")
MIB = 2.0**20
MACHINE_CORES = 64.0  # of Google's largest machine, whose size is not published
GIB_PER_CORE = 4.0
BEFORE_MACHINE_CORES = BEFORE_GIB_PER_CORE = 1.0
BEFORE_NODES = 40
BEFORE_MACHINES = 150
BEFORE_HOURS = 3  # from one promise to the next
COLD_HOURS = 24
COLUMNS = tuple(column for column in RECORDED if column.name in MEASURED)


class Rates(NamedTuple):
    """Percentages: of promises that were broken, and of requests that were lent."""

    violations: float
    savings: float

    def __str__(self) -> str:
        return f"{self.violations:.1f} / {self.savings:.1f}"


class Run(NamedTuple):
    """A predictor under one policy; without a percentile, those that it is shipped with."""

    model: str
    cold_hours: int = COLD_HOURS
    percentile: float | None = None

    @property
    def policy(self) -> "Run":
        return self._replace(model="")

    def __str__(self) -> str:
        percentile = "" if self.percentile is None else f" p{self.percentile:g}"
        return f"`{self.model}`{percentile}, cold start {self.cold_hours} h"


def _rates(measured: str) -> dict[str, Rates]:
    """By the names of columns, in their order."""
    pairs = [Rates(*map(float, pair.split("/"))) for pair in measured.split()]
    return dict(zip((column.name for column in COLUMNS), pairs, strict=True))


RULES: Mapping[Run, Mapping[str, Rates]] = {
    Run("borg-default", 2): _rates("0.0/9.1 0.0/9.1 2.6/9.1 0.0/9.1 38.8/9.1 0.0/9.1"),
    Run("n-sigma-v1", 2): _rates("16.3/54.0 11.5/52.6 34.9/53.7 33.4/81.2 13.8/9.0 9.7/20.5"),
    Run("n-sigma-v2", 2): _rates("11.7/53.1 7.9/51.2 24.4/52.7 13.1/73.1 13.8/9.0 9.7/20.5"),
    Run("resource-central", 2, 99): _rates("22.9/71.2 16.1/69.9 51.1/69.8 27.2/80.7 79.9/28.3 66.9/37.8"),
    Run("percentile"): _rates("12.9/66.9 0.8/41.2 35.1/65.2 18.2/77.8 65.6/25.3 18.0/29.2"),
    Run("percentile", 2): _rates("12.9/66.9 9.0/64.9 35.1/65.2 18.2/77.8 65.6/25.3 18.0/29.2"),
    Run("percentile", 2, 99): _rates("2.4/62.2 3.0/60.2 12.6/60.3 9.2/73.6 29.4/12.2 13.0/27.2"),
}
BEFORE: Mapping[Run, Mapping[str, Rates]] = {
    Run("n-sigma-v2"): _rates("1.8/36.4 0.0/15.1 17.0/49.6 3.4/68.3 8.3/7.8 3.4/15.5"),
    Run("n-sigma-v1"): _rates("6.1/47.5 0.0/16.3 28.8/51.5 22.3/78.4 8.3/7.8 3.4/15.5"),
    Run("percentile"): _rates("16.9/69.3 1.0/42.6 37.1/67.5 18.2/77.8 38.6/17.4 8.9/24.5"),
    Run("resource-central"): _rates("19.9/69.9 1.2/42.5 45.4/69.0 23.7/79.8 69.1/26.5 35.5/31.7"),
    Run("borg-default"): _rates("0.0/9.1 0.0/5.5 3.6/9.1 0.0/9.1 32.1/8.5 0.0/8.6"),
    **{
        Run(model, 2): {"Aug churn 48 h": Rates(violations, savings)}
        for model, violations, savings in (
            ("n-sigma-v2", 1.9, 36.0),
            ("n-sigma-v1", 3.0, 41.6),
            ("percentile", 8.7, 66.2),
            ("resource-central", 15.5, 69.4),
            ("borg-default", 0.0, 8.7),
        )
    },
}


def report(directory: Path, seeds: int) -> None:
    """Prints a table for each of the two: ours (theirs; the difference)."""
    ours: dict[tuple[str, Run], Rates] = {}
    for column in COLUMNS:
        fleet = _fleet(directory, column, seeds)
        wanted = {equivalent(run, column) for table in (RULES, BEFORE) for run in table if column.name in table[run]}
        for under in sorted({run.policy for run in wanted}, key=str):
            models = tuple(run.model for run in sorted(wanted, key=str) if run.policy == under)
            for result in _results(fleet, column, under, models):
                found = Rates(result.violation_percent, result.savings_percent)
                ours[column.name, under._replace(model=result.model)] = found
                print(f"{column.name} {under._replace(model=result.model)}: {found}", flush=True)
    for name, table in (("independent rules", RULES), ("before", BEFORE)):
        _print(name, table, lambda column, run: ours[column.name, equivalent(run, column)])


def _print(name: str, table: Mapping[Run, Mapping[str, Rates]], ours: Callable[[Column, Run], Rates]) -> None:
    print(f"\n| {name} | {' | '.join(column.name for column in COLUMNS)} |\n|---|" + "---|" * len(COLUMNS))
    for run, theirs in table.items():
        cells = [_cell(ours(column, run), theirs[column.name]) if column.name in theirs else "" for column in COLUMNS]
        print(f"| {run} | {' | '.join(cells)} |")


def report_rules(directory: Path, seeds: int) -> None:
    """Prints the same tables by the rules that were measured, in place of what agents predict."""
    windowed: dict[tuple[str, str], Rates] = {}
    before: dict[tuple[str, Run], Rates] = {}
    for column in COLUMNS:
        first = (DAY_HOURS if column.of_machines else WEEK_HOURS) * HOUR_TICKS
        fleet = _fleet(directory, column, seeds, BEFORE_MACHINE_CORES, BEFORE_GIB_PER_CORE)
        every = np.arange(first, fleet.recorded.ticks - DAY_HOURS * HOUR_TICKS)
        judged = other_rules.windowed(fleet, every[HOUR_TICKS - 1 :: HOUR_TICKS])
        for name in judged.promised:
            windowed[column.name, name] = _of(judged.scores(name))
        nodes = np.arange(min(BEFORE_NODES, fleet.schedule.nodes))
        if column.of_machines:
            nodes = np.random.default_rng(0).permutation(fleet.schedule.nodes)[:BEFORE_MACHINES]
        for cold_hours in (COLD_HOURS,) if column.churn_hours is None else (COLD_HOURS, 2):
            under = _policy(Run("", cold_hours))
            judged = other_rules.before(fleet, int(column.of_memory), under, every[:: BEFORE_HOURS * HOUR_TICKS])
            for name in judged.promised:
                before[column.name, Run(name, cold_hours)] = _of(judged.scores(name, nodes))
        print(f"{column.name} done", flush=True)
    of_windows = {run: theirs for run, theirs in RULES.items() if (COLUMNS[0].name, run.model) in windowed}
    _print("independent rules, by the last 24 hours", of_windows, lambda column, run: windowed[column.name, run.model])
    of_before = {run: theirs for run, theirs in BEFORE.items() if run.model in other_rules.BEFORE}
    _print("before, by what agents answered then", of_before, lambda column, run: before[column.name, run])


def equivalent(run: Run, column: Column) -> Run:
    """Where pods stay, they are all known for longer than either cold start when the first promise is judged."""
    stays = column.churn_hours is None and not column.of_machines
    return run._replace(cold_hours=COLD_HOURS) if stays else run


def _cell(ours: Rates, theirs: Rates) -> str:
    difference = f"{ours.violations - theirs.violations:+.1f} / {ours.savings - theirs.savings:+.1f}"
    return f"{ours} ({theirs}; {difference})"


def _fleet(
    directory: Path,
    column: Column,
    seeds: int,
    machine_cores: float = MACHINE_CORES,
    gib_per_core: float = GIB_PER_CORE,
) -> RecordedFleet:
    """In cores and in bytes, which histograms have their buckets for."""
    recorded, schedule = scenario(directory, column, seeds)
    unit = MIB if column.of_memory else 1.0
    if column.of_machines:
        unit *= machine_cores * (gib_per_core * 1024 if column.of_memory else 1)
    return RecordedFleet(replace(recorded, usage=recorded.usage * unit, limits=recorded.limits * unit), schedule)


def _results(fleet: RecordedFleet, column: Column, under: Run, models: tuple[str, ...]) -> list[Result]:
    trial = Trial(int(column.of_memory), models, (), (DAY_HOURS,), _policy(under))
    return study.results(column.name, trial, study.play(fleet, trial))


def _policy(under: Run) -> PredictionPolicy:
    shipped = policy.from_settings(AgentSettings())
    cold_seconds = under.cold_hours * HOUR_SECONDS
    tried = msgspec.structs.replace(shipped, cold_start_seconds=cold_seconds, sigma_cap_pods=True)
    if under.percentile is None:
        return tried
    return msgspec.structs.replace(tried, cpu_percentile=under.percentile, memory_percentile=under.percentile)


def _of(scores: Scores) -> Rates:
    return Rates(scores.violation_percent, scores.savings_percent)
