"""The catalogue: machine types, what pods find on them, where they are offered, and at which price; and the labels by
which Karpenter tells them apart.

Pure. No object of Karpenter's says any of it, so it is a file, and what NodeClaims and Nodes report checks it.
Prices may come from Karpenter's metrics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider.catalogue import GIB, CatalogueMachineType, Price
from manager.autoscaler.cloudprovider.cloud_file import Mistake
from manager.autoscaler.cloudprovider.node_template import LABEL_MACHINE_TYPE, LABEL_ZONE
from manager.autoscaler.pricing.model import SEED_PRICES, Machine, Unpriced
from shared import quantity
from shared.names import CPU, MEMORY
from shared.quantity import Amounts

LABEL_CAPACITY_TYPE = "karpenter.sh/capacity-type"
LABEL_NODE_POOL = "karpenter.sh/nodepool"
# Machines of one type differ by this much, as their firmware keeps some of it.
_TOLERANCE = {MEMORY: 0.01, "ephemeral-storage": 0.05}

CapacityType = Annotated[str, Meta(pattern="^(on-demand|spot|reserved)$")]


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


class KarpenterMachineType(CatalogueMachineType, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without offerings in the file it has those that Karpenter's metrics know."""

    offerings: tuple[OfferingPrice, ...] = ()

    def price(self, zone: str, capacity_type: str) -> float | None:
        """None where it is not offered."""
        return next(
            (each.price for each in self.offerings if (each.zone, each.capacity_type) == (zone, capacity_type)), None
        )

    def mistakes(self) -> Iterator[Mistake]:
        yield from self.amount_mistakes()
        for position, each in enumerate(self.offerings):
            if problem := self.price_problem(each.price):
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

    def all_offerings(self) -> frozenset[str]:
        """Everything on offer, as text."""
        return frozenset(
            str(Offering(each.name, offered.zone, offered.capacity_type))
            for each in self.types.values()
            for offered in each.offerings
        )

    def mismatches(
        self, reported: Mapping[str, Amounts], carried: Mapping[str, Mapping[str, str | None]] | None = None
    ) -> dict[str, str]:
        """Why types are not to be used, by their names: pods would find less than the catalogue says, or other labels.

        `carried` are labels of nodes by machine type, None for what they lack; of others nothing is known.
        """
        found = {}
        for name, machine in self.types.items():
            wrong = [
                f"{resource} {_show(resource, said)}, and a node of it has {_show(resource, really)}"
                for resource, said in machine.allocatable_amounts.items()
                if (really := reported.get(name, {}).get(resource)) is not None
                and said > really * (1 + _TOLERANCE.get(resource, 0.0))
            ]
            labels = (carried or {}).get(name, {})
            wrong += [
                f"label {key} {value}, and a node of it has {'none' if labels[key] is None else labels[key]}"
                for key, value in machine.labels.items()
                if key in labels and labels[key] != value
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


def _show(resource: str, amount: int) -> str:
    if resource == CPU:
        return quantity.format_milli(amount)
    return f"{amount / GIB:.2f}Gi" if resource == MEMORY else str(amount)
