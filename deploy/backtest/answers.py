"""The scores of a backtest as a table, as JSON and as CSV."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from agent.backtest.study import Result
from deploy import rendering

COLUMNS = (
    (">HORIZON", "horizon_hours", "{} h"),
    (">TARGET", "target_percent", "{:g} %"),
    (">VIOLATIONS", "violation_percent", "{:.2f} %"),
    (">P90 NODE", "violation_percent_p90_node", "{:.1f} %"),
    (">DAY 1", "first_day_violation_percent", "{:.2f} %"),
    (">WEEK 1", "first_week_violation_percent", "{:.2f} %"),
    (">SEVERITY", "severity_percent", "{:.2f} %"),
    (">SAVINGS", "savings_percent", "{:.1f} %"),
    (">ORACLE", "oracle_savings_percent", "{:.1f} %"),
    (">WITHDRAWN/DAY", "withdrawn_percent_per_day", "{:.1f} %"),
    (">KEPT 24 H", "kept_24h_percent", "{:.1f} %"),
    (">NODES", "nodes", "{}"),
    (">RESOLUTION", "resolution_seconds", "{:g} s"),
    (">CPU", "cpu_seconds", "{:.1f} s"),
)
"""Heading, field and form of what is known of a promise."""


class BacktestAnswer(msgspec.Struct, frozen=True):
    """The JSON output of a backtest."""

    results: Sequence[Result]


def render(results: Sequence[Result], style: str) -> str:
    """The answer as "table", "json" or "csv"."""
    if style == "json":
        return rendering.structured(BacktestAnswer(results), style)
    if style == "csv":
        return rendering.sheet(Result.__struct_fields__, map(msgspec.structs.asdict, results))
    headings = ("SOURCE", "RESOURCE", "MODEL", *(heading for heading, _, _ in COLUMNS))
    rows = ((result.source, result.resource, result.model, *cells(result)) for result in results)
    notes = dict.fromkeys(note for result in results for note in _notes(result))
    return "\n".join([*rendering.table(headings, rows), *notes])


def _notes(result: Result) -> Iterator[str]:
    """What the answer is not good for."""
    if result.aggregate not in ("max", "p90"):
        kind = f"{result.aggregate}s of " if result.aggregate else ""
        yield f"{result.source}: {kind}{result.resolution_seconds:g} s hide shorter peaks, which agents promise for."
    if result.target_note:
        yield f"{result.horizon_hours} h: {result.target_note}."


def cells(result: Result) -> list[str]:
    """One cell for each column."""
    values = ((getattr(result, field), form) for _, field, form in COLUMNS)
    return [rendering.UNKNOWN if value is None else form.format(value) for value, form in values]


def missed(results: Iterable[Result], target_percents: Sequence[float]) -> list[str]:
    """The models that broke more promises than their target allows; without a target, the strictest target counts."""
    found = []
    for result in results:
        target = min(target_percents) if result.target_percent is None else result.target_percent
        if result.violation_percent > target:
            found.append(
                f"{result.model} broke {result.violation_percent:.2f} % of its promises of {result.resource} for "
                f"{result.horizon_hours} h, above {target:g} % ({result.source})"
            )
    return found
