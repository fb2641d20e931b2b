"""What each part of `peak-mix` is worth: the formula with another value of one constant, beside the shipped one."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agent.backtest import metrics
from agent.backtest.metrics import Scores
from agent.predict_server.decay import Floats
from agent.predict_server.peak_mix import HELD_HOURS, WEIGHTS, Weights
from tests.bench import peak_mix_trials
from tests.bench.peak_mix_trials import Rehearsed
from tests.bench.recorded import COLUMNS, DAY_HOURS, WEEK_HOURS, scenario

TARGET = 1.0

# The constants, and for how many hours a promise is held.
PARTS: Mapping[str, tuple[Weights, int]] = {
    "as shipped": (WEIGHTS, HELD_HOURS),
    "base 0.8": (replace(WEIGHTS, base=0.8), HELD_HOURS),
    "base 1": (replace(WEIGHTS, base=1.0), HELD_HOURS),
    "pods' own maxima 0.15": (replace(WEIGHTS, own=0.15), HELD_HOURS),
    "pods' own maxima 0.4": (replace(WEIGHTS, own=0.4), HELD_HOURS),
    "no more of them in the first week": (replace(WEIGHTS, own_first_week=WEIGHTS.own), HELD_HOURS),
    "a pod unknown for a week counts for no more": (replace(WEIGHTS, unknown_week=0.0), HELD_HOURS),
    "scales of a first week as of any other": (replace(WEIGHTS, scale_first_week=1.0), HELD_HOURS),
    "a young pod counts with what it used": (replace(WEIGHTS, young_peak=0.0), HELD_HOURS),
    "held for one hour": (WEIGHTS, 1),
}


def report(directory: Path, seeds: int) -> None:
    """Prints a row for each part."""
    cells: dict[str, list[str]] = {name: [] for name in PARTS}
    for column in COLUMNS:
        of = peak_mix_trials.rehearsed(*scenario(directory, column, seeds))
        first = DAY_HOURS if column.of_machines else WEEK_HOURS
        for name, (weights, held_hours) in PARTS.items():
            cells[name].append(said(of, weights, held_hours, first))
    print(f"| | {' | '.join(column.name for column in COLUMNS)} |\n|---|" + "---|" * len(COLUMNS))
    for name, row in cells.items():
        print(f"| {name} | {' | '.join(row)} |")


def said(of: Rehearsed, weights: Weights, held_hours: int, first: int) -> str:
    """Violations / savings / withdrawn a day from the hour `first` on; and violations between a day and then."""
    promised = peak_mix_trials.promised(of, peak_mix_trials.shipped(weights), (TARGET,), held_hours)[TARGET]
    whole, rest = _scores(of, promised, slice(first, None)), slice(DAY_HOURS, first)
    found = f"{whole.violation_percent:.1f} / {whole.savings_percent:.1f} / {whole.withdrawn_percent_per_day:.1f}"
    return found if first == DAY_HOURS else f"{found}, {_scores(of, promised, rest).violation_percent:.1f}"


def _scores(of: Rehearsed, promised: Floats, hours: slice) -> Scores:
    return metrics.scores(promised[hours], of.came[hours], of.requested[hours])
