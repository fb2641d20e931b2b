"""The offer of the simulated cloud: the file that `--cloud-config` names. Every refresh reads it again.

taint: false                  # kwok-provider=true:NoSchedule on every node
outage: ""                    # any text: all calls fail, with this reason
machine_types:                # in addition to Google's n1-standard, n1-highcpu and n1-highmem
- {name: big, capacity: {cpu: "64", memory: 256Gi}, price: 2.5}
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
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider import gke
from shared import quantity, yaml_file
from shared.api.core import Quantities, Taint
from shared.errors import InvalidInput
from shared.names import CPU, MEMORY
from shared.quantity import Amounts, QuantityError

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
MAX_NAME = 50  # names of Nodes derive from it, and must fit into a label, too

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

Name = Annotated[str, Meta(pattern=NAME_PATTERN, max_length=MAX_NAME)]
Count = Annotated[int, Meta(ge=0, le=100_000)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Price = Annotated[float, Meta(ge=0, le=1e9)]
NamedT = TypeVar("NamedT", "MachineType", "GroupConfig")


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


class SimulatedCloud(_Closed, frozen=True, kw_only=True):
    """The whole file."""

    taint: bool = False
    outage: str = ""
    machine_types: tuple[MachineType, ...] = ()
    groups: tuple[GroupConfig, ...] = ()
    autoprovisioning: Autoprovisioning | None = None

    def capacity(self, machine_type: str) -> Amounts | None:
        """The capacity of a machine type; None for an unknown type."""
        own = next((each for each in self.machine_types if each.name == machine_type), None)
        return amounts(own.capacity) if own is not None else gke.MACHINE_TYPES.get(machine_type)

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
    found = {
        resource: quantity.milli(text) if resource == CPU else quantity.whole(text)
        for resource, text in quantities.items()
    }
    return {"pods": gke.POD_CAPACITY, **found}


def load(path: Path) -> SimulatedCloud:
    """Raises InvalidInput that names file, field and value."""
    cloud = yaml_file.load(path, SimulatedCloud)
    source = str(path)
    _named_once(cloud.machine_types, "machine_types", source)
    _named_once(cloud.groups, "groups", source)
    for position, machine in enumerate(cloud.machine_types):
        _check_capacity(machine.capacity, f"machine_types[{position}].capacity", source)
    for position, group in enumerate(cloud.groups):
        _check_group(cloud, group, f"groups[{position}]", source)
    for position, name in enumerate(cloud.offered):
        _check_known(cloud, name, f"autoprovisioning.machine_types[{position}]", source)
    return cloud


def _named_once(listed: tuple[NamedT, ...], field: str, source: str) -> None:
    seen: set[str] = set()
    for position, each in enumerate(listed):
        if each.name in seen:
            raise InvalidInput(source=source, field=f"{field}[{position}].name", value=each.name, problem="twice")
        seen.add(each.name)


def _check_capacity(capacity: Mapping[str, str | int | float], field: str, source: str) -> None:
    for resource in (CPU, MEMORY, *capacity):
        text = capacity.get(resource, 0)
        try:
            enough = quantity.milli(text) > 0
        except QuantityError as error:
            raise InvalidInput(source=source, field=f"{field}.{resource}", value=text, problem=str(error)) from error
        if not enough:
            raise InvalidInput(
                source=source, field=f"{field}.{resource}", value=text, problem="a machine has some of it"
            )


def _check_known(cloud: SimulatedCloud, machine_type: str, field: str, source: str) -> None:
    if cloud.capacity(machine_type) is None:
        raise InvalidInput(source=source, field=field, value=machine_type, problem="no such machine type")


def _check_group(cloud: SimulatedCloud, group: GroupConfig, field: str, source: str) -> None:
    _check_known(cloud, group.machine_type, f"{field}.machine_type", source)
    if group.min > group.max:
        raise InvalidInput(source=source, field=f"{field}.min", value=group.min, problem=f"above max {group.max}")
    if group.size is not None and not group.min <= group.size <= group.max:
        problem = f"not within {group.min} and {group.max}"
        raise InvalidInput(source=source, field=f"{field}.size", value=group.size, problem=problem)
    for position, taint in enumerate(group.taints):
        where = f"{field}.taints[{position}]"
        if not taint.key:
            raise InvalidInput(source=source, field=f"{where}.key", value=taint.key, problem="a taint has a key")
        if taint.effect not in EFFECTS:
            problem = f"one of {', '.join(EFFECTS)}"
            raise InvalidInput(source=source, field=f"{where}.effect", value=taint.effect, problem=problem)
    if group.autoprovisioned:
        problem = "made by auto-provisioning alone"
        raise InvalidInput(source=source, field=f"{field}.autoprovisioned", value=True, problem=problem)
    try:
        gke.node_labels("", group.machine_type, group.zone, group.labels)
    except InvalidInput as error:
        raise InvalidInput(
            source=source, field=f"{field}.{error.field}", value=error.value, problem=error.problem
        ) from error
