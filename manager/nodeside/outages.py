"""Decides how long offers stay after an outage of the API server.

After an outage all NodeMetrics are stale at once, although most agents work: each gets one report interval before its
node's offers are withdrawn. Nothing new is lent meanwhile, since decisions do not change: only their writes wait. An
agent that was silent before the outage gets no such time, and one that stays silent loses its node's offers after it.
"""

from dataclasses import dataclass

from manager.nodeside.noderesource.explain import CLOCK_SKEW_SECONDS

# A longer outage no longer delays writes: it may affect only watches.
LONGEST_SECONDS = 3600.0
# Between two checks while it lasts.
LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Outage:
    """When the API server fell silent, and since when it answers again; monotonic seconds."""

    began: float
    ended: float | None = None


def sensed(known: Outage | None, unheard_seconds: float, now: float) -> Outage | None:
    """The newest outage, from the time for which the API server has been silent (0: it answers)."""
    if unheard_seconds > 0:
        lasts = known is not None and known.ended is None
        return known if lasts else Outage(now - unheard_seconds)
    if known is not None and known.ended is None:
        return Outage(known.began, now)
    return known


def spared_until(
    outage: Outage | None, *, reported_at: float, degrade_seconds: float, interval_seconds: float, now: float
) -> float | None:
    """Until when the offers of a node with a stale NodeMetric, of `reported_at`, stay; None for no longer than now.

    The report was fresh when the outage began, and would not be stale without it: the outage has lasted longer than an
    interval. A report from the future is stale for another reason.
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
