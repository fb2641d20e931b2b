"""The seconds of the metric cache: a counter that starts at wall time and never goes back."""

import math

from shared.clock import Clock

_NOISE_SECONDS = 0.001  # the apparent difference of two clocks that are read one after the other


class Timeline:
    """From its start on it follows the monotonic clock; a corrected wall clock changes only the translation.

    A second reaches from half a second before its instant to half a second after. `align` moves the instants to the
    sampling times, so that a slightly early or late sample still falls into its own second.
    """

    def __init__(self, clock: Clock, last_stored: int) -> None:
        self._clock = clock
        self._first = max(last_stored + 1, math.floor(clock.now()))
        self._epoch = clock.monotonic()
        self._aligned = False

    @property
    def now(self) -> int:
        return math.floor(self._exact + 0.5)

    def align(self) -> None:
        """Makes the present the instant of its second; only the first call counts."""
        if not self._aligned:
            self._epoch += self._exact - self.now
            self._aligned = True

    def second(self, wall_time: float) -> int:
        """The second at `wall_time`, by the wall clock's present offset from the counter."""
        return math.floor(wall_time) - self._behind

    def wall_time(self, second: int) -> int:
        """The reverse: Unix seconds."""
        return second + self._behind

    @property
    def _exact(self) -> float:
        return self._first + (self._clock.monotonic() - self._epoch)

    @property
    def _behind(self) -> int:
        """The lag of the counter behind the wall clock; constant within a second."""
        return math.floor(self._clock.now() - self._exact + _NOISE_SECONDS)
