"""The prices where the user names none: of a table that knows the machine, and estimated by its size elsewhere."""

from dataclasses import dataclass, field

from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.list_prices import ListPricing, UnknownMachine
from manager.autoscaler.pricing.model import GuessedPrice, Machine
from shared.quantity import Amounts

BY_SIZE = "estimated by size"


@dataclass(frozen=True)
class EstimatingPricing:
    """See `PricingModel`. A machine that no table knows costs what Google asks for its cores and memory."""

    listed: ListPricing
    _gce: GcePricing = field(default_factory=GcePricing)

    def node_price(self, machine: Machine) -> float:
        try:
            return self.listed.node_price(machine)
        except UnknownMachine:
            return self._gce.node_price(machine)

    def known_node_price(self, machine: Machine) -> float:
        """As `node_price`. Raises GuessedPrice for an estimate."""
        try:
            return self.listed.known_node_price(machine)
        except UnknownMachine as problem:
            raise GuessedPrice(str(problem)) from problem

    def pod_price(self, requests: Amounts) -> float:
        return self._gce.pod_price(requests)

    def said(self, machine: Machine) -> str:
        """The source of this machine's price."""
        try:
            return self.listed.said(machine)
        except UnknownMachine:
            return BY_SIZE
