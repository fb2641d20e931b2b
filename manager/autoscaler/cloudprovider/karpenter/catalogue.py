"""The catalogue: machine types, what pods find on them, where they are offered, and at which price; and the labels by
which Karpenter tells them apart.

Pure. No object of Karpenter's says any of it, so it is a file, and what NodeClaims and Nodes report checks it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider import node_template
from manager.autoscaler.cloudprovider.cloud_file import Mistake
from manager.autoscaler.cloudprovider.node_template import LABEL_ARCH, LABEL_MACHINE_TYPE, LABEL_OS, LABEL_ZONE
from manager.autoscaler.pricing.model import SEED_PRICES, Machine, Unpriced
from manager.autoscaler.pricing.plausibility import PriceLimits
from shared import quantity
from shared.api import pods
from shared.api.core import Quantities
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE, Amounts, QuantityError

LABEL_CAPACITY_TYPE = "karpenter.sh/capacity-type"
LABEL_NODE_POOL = "karpenter.sh/nodepool"
# What stands there is for Kubernetes, for Karpenter and for its providers to say.
_RESERVED = ("kubernetes.io", "k8s.io", "karpenter.sh")
_OPEN = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")

PODS = "pods"
DEFAULT_PODS = 110
_GIB = 1 << 30
# Outside of these, a unit is wrong: no machine type has so little or so much.
_CORES = (0.1, 2_000.0)
_MEMORY_GIB = (0.1, 64_000.0)
_MOST_PODS = 2_000
# Machines of one type differ by this much, as their firmware keeps some of it.
_TOLERANCE = {MEMORY: 0.01, "ephemeral-storage": 0.05}

CapacityType = Annotated[str, Meta(pattern="^(on-demand|spot|reserved)$")]
Price = Annotated[float, Meta(ge=0, le=10_000)]


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
        usual = {LABEL_ARCH: "amd64", LABEL_OS: "linux"}
        return usual | self.labels | {LABEL_MACHINE_TYPE: self.name}

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
            cores = capacity[CPU] / MILLI_PER_CORE
            for position, each in enumerate(self.offerings):
                if problem := PriceLimits().machine_problem(each.price, cores):
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


class CataloguePrices:
    """The catalogue's prices; see `PricingModel`. A machine that the catalogue does not have has no price."""

    def __init__(self, catalogue: Callable[[], Catalogue]) -> None:
        self._catalogue = catalogue

    def node_price(self, machine: Machine) -> float:
        name = machine.labels.get(LABEL_MACHINE_TYPE, "")
        zone, capacity_type = machine.labels.get(LABEL_ZONE, ""), machine.labels.get(LABEL_CAPACITY_TYPE, "")
        known = self._catalogue().types.get(name)
        price = known.price(zone, capacity_type) if known is not None else None
        if price is None:
            raise Unpriced(f"the catalogue has no price of {name or 'a machine without a type'} in {zone or 'no zone'}")
        return price

    def pod_price(self, requests: Amounts) -> float:
        return SEED_PRICES.price(requests)


def problem_of(key: str, value: str) -> str:
    """Why a group may not ask for this label; empty if it may."""
    if not node_template.LABEL_KEY.fullmatch(key):
        return "not a label's key"
    if not node_template.LABEL_VALUE.fullmatch(value):
        return "not a label's value"
    return "a label of this domain is not a group's to set" if is_reserved(key) else ""


def is_reserved(key: str) -> bool:
    """Whether only the cloud gives such a label, in particular the one of a NodePool."""
    if node_template.is_of_domain(key, _OPEN):
        return False
    return "karpenter" in key.rpartition("/")[0].split(".") or node_template.is_of_domain(key, _RESERVED)


def amounts(quantities: Quantities) -> dict[str, int]:
    """With room for pods. Raises QuantityError."""
    return {PODS: DEFAULT_PODS, **pods.amounts(quantities)}


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
