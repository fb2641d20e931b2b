"""The table of nodes: live on a terminal, printed now and then anywhere else."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from shared import explanation

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "-"
MAX_REASON = 100


class Amount(msgspec.Struct, frozen=True):
    cpu_milli: int
    memory_bytes: int


class Row(msgspec.Struct, frozen=True):
    """One node as the manager's /api/v1/nodes tells of it."""

    name: str
    simulated: bool
    allocatable: Amount | None
    requested: Amount | None
    used: Amount | None
    predicted_peak: Amount | None
    reclaimable: Amount | None
    mid: Amount | None
    reason: str


class Nodes(msgspec.Struct, frozen=True):
    nodes: list[Row]


_AMOUNTS: tuple[tuple[str, Callable[[Row], Amount | None]], ...] = (
    ("allocatable", lambda row: row.allocatable),
    ("requested", lambda row: row.requested),
    ("used", lambda row: row.used),
    ("predicted peak", lambda row: row.predicted_peak),
    ("reclaimable", lambda row: row.reclaimable),
    ("MID", lambda row: row.mid),
)
HEADINGS = ("node", *(name for name, _ in _AMOUNTS), "why")


def cells(row: Row, separator: str) -> list[str]:
    """One line of the table; `separator` stands between cpu and memory, and between a name and what it is."""
    name = f"{row.name}{separator}simulated" if row.simulated else row.name
    return [name, *(_amount(value(row), separator) for _, value in _AMOUNTS), row.reason]


def plain(rows: Sequence[Row]) -> str:
    """The table as text of fixed columns."""
    lines = [HEADINGS, *(cells(row, " / ") for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS) - 1)]
    return "\n".join(_padded(line, widths) for line in lines)


def rich_table(rows: Sequence[Row], caption: str) -> "Table":
    """The table for a terminal."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left", expand=True)
    for heading in HEADINGS:
        style = "bold green" if heading == "MID" else None
        table.add_column(heading, justify="left" if heading in ("node", "why") else "right", style=style)
    for row in rows:
        table.add_row(*cells(row, "\n"))
    return table


class PlainScreen:
    """Prints the table whenever it is told to show it."""

    def show(self, rows: Sequence[Row], caption: str) -> None:
        print(f"{plain(rows)}\n{caption}\n", flush=True)

    def close(self) -> None:
        """Nothing is open."""


class LiveScreen:
    """Keeps one table on the terminal up to date."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=sys.stdout), auto_refresh=False)
        self._live.start()

    def show(self, rows: Sequence[Row], caption: str) -> None:
        self._live.update(rich_table(rows, caption), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _amount(amount: Amount | None, separator: str) -> str:
    if amount is None:
        return UNKNOWN
    memory = explanation.amount(amount.memory_bytes, "bytes")
    return f"{amount.cpu_milli / 1000:.2f} cores{separator}{memory}"


def _padded(line: Iterable[str], widths: Sequence[int]) -> str:
    *columns, last = line
    padded = [text.ljust(width) for text, width in zip(columns, widths, strict=True)]
    return "  ".join([*padded, last[:MAX_REASON]])
