"""When iterations begin, and how long the current one takes."""

import threading
from collections.abc import Callable

from shared.clock import Clock

OVERDUE_INTERVALS = 3  # scan intervals that an iteration may take before an alert is due
PAUSE_SECONDS = 0.5  # minimum between two iterations, unless the scan interval is shorter
_POLL_SECONDS = 0.1  # how soon a pending pod, or the stop, is noticed


class IterationTimer:
    """`begin` and `rest` are for the loop's thread, the rest for any."""

    def __init__(self, clock: Clock, scan_interval_seconds: float) -> None:
        self._clock = clock
        self._scan_interval_seconds = scan_interval_seconds
        self._turned_at = self._begun = clock.monotonic()

    def begin(self) -> None:
        """An iteration begins."""
        self._turned_at = self._begun = self._clock.monotonic()

    def silent_seconds(self) -> float:
        """How long the current iteration has been running; next to zero between iterations."""
        return self._clock.monotonic() - self._turned_at

    def overdue_seconds(self) -> float:
        """The same once it exceeds `OVERDUE_INTERVALS`; 0 before."""
        seconds = self.silent_seconds()
        return seconds if seconds > OVERDUE_INTERVALS * self._scan_interval_seconds else 0.0

    def rest(self, pause_seconds: float, is_wanted: Callable[[], bool], stop: threading.Event) -> None:
        """Waits until so long after the last beginning, or until the next iteration is wanted sooner."""
        shortest = min(PAUSE_SECONDS, self._scan_interval_seconds)
        due = max(self._begun + pause_seconds, self._clock.monotonic() + shortest)
        hurries = False
        while not stop.is_set():
            self._turned_at = self._clock.monotonic()
            left = due - self._turned_at
            if left <= 0:
                return
            if not hurries and is_wanted():
                due = min(due, self._clock.monotonic() + shortest)
                hurries = True
            self._clock.wait(stop, min(left, _POLL_SECONDS))
