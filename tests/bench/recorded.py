"""Recorded usage to measure predictors on, and `peak-mix` on it. The traces are not part of the repository."""

import csv
import gzip
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.backtest import metrics, packing
from agent.backtest.metrics import Scores
from agent.backtest.recording import PodSchedule, RecordedUsage, side_by_side
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from tests.bench import peak_mix_replay
from tests.support import hostile

TARGET_PERCENTS = (0.1, 1.0, 5.0)
HOUR_SECONDS = 3600.0
HOUR_TICKS = 12
TICK_SECONDS = HOUR_SECONDS / HOUR_TICKS
HOSTILE_PODS, HOSTILE_DAYS = 12, 35
DAY_HOURS = 24
WEEK_HOURS = 7 * DAY_HOURS
INPUT_SECONDS = 30
SECONDS = Path(__file__).with_name("seconds.csv.gz")
_CORES = "_cpu_millicores"
BITBRAINS = "bitbrains_rnd_2013-08"
GOOGLE = "google2011_962machines"


class Column(NamedTuple):
    """One way to replay a trace; Google's are whole machines, for four days.

    `replicas` is the number of copies of one VM on a node; with `mixed` they fill half of it, and others the rest.
    `grows` is how many times as much VMs use at the end as at the start, `bursts` the share of ticks in which a VM uses
    what it uses most that day.
    With `seconds` each VM has the seconds of a recorded service.
    """

    name: str
    file: str
    node_cores: float | None = 64
    churn_hours: float | None = None
    replicas: int = 0
    mixed: bool = False
    grows: float = 1.0
    bursts: float = 0.0
    seconds: bool = False

    @property
    def of_machines(self) -> bool:
        return self.node_cores is None

    @property
    def of_memory(self) -> bool:
        return "_mem_" in self.file


CPU, MEMORY = f"{BITBRAINS}_cpu_millicores.csv.gz", f"{BITBRAINS}_mem_mib.csv.gz"
REPLICA_NODES = 12
REPLICA_LOAD = 0.05  # of its size, at least, that a copied VM uses on average: copies of idle ones say nothing
REPLICA_SHIFT_TICKS = 2  # at most, between copies
REPLICA_NOISE = 0.1
COLUMNS = (
    Column("Aug", CPU),
    Column("Aug churn 48 h", CPU, churn_hours=48),
    Column("16-core", CPU, node_cores=16),
    Column("memory", MEMORY),
    Column("16-core churn 48 h", CPU, node_cores=16, churn_hours=48),
    Column("memory churn 48 h", MEMORY, churn_hours=48),
    *(Column(f"replicas {copies}", CPU, replicas=copies) for copies in (8, 30, 100)),
    Column("memory replicas 30", MEMORY, replicas=30),
    Column("half replicas", CPU, replicas=15, mixed=True),
    Column("growth", CPU, grows=3.0),
    Column("bursts", CPU, bursts=0.1),
    Column("seconds", CPU, seconds=True),
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
    usage = _changed(usage if column.of_memory else usage / 1000, column)
    recorded = RecordedUsage(usage, limits, start, interval_seconds).capped_and_filled()
    if column.replicas:
        return _replicas(recorded, column, seeds)
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


def hostile_scenario() -> tuple[RecordedUsage, PodSchedule]:
    """A node for each of the hostile series."""
    return hostile.fleet(list(hostile.SERIES), pods=HOSTILE_PODS, days=HOSTILE_DAYS, interval_seconds=TICK_SECONDS)


def _changed(usage: Floats, column: Column) -> Floats:
    """With growth, bursts and seconds; the last two stand for what a recording of means does not show."""
    ticks = usage.shape[1]
    grown: Floats = usage * np.linspace(1.0, column.grows, ticks)
    if column.seconds:
        rng, hidden = np.random.default_rng(0), hidden_by_means()
        of_service = rng.integers(0, len(hidden), len(usage))[:, np.newaxis]
        return grown * hidden[of_service, rng.integers(0, hidden.shape[1], grown.shape)]
    if not column.bursts:
        return grown
    day = DAY_HOURS * HOUR_TICKS
    most = [np.nanmax(grown[:, at : at + day], axis=1, initial=0.0) for at in range(0, ticks, day)]
    bursting = np.random.default_rng(0).uniform(0, 1, grown.shape) < column.bursts
    return np.where(bursting, np.repeat(np.array(most).T, day, axis=1)[:, :ticks], grown)


def services() -> Mapping[str, Floats]:
    """Cores that four services used, by second. They ran on one node for 25 minutes, and an agent's sampler read their
    cgroups: HTTP requests at a rate that varies, a JVM that allocates, a compiler started every minute or two, and
    PostgreSQL under pgbench with a larger query every three minutes. `record_seconds` records such services.
    """
    with gzip.open(SECONDS, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row.values())]
    names = [name for name in rows[0] if name.endswith(_CORES)]
    return {name.removesuffix(_CORES): np.array([float(row[name]) for row in rows]) / 1000 for name in names}


