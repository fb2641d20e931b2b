"""The seconds of the metric cache: a counter that starts at wall time and never goes back."""

import math

from shared.clock import Clock

_NOISE_SECONDS = 0.001  # by which two clocks, read one after the other, seem to differ


class Timeline:
    """From its start on it follows the monotonic clock; a corrected wall clock changes only the translation.

    A second reaches from half a second before its instant to half a second after. `align` puts the instants where
    samples are taken, so that one taken a little sooner or later than the others is still of a second of its own.
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
        """Makes the present the instant of its second; for good, so that only the first call counts."""
        if not self._aligned:
            self._epoch += self._exact - self.now
            self._aligned = True

    def second(self, wall_time: float) -> int:
        """The second at `wall_time`, as far as the wall clock is now from the counter."""
        return math.floor(wall_time) - self._behind

    def wall_time(self, second: int) -> int:
        """The reverse: Unix seconds."""
        return second + self._behind

    @property
    def _exact(self) -> float:
        return self._first + (self._clock.monotonic() - self._epoch)

    @property
    def _behind(self) -> int:
        """How far the counter is behind the wall clock; the same all through a second."""
        return math.floor(self._clock.now() - self._exact + _NOISE_SECONDS)
