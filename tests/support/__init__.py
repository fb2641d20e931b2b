"""What several suites need."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], timeout_seconds: float = 10.0, interval_seconds: float = 0.02) -> T:
    """The first true value of `condition`, asked again and again until the deadline; AssertionError after it."""
    deadline = time.monotonic() + timeout_seconds
    while not (value := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not so within {timeout_seconds:g} s; last seen: {value!r}")
        time.sleep(interval_seconds)
    return value
