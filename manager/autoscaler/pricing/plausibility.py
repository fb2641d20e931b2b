"""Prices in a wrong unit, by what a core costs at most.

The dearest machines that clouds offer cost about a dollar per core and hour, GPUs included. A price of a month, or in
cents, is above that by far.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_PER_CORE = 2.0  # dollars an hour

_AWS = re.compile(r"\.(?:(?P<times>\d+)x(?=large$)|(?P<one>x(?=large$)))?(?:large|medium|small|micro|nano)$")
_AZURE = re.compile(r"^(?:Standard|Basic)_[A-Z]+(\d+)")
_GOOGLE = re.compile(r"^[a-z][a-z0-9]*-(?:[a-z]+-)+(\d+)(?:-|$)")


@dataclass(frozen=True, slots=True)
class PriceLimits:
    """What one unit costs per hour at most, in the currency of the prices."""

    core: float = MOST_PER_CORE

    @property
    def memory_gib(self) -> float:
        return self.core / 8

    @property
    def gpu(self) -> float:
        return self.core * 25

    @property
    def disk_gib(self) -> float:
        return self.core / 200

    def machine_problem(self, price: float, cores: float) -> str:
        """What is wrong with the price of a machine; empty if it may be right."""
        most = self.core * cores
        return f"above {most:g} for {cores:g} cores: a price is per hour" if price > most else ""

    def unit_problem(self, price: float, most: float) -> str:
        """What is wrong with the price of a core, a GiB or a GPU; empty if it may be right."""
        return f"above {most:g}: a price is per hour" if price > most else ""

    def first_problem(self, machine_type: str, prices: Iterable[float | None]) -> tuple[float, str] | None:
        """The first price that cannot be one of a machine with the cores that its type's name tells."""
        cores = cores_of(machine_type)
        for price in prices if cores is not None else ():
            if price is not None and cores is not None and (problem := self.machine_problem(price, cores)):
                return price, problem
        return None


def cores_of(machine_type: str) -> int | None:
    """The cores that the name tells, at least as many as the machine has; None where it tells none."""
    if found := _AWS.search(machine_type):
        return 4 * int(found["times"] or 1) if found["times"] or found["one"] else 2
    found = _AZURE.match(machine_type) or _GOOGLE.match(machine_type)
    return int(found[1]) if found and int(found[1]) else None
