"""Escalator's arithmetic: how full nodes are, and how many more make them less full.

Floating point is evaluated in Escalator's order, on thousandths of cpus and of bytes, so that it agrees in the last bit
with what is compared: 55 of 100 are a little more than 55 %.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from shared.quantity import Resources

FROM_ZERO = sys.float_info.max  # the utilisation of pods that have no node at all
DIVIDES_BY_ZERO = "cannot divide by zero in percent calculation"
NEGATIVE_DELTA = "negative scale up delta"
NO_THRESHOLD = "scale_up_threshold_percent must be larger than 0"


class Uncomputable(ValueError):
    """There is no number for it; says why in Escalator's words."""


@dataclass(frozen=True, slots=True)
class GroupUtilization:
    """In percent of what is allocatable; both are FROM_ZERO where pods have no nodes."""

    cpu_percent: float
    memory_percent: float

    @property
    def percent(self) -> float:
        """The one that decides."""
        return max(self.cpu_percent, self.memory_percent)

    @property
    def is_from_zero(self) -> bool:
        return FROM_ZERO in (self.cpu_percent, self.memory_percent)


def utilization(demand: Resources, capacity: Resources, nodes: int) -> GroupUtilization:
    """Of so many nodes. Raises Uncomputable."""
    if not any((*demand, *capacity, nodes)):
        return GroupUtilization(0.0, 0.0)
    if 0 in capacity:
        if nodes:
            raise Uncomputable(DIVIDES_BY_ZERO)
        return GroupUtilization(FROM_ZERO, FROM_ZERO)
    (cpu, memory), (all_cpu, all_memory) = _thousandths(demand), _thousandths(capacity)
    return GroupUtilization(cpu / all_cpu * 100, memory / all_memory * 100)


def nodes_more(utilized: GroupUtilization, threshold_percent: int, nodes: int) -> int:
    """The fewest nodes like those there are that bring both resources to the threshold. Raises Uncomputable."""
    _check(threshold_percent)
    both = (utilized.cpu_percent, utilized.memory_percent)
    delta = max(math.ceil(nodes * ((percent - threshold_percent) / threshold_percent)) for percent in both)
    if delta < 0:
        raise Uncomputable(NEGATIVE_DELTA)
    return delta


def nodes_from_zero(demand: Resources, node: Resources, threshold_percent: int) -> int:
    """How many nodes of this size hold the demand at the threshold; 1 as long as no size is known.

    Raises Uncomputable.
    """
    _check(threshold_percent)
    if 0 in node:
        return 1
    pairs = zip(_thousandths(demand), _thousandths(node), strict=True)
    return max(math.ceil(asked / size / threshold_percent * 100) for asked, size in pairs)


@dataclass(frozen=True, slots=True)
class Largest:
    """Of several amounts the one with most cpu and the one with most memory, which may be two."""

    of_cpu: Resources = field(default_factory=Resources)
    of_memory: Resources = field(default_factory=Resources)

    def exceeds(self, other: "Largest") -> bool:
        """Whether the one has more cpu than any of the others, or more memory."""
        return (
            self.of_cpu.cpu_milli > other.of_cpu.cpu_milli or self.of_memory.memory_bytes > other.of_memory.memory_bytes
        )


def largest(amounts: Iterable[Resources]) -> Largest:
    """The first of equals; nothing is larger than less than nothing."""
    of_cpu = of_memory = Resources()
    for each in amounts:
        if each.cpu_milli > of_cpu.cpu_milli:
            of_cpu = each
        if each.memory_bytes > of_memory.memory_bytes:
            of_memory = each
    return Largest(of_cpu, of_memory)


def _check(threshold_percent: int) -> None:
    if threshold_percent <= 0:
        raise Uncomputable(NO_THRESHOLD)


def _thousandths(amount: Resources) -> tuple[float, float]:
    """As floating point before anything is divided: of whole numbers the quotient may differ in its last bit."""
    return float(amount.cpu_milli), float(amount.memory_bytes * 1000)
