"""The offer of the simulated cloud: the file that `--cloud-config` names. Every refresh reads it again.

taint: false                  # kwok-provider=true:NoSchedule on every node
outage: ""                    # any text: all calls fail, with this reason
machine_types:                # in addition to Google's n1-standard, n1-highcpu and n1-highmem
- {name: big, capacity: {cpu: "64", memory: 256Gi}, price: 2.5}
# with `attachable-volumes-csi-ebs.csi.aws.com: "25"` in a capacity, CSINodes state that the driver attaches 25 volumes
groups:
- name: as
  machine_type: n1-standard-16
  min: 0
  max: 2
  size: 1                     # at the first refresh; the minimum if absent
  labels: {team: web}
  taints: [{key: dedicated, value: web, effect: NoSchedule}]
  zone: us-central1-a
  price: 0.2                  # instead of the machine type's
  boot_seconds: 30            # until the Node appears
  ready_seconds: 5            # from there until it is Ready
  delete_seconds: 10          # until the Node goes
  faults: {stock: 1}
autoprovisioning:             # creates groups on demand, one in each zone; none if absent
  zones: [us-central1-a, us-central1-b]
  machine_types: [n1-standard-1, n1-standard-2]   # all of them if absent
  boot_seconds: 30

Faults of a group: `refuse` (increases are refused, with this text), `stock` (instances beyond so many fail as out of
resources), `fail_every` (each n-th instance fails for another reason), `fulfil` (at most so many instances of one
increase are ever made), `never_register` (machines boot, but get no Node), `hang_seconds` (duration of writes).
"""

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider import cloud_file, gke
from manager.autoscaler.cloudprovider.cloud_file import Mistake
from manager.autoscaler.pricing.price_file import FilePricing
from shared import quantity, yaml_file
from shared.api import pods
from shared.api.core import Quantities, Taint
from shared.cached_property import cached_property
from shared.errors import InvalidInput
from shared.names import CPU, MEMORY
from shared.quantity import Amounts, QuantityError

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
MAX_NAME = 50  # names of Nodes derive from it, and must fit into a label, too

_UNKNOWN_TYPE = "no such machine type"

