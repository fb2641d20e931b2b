"""List prices of Amazon's, Azure's and Google's machines by region, from tables with their date and source.

A machine that no table knows has no price: nothing stands in for it. Google's machines cost what `gce` computes (which
is us-central1), unless a newer table has its cores and memory in the machine's region.
"""

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from manager.autoscaler.pricing import gce
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.model import GIB, NVIDIA_GPU, GuessedPrice, Machine, UnitPrices, Unpriced
from manager.autoscaler.pricing.plausibility import PriceLimits
from shared.errors import InvalidInput
from shared.quantity import MILLI_PER_CORE, Amounts

LABELS_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
LABELS_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
LABEL_OS = "kubernetes.io/os"
SPOT_LABELS = {
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "node.kubernetes.io/lifecycle": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
}
GCE_REGION = "us-central1"

# What a core and a GiB cost relative to each other: OpenCost's defaults. Only their ratio counts here.
UNITS = UnitPrices(cpu=0.031611, memory_gib=0.004237, gpu=0.95, disk_gib=0.0000548)

DOLLARS, HOUR = "USD", "hour"
_LIMITS = PriceLimits()
# "eu-central-1a", "europe-west3-a", "westeurope-1"
_ZONE = re.compile(r"^(?P<region>.+?)(?:-[0-9a-z]|(?<=[0-9])[a-z])$")

AmountsByRegion = list[float | None]


