"""The backoff of a group that failed to grow, longer with every failure (Cluster Autoscaler's rule).

A failure during a backoff restarts it with the same duration; a failure after its end doubles the duration, up to a
limit. A group without a failure for long enough starts again. All times are of one clock, in seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffTimes:
    initial_seconds: float = 300.0
    most_seconds: float = 1800.0
    reset_seconds: float = 10800.0


@dataclass(frozen=True, slots=True)
class GroupBackoff:
    """One group's backoff: the reason, the last failure, the duration, and the inclusive end.

    `code` is the failure in one word. `ended`: its end has been reported.
    """

    reason: str
    failed_at: float
    seconds: float
    until: float
    code: str = ""
    ended: bool = False

    def holds(self, now: float) -> bool:
        """It still holds at its very end."""
        return now <= self.until


def next_backoff(
    before: GroupBackoff | None, times: BackoffTimes, now: float, reason: str, code: str = ""
) -> GroupBackoff:
    """The backoff after a failure now; `before` is the previous one."""
    seconds = times.initial_seconds
    if before is not None:
        seconds = before.seconds if before.holds(now) else min(before.seconds * 2, times.most_seconds)
    return GroupBackoff(reason, now, seconds, now + seconds, code)


def is_forgotten(backoff: GroupBackoff, times: BackoffTimes, now: float) -> bool:
    """Whether the group has not failed for so long that it starts again."""
    return backoff.failed_at + times.reset_seconds < now
