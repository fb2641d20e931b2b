"""When the next iteration of the loop begins, and whether the current one takes too long."""

import threading
from collections.abc import Callable

from shared.clock import Clock

OVERDUE_INTERVALS = 3  # scan intervals that an iteration may take before an alert is due
PAUSE_SECONDS = 0.5  # minimum between two iterations, unless the scan interval is shorter
_POLL_SECONDS = 0.1  # how soon a pending pod, or the stop, is noticed


class IterationTimer:
    """`begin`, `shorten` and `rest` are for the loop's thread, the rest for any.

    The next iteration begins a scan interval after the last one began. With `wakes` it begins sooner after `wake`, and
    at once after an iteration that did something.
    """

    def __init__(self, clock: Clock, scan_interval_seconds: float, *, wakes: bool) -> None:
        self._clock = clock
        self._scan_interval_seconds = self._pause_seconds = scan_interval_seconds
        self._wakes = wakes
        self._woken = threading.Event()
        self._turned_at = self._begun = clock.monotonic()

    def begin(self) -> None:
        """An iteration begins."""
        self._turned_at = self._begun = self._clock.monotonic()
        self._pause_seconds = self._scan_interval_seconds
        self._woken.clear()

    def wake(self) -> None:
        """Wakes the loop, because a pod turned unschedulable."""
        self._woken.set()

    def shorten(self, seconds: float | None) -> None:
        """Makes the next iteration due at most this long after the beginning of this one."""
        if seconds is not None:
            self._pause_seconds = min(self._pause_seconds, seconds)

    def silent_seconds(self) -> float:
        """The time that the current iteration has been running; next to zero between iterations."""
        return self._clock.monotonic() - self._turned_at

    def overdue_seconds(self) -> float:
        """The same once it exceeds `OVERDUE_INTERVALS`; 0 before."""
        seconds = self.silent_seconds()
        return seconds if seconds > OVERDUE_INTERVALS * self._scan_interval_seconds else 0.0

    def rest(self, stop: threading.Event, *, productive: bool, is_wanted: Callable[[], bool]) -> None:
        """Waits until the next iteration is due, or wanted sooner; `productive`: the last one did something."""
        pause = 0.0 if productive and self._wakes else self._pause_seconds
        shortest = min(PAUSE_SECONDS, self._scan_interval_seconds)
        due = max(self._begun + pause, self._clock.monotonic() + shortest)
        hurries = False
        while not stop.is_set():
            self._turned_at = self._clock.monotonic()
            left = due - self._turned_at
            if left <= 0:
                return
            if not hurries and (is_wanted() or (self._wakes and self._woken.is_set())):
                due = min(due, self._clock.monotonic() + shortest)
                hurries = True
            self._clock.wait(stop, min(left, _POLL_SECONDS))
