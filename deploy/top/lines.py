"""One line for each node, 80 columns wide unless there is room for more. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from manager.nodeside.answers import Amount, Bounds, NodeRow, Nodes, ProdWaitRow
from manager.nodeside.noderesource import explain, mid
from shared.names import Tier

UNKNOWN = "-"
NO_REPORT = "no report yet"
SLOWED = "Prod slowed"
A_LOOK = "needs a look"  # finds these nodes, as a filter; as on the page
NARROW, WIDE = 80, 120
LEAST_NAME, MOST_NAME = 12, 40
GIB = 2**30
_CHANGE_WORTH_TELLING = 0.05  # resources that a node shows


@dataclass(frozen=True)
class TableColumn:
    """A column; `width` is the minimum, `right` aligns numbers."""

    heading: str
    width: int
    text: Callable[[NodeRow], str]
    right: bool = True


def columns(answer: Nodes, width: int, silent_seconds: float = 0.0, *, cut: bool = True) -> list[TableColumn]:
    """The columns that fit into `width` characters, with requests and capacity if there is room.

    `silent_seconds` is the age of the manager's answer. Without `cut`, names are whole, for readers of a pipe, and the
    line may be longer.
    """
    wide = width >= WIDE
    others = [
        *_resource("CPU", _cores, wide),
        *_resource("GIB", _gib, wide),
        TableColumn("AGE", 4, lambda row: age(answer.report_seconds(row), silent_seconds)),
        TableColumn("WHY", len(NO_REPORT), why_in_full if wide else why, right=False),
    ]
    longest = max((len(row.name) for row in answer.nodes), default=0)
    room = min(MOST_NAME, width - sum(column.width + 1 for column in others))
    name = max(LEAST_NAME, min(longest, room) if cut else longest)
    *numbers, reason = others
    if cut:
        left = width - (name + 1) - sum(column.width + 1 for column in numbers) - 1
        reason = replace(reason, text=_fullest(max(left, reason.width), *((why_in_full, why_in_short) if wide else ())))
    return [TableColumn("NODE", name, lambda row: shortened(row.name, name), right=False), *numbers, reason]


def _fullest(width: int, *fuller: Callable[[NodeRow], str]) -> Callable[[NodeRow], str]:
    """The first of these texts that fits, else the word; an ellipsis ends a word that does not."""

    def fitting(row: NodeRow) -> str:
        word = why(row)
        cut = word if len(word) <= width else f"{word[: width - 1]}…"
        return next((text for each in fuller if len(text := each(row)) <= width), cut)

    return fitting


def _resource(unit: str, shown: Callable[[Amount | None], str], wide: bool) -> list[TableColumn]:
    """The columns of a resource: USED names its unit, which the columns to its right share."""
    more = [
        TableColumn("REQ", 5, lambda row: shown(row.requested)),
        TableColumn("ALLOC", 5, lambda row: shown(row.allocatable)),
    ]
    return [
        TableColumn(f"{unit} USED", 8, lambda row: shown(row.used)),
        TableColumn("PEAK", 5, lambda row: shown(row.predicted_peak)),
        *(more if wide else []),
        TableColumn("MID", 5, lambda row: shown(row.mid)),
    ]


def header(shown: Sequence[TableColumn]) -> str:
    return _line(shown, [column.heading for column in shown])


def line(shown: Sequence[TableColumn], row: NodeRow) -> str:
    """The line of one node, as long as its words."""
    return _line(shown, [column.text(row) for column in shown])


def _line(shown: Sequence[TableColumn], cells: Sequence[str]) -> str:
    aligned = (
        cell.rjust(column.width) if column.right else cell.ljust(column.width)
        for column, cell in zip(shown, cells, strict=True)
    )
    return " ".join(aligned).rstrip()


def why(row: NodeRow) -> str:
    """The reason for Mid in a word, and the direction of its change; or that Prod is slowed."""
    if row.bound is None:
        return explain.UNDECIDED
    if _slowed(row):
        return SLOWED
    if _waits_for_report(row):
        return NO_REPORT
    if _is_learning(row, row.bound):
        return f"learning {row.history_percent}%"
    words = (_named(_WORDS, bound) for bound in (row.bound.cpu, row.bound.memory))
    return "/".join(dict.fromkeys(words)) + _direction(row)


def why_in_short(row: NodeRow) -> str:
    """The same in a phrase, with share and time where Prod is slowed."""
    if slowed := _slowed(row):
        waits = (f"{each.resource} {_share(each.wait_percent)} since {each.since}" for each in slowed)
        return f"{SLOWED}: {', '.join(waits)}"
    if row.bound is None or _waits_for_report(row) or _is_learning(row, row.bound):
        return why(row)
    cpu, memory = (
        _named(_PHRASES, bound) + (", less since Prod was slowed" if mid.LESSON in bound else "")
        for bound in (row.bound.cpu, row.bound.memory)
    )
    return (cpu if cpu == memory else f"CPU: {cpu}; memory: {memory}") + _direction(row)


def why_in_full(row: NodeRow) -> str:
    """The reason for Mid, without the phrase that Koordinator puts before every withheld offer."""
    if _waits_for_report(row):
        return NO_REPORT
    if row.bound is not None and row.bound.cpu == explain.DISABLED:
        return "colocation is off"
    reason = row.reason.removeprefix(f"{explain.DEGRADED_REASONS[Tier.MID]}: ")
    unsaid = (each.sentence for each in _slowed(row) if each.sentence not in reason)
    return "; ".join((*unsaid, reason))


def _named(texts: Mapping[str, str], bound: str) -> str:
    """The text of what decides, apart from what is withheld since Prod was slowed."""
    decides = bound.replace(f" - {mid.LESSON}", "")
    return texts.get(decides, decides.replace("_", " "))


def _slowed(row: NodeRow) -> list[ProdWaitRow]:
    """Where Prod is slowed, by a report that still counts."""
    return [] if row.bound is None or row.bound.cpu in _WITHHELD else row.prod_slowed


def needs_look(row: NodeRow) -> bool:
    """Whether nothing is decided of the node, or its offer is withheld, other than by the policy."""
    return row.bound is None or not {row.bound.cpu, row.bound.memory}.isdisjoint(_WITHHELD - {explain.DISABLED})


def _share(percent: float | None) -> str:
    return UNKNOWN if percent is None else f"{percent:g} %"


def _is_learning(row: NodeRow, bound: Bounds) -> bool:
    """Whether the node offers nothing yet because its history is short."""
    is_young = row.history_percent is not None and row.history_percent < 100
    return is_young and bound.cpu not in _WITHHELD and not (row.wanted and row.wanted.cpu_milli)


def _waits_for_report(row: NodeRow) -> bool:
    return row.reported is None and row.bound is not None and row.bound.cpu == explain.STALE


_WITHHELD = {explain.DISABLED, explain.STALE, explain.UNREADABLE, explain.FAILED}
_WORDS = {
    "reclaimable": "peak",
    "reclaimable - buffer": "peak",
    "reclaimable_limit": "requests",
    explain.DISABLED: "off",
}
_PHRASES = {
    **_WORDS,
    "reclaimable": "requested less peak",
    "reclaimable - buffer": "requested less peak and buffer",
    "cap": "cap of the policy",
    explain.HELD: "requested by Mid pods",
    explain.PROD_SLOWED: "Prod waits too long",
}


def _direction(row: NodeRow) -> str:
    """Whether the node will show more or less than it does."""
    if row.wanted is None or row.mid is None:
        return ""
    change = row.wanted.cpu_milli - row.mid.cpu_milli
    if abs(change) <= _CHANGE_WORTH_TELLING * row.mid.cpu_milli:
        return ""
    return " ↑" if change > 0 else " ↓"


def shortened(name: str, width: int) -> str:
    """The name cut in the middle, as both ends distinguish nodes."""
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def age(seconds: float | None, silent_seconds: float = 0.0) -> str:
    """The age in the largest unit that fits four characters."""
    if seconds is None:
        return UNKNOWN
    total = int(seconds + silent_seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if total >= 2 * length:
            return f"{total // length}{unit}"
    return f"{total}s"


_BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, top: float = 0.0) -> str:
    """The last `width` values as blocks, scaled to `top` or to the largest of them."""
    last = values[-width:]
    most = max([top, *last], default=0.0)
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(steps, round(steps * value / most))] if most > 0 else _BLOCKS[0] for value in last)


def _cores(amount: Amount | None) -> str:
    return UNKNOWN if amount is None else _number(amount.cpu_milli / 1000)


def _gib(amount: Amount | None) -> str:
    return UNKNOWN if amount is None else _number(amount.memory_bytes / GIB)


def _number(value: float) -> str:
    """The number in at most five characters."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"
