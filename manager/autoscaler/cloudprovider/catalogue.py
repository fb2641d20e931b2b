"""Machine types, and what pods find on them, of clouds where no object says it: a file does. Pure."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider.cloud_file import Mistake
from manager.autoscaler.cloudprovider.node_template import LABEL_ARCH, LABEL_MACHINE_TYPE, LABEL_OS
from manager.autoscaler.pricing.plausibility import PriceLimits
from shared import quantity
from shared.api import pods
from shared.api.core import Quantities
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE, QuantityError

PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"
USUAL = frozenset({CPU, MEMORY, PODS, EPHEMERAL_STORAGE})  # all others are devices
DEFAULT_PODS = 110
GIB = 1 << 30
# Outside of these, a unit is wrong: no machine type has so little or so much.
_CORES = (0.1, 2_000.0)
_MEMORY_GIB = (0.1, 64_000.0)
_MOST_PODS = 2_000

Price = Annotated[float, Meta(ge=0, le=10_000)]


class CatalogueMachineType(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine type; each cloud adds where it is to be had, and at which price."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
    allocatable: Quantities
    capacity: Quantities | None = None
    labels: dict[str, str] = {}

    @property
    def allocatable_amounts(self) -> dict[str, int]:
        return amounts(self.allocatable)

    @property
    def capacity_amounts(self) -> dict[str, int]:
        return amounts(self.allocatable | (self.capacity or {}))

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels of every node of the type."""
        usual = {LABEL_ARCH: "amd64", LABEL_OS: "linux"}
        return usual | self.labels | {LABEL_MACHINE_TYPE: self.name}

    def amount_mistakes(self) -> Iterator[Mistake]:
        yield from _amount_mistakes("allocatable", self.allocatable, required=True)
        yield from _amount_mistakes("capacity", self.capacity or {}, required=False)
        capacity, allocatable = self.capacity_amounts, self.allocatable_amounts
        for resource in (each for each, amount in allocatable.items() if amount > capacity[each]):
            yield f"allocatable.{resource}", self.allocatable.get(resource), "above the capacity"

    def price_problem(self, price: float) -> str:
        """Why it cannot be a price of this type per hour; empty if it can. Devices may cost anything."""
        if not self.allocatable_amounts.keys() <= USUAL:
            return ""
        return PriceLimits().machine_problem(price, self.capacity_amounts[CPU] / MILLI_PER_CORE)


def amounts(quantities: Quantities) -> dict[str, int]:
    """With room for pods. Raises QuantityError."""
    return {PODS: DEFAULT_PODS, **pods.amounts(quantities)}


def _amount_mistakes(field: str, quantities: Quantities, *, required: bool) -> Iterator[Mistake]:
    for resource in dict.fromkeys((*((CPU, MEMORY) if required else ()), *quantities)):
        text = quantities.get(resource)
        where = f"{field}.{resource}"
        if text is None:
            yield where, None, "must be above 0"
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
        return f"{amount:g} cores are impossible; the unit is a core, with m for a thousandth"
    if resource == MEMORY and not _MEMORY_GIB[0] <= amount / GIB <= _MEMORY_GIB[1]:
        return f"{amount:g} bytes are impossible; the unit is a byte, with Gi for a GiB"
    if resource == PODS and not 1 <= amount <= _MOST_PODS:
        return f"not from 1 to {_MOST_PODS}"
    return "" if amount >= 0 else "negative"
