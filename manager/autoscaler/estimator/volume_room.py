"""How many more volumes of each CSI driver can be attached to each node, while pods are placed.

kube-scheduler's NodeVolumeLimits: a volume counts once on a node, however many pods there use it, and a driver without
a limit on a node takes any number.
"""

from collections.abc import Mapping

import numpy as np

from manager.autoscaler.snapshot.attach_limits import Attaching, AttachLimits
from manager.autoscaler.snapshot.cluster import Flags, Integers
from manager.autoscaler.snapshot.volumes import NOT_INSTALLED, AttachedVolume

_FIRST_SPARE = 64  # columns for new nodes; doubled when used up


class VolumeRoom:
    """A row per driver, and a column per node. Copies share what they do not change."""

    def __init__(self, limits: AttachLimits, fresh: tuple[int, ...] | None, after: "VolumeRoom | None") -> None:
        """Starts with the snapshot, or with the result of `after`, which has no new nodes. `fresh` is the room of each
        new node.
        """
        self._drivers = limits.drivers
        self._fresh = None if fresh is None else np.array(fresh, np.int64)
        room = limits.room if after is None else after._room
        spare = np.empty((len(room), 0 if fresh is None else _FIRST_SPARE), np.int64)
        self._room: Integers = np.concatenate((room, spare), axis=1)
        self._attached: dict[AttachedVolume, Mapping[int, int]] = dict(
            limits.attached if after is None else after._attached
        )

    def add_nodes(self, start: int, stop: int) -> None:
        """Adds new nodes, without volumes."""
        assert self._fresh is not None
        columns = self._room.shape[1]
        if stop > columns:
            spare = np.empty((len(self._room), max(stop, 2 * columns) - columns), np.int64)
            self._room = np.concatenate((self._room, spare), axis=1)
        self._room[:, start:stop] = self._fresh[:, None]

    def count(self, attaching: Attaching, nodes: Integers, counts: Integers) -> None:
        """Adds pods with these volumes on these nodes; negative counts take them off."""
        for column, volumes in attaching:
            room = self._room[column]
            for volume in volumes:
                users = dict(self._attached.get(volume, {}))
                for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
                    before = users.get(node, 0)
                    users[node] = before + count
                    room[node] -= (users[node] > 0) - (before > 0)
                self._attached[volume] = users

    def open_nodes(self, attaching: Attaching, start: int, stop: int) -> Flags:
        """Which nodes of a range have room for the volumes that are not attached to them yet."""
        flags: Flags = np.ones(stop - start, np.bool_)
        for column, volumes in attaching:
            room = self._room[column, start:stop]
            found = room >= len(volumes)
            for node in {node for volume in volumes for node in self._attached.get(volume, ()) if start <= node < stop}:
                missing = self._missing(volumes, node)
                free = int(room[node - start])
                found[node - start] = free != NOT_INSTALLED and (not missing or free >= missing)
            flags &= found
        return flags

    def fits_new_node(self, attaching: Attaching) -> bool:
        """Whether a new node has room for these volumes."""
        fresh = self._fresh
        return fresh is None or all(fresh[column] >= len(volumes) for column, volumes in attaching)

    def refusal(self, attaching: Attaching, node: int) -> str | None:
        """Why a node takes no pod with these volumes, in kube-scheduler's words."""
        for column, volumes in attaching:
            free, missing = int(self._room[column, node]), self._missing(volumes, node)
            if free == NOT_INSTALLED:
                return f"{self._drivers[column]} CSI driver is not installed on the node"
            if missing and free < missing:
                of_driver = f"{max(0, free)} more of driver {self._drivers[column]} can be attached"
                return f"node(s) exceed max volume count: {of_driver}, and the pod needs {missing}"
        return None

    def _missing(self, volumes: tuple[AttachedVolume, ...], node: int) -> int:
        return sum(self._attached.get(volume, {}).get(node, 0) <= 0 for volume in volumes)
