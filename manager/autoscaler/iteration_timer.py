"""When the next iteration of the loop begins, and whether the current one takes too long."""

import threading
from collections.abc import Callable

from shared.clock import Clock
from shared.stop import Stop

OVERDUE_INTERVALS = 3  # scan intervals that an iteration may take before an alert is due
PAUSE_SECONDS = 0.5  # minimum between two iterations, unless the scan interval is shorter
_LOOK_SECONDS = 0.1  # between two looks for what a blind loop waits for


class IterationTimer:
    """`begin`, `shorten` and `rest` are for the loop's thread, the rest for any.

    The next iteration begins a scan interval after the last one began, but sooner after `wake`, and at once after an
    iteration that did something.
    """

    def __init__(self, clock: Clock, scan_interval_seconds: float) -> None:
        self._clock = clock
        self._scan_interval_seconds = self._pause_seconds = scan_interval_seconds
        self._woken = threading.Event()
        self._begun = clock.monotonic()
        self._rests = True

    def begin(self) -> None:
        """An iteration begins."""
        self._begun = self._clock.monotonic()
        self._rests = False
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
        """The time that the current iteration has been running; 0 between iterations."""
        return 0.0 if self._rests else self._clock.monotonic() - self._begun

    def overdue_seconds(self) -> float:
        """The same once it exceeds `OVERDUE_INTERVALS`; 0 before."""
        seconds = self.silent_seconds()
        return seconds if seconds > OVERDUE_INTERVALS * self._scan_interval_seconds else 0.0

    def rest(self, stop: Stop, *, productive: bool, is_wanted: Callable[[], bool] | None = None) -> None:
        """Waits until the next iteration is due or woken, or until `is_wanted`, which is asked again and again.
        `productive`: the last one did something.
        """
        self._rests = True
        pause = 0.0 if productive else self._pause_seconds
        shortest = min(PAUSE_SECONDS, self._scan_interval_seconds)
        due = max(self._begun + pause, self._clock.monotonic() + shortest)
        hurries = False
        with stop.calling(self._woken.set):
            while not stop.is_set() and (left := due - self._clock.monotonic()) > 0:
                if hurries:
                    self._clock.wait(stop, left)
                    continue
                wait_seconds = left if is_wanted is None else min(left, _LOOK_SECONDS)
                hurries = self._clock.wait(self._woken, wait_seconds) or (is_wanted is not None and is_wanted())
                if hurries:
                    due = min(due, self._clock.monotonic() + shortest)
