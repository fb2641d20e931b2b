"""The catalogue's prices; see `PricingModel`."""

from collections.abc import Callable

from manager.autoscaler.cloudprovider.karpenter.catalogue import Catalogue
from manager.autoscaler.cloudprovider.karpenter.checked_labels import (
    LABEL_CAPACITY_TYPE,
    LABEL_MACHINE_TYPE,
    LABEL_ZONE,
)
from manager.autoscaler.pricing.model import SEED_PRICES, Machine, Unpriced
from shared.quantity import Amounts


class CataloguePrices:
    """A machine that the catalogue does not have has no price."""

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
