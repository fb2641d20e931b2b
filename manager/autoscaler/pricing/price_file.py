"""A user's own prices: machines by type, and what a core, a GiB, a GPU cost where the type is not listed.

machine_types:
  m6i.xlarge: 0.192
cpu: 0.033174
memory_gib: 0.004446
gpu: 0.7
disk_gib: 0.0
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.pricing.gce import LABELS_INSTANCE_TYPE
from manager.autoscaler.pricing.model import SEED_PRICES, Machine, UnitPrices
from shared import yaml_file
from shared.quantity import Amounts

Price = Annotated[float, Meta(ge=0, le=1e9)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    machine_types: dict[str, Price] = {}
    cpu: Price = SEED_PRICES.cpu
    memory_gib: Price = SEED_PRICES.memory_gib
    gpu: Price = SEED_PRICES.gpu
    disk_gib: Price = SEED_PRICES.disk_gib


class FilePricing:
    """Prices from a file; see `PricingModel`. Without `machine_types`, everything is priced by the unit."""

    def __init__(self, machine_types: dict[str, float] | None = None, units: UnitPrices = SEED_PRICES) -> None:
        self._machine_types = machine_types or {}
        self._units = units

    def node_price(self, machine: Machine) -> float:
        """The price of its machine type, or else of its capacity, per hour."""
        for label in LABELS_INSTANCE_TYPE:
            listed = self._machine_types.get(machine.labels.get(label, ""))
            if listed is not None:
                return listed
        return self._units.price(machine.capacity)

    def pod_price(self, requests: Amounts) -> float:
        """The requests by the unit, per hour."""
        return self._units.price(requests)


def load(path: Path) -> FilePricing:
    """Raises InvalidInput that names file, field and value."""
    file = yaml_file.load(path, _File)
    return FilePricing(file.machine_types, UnitPrices(file.cpu, file.memory_gib, file.gpu, file.disk_gib))
