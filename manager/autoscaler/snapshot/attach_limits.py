"""The limits on attached volumes, as arrays: what each node can still take, and which of the pods' volumes it has."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from manager.autoscaler.snapshot.cluster import ClusterSnapshot, Integers, NodeInfo
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.volumes import NOT_INSTALLED, AttachedVolume

# Volumes that a class attaches, by the row of their driver.
Attaching: TypeAlias = tuple[tuple[int, tuple[AttachedVolume, ...]], ...]

UNLIMITED = 1 << 40
_BEFORE = 1 << 40  # users of a volume that is attached whatever pods are placed


@dataclass(frozen=True, eq=False)
class AttachLimits:
    """`room` has a row per driver and a column per node; `attached` counts the users of the classes' volumes, by row of
    the node.
    """

    drivers: tuple[str, ...]
    room: Integers
    attached: Mapping[AttachedVolume, Mapping[int, int]]
    of_class: Mapping[int, Attaching]

    def of_new_node(self, node: NodeInfo) -> tuple[int, ...]:
        """What a new node can take."""
        return tuple(node.volume_limits.get(driver, UNLIMITED) for driver in self.drivers)


def attach_limits(
    classes: Sequence[PodInfo], snapshot: ClusterSnapshot, templates: Iterable[NodeInfo]
) -> AttachLimits | None:
    """The limits that concern the classes; None if none does."""
    wanted = {each.driver for kind in classes for each in kind.attached}
    if not wanted:
        return None
    limited = {driver for node in (*snapshot.nodes, *templates) for driver in node.volume_limits}
    drivers = tuple(sorted(wanted & limited))
    if not drivers:
        return None
    of_class = {}
    for position, kind in enumerate(classes):
        by_driver = (tuple(each for each in kind.attached if each.driver == driver) for driver in drivers)
        attaching = tuple((column, volumes) for column, volumes in enumerate(by_driver) if volumes)
        if attaching:
            of_class[position] = attaching
    there = _volumes_by_node(snapshot)
    room = np.array(
        [[node.volume_limits.get(driver, UNLIMITED) for node in snapshot.nodes] for driver in drivers], np.int64
    ).reshape(len(drivers), len(snapshot.nodes))
    rows = {driver: row for row, driver in enumerate(drivers)}
    asked = {volume for attaching in of_class.values() for _, volumes in attaching for volume in volumes}
    attached: dict[AttachedVolume, dict[int, int]] = {}
    for node, volumes in there.items():
        for volume in volumes:
            row = rows.get(volume.driver)
            if row is not None and room[row, node] != NOT_INSTALLED:
                room[row, node] -= 1
            if volume in asked:
                attached.setdefault(volume, {})[node] = _BEFORE
    return AttachLimits(drivers, room, attached, of_class)


def _volumes_by_node(snapshot: ClusterSnapshot) -> dict[int, set[AttachedVolume]]:
    """The volumes on each node: those read with it, and those of pods that were placed since."""
    found = {row: set(node.attached) for row, node in enumerate(snapshot.nodes) if node.attached}
    placed = {number for number, kind in enumerate(snapshot.kinds) if kind.attached}
    if placed:
        for row, number in zip(snapshot.placed_node.tolist(), snapshot.placed_kind.tolist(), strict=True):
            if number in placed:
                found.setdefault(row, set()).update(snapshot.kinds[number].attached)
    return found
