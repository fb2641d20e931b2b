"""A user's own prices per hour: machines by type, and what a core, a GiB, a GPU cost where the type is not listed.

machine_types:
  m6i.xlarge: 0.192                 # on demand, in every zone
  m6i.2xlarge:
  - {price: 0.384}
  - {price: 0.151, capacity_type: spot}
  - {price: 0.149, capacity_type: spot, zone: eu-central-1a}
cpu: 0.033174
memory_gib: 0.004446
gpu: 0.7
disk_gib: 0.0
most_per_core: 2.0                  # a machine that costs more for a core has its price in a wrong unit
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from manager.autoscaler.pricing import list_prices
from manager.autoscaler.pricing.gce import machine_type
from manager.autoscaler.pricing.model import NVIDIA_GPU, SEED_PRICES, GuessedPrice, Machine, UnitPrices
from manager.autoscaler.pricing.plausibility import MOST_PER_CORE, PriceLimits
from shared import yaml_file
from shared.errors import InvalidInput
from shared.quantity import MILLI_PER_CORE, Amounts

ON_DEMAND, SPOT = "on-demand", "spot"

Price = Annotated[float, Meta(ge=0, le=1e9)]


class MachinePrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of machines of this capacity type in this zone, or in every one (""), per hour."""

    price: Price
    capacity_type: Annotated[str, Meta(pattern=f"^({ON_DEMAND}|{SPOT})$")] = ON_DEMAND
    zone: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    machine_types: dict[str, Price | Annotated[tuple[MachinePrice, ...], Meta(min_length=1)]] = {}
    cpu: Price | UnsetType = UNSET
    memory_gib: Price | UnsetType = UNSET
    gpu: Price | UnsetType = UNSET
    disk_gib: Price | UnsetType = UNSET
    most_per_core: Annotated[float, Meta(gt=0, le=1e9)] = MOST_PER_CORE


class FilePricing:
    """Prices from a file; see `PricingModel`. Without `machine_types`, everything is priced by the unit.

    What an unlisted machine costs by the unit is a guess, unless the file says `by_unit`: it lists no machine types,
    and gives the price of these units.
    """

    def __init__(
        self,
        machine_types: Mapping[str, float | Sequence[MachinePrice]] | None = None,
        units: UnitPrices = SEED_PRICES,
        by_unit: frozenset[str] = frozenset(),
        limits: PriceLimits | None = None,
    ) -> None:
        self._machine_types = {
            name: (MachinePrice(price=given),) if isinstance(given, float | int) else tuple(given)
            for name, given in (machine_types or {}).items()
        }
        self._units = units
        self._by_unit = by_unit
        self._limits = limits or PriceLimits()

    def node_price(self, machine: Machine) -> float:
        """The price of its machine type, that on demand where there is none as spot, or else of its capacity, per
        hour.
        """
        listed = self._listed(machine, _capacity_type(machine))
        if listed is None:
            listed = self._listed(machine, ON_DEMAND)
        return self._units.price(machine.capacity) if listed is None else listed

    def known_node_price(self, machine: Machine) -> float:
        """As `node_price`. Raises GuessedPrice for a machine that is not listed with its capacity type and zone, and
        for a price that its cores make implausible.
        """
        listed, name = self._listed(machine, _capacity_type(machine)), machine_type(machine.labels)
        cores = machine.capacity.get("cpu", 0) / MILLI_PER_CORE
        if listed is not None:
            is_plain = not machine.capacity.get(NVIDIA_GPU, 0) and cores
            if is_plain and (problem := self._limits.machine_problem(listed, cores)):
                raise GuessedPrice(f"machine type {name} has a price of {listed:g} in the price file, {problem}")
            return listed
        needed = {"cpu", "memory_gib", *(("gpu",) if machine.capacity.get(NVIDIA_GPU, 0) else ())}
        if not self._machine_types and needed <= self._by_unit:
            return self._units.price(machine.capacity)
        zone = list_prices.zone_of(machine)
        where = f", {_capacity_type(machine)}" + (f", zone {zone}" if zone else "")
        named = f"machine type {name}{where}" if name else "a machine without a type"
        raise GuessedPrice(f"the price file does not list {named}, and a price by its size is a guess")

    def pod_price(self, requests: Amounts) -> float:
        """The requests by the unit, per hour."""
        return self._units.price(requests)

    def _listed(self, machine: Machine, capacity_type: str) -> float | None:
        """That of its zone comes first."""
        entries = self._machine_types.get(machine_type(machine.labels), ())
        prices = {each.zone: each.price for each in entries if each.capacity_type == capacity_type}
        return prices.get(list_prices.zone_of(machine), prices.get(""))


def _capacity_type(machine: Machine) -> str:
    return SPOT if list_prices.is_spot_machine(machine) else ON_DEMAND


def load(path: Path) -> FilePricing:
    """Raises InvalidInput that names file, field and value."""
    file = yaml_file.load(path, _File)
    given = {
        name: price for name in ("cpu", "memory_gib", "gpu", "disk_gib") if (price := getattr(file, name)) is not UNSET
    }
    limits = PriceLimits(file.most_per_core)
    for field, value, problem in _mistakes(file.machine_types, given, limits):
        raise InvalidInput(source=str(path), field=field, value=value, problem=problem)
    return FilePricing(file.machine_types, replace(SEED_PRICES, **given), frozenset(given), limits)


def _mistakes(
    machine_types: Mapping[str, float | tuple[MachinePrice, ...]], units: Mapping[str, float], limits: PriceLimits
) -> Iterator[tuple[str, object, str]]:
    """Field, value and problem of each."""
    for name, price in units.items():
        most = limits.core if name == "cpu" else getattr(limits, name)
        if problem := limits.unit_problem(price, most):
            yield name, price, problem
    for name, given in machine_types.items():
        entries = given if isinstance(given, tuple) else ()
        prices = [each.price for each in entries] if isinstance(given, tuple) else [given]
        if found := limits.first_problem(name, prices):
            yield f"machine_types.{name}", *found
        keys = [(each.capacity_type, each.zone) for each in entries]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                yield f"machine_types.{name}[{position}]", "/".join(filter(None, key)), "twice"
