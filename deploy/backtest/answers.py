"""The scores of a backtest as a table, as JSON and as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence

import msgspec

from agent.backtest.study import Result
from deploy import rendering

_COLUMNS = (
    ("SOURCE", "source", "{}"),
    ("RESOURCE", "resource", "{}"),
    ("MODEL", "model", "{}"),
    ("HORIZON", "horizon_hours", "{} h"),
    ("TARGET", "target_percent", "{:g} %"),
    ("VIOLATIONS", "violation_percent", "{:.2f} %"),
    ("P90 NODE", "violation_percent_p90_node", "{:.1f} %"),
    ("WEEK 1", "first_week_violation_percent", "{:.2f} %"),
    ("SEVERITY", "severity_percent", "{:.2f} %"),
    ("SAVINGS", "savings_percent", "{:.1f} %"),
    ("ORACLE", "oracle_savings_percent", "{:.1f} %"),
    ("WITHDRAWN/DAY", "withdrawn_percent_per_day", "{:.1f} %"),
    ("KEPT 24 H", "kept_24h_percent", "{:.1f} %"),
    ("NODES", "nodes", "{}"),
    ("CPU", "cpu_seconds", "{:.1f} s"),
)
_NAMES = 3  # columns to the left


class BacktestAnswer(msgspec.Struct, frozen=True):
    """What a backtest prints as JSON."""

    results: Sequence[Result]


def render(results: Sequence[Result], style: str) -> str:
    """As "table", "json" or "csv"."""
    if style == "json":
        return rendering.structured(BacktestAnswer(results), style)
    if style == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, Result.__struct_fields__, lineterminator="\n")
        writer.writeheader()
        writer.writerows(msgspec.structs.asdict(result) for result in results)
        return out.getvalue().rstrip()
    lines = [tuple(header for header, _, _ in _COLUMNS)]
    for result in results:
        values = [(getattr(result, field), shape) for _, field, shape in _COLUMNS]
        lines.append(tuple(rendering.UNKNOWN if value is None else shape.format(value) for value, shape in values))
    return "\n".join(rendering.aligned(lines, range(_NAMES, len(_COLUMNS))))


def missed(results: Iterable[Result], target_percents: Sequence[float]) -> list[str]:
    """The models that broke more promises than their target allows, or than the strictest where they have none."""
    found = []
    for result in results:
        target = min(target_percents) if result.target_percent is None else result.target_percent
        if result.violation_percent > target:
            found.append(
                f"{result.model} broke {result.violation_percent:.2f} % of its promises of {result.resource} for "
                f"{result.horizon_hours} h, above {target:g} % ({result.source})"
            )
    return found
