"""How good `peak-mix` is on recorded usage, and how its constants were chosen.

`python -m tests.bench.peak_mix TRACES_DIR` prints the table of docs/prediction.md. With `--choose` it prints what other
values of each constant come to, on August of Bitbrains alone, by fold: even and odd nodes, weeks two and three to four.
The traces are not part of the repository.
"""

import argparse
import csv
import dataclasses
import gzip
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.backtest import metrics, oracle, packing, replay
from agent.backtest.metrics import Scores
from agent.backtest.peak_mix import FleetPeakMix
from agent.backtest.recording import PodSchedule, RecordedUsage, side_by_side
from agent.predict_server.decay import Floats
from agent.predict_server.peak_mix import WEIGHTS, Weights

TARGET_PERCENTS = (0.1, 1.0, 5.0)
HOUR_TICKS = 12
DAY_HOURS = 24
WEEK_HOURS = 7 * DAY_HOURS
BITBRAINS = "bitbrains_rnd_2013-08"
GOOGLE = "google2011_962machines"


class Column(NamedTuple):
    """One way to replay a trace; Google's are whole machines, for four days."""

    name: str
    file: str
    node_cores: float | None = 64
    churn_hours: float | None = None

    @property
    def of_machines(self) -> bool:
        return self.node_cores is None


COLUMNS = (
    Column("Aug", f"{BITBRAINS}_cpu_millicores.csv.gz"),
    Column("Aug churn 48 h", f"{BITBRAINS}_cpu_millicores.csv.gz", churn_hours=48),
    Column("16-core", f"{BITBRAINS}_cpu_millicores.csv.gz", node_cores=16),
    Column("memory", f"{BITBRAINS}_mem_mib.csv.gz"),
    Column("Google cpu", f"{GOOGLE}_cpu_e4.csv.gz", node_cores=None),
    Column("Google mem", f"{GOOGLE}_mem_e4.csv.gz", node_cores=None),
)
ALTERNATIVES: dict[str, tuple[float, ...]] = {
    "base": (0.8, 0.9, 1.0),
    "own": (0.15, 0.25, 0.4),
    "own_first_week": (0.25, 0.7, 1.0),
    "young_peak": (0.2, 0.45, 0.8),
    "least_peak": (0.02, 0.1, 0.2),
    "unknown_week": (0.0, 0.7, 1.2),
    "scale_first_week": (1.0, 1.25, 1.5),
    "least_spread": (0.4, 0.8, 1.2),
}


class Replayed(NamedTuple):
    """Arrays of shape (hours, nodes); `promised` has one for each target."""

    promised: dict[float, Floats]
    came: Floats
    requested: Floats
    model_seconds: float


def _read(path: Path) -> tuple[Floats, Floats]:
    """The times, and the usage of each series."""
    with gzip.open(path, "rt") as file:
        next(file)
        rows = [[float(field) if field else np.nan for field in line.rstrip("\n").split(",")] for line in file]
    table = np.array(rows)
    return table[:, 0], np.ascontiguousarray(table[:, 1:].T)


def _meta(path: Path, field: str) -> Floats:
    with path.open() as file:
        return np.array([float(row[field]) for row in csv.DictReader(file)])


def scenario(directory: Path, column: Column, seeds: int) -> tuple[RecordedUsage, PodSchedule]:
    """What a column replays, on the nodes of all seeds side by side."""
    times, usage = _read(directory / column.file)
    memory = "_mem_" in column.file
    start, interval_seconds = float(times[0]), float(times[1] - times[0])
    if column.node_cores is None:
        capacity = _meta(directory / f"{GOOGLE}_meta.csv", "mem_capacity" if memory else "cpu_capacity")
        recorded = RecordedUsage(usage * 1e-4, capacity, start, interval_seconds).capped_and_filled()
        return recorded, packing.one_node_each(len(capacity), recorded.ticks).split_at_gaps(recorded)
    cores = _meta(directory / "bitbrains_rnd_meta.csv", "cpu_limit_cores")
    limits = _meta(directory / "bitbrains_rnd_meta.csv", "mem_limit_mib") if memory else cores
    recorded = RecordedUsage(usage if memory else usage / 1000, limits, start, interval_seconds).capped_and_filled()
    fleets = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        node = packing.first_fit(cores, column.node_cores, rng)
        fleets.append(
            packing.static(node, recorded.ticks)
            if column.churn_hours is None
            else packing.churned(
                node, cores, recorded.ticks, mean_hours=column.churn_hours, ticks_per_hour=HOUR_TICKS, rng=rng
            )
        )
    return recorded, side_by_side(fleets).split_at_gaps(recorded)


