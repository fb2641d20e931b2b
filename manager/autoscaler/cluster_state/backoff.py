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
class GroupBackoff:
    """One group's: why, since when it was last renewed, for how long, and until when inclusive.

    `code` is the failure in one word. `ended`: its end has been noticed.
    """

    reason: str
    failed_at: float
    seconds: float
    until: float
    code: str = ""
    ended: bool = False

    def holds(self, now: float) -> bool:
        """At its very end it still does."""
        return now <= self.until


def next_backoff(
    before: GroupBackoff | None, times: BackoffTimes, now: float, reason: str, code: str = ""
) -> GroupBackoff:
    """That of a group that has failed now, `before` being what is remembered of it."""
    seconds = times.initial_seconds
    if before is not None:
        seconds = before.seconds if before.holds(now) else min(before.seconds * 2, times.most_seconds)
    return GroupBackoff(reason, now, seconds, now + seconds, code)


def is_forgotten(backoff: GroupBackoff, times: BackoffTimes, now: float) -> bool:
    """Whether its group has not failed for so long that it begins again."""
    return backoff.failed_at + times.reset_seconds < now
