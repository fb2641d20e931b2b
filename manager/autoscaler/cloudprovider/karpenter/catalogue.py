"""The catalogue: machine types, what pods find on them, where they are offered, and at which price.

Pure. No object of Karpenter's says any of it, so it is a file, and what NodeClaims and Nodes report checks it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider.karpenter import checked_labels
from shared import quantity
from shared.api.core import Quantities
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE, Amounts, QuantityError

PODS = "pods"
DEFAULT_PODS = 110
_GIB = 1 << 30
# Outside of these, a unit is wrong: no machine type has so little or so much.
_CORES = (0.1, 2_000.0)
_MEMORY_GIB = (0.1, 64_000.0)
_MOST_PODS = 2_000
_MOST_PER_CORE = 2.0  # dollars an hour: beyond it a price is one of a month, or in cents
# Machines of one type differ by this much, as their firmware keeps some of it.
_TOLERANCE = {MEMORY: 0.01, "ephemeral-storage": 0.05}

CapacityType = Annotated[str, Meta(pattern="^(on-demand|spot|reserved)$")]
Price = Annotated[float, Meta(ge=0, le=10_000)]
Mistake = tuple[str, object, str]  # field, value, problem


class Offering(NamedTuple):
    """What is bought, and may be sold out."""

    machine_type: str
    zone: str
    capacity_type: str

    def __str__(self) -> str:
        return "/".join(self)


class OfferingPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Per hour."""

    zone: Annotated[str, Meta(min_length=1)]
    capacity_type: CapacityType = "on-demand"
    price: Price


class KarpenterMachineType(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
    allocatable: Quantities
    capacity: Quantities | None = None
    labels: dict[str, str] = {}
    offerings: Annotated[tuple[OfferingPrice, ...], Meta(min_length=1)]

    @property
    def allocatable_amounts(self) -> dict[str, int]:
        return amounts(self.allocatable)

    @property
    def capacity_amounts(self) -> dict[str, int]:
        return amounts(self.allocatable | (self.capacity or {}))

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels of every node of the type."""
        usual = {checked_labels.LABEL_ARCH: "amd64", checked_labels.LABEL_OS: "linux"}
        return usual | self.labels | {checked_labels.LABEL_MACHINE_TYPE: self.name}

    def price(self, zone: str, capacity_type: str) -> float | None:
        """None where it is not offered."""
        return next(
            (each.price for each in self.offerings if (each.zone, each.capacity_type) == (zone, capacity_type)), None
        )

    def mistakes(self) -> Iterator[Mistake]:
        yield from _amount_mistakes("allocatable", self.allocatable, required=True)
        yield from _amount_mistakes("capacity", self.capacity or {}, required=False)
        capacity, allocatable = self.capacity_amounts, self.allocatable_amounts
        for resource in (each for each, amount in allocatable.items() if amount > capacity[each]):
            yield f"allocatable.{resource}", self.allocatable.get(resource), "above the capacity"
        if {CPU, MEMORY, PODS, "ephemeral-storage"} >= allocatable.keys():
            most = _MOST_PER_CORE * capacity[CPU] / MILLI_PER_CORE
            for position, each in enumerate(self.offerings):
                if each.price > most:
                    problem = f"above {most:g} for {capacity[CPU] / MILLI_PER_CORE:g} cores: a price is per hour"
                    yield f"offerings[{position}].price", each.price, problem
        seen = set()
        for position, each in enumerate(self.offerings):
            key = (each.zone, each.capacity_type)
            if key in seen:
                yield f"offerings[{position}]", "/".join(key), "twice"
            seen.add(key)


@dataclass(frozen=True)
class Catalogue:
    """Machine types by name."""

    types: Mapping[str, KarpenterMachineType]

    def offerings(
        self, machine_type: str, zones: Sequence[str] | None, capacity_types: Sequence[str]
    ) -> list[tuple[float, Offering]]:
        """What is offered of a type in these zones (None: in any), the cheapest first."""
        found = self.types[machine_type]
        return sorted(
            (each.price, Offering(machine_type, each.zone, each.capacity_type))
            for each in found.offerings
            if (zones is None or each.zone in zones) and each.capacity_type in capacity_types
        )

    def mismatches(self, reported: Mapping[str, Amounts]) -> dict[str, str]:
        """Why types are not to be used, by their names: pods would find less than the catalogue says."""
        found = {}
        for name, machine in self.types.items():
            wrong = [
                f"{resource} {_show(resource, said)}, and a node of it has {_show(resource, really)}"
                for resource, said in machine.allocatable_amounts.items()
                if (really := reported.get(name, {}).get(resource)) is not None
                and said > really * (1 + _TOLERANCE.get(resource, 0.0))
            ]
            if wrong:
                found[name] = f"the catalogue says of machine type {name}: {'; '.join(wrong)}"
        return found


def amounts(quantities: Quantities) -> dict[str, int]:
    """With room for pods. Raises QuantityError."""
    found = {name: quantity.milli(text) if name == CPU else quantity.whole(text) for name, text in quantities.items()}
    return {PODS: DEFAULT_PODS, **found}


def _show(resource: str, amount: int) -> str:
    if resource == CPU:
        return quantity.format_milli(amount)
    return f"{amount / _GIB:.2f}Gi" if resource == MEMORY else str(amount)


def _amount_mistakes(field: str, quantities: Quantities, *, required: bool) -> Iterator[Mistake]:
    for resource in dict.fromkeys((*((CPU, MEMORY) if required else ()), *quantities)):
        text = quantities.get(resource)
        where = f"{field}.{resource}"
        if text is None:
            yield where, None, "a machine has some of it"
            continue
        try:
            amount = quantity.milli(text)
        except QuantityError as error:
            yield where, text, str(error)
            continue
        if problem := _implausible(resource, amount / MILLI_PER_CORE):
            yield where, text, problem


def _implausible(resource: str, amount: float) -> str:
    if resource == CPU and not _CORES[0] <= amount <= _CORES[1]:
        return f"{amount:g} cores: no machine type has them; the unit is a core, with m a thousandth"
    if resource == MEMORY and not _MEMORY_GIB[0] <= amount / _GIB <= _MEMORY_GIB[1]:
        return f"{amount:g} bytes: no machine type has them; the unit is a byte, with Gi a GiB"
    if resource == PODS and not 1 <= amount <= _MOST_PODS:
        return f"not from 1 to {_MOST_PODS}"
    return "" if amount >= 0 else "negative"
