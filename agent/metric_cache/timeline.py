"""The seconds of the metric cache: a counter that starts at wall time and never goes back."""

import math

from shared.clock import Clock


class Timeline:
    """From its start on it follows the monotonic clock; a corrected wall clock changes only the translation."""

    def __init__(self, clock: Clock, last_stored: int) -> None:
        self._clock = clock
        self._first = max(last_stored + 1, math.floor(clock.now()))
        self._epoch = clock.monotonic()

    @property
    def now(self) -> int:
        return self._first + int(self._clock.monotonic() - self._epoch)

    def second(self, wall_time: float) -> int:
        """The second at `wall_time`, as far as the wall clock is now from the counter."""
        return self.now + math.floor(wall_time) - math.floor(self._clock.now())

    def wall_time(self, second: int) -> int:
        """The reverse: Unix seconds."""
        return second - self.now + math.floor(self._clock.now())
