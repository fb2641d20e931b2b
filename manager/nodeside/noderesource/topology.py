"""A node's NUMA zones from its NodeResourceTopology, and the Batch amounts written into them.

A node agent owns the object, and its native resources. This manager writes only the two Batch entries of each zone, in
one patch that fails if the object has changed meanwhile.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from manager.nodeside.noderesource import numa, preparation
from manager.nodeside.noderesource.explain import Decision
from manager.nodeside.noderesource.writing import differs, milli
from manager.pods import PodRecord
from shared import names
from shared.api.colocation import ColocationStrategy
from shared.api.core import Node
from shared.api.topology import NodeResourceTopology, Zone, ZoneResource
from shared.errors import InvalidInput
from shared.names import Tier
from shared.quantity import Resources

_NAME = re.compile(r"node-(\d{1,9})")  # agents' name for the zone of a NUMA node
_NATIVE = (names.CPU, names.MEMORY)
_BATCH = names.TIER_RESOURCES[Tier.BATCH]


@dataclass(frozen=True, slots=True)
class ZoneWrite:
    """A JSON patch, and the version of the object that it replaces."""

    patch: list[dict[str, Any]]
    replaced: str


@dataclass(frozen=True, slots=True)
class ZoneRecord:
    """One zone: its NUMA node, and all its present entries."""

    numa_node: int
    resources: tuple[ZoneResource, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """One NodeResourceTopology. `capacities` are the allocatable of each zone, by NUMA node.

    They are empty where no zone lists cpu or memory, and with a `problem`.
    """

    name: str
    resource_version: str
    zones: tuple[ZoneRecord, ...]
    capacities: Mapping[int, Resources]
    problem: InvalidInput | None = None


def read(wire: NodeResourceTopology) -> Topology:
    """The record; invalid resources set its `problem`."""
    meta, zones = wire.metadata, wire.zones or ()
    records = tuple(map(ZoneRecord, _numa_nodes(zones), (zone.resources or () for zone in zones)))
    try:
        return Topology(meta.name, meta.resource_version, records, _capacities(meta.name, records))
    except InvalidInput as problem:
        return Topology(meta.name, meta.resource_version, records, {}, problem)


def due(
    topology: Topology,
    node: Node,
    pods: Collection[PodRecord],
    decision: Decision,
    strategy: ColocationStrategy,
    *,
    overdue: bool,
) -> ZoneWrite | None:
    """The write that applies the Batch decision to the zones; None if nothing is to be written, or not yet."""
    offer = decision.offers.get(Tier.BATCH)
    if offer is None or decision.hold:
        return None
    batch: Mapping[int, Resources] | None = None
    if offer.resources is not None and decision.observed is not None and topology.capacities:
        zones = numa.calculate(strategy, decision.observed, pods, topology.capacities)
        batch = preparation.prepare_zones(zones, node)
    return plan(topology, batch, threshold=strategy.resource_diff_threshold, overdue=overdue)


def plan(
    topology: Topology, batch: Mapping[int, Resources] | None, *, threshold: float, overdue: bool
) -> ZoneWrite | None:
    """The write that brings Batch to the zones.

    None if they already have it, or differ by at most `threshold` of their amounts and are not `overdue`. A zone that
    `batch` lacks gets 0 if it had any; if `batch` is None, the entries are removed.
    """
    changes: list[dict[str, Any]] = []
    is_due = overdue
    for place, zone in enumerate(topology.zones):
        old = zone.resources
        new = _without_batch(old) if batch is None else _with_batch(old, batch.get(zone.numa_node))
        if not _same(old, new, 0.0):
            is_due = is_due or not _same(old, new, threshold)
            changes.append({"op": "add", "path": f"/zones/{place}/resources", "value": msgspec.to_builtins(new)})
    if not changes or not is_due:
        return None
    # A replacement is a condition on the object that is written, not a test of the one that was found.
    condition = {"op": "replace", "path": "/metadata/resourceVersion", "value": topology.resource_version}
    return ZoneWrite([condition, *changes], topology.resource_version)


def _capacities(name: str, zones: Iterable[ZoneRecord]) -> dict[int, Resources]:
    listed = {zone.numa_node: _native(zone) for zone in zones}
    if not any(listed.values()):
        return {}
    found = {}
    for numa_node, native in listed.items():
        try:
            amount = Resources.parse_amount(native)
        except ValueError as error:  # a QuantityError, or more digits than Python reads
            source, field = f"NodeResourceTopology {name}", f"zones[node-{numa_node}].resources"
            raise InvalidInput(source=source, field=field, value=native, problem=str(error)) from error
        found[numa_node] = amount
    return found


def _numa_nodes(zones: Sequence[Zone]) -> list[int]:
    """Each zone's NUMA node: from its name, or its position if the names are not unique."""
    named = [int(found[1]) for zone in zones if (found := _NAME.fullmatch(zone.name))]
    return named if len({*named}) == len(zones) else list(range(len(zones)))


def _native(zone: ZoneRecord) -> dict[str, str | int | float]:
    return {
        each.name: each.allocatable for each in zone.resources if each.name in _NATIVE and each.allocatable is not None
    }


def _without_batch(old: tuple[ZoneResource, ...]) -> tuple[ZoneResource, ...]:
    return tuple(each for each in old if each.name not in _BATCH)


def _with_batch(old: tuple[ZoneResource, ...], amount: Resources | None) -> tuple[ZoneResource, ...]:
    """The entries sorted by name, as in Koordinator."""
    had = {each.name for each in old}
    entries = [
        ZoneResource(name, str(value), str(value), str(value))
        for name, value in zip(_BATCH, amount or Resources(), strict=True)
        if amount is not None or name in had
    ]
    return tuple(sorted([*_without_batch(old), *entries], key=lambda each: each.name)) if entries else old


def _same(old: tuple[ZoneResource, ...], new: tuple[ZoneResource, ...], threshold: float) -> bool:
    """Whether Batch is equal in both, apart from differences within the threshold."""
    before, after = _batch(old), _batch(new)
    if before.keys() != after.keys():
        return False
    return not any(
        differs(was, now, threshold) for name in before for was, now in zip(before[name], after[name], strict=True)
    )


def _batch(resources: tuple[ZoneResource, ...]) -> dict[str, tuple[int | None, ...]]:
    """Capacity, allocatable and available of each Batch entry, in thousandths."""
    return {
        each.name: (milli(each.capacity), milli(each.allocatable), milli(each.available))
        for each in resources
        if each.name in _BATCH
    }
