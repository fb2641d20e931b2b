"""How far an offer may grow now: not above its recent lows, so that a flapping offer settles at its low side.

A decision that does not fall is offered at once. After a fall, growth stops at the low until the decision has stayed up
for an interval: lows are kept for the running interval and the previous one, so that a low counts for one interval at
least and two at most.
"""

from typing import NamedTuple

from shared.quantity import INT64_MAX, Resources

_NO_LOW = Resources(INT64_MAX, INT64_MAX)


class Damping(NamedTuple):
    """The memory of one tier's decisions; times are monotonic seconds.

    `low` and `earlier_low` are the lowest decisions in this interval and in the previous one.
    """

    last: Resources
    started: float
    low: Resources = _NO_LOW
    earlier_low: Resources = _NO_LOW

    @property
    def ceiling(self) -> Resources:
        """The level up to which an offer may grow."""
        return Resources(self.ceiling_of(0), self.ceiling_of(1))

    def ceiling_of(self, position: int) -> int:
        """The ceiling of one resource."""
        return min(self.last[position], self.low[position], self.earlier_low[position])

    def lifted_at(self, interval_seconds: float) -> float | None:
        """When the ceiling can rise next; None while it limits nothing."""
        if self.ceiling == self.last:
            return None
        ended = self.started + interval_seconds
        return ended if self.last.least(self.low) != self.ceiling else ended + interval_seconds


def remember(before: Damping | None, decided: Resources, now: float, interval_seconds: float) -> Damping:
    """The memory after this decision."""
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
