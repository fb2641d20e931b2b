"""Escalator's arithmetic: the utilization of nodes, and the number of nodes that lowers it.

Floating point is evaluated in Escalator's order, on thousandths of cpus and of bytes, so that the results agree in the
last bit: 55 of 100 are a little more than 55 %.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from shared.quantity import Resources

FROM_ZERO = sys.float_info.max  # the utilization of pods without any node
DIVIDES_BY_ZERO = "cannot divide by zero in percent calculation"
NEGATIVE_DELTA = "negative scale up delta"
NO_THRESHOLD = "scale_up_threshold_percent must be larger than 0"


class Uncomputable(ValueError):
    """There is no number; the text says why in Escalator's words."""


@dataclass(frozen=True, slots=True)
class GroupUtilization:
    """In percent of the allocatable; both are FROM_ZERO where pods have no nodes."""

    cpu_percent: float
    memory_percent: float

    @property
    def percent(self) -> float:
        """The higher one, which decides."""
        return max(self.cpu_percent, self.memory_percent)

    @property
    def is_from_zero(self) -> bool:
        return FROM_ZERO in (self.cpu_percent, self.memory_percent)


def utilization(demand: Resources, capacity: Resources, nodes: int) -> GroupUtilization:
    """The utilization of `nodes` nodes. Raises Uncomputable."""
    if not any((*demand, *capacity, nodes)):
        return GroupUtilization(0.0, 0.0)
    if 0 in capacity:
        if nodes:
            raise Uncomputable(DIVIDES_BY_ZERO)
        return GroupUtilization(FROM_ZERO, FROM_ZERO)
    (cpu, memory), (all_cpu, all_memory) = _thousandths(demand), _thousandths(capacity)
    return GroupUtilization(cpu / all_cpu * 100, memory / all_memory * 100)


def nodes_more(utilized: GroupUtilization, threshold_percent: int, nodes: int) -> int:
    """The fewest additional nodes of the present size that bring both resources to the threshold.

    Raises Uncomputable.
    """
    _check(threshold_percent)
    both = (utilized.cpu_percent, utilized.memory_percent)
    delta = max(math.ceil(nodes * ((percent - threshold_percent) / threshold_percent)) for percent in both)
    if delta < 0:
        raise Uncomputable(NEGATIVE_DELTA)
    return delta


def nodes_from_zero(demand: Resources, node: Resources, threshold_percent: int) -> int:
    """The number of nodes of this size that hold the demand at the threshold; 1 while no size is known.

    Raises Uncomputable.
    """
    _check(threshold_percent)
    if 0 in node:
        return 1
    pairs = zip(_thousandths(demand), _thousandths(node), strict=True)
    return max(math.ceil(asked / size / threshold_percent * 100) for asked, size in pairs)


@dataclass(frozen=True, slots=True)
class Largest:
    """The amount with most cpu and the amount with most memory of several, which may differ."""

    of_cpu: Resources = field(default_factory=Resources)
    of_memory: Resources = field(default_factory=Resources)

    def exceeds(self, other: "Largest") -> bool:
        """Whether this has more cpu than all of the others, or more memory."""
        return (
            self.of_cpu.cpu_milli > other.of_cpu.cpu_milli or self.of_memory.memory_bytes > other.of_memory.memory_bytes
        )


def largest(amounts: Iterable[Resources]) -> Largest:
    """The first of equals wins; negative amounts count as none."""
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
    """Converts to floating point before any division: a quotient of integers may differ in its last bit."""
    return float(amount.cpu_milli), float(amount.memory_bytes * 1000)
