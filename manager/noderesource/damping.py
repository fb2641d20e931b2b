"""How far an offer may grow now: not above what it fell to lately, so that one that flaps settles at its low side.

A decision that does not fall may be offered at once. One that fell holds growth down to where it fell to, until it
has stayed up for an interval: lows are kept for the running interval and the one before it, so that a low counts for
one interval at least and two at most.
"""

from typing import NamedTuple

from shared.quantity import INT64_MAX, Resources

_NO_LOW = Resources(INT64_MAX, INT64_MAX)


class Damping(NamedTuple):
    """What is remembered of one tier's decisions; instants are monotonic seconds.

    `low` and `earlier_low` are the least that a decision fell to in this interval and in the one before.
    """

    last: Resources
    started: float
    low: Resources = _NO_LOW
    earlier_low: Resources = _NO_LOW

    @property
    def ceiling(self) -> Resources:
        """To how much an offer may grow."""
        return Resources(self.ceiling_of(0), self.ceiling_of(1))

    def ceiling_of(self, position: int) -> int:
        """That of one resource."""
        return min(self.last[position], self.low[position], self.earlier_low[position])

    def lifted_at(self, interval_seconds: float) -> float | None:
        """When the ceiling can next be higher; None while it holds nothing down."""
        if self.ceiling == self.last:
            return None
        ended = self.started + interval_seconds
        return ended if self.last.least(self.low) != self.ceiling else ended + interval_seconds


def after(before: Damping | None, decided: Resources, now: float, interval_seconds: float) -> Damping:
    """What is remembered once this was decided as well."""
    if before is None:
        return Damping(decided, now)
    last, started, low, earlier_low = before
    passed = int((now - started) // interval_seconds)
    if passed:
        started += passed * interval_seconds
        low, earlier_low = _NO_LOW, low if passed == 1 else _NO_LOW
    cpu, memory = decided
    low_cpu, low_memory = low
    if cpu < min(last.cpu_milli, low_cpu) or memory < min(last.memory_bytes, low_memory):
        low = Resources(
            min(low_cpu, cpu) if cpu < last.cpu_milli else low_cpu,
            min(low_memory, memory) if memory < last.memory_bytes else low_memory,
        )
    return Damping(decided, started, low, earlier_low)
