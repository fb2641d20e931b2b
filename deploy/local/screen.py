"""The table of nodes: live on a terminal, otherwise printed periodically."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from shared import durations, explanation

if TYPE_CHECKING:
    import rich.table

UNKNOWN = "-"
MAX_REASON = 100


class Amount(msgspec.Struct, frozen=True):
    cpu_milli: int
    memory_bytes: int


class Row(msgspec.Struct, frozen=True):
    """One node in the manager's /api/v1/nodes."""

    name: str
    simulated: bool
    allocatable: Amount | None
    requested: Amount | None
    used: Amount | None
    predicted_peak: Amount | None
    reclaimable: Amount | None
    mid: Amount | None
    reason: str
    reported: str | None = None
    report_reason: str = ""


class Nodes(msgspec.Struct, frozen=True):
    cluster: str
    time: str
    nodes: list[Row]

    def report_seconds(self, row: Row) -> float | None:
        """The age of the row's report at the time of the manager's answer."""
        return None if row.reported is None else max(0.0, _unix(self.time) - _unix(row.reported))


_AMOUNTS: tuple[tuple[str, Callable[[Row], Amount | None]], ...] = (
    ("allocatable", lambda row: row.allocatable),
    ("requested", lambda row: row.requested),
    ("used", lambda row: row.used),
    ("predicted peak", lambda row: row.predicted_peak),
    ("reclaimable", lambda row: row.reclaimable),
    ("MID", lambda row: row.mid),
)
HEADINGS = ("node", *(name for name, _ in _AMOUNTS), "last report", "why")


@dataclass(frozen=True)
class Table:
    """The screen's content. The manager answered `silent_seconds` ago; `warnings` list the answer's problems."""

    answer: Nodes
    caption: str
    silent_seconds: float = 0.0
    warnings: Sequence[str] = ()

    @property
    def footer(self) -> str:
        return "\n".join([self.caption, *(f"STALE: {warning}" for warning in self.warnings)])

    def lines(self, separator: str) -> list[list[str]]:
        """The table's cells; `separator` stands between cpu and memory, and between a node's name and its kind."""
        return [self._cells(row, separator) for row in self.answer.nodes]

    def _cells(self, row: Row, separator: str) -> list[str]:
        name = f"{row.name}{separator}simulated" if row.simulated else row.name
        seconds = self.answer.report_seconds(row)
        ago = UNKNOWN if seconds is None else f"{durations.render(int(seconds + self.silent_seconds))} ago"
        reported = f"{row.report_reason}{separator}{ago}" if row.report_reason else ago
        return [name, *(_amount(value(row), separator) for _, value in _AMOUNTS), reported, row.reason]


def plain(table: Table) -> str:
    """The table as text of fixed columns."""
    lines = [HEADINGS, *table.lines(" / ")]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS) - 1)]
    return "\n".join(_padded(line, widths) for line in lines)


def rich_table(table: Table) -> "rich.table.Table":
    """The table for a terminal."""
    import rich.table
    from rich import box
    from rich.text import Text

    caption = Text(table.caption)
    for warning in table.warnings:
        caption.append(f"\nSTALE: {warning}", "bold red")
    shown = rich.table.Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", expand=True)
    for heading in HEADINGS:
        style = "bold green" if heading == "MID" else None
        shown.add_column(heading, justify="left" if heading in ("node", "why") else "right", style=style)
    for line in table.lines("\n"):
        shown.add_row(*line)
    return shown


class PlainScreen:
    """Prints the table at every call of `show`."""

    def show(self, table: Table) -> None:
        print(f"{plain(table)}\n{table.footer}\n", flush=True)

    def close(self) -> None:
        """Does nothing: no resource is open."""


class LiveScreen:
    """Updates one table on the terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=sys.stdout), auto_refresh=False)
        self._live.start()

    def show(self, table: Table) -> None:
        self._live.update(rich_table(table), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _unix(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _amount(amount: Amount | None, separator: str) -> str:
    if amount is None:
        return UNKNOWN
    memory = explanation.amount(amount.memory_bytes, "bytes")
    return f"{amount.cpu_milli / 1000:.2f} cores{separator}{memory}"


def _padded(line: Iterable[str], widths: Sequence[int]) -> str:
    *columns, last = line
    padded = [text.ljust(width) for text, width in zip(columns, widths, strict=True)]
    return "  ".join([*padded, last[:MAX_REASON]])
