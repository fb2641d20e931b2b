"""The time of models: equal to the wall clock, unless a setting shortens hours for demonstrations and tests.

Hours, days and weeks of models and the policy's times are in model time. Times of pods, and displayed times, are wall
clock times.
"""

from agent.predict_server.calibration import HOUR_SECONDS
from shared.clock import Clock

CLOCK_SET_SECONDS = 1.0  # a larger difference between wall time and elapsed time means that the clock was set


class ModelTime:
    """Both times are in seconds since 1970. `hour_seconds` is the length of a model hour. Not thread-safe."""

    def __init__(self, clock: Clock, hour_seconds: float) -> None:
        self._clock = clock
        self._pace = HOUR_SECONDS / hour_seconds
        self._looked_at = (clock.now(), clock.monotonic())

    def look(self) -> tuple[float, float]:
        """The present time, and by how much the clock was set forward since the last look: below 0 if back, else 0."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        step = (now - self._looked_at[0]) - (monotonic - self._looked_at[1])
        self._looked_at = (now, monotonic)
        return self.of(now), self.of(step) if abs(step) > CLOCK_SET_SECONDS else 0.0

    def of(self, wall_seconds: float) -> float:
        """Converts a wall clock time, or a duration, to model time."""
        return wall_seconds * self._pace

    def wall(self, seconds: float) -> float:
        """Converts a model time, or a duration, to the wall clock."""
        return seconds / self._pace
