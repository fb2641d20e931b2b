"""Limits requests to the capacity of a cluster of thousands of nodes, regardless of why a report is due. Pure."""


class Limiter:
    """A burst first, then one request per interval; times come from a clock that never goes back."""

    def __init__(self, burst: int) -> None:
        self._burst = burst
        self._tokens = float(burst)
        self._counted_at: float | None = None

    def ready(self, now: float, seconds_each: float) -> bool:
        """Whether another request may go out, at the rate of one per `seconds_each`."""
        if self._counted_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._counted_at) / seconds_each)
        self._counted_at = now
        return self._tokens >= 1

    def take(self) -> None:
        """Counts one request, even if it fails."""
        self._tokens -= 1
