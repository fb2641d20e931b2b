"""Machines of a room of your own: a group is a row of them, and a larger group is one more that is switched on.

The file that `--cloud-config` names lists the rows:

rows:
- name: row-a
  capacity: {cpu: "16", memory: 64Gi, pods: "110"}
  machines: [a1, a2, a3]

The nodes that they become have the provider id `machine-room://<machine>`. Which machines are on stands in one file a
row below `power`; a real provider asks the power controllers instead.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from headroom_api.cloudproviders import (
    Group,
    Instance,
    Node,
    NodeRef,
    NodeStatus,
    ObjectMeta,
    Provider,
    ProviderGroupOptions,
    ProviderPlugin,
    ProviderRequest,
    Quantities,
    Refused,
    load_yaml,
)

NAME = "machine-room"
SCHEME = f"{NAME}://"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    capacity: Quantities
    machines: tuple[str, ...]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    rows: tuple[Row, ...]
    power: str


class RowOptions(ProviderGroupOptions, frozen=True, kw_only=True):
    """A group's own options in the node groups file, below the key `machine-room`: machines that stay off."""

    spare_machines: int = 0


class MachineRoom(Provider):
    """See `Provider`. What it does not define is unsupported, or has a default."""

    name = NAME

    def __init__(self, request: ProviderRequest) -> None:
        """Raises InvalidInput for a file that means nothing."""
        config = load_yaml(request.file, Config)
        self._rows = {row.name: row for row in config.rows}
        self._power = Path(config.power)
        self._options = request.groups.own_options
        self._may_write = request.loops is not None

    def refresh(self) -> None:
        """Nothing is cached."""

    def groups(self) -> Sequence[Group]:
        return [Group(row.name, 0, self._usable(row), len(self._on(row.name))) for row in self._rows.values()]

    def target_size(self, group: Group) -> int:
        return len(self._on(group.id))

    def instances(self, group: str) -> Sequence[Instance]:
        return [Instance(SCHEME + machine) for machine in self._on(group)]

    def group_of(self, node: NodeRef) -> str | None:
        machine = node.provider_id.removeprefix(SCHEME)
        return next((row.name for row in self._rows.values() if machine in row.machines), None)

    def template(self, group: str) -> Node:
        capacity = self._rows[group].capacity
        metadata = ObjectMeta(name=f"{group}-new", labels={"machine-room/row": group})
        return Node(metadata=metadata, status=NodeStatus(capacity=capacity, allocatable=capacity))

    def increase(self, group: str, delta: int) -> None:
        on = self._on(group)
        off = [machine for machine in self._rows[group].machines if machine not in on]
        if delta > self._usable(self._rows[group]) - len(on):
            raise Refused(NAME, group, f"{delta} more machines are wanted, and fewer are off")
        self._switch(group, [*on, *off[:delta]])

    def decrease_target(self, group: str, delta: int) -> None:
        raise Refused(NAME, group, "every machine of the target is there")

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        gone = {node.provider_id.removeprefix(SCHEME) for node in nodes}
        self._switch(group, [machine for machine in self._on(group) if machine not in gone])

    def _usable(self, row: Row) -> int:
        options = self._options.get(row.name)
        return len(row.machines) - (options.spare_machines if isinstance(options, RowOptions) else 0)

    def _on(self, group: str) -> list[str]:
        file = self._power / group
        return file.read_text().split() if file.exists() else []

    def _switch(self, group: str, machines: Sequence[str]) -> None:
        if not self._may_write:
            raise Refused(NAME, group, "it is only read")
        self._power.mkdir(parents=True, exist_ok=True)
        (self._power / group).write_text("\n".join(machines))


PLUGIN = ProviderPlugin(make=MachineRoom, has_prices=False, group_options=RowOptions)