def replayed(
    recorded: RecordedUsage, schedule: PodSchedule, weights: Weights = WEIGHTS, *, horizon_hours: int = DAY_HOURS
) -> Replayed:
    """Every hour's promises by every target, and what came."""
    at = np.arange(HOUR_TICKS - 1, recorded.ticks, HOUR_TICKS)
    came = oracle.future_peaks(recorded, schedule, at, [horizon_hours * HOUR_TICKS])[0]
    began = time.process_time()
    model = FleetPeakMix(schedule, horizon_hours=horizon_hours, target_percents=TARGET_PERCENTS, weights=weights)
    promised: dict[float, list[Floats]] = {target: [] for target in TARGET_PERCENTS}
    requested = []
    for tick in replay.ticks(recorded, schedule):
        model.observe(tick)
        if (tick.index + 1) % HOUR_TICKS == 0:
            for target, peaks in model.peaks(tick).items():
                promised[target].append(peaks)
            requested.append(schedule.sums(tick.pods, tick.limits))
    seconds = time.process_time() - began
    return Replayed({t: np.array(peaks) for t, peaks in promised.items()}, came, np.array(requested), seconds)


def scores(of: Replayed, target: float, hours: slice, nodes: slice = slice(None)) -> Scores:
    """The scores of some hours and nodes."""
    return metrics.scores(*(array[hours, nodes] for array in (of.promised[target], of.came, of.requested)))


def _table(directory: Path, seeds: int) -> None:
    header = "target | violations | p90 node | severity | savings | oracle's | withdrawn a day | kept 24 h | days 1-7"
    print(f"| | {header} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for column in COLUMNS:
        of = replayed(*scenario(directory, column, seeds))
        first = DAY_HOURS if column.of_machines else WEEK_HOURS
        for target in TARGET_PERCENTS:
            judged = scores(of, target, slice(first, None))
            early = (
                "" if column.of_machines else f"{scores(of, target, slice(DAY_HOURS, first)).violation_percent:.1f} %"
            )
            print(
                f"| {column.name} | {target:g} % | {judged.violation_percent:.2f} % "
                f"| {judged.violation_percent_p90_node:.1f} % | {judged.severity_percent:.2f} % "
                f"| {judged.savings_percent:.1f} % | {judged.oracle_savings_percent:.1f} % "
                f"| {judged.withdrawn_percent_per_day:.1f} % | {judged.kept_24h_percent:.0f} % | {early} |",
                flush=True,
            )
        print(f"{column.name}: {of.requested.shape[1]} nodes, model {of.model_seconds:.1f} s of CPU", file=sys.stderr)


def _choose(directory: Path, seeds: int) -> None:
    """Violations and savings at 1 % by fold, for other values of each constant."""
    folds = [
        (slice(WEEK_HOURS, 2 * WEEK_HOURS), slice(0, None, 2)),
        (slice(WEEK_HOURS, 2 * WEEK_HOURS), slice(1, None, 2)),
        (slice(2 * WEEK_HOURS, None), slice(0, None, 2)),
        (slice(2 * WEEK_HOURS, None), slice(1, None, 2)),
    ]
    for column in COLUMNS[:4]:
        recorded, schedule = scenario(directory, column, seeds)
        for name, values in ALTERNATIVES.items():
            for value in values:
                of = replayed(recorded, schedule, dataclasses.replace(WEIGHTS, **{name: value}))
                by_fold = [scores(of, 1.0, *fold) for fold in folds]
                first = scores(of, 1.0, slice(DAY_HOURS, WEEK_HOURS))
                cells = " | ".join(f"{one.violation_percent:.1f} / {one.savings_percent:.1f}" for one in by_fold)
                print(f"| {column.name} | {name} {value:g} | {cells} | {first.violation_percent:.1f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args(arguments)
    (_choose if options.choose else _table)(options.traces, options.seeds)


if __name__ == "__main__":
    main()
