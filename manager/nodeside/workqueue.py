"""The nodes that need a decision, and those that need a write: two queues by node name, each name at most once.

Decisions are cheap and come first. A write costs a token, and the most urgent write takes the next one, so that a
change of the whole fleet is spread over time with the shrinking offers ahead.
"""

import enum
import heapq
import threading
from collections import deque
from collections.abc import Iterable

from shared.clock import Clock
from shared.kube.retry import Jitter


class WorkQueue:
    """Names to look at now, and names to look at later; filled from any thread, drained by one."""

    def __init__(self, clock: Clock, jitter: Jitter | None = None) -> None:
        self._clock = clock
        self._jitter = jitter or Jitter()
        self._filled = threading.Condition()
        self._ready: deque[str] = deque()
        self._queued: dict[str, float] = {}  # the names in `_ready`, and since when
        self._later: list[tuple[float, str]] = []
        self._delayed: dict[str, float] = {}  # the names in `_later`, and until when
        self._failures: dict[str, int] = {}
        self._taken: str | None = None  # the last name from `get`, which is done when `get` is called again

    def add(self, names: Iterable[str]) -> None:
        """Adds names at the end, unless they are queued already."""
        with self._filled:
            self._push(names)
            self._filled.notify()

    def retry(self, name: str, error: Exception) -> float:
        """Puts `name` back after a delay that grows with its failures in a row, unless it is queued already.

        Returns the delay in seconds.
        """
        with self._filled:
            self._failures[name] = self._failures.get(name, 0) + 1
            now = self._clock.monotonic()
            if name not in self._delayed:
                self._delayed[name] = now + self._jitter.delay_seconds(self._failures[name], error)
                heapq.heappush(self._later, (self._delayed[name], name))
                self._filled.notify()
            return max(0.0, self._delayed[name] - now)

    def forget(self, name: str) -> None:
        """`name` succeeded: its next failure counts as the first."""
        with self._filled:
            self._failures.pop(name, None)

    def get(self, timeout_seconds: float) -> str | None:
        """The next name, or None if there is none within the time, or `wake` ends the wait."""
        with self._filled:
            self._taken = None
            self._promote()
            if not self._ready and timeout_seconds > 0:
                next_later = self._later[0][0] - self._clock.monotonic() if self._later else timeout_seconds
                self._clock.wait_notified(self._filled, min(timeout_seconds, next_later))
                self._promote()
            if not self._ready:
                return None
            name = self._taken = self._ready.popleft()
            del self._queued[name]
            return name

    def wake(self) -> None:
        """Ends a wait in `get`."""
        with self._filled:
            self._filled.notify_all()

    def __len__(self) -> int:
        with self._filled:
            return len(self._ready) + len(self._later)

    def is_filled(self) -> bool:
        """Whether a name waits for a look now, or is being looked at."""
        with self._filled:
            return bool(self._ready) or self._taken is not None

    def __contains__(self, name: str) -> bool:
        """Whether `name` waits for a look, or is being looked at."""
        with self._filled:
            return name in self._queued or name in self._delayed or name == self._taken

    def oldest_seconds(self) -> float:
        """The time that the next name has waited."""
        with self._filled:
            return self._clock.monotonic() - self._queued[self._ready[0]] if self._ready else 0.0

    def _promote(self) -> None:
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            _, name = heapq.heappop(self._later)
            del self._delayed[name]
            self._push([name])

    def _push(self, names: Iterable[str]) -> None:
        now = self._clock.monotonic()
        for name in sorted(names):  # callers have sets, whose order would differ from run to run
            if name not in self._queued:
                self._queued[name] = now
                self._ready.append(name)


class TokenBucket:
    """Grants at most `per_second` on average and `burst` at once."""

    def __init__(self, clock: Clock, *, per_second: float, burst: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._refilled_at = clock.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Takes a token if there is one."""
        with self._lock:
            self._refill()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def delay_seconds(self) -> float:
        """Seconds until there is a token."""
        with self._lock:
            self._refill()
            return max(0.0, (1 - self._tokens) / self._per_second)

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._per_second)
        self._refilled_at = now


class Urgency(enum.IntEnum):
    """The order of writes."""

    SHRINK = 0
    LIFECYCLE = 1
    GROW = 2


class Outbox:
    """The nodes that need a write, most urgent first, then in the order of their requests.

    A popped name is not returned again until it is `done`, so that no two writes of a node run at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Condition()
        self._popped: set[str] = set()
        self._lanes: dict[Urgency, dict[str, float]] = {urgency: {} for urgency in Urgency}

    def add(self, name: str, urgency: Urgency) -> None:
        """Records that `name` needs a write; one of the same urgency keeps its position."""
        with self._lock:
            for other, lane in self._lanes.items():
                if other is not urgency:
                    lane.pop(name, None)
            self._lanes[urgency].setdefault(name, self._clock.monotonic())
            self._lock.notify()

    def discard(self, name: str) -> None:
        """`name` no longer needs a write."""
        with self._lock:
            for lane in self._lanes.values():
                lane.pop(name, None)

    def pop(self) -> str | None:
        """The next name."""
        with self._lock:
            for lane in self._lanes.values():
                for name in lane:
                    if name not in self._popped:
                        del lane[name]
                        self._popped.add(name)
                        return name
        return None

    def finish(self, name: str) -> None:
        """The popped name is done."""
        with self._lock:
            self._popped.discard(name)
            self._lock.notify()

    def wait(self, timeout_seconds: float) -> bool:
        """Whether `pop` has a name to return within the time, or when `wake` ends the wait."""
        with self._lock:
            if not self._has_next():
                self._clock.wait_notified(self._lock, timeout_seconds)
            return self._has_next()

    def wake(self) -> None:
        """Ends all waits."""
        with self._lock:
            self._lock.notify_all()

    def clear(self) -> None:
        """No node needs a write any more."""
        with self._lock:
            for lane in self._lanes.values():
                lane.clear()

    def _has_next(self) -> bool:
        return any(name not in self._popped for lane in self._lanes.values() for name in lane)

    def oldest_seconds(self) -> float:
        """The longest time that the first name of each urgency has waited."""
        with self._lock:
            since = [next(iter(lane.values())) for lane in self._lanes.values() if lane]
        return self._clock.monotonic() - min(since) if since else 0.0

    def __len__(self) -> int:
        with self._lock:
            return sum(len(lane) for lane in self._lanes.values())