Name = Annotated[str, Meta(pattern=NAME_PATTERN, max_length=MAX_NAME)]
Count = Annotated[int, Meta(ge=0, le=100_000)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Price = Annotated[float, Meta(ge=0, le=1e9)]


class _Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unknown keys are refused."""


class Faults(_Closed, frozen=True, kw_only=True):
    refuse: str = ""
    stock: Count | None = None
    fail_every: Count = 0
    fulfil: Count | None = None
    never_register: bool = False
    hang_seconds: Seconds = 0.0


class MachineType(_Closed, frozen=True, kw_only=True):
    name: Name
    capacity: Quantities
    price: Price | None = None


class GroupTiming(_Closed, frozen=True, kw_only=True):
    """The options of both kinds of groups."""

    boot_seconds: Seconds = 0.0
    ready_seconds: Seconds = 0.0
    delete_seconds: Seconds = 0.0
    faults: Faults = Faults()


class GroupConfig(GroupTiming, frozen=True, kw_only=True):
    """A group; autoprovisioned groups are stored in this form, too."""

    name: Name
    machine_type: str
    min: Count = 0
    max: Count = 200
    size: Count | None = None
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    extra_resources: dict[str, Count] = {}
    zone: Name = "local-a"
    price: Price | None = None
    autoprovisioned: bool = False

    @property
    def shape(self) -> str:
        """What its machines are, in a word that differs where they do."""
        parts = (self.zone, sorted(self.labels.items()), self.taints, sorted(self.extra_resources.items()))
        return f"{self.machine_type}/{zlib.crc32(msgspec.json.encode(parts)):08x}"


class Autoprovisioning(GroupTiming, frozen=True, kw_only=True):
    zones: Annotated[tuple[Name, ...], Meta(min_length=1)] = ("local-a",)
    machine_types: tuple[str, ...] | None = None
    max: Count = gke.MAX_GROUP_SIZE


class SimulatedCloud(_Closed, frozen=True, kw_only=True, dict=True):
    """The whole file."""

    taint: bool = False
    outage: str = ""
    machine_types: tuple[MachineType, ...] = ()
    groups: tuple[GroupConfig, ...] = ()
    autoprovisioning: Autoprovisioning | None = None

    def capacity(self, machine_type: str) -> Amounts | None:
        """The capacity of a machine type; None for an unknown type."""
        own = self._capacities.get(machine_type)
        return own if own is not None else gke.MACHINE_TYPES.get(machine_type)

    @cached_property
    def _capacities(self) -> dict[str, Amounts]:
        return {each.name: amounts(each.capacity) for each in self.machine_types}

    @cached_property
    def groups_by_name(self) -> Mapping[str, GroupConfig]:
        return {each.name: each for each in self.groups}

    @cached_property
    def prices_by_type(self) -> FilePricing:
        """The prices of machine types; the cores and memory of others have a price."""
        return FilePricing({each.name: each.price for each in self.machine_types if each.price is not None})

    @property
    def offered(self) -> tuple[str, ...]:
        """The machine types of autoprovisioned groups."""
        if self.autoprovisioning is None:
            return ()
        if self.autoprovisioning.machine_types is not None:
            return self.autoprovisioning.machine_types
        return tuple(dict.fromkeys((*(each.name for each in self.machine_types), *gke.MACHINE_TYPES)))


def amounts(quantities: Quantities) -> dict[str, int]:
    """The amounts with room for pods. Raises QuantityError."""
    return {"pods": gke.POD_CAPACITY, **pods.amounts(quantities)}


def load(path: Path) -> SimulatedCloud:
    """Raises InvalidInput that names file, field and value."""
    cloud = yaml_file.load(path, SimulatedCloud)
    cloud_file.refuse_first(_mistakes(cloud), path)
    return cloud


def _mistakes(cloud: SimulatedCloud) -> Iterator[Mistake]:
    yield from cloud_file.named_twice([each.name for each in cloud.machine_types], "machine_types")
    yield from cloud_file.named_twice([each.name for each in cloud.groups], "groups")
    for position, machine in enumerate(cloud.machine_types):
        yield from _capacity_mistakes(machine.capacity, f"machine_types[{position}].capacity")
    for position, group in enumerate(cloud.groups):
        for field, value, problem in _group_mistakes(cloud, group):
            yield f"groups[{position}].{field}", value, problem
    for position, name in enumerate(cloud.offered):
        if cloud.capacity(name) is None:
            yield f"autoprovisioning.machine_types[{position}]", name, _UNKNOWN_TYPE


def _capacity_mistakes(capacity: Quantities, field: str) -> Iterator[Mistake]:
    for resource in (CPU, MEMORY, *capacity):
        text = capacity.get(resource, 0)
        try:
            if quantity.milli(text) <= 0:
                yield f"{field}.{resource}", text, "must be above 0"
        except QuantityError as error:
            yield f"{field}.{resource}", text, str(error)


def _group_mistakes(cloud: SimulatedCloud, group: GroupConfig) -> Iterator[Mistake]:
    if cloud.capacity(group.machine_type) is None:
        yield "machine_type", group.machine_type, _UNKNOWN_TYPE
    if group.min > group.max:
        yield "min", group.min, f"above max {group.max}"
    if group.size is not None and not group.min <= group.size <= group.max:
        yield "size", group.size, f"not within {group.min} and {group.max}"
    yield from cloud_file.taint_mistakes(group.taints, "taints")
    if group.autoprovisioned:
        yield "autoprovisioned", True, "only created by auto-provisioning"
    try:
        gke.node_labels("", group.machine_type, group.zone, group.labels)
    except InvalidInput as error:
        yield error.field, error.value, error.problem
