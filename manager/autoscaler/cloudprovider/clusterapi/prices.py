"""The prices of the catalogue; see `PricingModel`."""

from collections.abc import Mapping

from manager.autoscaler.cloudprovider.node_template import LABEL_MACHINE_TYPE
from manager.autoscaler.pricing.model import SEED_PRICES, Machine, Unpriced
from shared.quantity import Amounts


class MachineTypePrices:
    """Per hour, by machine type. One that the catalogue does not have has no price."""

    def __init__(self, prices: Mapping[str, float]) -> None:
        self._prices = prices

    def node_price(self, machine: Machine) -> float:
        name = machine.labels.get(LABEL_MACHINE_TYPE, "")
        if name not in self._prices:
            raise Unpriced(f"the catalogue has no price of {name or 'a machine without a type'}")
        return self._prices[name]

    def pod_price(self, requests: Amounts) -> float:
        return SEED_PRICES.price(requests)