def hidden_by_means() -> Floats:
    """How many times the mean of five minutes the largest training input within them is, shape (services, windows)."""
    inputs = np.array([trained(used) for used in services().values()])
    largest = np.lib.stride_tricks.sliding_window_view(inputs, round(TICK_SECONDS / INPUT_SECONDS), axis=1).max(axis=-1)
    seconds = np.array(list(services().values()))
    means = np.lib.stride_tricks.sliding_window_view(seconds, round(TICK_SECONDS), axis=1).mean(axis=-1)
    hidden: Floats = largest / means[:, ::INPUT_SECONDS][:, : largest.shape[1]]
    return hidden


def trained(seconds: Floats) -> Floats:
    """What agents train on: the 90th percentile of each 30 seconds."""
    whole = seconds[: len(seconds) // INPUT_SECONDS * INPUT_SECONDS].reshape(-1, INPUT_SECONDS)
    inputs: Floats = np.percentile(whole, 90, axis=1)
    return inputs


def _replicas(recorded: RecordedUsage, column: Column, seeds: int) -> tuple[RecordedUsage, PodSchedule]:
    """Nodes of copies of one VM each, a few ticks apart and with noise; and of as many other VMs if mixed."""
    busy = np.flatnonzero(np.nanmean(recorded.usage, axis=1) > REPLICA_LOAD * recorded.limits)
    usage, limits = [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        for vm in rng.choice(busy, REPLICA_NODES, replace=False).tolist():
            shifts = rng.integers(0, REPLICA_SHIFT_TICKS + 1, column.replicas).tolist()
            copies = np.stack([np.roll(recorded.usage[vm], shift) for shift in shifts])
            usage.append(copies * (1 + REPLICA_NOISE * rng.standard_normal(copies.shape)))
            limits.append(np.full(column.replicas, recorded.limits[vm]))
            if column.mixed:
                others = rng.choice(len(recorded.limits), column.replicas, replace=False)
                usage.append(recorded.usage[others])
                limits.append(recorded.limits[others])
    of = replace(recorded, usage=np.maximum(np.concatenate(usage), 0.0), limits=np.concatenate(limits))
    each = column.replicas * (2 if column.mixed else 1)
    of = of.capped_and_filled()
    node = np.repeat(np.arange(len(of.limits) // each), each)
    return of, packing.static(node, of.ticks).split_at_gaps(of)


def replayed(recorded: RecordedUsage, schedule: PodSchedule) -> Replayed:
    """Every hour's promises by every target, and what came."""
    once = peak_mix_replay.rehearsed(recorded, schedule)
    began = time.process_time()
    promised = peak_mix_replay.promised(once, peak_mix_replay.shipped(), TARGET_PERCENTS)
    return Replayed(promised, once.came, once.requested, time.process_time() - began)


def scores(of: Replayed, target: float, hours: slice, nodes: slice | Rows = slice(None)) -> Scores:
    """The scores of some hours and nodes."""
    return metrics.scores(*(array[hours, nodes] for array in (of.promised[target], of.came, of.requested)))
