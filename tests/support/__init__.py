"""What several suites need."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 60.0  # how long a busy machine is waited for, whatever it is to do


def certain(found: T | None) -> T:
    """`found`, which is there."""
    assert found is not None
    return found


def eventually(
    condition: Callable[[], T], timeout_seconds: float = PATIENCE_SECONDS, interval_seconds: float = 0.02
) -> T:
    """The first true value of `condition`, asked again and again until the deadline; AssertionError after it.

    What takes long is asked for less often, so that asking does not slow it down.
    """
    begun = time.monotonic()
    while not (value := condition()):
        elapsed = time.monotonic() - begun
        if elapsed >= timeout_seconds:
            raise AssertionError(f"not so within {timeout_seconds:g} s; last seen: {value!r}")
        time.sleep(max(interval_seconds, min(0.2, elapsed / 8)))
    return value
