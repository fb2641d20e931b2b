"""How far a cluster is that has just started: which nodes report and offer Mid, and what the others wait for. Pure."""

from collections import Counter

from manager.nodeside.answers import NodeRow, Nodes
from manager.nodeside.noderesource import explain

REGISTRATION, DECISION, REPORT, NEWER_REPORT, HISTORY, WRITE = (
    "their registration",
    "a decision",
    "their first report",
    "a newer report",
    "more history",
    "the write to their Node",
)


def starting(answer: Nodes | None, simulated: int = 0) -> str:
    """The line, with counts of all nodes; empty once each of them has what it waited for.

    `simulated` is how many simulated nodes there will be beside this machine. A node that offers no Mid for a reason
    that is its own, such as its peak, waits for nothing.
    """
    rows = [] if answer is None else answer.nodes
    of_simulated = sum(row.simulated for row in rows)
    missing = max(0, simulated - of_simulated) + (of_simulated == len(rows))
    waiting = Counter(wait for row in rows if (wait := _waits_for(row)))
    waiting += Counter({REGISTRATION: missing})
    if not waiting:
        return ""
    nodes = len(rows) + missing
    reporting = sum(row.reported is not None for row in rows)
    counts = f"{reporting} of {nodes} nodes report; {sum(map(_offers_mid, rows))} offer Mid"
    if answer is None:
        return f"{counts}; they wait for the manager"
    return f"{counts}; the others wait for {', '.join(f'{what} ({count})' for what, count in waiting.most_common())}"


def _offers_mid(row: NodeRow) -> bool:
    return row.mid.cpu_milli > 0 or row.mid.memory_bytes > 0


def _waits_for(row: NodeRow) -> str:
    """What keeps Mid from the node for the time being; empty where nothing does."""
    if row.bound is None:
        return DECISION
    if row.bound.cpu == explain.DISABLED or _offers_mid(row):
        return ""
    if row.reported is None:
        return REPORT
    if row.bound.cpu == explain.STALE:
        return NEWER_REPORT
    if row.wanted is not None and (row.wanted.cpu_milli > 0 or row.wanted.memory_bytes > 0):
        return WRITE
    is_learning = row.history_percent is not None and row.history_percent < 100
    return HISTORY if is_learning else ""
