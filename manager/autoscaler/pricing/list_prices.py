"""List prices of Amazon's, Azure's and Google's machines by region, from tables with their date and source.

A machine that no table knows has no price: nothing stands in for it. Google's machines cost what `gce` computes (which
is us-central1), unless a newer table has its cores and memory in the machine's region.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from manager.autoscaler.pricing import gce
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.model import GIB, Machine, UnitPrices, Unpriced
from shared.errors import InvalidInput
from shared.quantity import MILLI_PER_CORE, Amounts

LABELS_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
LABEL_OS = "kubernetes.io/os"
SPOT_LABELS = {
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
}
GCE_REGION = "us-central1"

# What a core and a GiB cost relative to each other: OpenCost's defaults. Only their ratio counts here.
UNITS = UnitPrices(cpu=0.031611, memory_gib=0.004237, gpu=0.95, disk_gib=0.0000548)

AmountsByRegion = list[float | None]


class PricedCloud(enum.StrEnum):
    AWS = "aws"
    AZURE = "azure"
    GCP = "gcp"


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Prices of one cloud per hour, by machine type (or Google's family) for each of the `regions`; null where it has
    none. `cores` and `memory_gib` are Google's, whose machines cost the sum of both. `date` is when they held.
    """

    cloud: PricedCloud
    date: str
    source: str
    regions: list[str]
    currency: str = "USD"
    unit: str = "hour"
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

    def said(self, machine: Machine) -> str:
        """Which table its price is from. Raises UnknownMachine."""
        return self._look_up(machine)[1]

    def pod_price(self, requests: Amounts) -> float:
        """In units of which only the ratio counts."""
        return UNITS.price(requests)

    def _look_up(self, machine: Machine) -> tuple[float, str]:
        name, is_spot = gce.machine_type(machine.labels), is_spot_machine(machine)
        if not name:
            raise UnknownMachine("its labels name no machine type")
        if machine.labels.get(LABEL_OS) == "windows":
            raise UnknownMachine(f"{name} runs Windows, whose licence is in no table")
        region, cloud = self.region or region_of(machine), cloud_of(name)
        for table in self.tables:
            if table.cloud is cloud and (price := _price(table, machine, name, region, is_spot=is_spot)) is not None:
                return price, f"{table.cloud} of {table.date}"
        if cloud is PricedCloud.GCP:
            return self._gce.node_price(machine), f"{cloud} of {GCE_REGION}"
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
    return next((machine.labels[label] for label in LABELS_REGION if machine.labels.get(label)), "")


def is_spot_machine(machine: Machine) -> bool:
    return any(machine.labels.get(label) == value for label, value in SPOT_LABELS.items())


def decode(text: bytes, source: str) -> PriceTable:
    """Raises InvalidInput."""
    try:
        table = msgspec.json.decode(text, type=PriceTable)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(source=source, field="(document)", value=text[:60], problem=str(error)) from error
    rows = (table.on_demand, table.spot, table.cores, table.memory_gib, table.spot_cores, table.spot_memory_gib)
    for row in rows:
        for name, prices in row.items():
            if len(prices) != len(table.regions) or any(price is not None and not 0 <= price < 1e6 for price in prices):
                problem = f"expected {len(table.regions)} prices from 0 on, one for each region"
                raise InvalidInput(source=source, field=name, value=prices, problem=problem)
    return table
