"""Decides how long to wait before another attempt, and when to give up.

Every delay has full jitter (uniform between nothing and an exponentially growing, capped bound), so that the agents of
thousands of nodes do not come back to a recovering API server in step. A caller that waits because the server did not
answer stops waiting once another request of the process gets an answer; jitter keeps the processes out of step.
"""

import logging
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from shared.clock import Clock
from shared.kube.errors import ApiError, ServerError, TooManyRequests, Unreachable

logger = logging.getLogger(__name__)

R = TypeVar("R")

# The longest Retry-After that we follow, in case of a server, proxy or typing error.
MAX_RETRY_AFTER_SECONDS = 120.0

# The waits of a process end within this time after its server answers again.
RESUME_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between two checks for an answer
SILENT_FAILURES = 5  # in a row, from which a server counts as away; fewer are failures of a connection

_MAX_DOUBLINGS = 32  # beyond it every cap is reached, and floats would eventually overflow


@dataclass(frozen=True)
class Jitter:
    """Exponential growth from `base_seconds` to `cap_seconds`, with full jitter."""

    base_seconds: float = 0.25
    cap_seconds: float = 30.0

    def delay_seconds(self, failures: int, error: Exception | None = None) -> float:
        """The wait after the `failures`-th failure in a row (from 1); at least the server's Retry-After, which is
        capped.
        """
        bound = min(self.cap_seconds, self.base_seconds * 2 ** min(failures - 1, _MAX_DOUBLINGS))
        delay = random.uniform(0, bound)
        if isinstance(error, ApiError) and error.retry_after_seconds is not None:
            # Added, not maximised: Retry-After is the same number for every client the server rejects.
            return min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS) + delay
        return delay


class Answers:
    """When a server itself last answered, with any answer; shared by all clients of that server."""

    def __init__(self) -> None:
        self.last_at = -math.inf  # monotonic

    def note(self, error: Exception | None, now: float) -> None:
        """Records how a request ended."""
        if error is None or is_answer(error):
            self.last_at = now


def is_answer(error: Exception) -> bool:
    """Whether the server is up and not overloaded; a proxy answers 5xx for a server that is away."""
    return isinstance(error, ApiError) and not isinstance(error, ServerError | TooManyRequests)


def resumed_at(due: float, waiting_since: float, answered_at: float, jitter: float) -> float:
    """When to resume a wait that is `due`, if an answer came since the wait began; `jitter` is from 0 to 1.

    All times are monotonic. The result is never later than `due`, and differs between the waits of a process.
    """
    return min(due, answered_at + jitter * RESUME_SECONDS) if answered_at > waiting_since else due


def wait(clock: Clock, stop: threading.Event, seconds: float, answers: Answers | None = None) -> None:
    """Waits for `stop`, at most `seconds`; with `answers`, only until shortly after the server answers again."""
    since, jitter, left = clock.monotonic(), random.random(), seconds
    due = since + seconds
    if answers is not None and since - answers.last_at < RESUME_SECONDS:
        answers = None  # other requests get answers, so this failure has another cause
    while left > 0:
        step = left if answers is None else min(left, LOOK_SECONDS)
        if clock.wait(stop, step):
            return
        if answers is not None:
            due = resumed_at(due, since, answers.last_at, jitter)
        left = min(left - step, due - clock.monotonic())


class Backoff:
    """The delays of a loop that never gives up; they start small again after `calm_seconds` without a failure.

    They also start small when a server that was away answers, even with a refusal: it may have just started.
    """

    def __init__(self, clock: Clock, jitter: Jitter | None = None, calm_seconds: float = 60.0) -> None:
        self._clock = clock
        self._jitter = jitter or Jitter()
        self._calm_seconds = calm_seconds
        self._failures = 0
        self._last = 0.0
        self._unanswered = 0  # failures in a row

    def delay_seconds(self, error: Exception | None = None) -> float:
        """Counts one more failure and returns the wait after it."""
        now = self._clock.monotonic()
        is_back = self._unanswered >= SILENT_FAILURES and error is not None and is_answer(error)
        if is_back or now - self._last > self._calm_seconds:
            self._failures = 0
        self._unanswered = self._unanswered + 1 if isinstance(error, Unreachable) else 0
        self._failures += 1
        delay = self._jitter.delay_seconds(self._failures, error)
        self._last = now + delay
        return delay


@dataclass(frozen=True)
class Retry:
    """Retries one call after transient failures, for at most `deadline_seconds`."""

    deadline_seconds: float = 20.0
    jitter: Jitter = Jitter(cap_seconds=5.0)

    def run(
        self,
        what: str,
        attempt: Callable[[], R],
        *,
        passing: Callable[[Exception], bool],
        clock: Clock,
        stop: threading.Event,
    ) -> R:
        """The result of `attempt()`. Raises its last error if not `passing`, or when time or `stop` ends the
        retries.
        """
        started = clock.monotonic()
        failures = 0
        while True:
            try:
                return attempt()
            except (ApiError, Unreachable) as error:
                if not passing(error):
                    raise
                failures += 1
                delay = self.jitter.delay_seconds(failures, error)
                spent = clock.monotonic() - started
                if spent + delay > self.deadline_seconds:
                    error.add_note(f"gave up on {what} after {failures} attempts in {spent:.1f} s")
                    raise
                logger.info("%s failed, next attempt in %.2f s: %s", what, delay, error)
                if clock.wait(stop, delay):
                    raise
                if clock.monotonic() - started > self.deadline_seconds:
                    raise  # the process was stopped meanwhile, and what it wanted to write is old


ONCE = Retry(deadline_seconds=-1.0)
