"""The prices of Google Compute Engine's machines, computed as in Cluster Autoscaler.

Labels and annotations identify a machine. A machine that is not in the table costs its family's price for cores and
memory. Boot disk, local SSDs and GPUs are added.
"""

import functools
import importlib.resources
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from manager.autoscaler.pricing.model import (
    EPHEMERAL_STORAGE,
    GIB,
    NVIDIA_GPU,
    GuessedPrice,
    Machine,
    UnitPrices,
)
from shared.quantity import Amounts

LABELS_INSTANCE_TYPE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
LABELS_SPOT = ("cloud.google.com/gke-preemptible", "cloud.google.com/gke-spot")
LABEL_ACCELERATOR = "cloud.google.com/gke-accelerator"
LABEL_BOOT_DISK_TYPE = "cloud.google.com/gke-boot-disk"
LABEL_LOCAL_SSD = "cloud.google.com/gke-ephemeral-storage-local-ssd"
ANNOTATION_BOOT_DISK_TYPE = "cluster-autoscaler/gce/boot-disk-type"
ANNOTATION_BOOT_DISK_SIZE = "cluster-autoscaler/gce/boot-disk-size"
ANNOTATION_LOCAL_SSD = "cluster-autoscaler/gce/ephemeral-storage-local-ssd"
ANNOTATION_LOCAL_SSD_COUNT = "cluster-autoscaler/gce/local-ssd-count"

HOURS_PER_MONTH = 720
BOOT_DISK_GB = 100
BOOT_DISK_TYPE = "pd-balanced"
LOCAL_SSD_GIB = 375

_TRUE = "true"
_FAMILY_OF = {"custom": "n1", "f1": "n1", "g1": "n1"}


class _OnDemandAndSpot(NamedTuple):
    on_demand: float
    spot: float | None


class _Base(msgspec.Struct, frozen=True):
    cpu_per_core_hour: float
    memory_per_gib_hour: float
    gpu_per_hour: float
    preemptible_discount: float


class _Disks(msgspec.Struct, frozen=True):
    boot_disk_monthly_per_gb: dict[str, float]
    local_ssd_monthly_per_gb: float
    local_ssd_spot_monthly_per_gb: float


class _Family(msgspec.Struct, frozen=True):
    cpu: float
    memory_gib: float
    preemptible_discount: float


class _Tables(msgspec.Struct, frozen=True):
    base: _Base
    disks: _Disks
    families: dict[str, _Family]
    custom_families: dict[str, _Family]
    gpus: dict[str, _OnDemandAndSpot]
    instances: dict[str, _OnDemandAndSpot]


class GcePricing:
    """The price model of Google Compute Engine; see `PricingModel`. It prices everything, and guesses the price of a
    machine or a GPU that Google does not have.
    """

    def node_price(self, machine: Machine) -> float:
        """Machine, boot disk, local SSDs and GPUs, per hour."""
        spot = any(machine.labels.get(label) == _TRUE for label in LABELS_SPOT)
        return (
            _machine_price(machine, spot=spot)
            + _local_ssd_price(machine, spot=spot)
            + _boot_disk_price(machine)
            + _gpu_price(machine, spot=spot)
        )

    def known_node_price(self, machine: Machine) -> float:
        """As `node_price`. Raises GuessedPrice where a table lacks the machine type, its GPU or its disk."""
        name = machine_type(machine.labels)
        if not is_known(name):
            what = f"machine type {name}" if name else "a machine without a type"
            raise GuessedPrice(f"Google's prices do not have {what}, and one by its size is a guess")
        gpu = machine.labels.get(LABEL_ACCELERATOR, "")
        if machine.capacity.get(NVIDIA_GPU, 0) and gpu not in _tables().gpus:
            raise GuessedPrice(f"Google's prices do not have GPU {gpu or '(none)'}")
        disk = _boot_disk_type(machine)
        if disk not in _tables().disks.boot_disk_monthly_per_gb:
            raise GuessedPrice(f"Google's prices do not have boot disk {disk}")
        return self.node_price(machine)

    def pod_price(self, requests: Amounts) -> float:
        """The requests at base prices, per hour."""
        base = _tables().base
        disk = _per_hour(_tables().disks.boot_disk_monthly_per_gb[BOOT_DISK_TYPE])
        return UnitPrices(base.cpu_per_core_hour, base.memory_per_gib_hour, base.gpu_per_hour, disk).price(requests)