class PricedCloud(enum.StrEnum):
    AWS = "aws"
    AZURE = "azure"
    GCP = "gcp"


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prices of one cloud per hour, by machine type (or Google's family) for each of the `regions`; null where it has
    none. `cores` and `memory_gib` are Google's, whose machines cost the sum of both. `date` is when they held. One of
    the `regions` may be a zone, whose prices go before those of its region.
    """

    cloud: PricedCloud
    date: str
    source: str
    regions: list[str]
    currency: str = DOLLARS
    unit: str = HOUR
    on_demand: dict[str, AmountsByRegion] = {}
    spot: dict[str, AmountsByRegion] = {}
    cores: dict[str, AmountsByRegion] = {}
    memory_gib: dict[str, AmountsByRegion] = {}
    spot_cores: dict[str, AmountsByRegion] = {}
    spot_memory_gib: dict[str, AmountsByRegion] = {}

    def find(self, rows: Mapping[str, AmountsByRegion], name: str, region: str) -> float | None:
        """None where there is none."""
        if region not in self.regions:
            return None
        row, place = rows.get(name, ()), self.regions.index(region)
        return row[place] if place < len(row) else None


class UnknownMachine(Unpriced):
    """No table knows what this machine costs."""


@dataclass(frozen=True)
class ListPricing:
    """See `PricingModel`. Of several `tables` the first that knows a machine counts. `region` stands in for that of
    every machine (empty: their own).
    """

    tables: Sequence[PriceTable]
    region: str = ""
    _gce: GcePricing = field(default_factory=GcePricing)

    def node_price(self, machine: Machine) -> float:
        """Per hour, spot where its labels say so. Raises UnknownMachine."""
        return self._look_up(machine)[0]

    def known_node_price(self, machine: Machine) -> float:
        """As `node_price`. Raises GuessedPrice where Google's prices of another region stand beside a table of its own,
        and where its cores make a price implausible.
        """
        price, table = self._look_up(machine)
        name, region = gce.machine_type(machine.labels), self.region or region_of(machine)
        if table is None:
            tables = (each for each in self.tables if each.cloud is PricedCloud.GCP and region in each.regions)
            if region != GCE_REGION and any(tables):
                raise GuessedPrice(
                    f"the table of {region} lacks machine type {name}, and prices of {GCE_REGION} differ"
                )
            return self._gce.known_node_price(machine)
        cores = machine.capacity.get("cpu", 0) / MILLI_PER_CORE
        is_plain = cores and not machine.capacity.get(NVIDIA_GPU, 0)
        if is_plain and (problem := _LIMITS.machine_problem(price, cores)):
            raise GuessedPrice(f"machine type {name} has a price of {price:g} in its table, {problem}")
        return price

    def said(self, machine: Machine) -> str:
        """Which table its price is from. Raises UnknownMachine."""
        _, table = self._look_up(machine)
        return f"{PricedCloud.GCP} of {GCE_REGION}" if table is None else f"{table.cloud} of {table.date}"

    def pod_price(self, requests: Amounts) -> float:
        """In units of which only the ratio counts."""
        return UNITS.price(requests)

    def _look_up(self, machine: Machine) -> tuple[float, PriceTable | None]:
        """None for what `gce` computes."""
        name, is_spot = gce.machine_type(machine.labels), is_spot_machine(machine)
        if not name:
            raise UnknownMachine("its labels name no machine type")
        if machine.labels.get(LABEL_OS) == "windows":
            raise UnknownMachine(f"{name} runs Windows, whose licence is in no table")
        region, cloud = self.region or region_of(machine), cloud_of(name)
        for where in filter(None, (zone_of(machine), region)):
            for table in self.tables:
                price = _price(table, machine, name, where, is_spot=is_spot) if table.cloud is cloud else None
                if price is not None:
                    return price, table
        if cloud is PricedCloud.GCP:
            return self._gce.node_price(machine), None
        kind = "spot" if is_spot else "on demand"
        where = f"machine type {name}, {kind}, region {region or '(none)'}"
        fetched = f"; `headroom prices refresh {cloud} --region {region}` fetches prices" if cloud and region else ""
        raise UnknownMachine(where + fetched)


def _price(table: PriceTable, machine: Machine, name: str, region: str, *, is_spot: bool) -> float | None:
    if table.cloud is not PricedCloud.GCP:
        return table.find(table.spot if is_spot else table.on_demand, name, region)
    family = name.partition("-")[0]
    cores = table.find(table.spot_cores if is_spot else table.cores, family, region)
    memory = table.find(table.spot_memory_gib if is_spot else table.memory_gib, family, region)
    if cores is None or memory is None:
        return None
    amounts = machine.capacity
    return amounts.get("cpu", 0) / MILLI_PER_CORE * cores + amounts.get("memory", 0) / GIB * memory


def cloud_of(machine_type: str) -> PricedCloud | None:
    """By the form of the name: "m6i.large", "Standard_D4s_v5", "n2-standard-4"."""
    if machine_type.startswith(("Standard_", "Basic_")):
        return PricedCloud.AZURE
    if "." in machine_type:
        return PricedCloud.AWS
    return PricedCloud.GCP if "-" in machine_type and gce.is_known(machine_type) else None


def region_of(machine: Machine) -> str:
    """By its label, or by that of its zone; empty without either."""
    labelled = next((machine.labels[label] for label in LABELS_REGION if machine.labels.get(label)), "")
    found = None if labelled else _ZONE.match(zone_of(machine))
    return found["region"] if found else labelled


def zone_of(machine: Machine) -> str:
    """Empty without one."""
    return next((machine.labels[label] for label in LABELS_ZONE if machine.labels.get(label)), "")


def is_spot_machine(machine: Machine) -> bool:
    return any(machine.labels.get(label) == value for label, value in SPOT_LABELS.items())


def read_tables(path: Path) -> list[PriceTable]:
    """A table, or all of a folder as `headroom prices refresh` fills it. Raises InvalidInput for one that cannot be
    read.
    """
    found = []
    for each in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            found.append(decode(each.read_bytes(), str(each)))
        except OSError as error:
            raise InvalidInput(source=str(each), field="file", value=each.name, problem=str(error)) from error
    return found


def decode(text: bytes, source: str) -> PriceTable:
    """Raises InvalidInput, also for prices that are in another unit."""
    try:
        table = msgspec.json.decode(text, type=PriceTable)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(source=source, field="(document)", value=text[:60], problem=str(error)) from error
    for field_name, value, expected in (("unit", table.unit, HOUR), ("currency", table.currency, DOLLARS)):
        if value != expected:
            raise InvalidInput(source=source, field=field_name, value=value, problem=f"expected {expected}")
    for row in _rows(table):
        for name, prices in row.items():
            if len(prices) != len(table.regions) or any(price is not None and not 0 <= price < 1e6 for price in prices):
                problem = f"expected {len(table.regions)} prices from 0 on, one for each region"
                raise InvalidInput(source=source, field=name, value=prices, problem=problem)
    for field_name, price, problem in _mistakes(table):
        raise InvalidInput(source=source, field=field_name, value=price, problem=problem)
    return table


def _rows(table: PriceTable) -> tuple[dict[str, AmountsByRegion], ...]:
    return table.on_demand, table.spot, table.cores, table.memory_gib, table.spot_cores, table.spot_memory_gib


def _mistakes(table: PriceTable) -> Iterator[tuple[str, float, str]]:
    """Field, value and problem of each price that is in a wrong unit."""
    for field_name in ("on_demand", "spot"):
        for name, prices in getattr(table, field_name).items():
            if found := _LIMITS.first_problem(name, prices):
                yield f"{field_name}.{name}", *found
    for field_name in ("cores", "memory_gib", "spot_cores", "spot_memory_gib"):
        most = _LIMITS.memory_gib if field_name.endswith("memory_gib") else _LIMITS.core
        for name, prices in getattr(table, field_name).items():
            for price in prices:
                if price is not None and (problem := _LIMITS.unit_problem(price, most)):
                    yield f"{field_name}.{name}", price, problem
