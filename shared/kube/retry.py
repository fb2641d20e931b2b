"""How long to wait before trying again, and when to stop trying.

Every delay has full jitter (uniform between nothing and an exponentially growing, capped bound), so that the agents
of thousands of nodes do not come back to a recovering API server in step. Who waits because there was no answer need
not wait to the end once somebody else of the same process had one: the processes themselves are out of step already.
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

# No server, proxy or typing error gets to silence us for longer with a Retry-After.
MAX_RETRY_AFTER_SECONDS = 120.0

# Within which a process resumes what waits, from when its server is known to answer again.
RESUME_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between two looks whether it does
SILENT_FAILURES = 5  # in a row, from which on a server was away; fewer are those of a connection

_MAX_DOUBLINGS = 32  # beyond it every cap is reached, and floats would overflow in the end


@dataclass(frozen=True)
class Jitter:
    """Exponential growth from `base_seconds` to `cap_seconds`, with full jitter."""

    base_seconds: float = 0.25
    cap_seconds: float = 30.0

    def delay_seconds(self, failures: int, error: Exception | None = None) -> float:
        """The wait after the `failures`-th failure in a row (from 1); never below what the server asked for."""
        bound = min(self.cap_seconds, self.base_seconds * 2 ** min(failures - 1, _MAX_DOUBLINGS))
        delay = random.uniform(0, bound)
        if isinstance(error, ApiError) and error.retry_after_seconds is not None:
            # Added, not maximised: Retry-After is the same number for every client that was turned away.
            return min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS) + delay
        return delay


class Answers:
    """When a server last answered for itself, whatever the answer was; shared by all that speak with it."""

    def __init__(self) -> None:
        self.last_at = -math.inf  # monotonic

    def note(self, error: Exception | None, now: float) -> None:
        """Takes in how a request ended."""
        if error is None or is_answer(error):
            self.last_at = now


def is_answer(error: Exception) -> bool:
    """Whether the server is there and not in need of rest; a proxy says 5xx for one that is not."""
    return isinstance(error, ApiError) and not isinstance(error, ServerError | TooManyRequests)


def resumed_at(due: float, waiting_since: float, answered_at: float, jitter: float) -> float:
    """When to go on with what is `due` after there was no answer, since there has been one; `jitter` is from 0 to 1.

    All are monotonic. No later than it was due, and not in step with the rest of the process.
    """
    return min(due, answered_at + jitter * RESUME_SECONDS) if answered_at > waiting_since else due


def wait(clock: Clock, stop: threading.Event, seconds: float, answers: Answers | None = None) -> None:
    """Until `stop`, for `seconds` at most; with `answers` only until a while after there is one again."""
    since, jitter, left = clock.monotonic(), random.random(), seconds
    due = since + seconds
    if answers is not None and since - answers.last_at < RESUME_SECONDS:
        answers = None  # it answers others, so what fails here is not that it is away
    while left > 0:
        step = left if answers is None else min(left, LOOK_SECONDS)
        if clock.wait(stop, step):
            return
        if answers is not None:
            due = resumed_at(due, since, answers.last_at, jitter)
        left = min(left - step, due - clock.monotonic())


class Backoff:
    """The delays of a loop that never gives up; they start small again after `calm_seconds` without a failure.

    So they do when a server that was away answers, though it be a refusal: it may have just begun.
    """

    def __init__(self, clock: Clock, jitter: Jitter | None = None, calm_seconds: float = 60.0) -> None:
        self._clock = clock
        self._jitter = jitter or Jitter()
        self._calm_seconds = calm_seconds
        self._failures = 0
        self._last = 0.0
        self._unanswered = 0  # failures in a row

    def delay_seconds(self, error: Exception | None = None) -> float:
        """Counts one more failure, now, and says how long to wait after it."""
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
    """Repeats one call while its failures are passing ones, for `deadline_seconds` at most."""

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
        """`attempt()`'s result. Raises its last error when that is not `passing`, or time or `stop` ends the wait."""
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


ONCE = Retry(deadline_seconds=-1.0)
