"""The time of models: as the wall clock's, unless hours are set to pass sooner, for demonstrations and tests.

Everything that models know of hours, days and weeks is in it, and so are the policy's times. Times of pods, and times
that are shown, are the wall clock's.
"""

from agent.predict_server.calibration import HOUR_SECONDS
from shared.clock import Clock

CLOCK_SET_SECONDS = 1.0  # wall time that runs away from what has passed by more was set


class ModelTime:
    """Both times are in seconds since 1970. `hour_seconds` is how long an hour of models takes. Not thread-safe."""

    def __init__(self, clock: Clock, hour_seconds: float) -> None:
        self._clock = clock
        self._pace = HOUR_SECONDS / hour_seconds
        self._looked_at = (clock.now(), clock.monotonic())

    def look(self) -> tuple[float, float]:
        """The time now, and by how much the clock was set forward since the last look: below 0 if back, else 0."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        step = (now - self._looked_at[0]) - (monotonic - self._looked_at[1])
        self._looked_at = (now, monotonic)
        return self.of(now), self.of(step) if abs(step) > CLOCK_SET_SECONDS else 0.0

    def of(self, wall_seconds: float) -> float:
        """The wall clock's time, or a duration by it, as models have it."""
        return wall_seconds * self._pace

    def wall(self, seconds: float) -> float:
        """A time of models, or a duration, by the wall clock."""
        return seconds / self._pace
