"""How long nothing is withdrawn after the API server was away.

Then all NodeMetrics are stale at once, though most agents are well: each gets one report interval to say so before its
node's offers go. Nothing is lent anew meanwhile, since decisions are as they would be: only their writing waits. An
agent that was silent before the outage gets no such time, and one that stays silent loses its node's offers after it.
"""

from dataclasses import dataclass

from manager.noderesource.explain import CLOCK_SKEW_SECONDS

# An outage that lasts for longer does not hold writes up any more: it may be one of watches alone.
LONGEST_SECONDS = 3600.0
# Between two looks while it lasts.
LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Outage:
    """When nothing was heard any more of the API server, and since when it is again; monotonic seconds."""

    began: float
    ended: float | None = None


def sensed(known: Outage | None, unheard_seconds: float, now: float) -> Outage | None:
    """The newest outage, with what is known now: for how long nothing has been heard (0: it is there)."""
    if unheard_seconds > 0:
        lasts = known is not None and known.ended is None
        return known if lasts else Outage(now - unheard_seconds)
    if known is not None and known.ended is None:
        return Outage(known.began, now)
    return known


def spared_until(
    outage: Outage | None, *, reported_at: float, degrade_seconds: float, interval_seconds: float, now: float
) -> float | None:
    """Until when the offers of a node stay whose NodeMetric, of `reported_at`, is stale; None for no longer than now.

    It was good when the outage began, and would not be stale without it: the outage has lasted longer than an interval.
    One of the future is stale for another reason.
    """
    if outage is None or not -CLOCK_SKEW_SECONDS <= outage.began - reported_at <= degrade_seconds:
        return None
    lasted = (now if outage.ended is None else outage.ended) - outage.began
    if lasted <= interval_seconds:
        return None
    if outage.ended is None:
        return now + LOOK_SECONDS if lasted <= degrade_seconds + LONGEST_SECONDS else None
    until = outage.ended + interval_seconds
    return until if now < until else None
