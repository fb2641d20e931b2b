"""Time behind one small interface, so that replays and tests control it."""

import threading
import time
from typing import Protocol

_SHORT_LOOK_SECONDS = 0.01  # of a machine's time, between two looks at a clock that stands still


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Wall time in Unix seconds. May jump; never use it to measure a duration."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Blocks until `event` is set (True) or `seconds` have passed (False)."""
        ...

    def wait_notified(self, condition: threading.Condition, seconds: float) -> None:
        """Blocks until the condition, which the caller holds, is notified, or `seconds` have passed; may end early."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))

    def wait_notified(self, condition: threading.Condition, seconds: float) -> None:
        condition.wait(max(0.0, seconds))


class ManualClock:
    """Stands still until a call advances it; waits of other threads end when their time comes."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.waiting = 0  # threads that wait, each until a fixed time
        self._now = now
        self._monotonic = 0.0
        self._advanced = threading.Condition()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        with self._advanced:
            self._now += seconds
            self._monotonic += seconds
            self._advanced.notify_all()

    def jump(self, seconds: float) -> None:
        """Moves only wall time, like a correction of the system clock."""
        with self._advanced:
            self._now += seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        with self._advanced:
            deadline = self._monotonic + seconds
            self.waiting += 1
            while not event.is_set() and self._monotonic < deadline:
                # An Event cannot notify this condition, so a set event is seen at the next short look.
                self._advanced.wait(_SHORT_LOOK_SECONDS)
            self.waiting -= 1
        return event.is_set()

    def wait_notified(self, condition: threading.Condition, seconds: float) -> None:
        condition.wait(_SHORT_LOOK_SECONDS if seconds > 0 else 0.0)
