"""A group that failed to grow is left alone for a while, longer with every failure (Cluster Autoscaler's rule).

A failure while backed off starts the same time anew; one after its end doubles it, up to a limit. A group without a
failure for long enough begins again. All times are of one clock, in seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffTimes:
    initial_seconds: float = 300.0
    most_seconds: float = 1800.0
    reset_seconds: float = 10800.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """One group's: why, since when it was last renewed, for how long, and until when inclusive."""

    reason: str
    failed_at: float
    seconds: float
    until: float


class Backoffs:
    """Of all groups by id."""

    def __init__(self, times: BackoffTimes | None = None) -> None:
        self._times = times or BackoffTimes()
        self._by_group: dict[str, Backoff] = {}

    def fail(self, group: str, reason: str, now: float) -> Backoff:
        """Notes a failure."""
        before = self._by_group.get(group)
        seconds = self._times.initial_seconds
        if before is not None:
            seconds = before.seconds if now <= before.until else min(before.seconds * 2, self._times.most_seconds)
        found = self._by_group[group] = Backoff(reason, now, seconds, now + seconds)
        return found

    def of(self, group: str, now: float) -> Backoff | None:
        """The backoff in effect; at its very end it still is."""
        found = self._by_group.get(group)
        return found if found is not None and now <= found.until else None

    def succeed(self, group: str) -> None:
        """The group grew as asked."""
        self._by_group.pop(group, None)

    def forget_old(self, now: float) -> None:
        """Drops groups that have not failed for long."""
        old = [group for group, each in self._by_group.items() if each.failed_at + self._times.reset_seconds < now]
        for group in old:
            del self._by_group[group]

    @property
    def groups(self) -> list[str]:
        """Those that are remembered."""
        return sorted(self._by_group)
