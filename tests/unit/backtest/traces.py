"""Small recordings with a rhythm of days, for tests of the backtest."""

import gzip
from pathlib import Path

import numpy as np

from agent.backtest import packing
from agent.backtest.recording import RecordedUsage
from agent.backtest.study import RecordedFleet
from agent.predict_server.decay import Floats

INTERVAL_SECONDS = 900
DAY_TICKS = 96
START = 1_700_006_400 - 1_700_006_400 % 86_400


def usage(series: int, days: int, seed: int = 0) -> Floats:
    """Shape (series, ticks), in cores below 4: higher by day than at night, each series with its own noise."""
    rng = np.random.default_rng(seed)
    hours = np.arange(days * DAY_TICKS) / 4
    by_day = 1 + np.sin(2 * np.pi * hours / 24)
    return np.round(by_day * rng.uniform(0.2, 1.0, (series, 1)) + rng.exponential(0.2, (series, len(hours))), 3)


def fleet(
    series: int = 12, days: int = 10, node_cores: float = 16.0, *, churn_hours: float | None = None
) -> RecordedFleet:
    """Pods of 4 cores each."""
    limits = np.full(series, 4.0)
    recorded = RecordedUsage(usage(series, days), limits, float(START), INTERVAL_SECONDS).capped_and_filled()
    rng = np.random.default_rng(7)
    node = packing.first_fit(limits, node_cores, rng)
    schedule = (
        packing.static(node, recorded.ticks)
        if churn_hours is None
        else packing.churned(node, limits, recorded.ticks, mean_hours=churn_hours, ticks_per_hour=4, rng=rng)
    )
    return RecordedFleet(recorded, schedule.split_at_gaps(recorded))


def write_wide(folder: Path, *, days: int = 3, series: int = 12) -> tuple[Path, Path]:
    """A wide CSV.gz in milli-cores, and its limits."""
    names = [f"vm{place:02}" for place in range(series)]
    amounts = usage(series, days).T * 1000
    lines = [",".join(["ts", *names])]
    lines += [
        ",".join([str(START + INTERVAL_SECONDS * tick), *(f"{value:.0f}" for value in row)])
        for tick, row in enumerate(amounts.tolist())
    ]
    trace = folder / "trace_cpu_millicores.csv.gz"
    with gzip.open(trace, "wt") as file:
        file.write("\n".join(lines) + "\n")
    limits = folder / "limits.csv"
    limits.write_text("vm,cpu_limit_cores,mem_limit_mib\n" + "".join(f"{name},4.0,8192\n" for name in names))
    return trace, limits
