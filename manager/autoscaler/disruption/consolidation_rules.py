"""The options of consolidation."""

from dataclasses import dataclass, field

from manager.autoscaler.disruption.disruption_limits import DisruptionLimits


@dataclass(frozen=True, slots=True)
class ConsolidationRules:
    """A replacement saves at least `min_savings_percent` of what the nodes cost that go, and its share of the savings
    is at least `balance` times its share of the disruption.

    `spot_alternatives`: so many groups must offer a saving before spot nodes are bought, or replaced: one alone may
    be gone tomorrow. `look_seconds`: how long the second look may go on refusing; `drain_seconds`: how long the old
    nodes may take to go, from one to the next; `search_seconds`: how long one search may take,
    while everything else waits.
    """

    min_savings_percent: float = 10.0
    balance: float = 0.5
    min_age_seconds: float = 1800.0
    cooldown_seconds: float = 600.0
    limits: DisruptionLimits = field(default_factory=DisruptionLimits)
    spot_alternatives: int = 15
    look_seconds: float = 900.0
    drain_seconds: float = 1800.0
    search_seconds: float = 5.0
