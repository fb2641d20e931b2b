"""Recorded usage to measure predictors on, and `peak-mix` on it. The traces are not part of the repository."""

import csv
import gzip
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.backtest import metrics, oracle, packing, replay
from agent.backtest.metrics import Scores
from agent.backtest.recording import PodSchedule, RecordedUsage, side_by_side
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.peak_mix import HELD_HOURS, WEIGHTS, Weights
from tests.bench.fleet_peak_mix import FleetPeakMix

TARGET_PERCENTS = (0.1, 1.0, 5.0)
HOUR_SECONDS = 3600.0
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

    @property
    def of_memory(self) -> bool:
        return "_mem_" in self.file


COLUMNS = (
    Column("Aug", f"{BITBRAINS}_cpu_millicores.csv.gz"),
    Column("Aug churn 48 h", f"{BITBRAINS}_cpu_millicores.csv.gz", churn_hours=48),
    Column("16-core", f"{BITBRAINS}_cpu_millicores.csv.gz", node_cores=16),
    Column("memory", f"{BITBRAINS}_mem_mib.csv.gz"),
    Column("Google cpu", f"{GOOGLE}_cpu_e4.csv.gz", node_cores=None),
    Column("Google mem", f"{GOOGLE}_mem_e4.csv.gz", node_cores=None),
)


class Replayed(NamedTuple):
    """Arrays of shape (hours, nodes); `promised` has one for each target."""

    promised: dict[float, Floats]
    came: Floats
    requested: Floats
    model_seconds: float


def series_of(path: Path) -> tuple[Floats, Floats]:
    """The times, and the usage of each series."""
    with gzip.open(path, "rt") as file:
        next(file)
        rows = [[float(field) if field else np.nan for field in line.rstrip("\n").split(",")] for line in file]
    table = np.array(rows)
    return table[:, 0], np.ascontiguousarray(table[:, 1:].T)


def sizes_of(path: Path, field: str) -> Floats:
    with path.open() as file:
        return np.array([float(row[field]) for row in csv.DictReader(file)])


def scenario(directory: Path, column: Column, seeds: int, groups: int = 1) -> tuple[RecordedUsage, PodSchedule]:
    """What a column replays, on the nodes of all seeds side by side.

    With several groups of VMs (every second, every third) each is packed on nodes of its own, which share nothing.
    """
    times, usage = series_of(directory / column.file)
    start, interval_seconds = float(times[0]), float(times[1] - times[0])
    if column.node_cores is None:
        capacity = sizes_of(directory / f"{GOOGLE}_meta.csv", "mem_capacity" if column.of_memory else "cpu_capacity")
        recorded = RecordedUsage(usage * 1e-4, capacity, start, interval_seconds).capped_and_filled()
        each, ticks = np.arange(len(capacity)), np.full(len(capacity), recorded.ticks)
        machines = PodSchedule(each, each, np.zeros(len(each), np.intp), ticks, len(each))  # each is a node of its own
        return recorded, machines.split_at_gaps(recorded)
    cores = sizes_of(directory / "bitbrains_rnd_meta.csv", "cpu_limit_cores")
    limits = sizes_of(directory / "bitbrains_rnd_meta.csv", "mem_limit_mib") if column.of_memory else cores
    recorded = RecordedUsage(
        usage if column.of_memory else usage / 1000, limits, start, interval_seconds
    ).capped_and_filled()
    fleets = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        for group in range(groups):
            sizes = np.where(np.arange(len(cores)) % groups == group, cores, np.inf)
            node = packing.first_fit(sizes, column.node_cores, rng)
            fleets.append(
                packing.static(node, recorded.ticks)
                if column.churn_hours is None
                else packing.churned(
                    node, sizes, recorded.ticks, mean_hours=column.churn_hours, ticks_per_hour=HOUR_TICKS, rng=rng
                )
            )
    return recorded, side_by_side(fleets).split_at_gaps(recorded)


def replayed(
    recorded: RecordedUsage, schedule: PodSchedule, weights: Weights = WEIGHTS, *, held_hours: int = HELD_HOURS
) -> Replayed:
    """Every hour's promises by every target, and what came."""
    at = np.arange(HOUR_TICKS - 1, recorded.ticks, HOUR_TICKS)
    came = oracle.future_peaks(recorded, schedule, at, [DAY_HOURS * HOUR_TICKS])[0]
    began = time.process_time()
    model = FleetPeakMix(
        schedule, horizon_hours=DAY_HOURS, target_percents=TARGET_PERCENTS, weights=weights, held_hours=held_hours
    )
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


def scores(of: Replayed, target: float, hours: slice, nodes: slice | Rows = slice(None)) -> Scores:
    """The scores of some hours and nodes."""
    return metrics.scores(*(array[hours, nodes] for array in (of.promised[target], of.came, of.requested)))
