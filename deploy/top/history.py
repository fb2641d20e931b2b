"""The history of each node since the table was opened, for its sparklines."""

from collections import defaultdict, deque

from manager.nodeside.answers import NodeRow, Nodes

MOST_SAMPLES = 240


class ShownHistory:
    """One sample for each answer of the manager that is newer than the last one."""

    def __init__(self) -> None:
        self._rows: dict[str, deque[NodeRow]] = defaultdict(lambda: deque(maxlen=MOST_SAMPLES))
        self._time = ""

    def add(self, answer: Nodes) -> None:
        if answer.time == self._time:
            return
        self._time = answer.time
        for row in answer.nodes:
            self._rows[row.name].append(row)
        for name in self._rows.keys() - {row.name for row in answer.nodes}:
            del self._rows[name]  # a deleted node

    def of(self, name: str) -> list[NodeRow]:
        """The samples, oldest first."""
        return list(self._rows.get(name, ()))