def machine_type(labels: Mapping[str, str]) -> str:
    """The machine type from its labels; empty without one."""
    return next((labels[label] for label in LABELS_INSTANCE_TYPE if labels.get(label)), "")


def is_known(name: str) -> bool:
    """Whether the machine type is one of Google's, so that its price is not a guess."""
    return name in _tables().instances or _family(name) is not None


@functools.cache
def _tables() -> _Tables:
    text = importlib.resources.files(__package__).joinpath("gce_prices.json").read_bytes()
    return msgspec.json.decode(text, type=_Tables)


def _machine_price(machine: Machine, *, spot: bool) -> float:
    name = machine_type(machine.labels)
    known = _tables().instances.get(name)
    listed = known and (known.spot if spot else known.on_demand)
    if listed is not None:
        return listed
    base = _tables().base
    family = _family(name) or _Family(base.cpu_per_core_hour, base.memory_per_gib_hour, base.preemptible_discount)
    # A node without a machine type may be anything, so it gets no discount.
    share = family.preemptible_discount if spot and name else 1.0
    return share * (
        machine.capacity.get("cpu", 0) / 1000 * family.cpu
        + machine.capacity.get("memory", 0) / GIB * family.memory_gib
        + machine.capacity.get(EPHEMERAL_STORAGE, 0)
        / GIB
        * _per_hour(_tables().disks.boot_disk_monthly_per_gb[BOOT_DISK_TYPE])
    )


def _family(name: str) -> _Family | None:
    parts = name.split("-")
    if len(parts) < 2:
        return None
    table = _tables().custom_families if "custom" in parts[:2] else _tables().families
    return table.get(_FAMILY_OF.get(parts[0], parts[0]))


def _local_ssd_price(machine: Machine, *, spot: bool) -> float:
    if _TRUE not in (machine.labels.get(LABEL_LOCAL_SSD), machine.annotations.get(ANNOTATION_LOCAL_SSD)):
        return 0.0
    disks = _tables().disks
    monthly = disks.local_ssd_spot_monthly_per_gb if spot else disks.local_ssd_monthly_per_gb
    return _count(machine.annotations, ANNOTATION_LOCAL_SSD_COUNT) * LOCAL_SSD_GIB * _per_hour(monthly)


def _boot_disk_price(machine: Machine) -> float:
    size_gb = _count(machine.annotations, ANNOTATION_BOOT_DISK_SIZE) or BOOT_DISK_GB
    return size_gb * _per_hour(_tables().disks.boot_disk_monthly_per_gb.get(_boot_disk_type(machine), 0.0))


def _boot_disk_type(machine: Machine) -> str:
    labelled = machine.labels.get(LABEL_BOOT_DISK_TYPE)
    return labelled or machine.annotations.get(ANNOTATION_BOOT_DISK_TYPE) or BOOT_DISK_TYPE


def _gpu_price(machine: Machine, *, spot: bool) -> float:
    count = machine.capacity.get(NVIDIA_GPU, 0)
    known = _tables().gpus.get(machine.labels.get(LABEL_ACCELERATOR, ""))
    price = None if known is None else known.spot if spot else known.on_demand
    return count * (_tables().base.gpu_per_hour if price is None else price)


def _count(annotations: Mapping[str, str], name: str) -> int:
    """The number in an annotation, which may hold any text; 0 for an invalid one."""
    text = annotations.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _per_hour(monthly: float) -> float:
    return monthly / HOURS_PER_MONTH
