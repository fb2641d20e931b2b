"""One node in full: sparklines since the table was opened, and the reasons. Pure."""

from collections.abc import Callable, Sequence

from deploy.top.lines import sparkline, why_in_full
from manager.nodeside.answers import Amount, NodeRow
from shared import explanation

LABEL_WIDTH = 10
_RESOURCES: tuple[tuple[str, str, Callable[[Amount], int]], ...] = (
    ("CPU", "milli", lambda amount: amount.cpu_milli),
    ("Memory", "bytes", lambda amount: amount.memory_bytes),
)
_MEASURES: tuple[tuple[str, Callable[[NodeRow], Amount | None]], ...] = (
    ("used", lambda row: row.used),
    ("peak", lambda row: row.predicted_peak),
    ("requested", lambda row: row.requested),
    ("Mid", lambda row: row.mid),
)


def text(row: NodeRow, history: Sequence[NodeRow], width: int) -> str:
    """The node's amounts, each with its course since the table was opened, scaled to allocatable."""
    lines = [row.name + (" (simulated)" if row.simulated else ""), ""]
    for title, unit, value in _RESOURCES:
        top = value(row.allocatable) if row.allocatable else 0
        lines.append(f"{title}, allocatable {explanation.amount(top, unit) if top else '-'}")
        for name, of in _MEASURES:
            now = of(row)
            shown = explanation.amount(value(now), unit) if now else "-"
            course = [float(value(each)) if (each := of(past)) else 0.0 for past in history]
            room = max(0, width - LABEL_WIDTH - 13)
            lines.append(f"  {name:<{LABEL_WIDTH}}{shown:>10} {sparkline(course, room, float(top))}")
        lines.append("")
    if row.history_percent is not None and row.history_percent < 100:
        lines.append(f"Learning: {row.history_percent} % of the cold start is over. The offer grows until it is.")
    if row.wanted and row.mid and row.wanted != row.mid:
        wanted = row.wanted
        amounts = (
            f"{explanation.amount(wanted.cpu_milli, 'milli')} and {explanation.amount(wanted.memory_bytes, 'bytes')}"
        )
        lines.append(f"Wanted: {amounts}, which is written once it differs by enough, or long enough.")
    return "\n".join([*lines, f"Why: {why_in_full(row)}"])
