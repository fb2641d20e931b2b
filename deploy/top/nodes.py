"""Which nodes the table shows, and in which order. Pure."""

import enum
import re
from collections.abc import Callable, Sequence

from deploy.top import lines
from manager.nodeside.answers import Amount, NodeRow
from shared import durations


class Sorting(enum.StrEnum):
    """What the rows are sorted by."""

    NAME = "name"
    MID = "mid"
    USED = "used"
    MEMORY = "memory"
    AGE = "age"

    @property
    def next(self) -> "Sorting":
        members = list(Sorting)
        return members[(members.index(self) + 1) % len(members)]


_KEYS: dict[Sorting, Callable[[NodeRow], tuple[float, ...]]] = {
    Sorting.NAME: lambda row: (),
    Sorting.MID: lambda row: (-row.mid.cpu_milli,),
    Sorting.USED: lambda row: (-row.used.cpu_milli if row.used else 1.0,),
    Sorting.MEMORY: lambda row: (-row.used.memory_bytes if row.used else 1.0,),
    Sorting.AGE: lambda row: (durations.instant(row.reported) if row.reported else 0.0,),
}


def chosen(nodes: Sequence[NodeRow], sorting: Sorting, first: str = "", containing: str = "") -> list[NodeRow]:
    """The rows whose name or reason, short or full, contains the text; the node `first` leads an order by name."""
    text = containing.casefold()
    found = [row for row in nodes if any(text in said.casefold() for said in _texts(row))]
    leads = first if sorting is Sorting.NAME else ""
    return sorted(found, key=lambda row: (row.name != leads, *_KEYS[sorting](row), *_natural(row.name)))


def _texts(row: NodeRow) -> tuple[str, ...]:
    """Where a filter looks."""
    return row.name, lines.why(row), row.reason, lines.A_LOOK if lines.needs_look(row) else ""


def _natural(name: str) -> tuple[str | int, ...]:
    """A sort key with sim-2 before sim-10. Words and numbers alternate, so that they are never compared with each
    other.
    """
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name))


def total(nodes: Sequence[NodeRow], of: Callable[[NodeRow], Amount | None]) -> Amount:
    """The sum over the nodes with a known value."""
    known = [amount for amount in map(of, nodes) if amount]
    return Amount(sum(each.cpu_milli for each in known), sum(each.memory_bytes for each in known))
