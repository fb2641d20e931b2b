"""Which loops of the manager make no progress."""

from typing import TYPE_CHECKING

from manager.nodeside.controller import NodeResourceController
from shared.telemetry import Loops

if TYPE_CHECKING:
    from manager.autoscaler.loop import Autoscaler

# Longer than a write with all its conflicts takes if every answer comes at the last moment.
MAX_SILENCE_SECONDS = 120.0

# Longer than an autoscaler iteration that uses all of its estimation time, with a cloud that answers at the last
# moment.
MAX_ITERATION_SECONDS = 600.0


class Liveness:
    """Loops by name, with seconds."""

    def __init__(self, loops: Loops, controller: NodeResourceController, autoscaler: "Autoscaler | None") -> None:
        self._loops = loops
        self._controller = controller
        self._autoscaler = autoscaler

    def silent(self) -> dict[str, float]:
        """Loops without a turn for too long, with that time."""
        silent = self._loops.overdue()
        worker = self._controller.silent_seconds()
        if worker > MAX_SILENCE_SECONDS:
            silent["worker"] = worker
        if self._autoscaler is not None and (seconds := self._autoscaler.silent_seconds()) > MAX_ITERATION_SECONDS:
            silent["autoscaler"] = seconds
        return silent

    def overdue(self) -> dict[str, float]:
        """Loops that take too long, with that time: check these before they count as silent."""
        overdue = 0.0 if self._autoscaler is None else self._autoscaler.overdue_seconds()
        return {"autoscaler": overdue} if overdue else {}
