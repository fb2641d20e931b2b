"""The state of the simulated cloud, as pure steps. Stored in the cluster, so it outlives every process.

For each group: target >= number of instances that are not being deleted; the rest was never made.
"""

from collections.abc import Callable, Collection

import msgspec
from msgspec.structs import replace

from manager.autoscaler.cloudprovider.contract import ErrorClass
from manager.autoscaler.cloudprovider.simulated.config import GroupConfig

CREATING, RUNNING, FAILED, DELETING = "creating", "running", "failed", "deleting"


class InstanceEntry(msgspec.Struct, frozen=True, array_like=True):
    """One machine. `due`: when a creating one's Node appears, a running one is Ready, a deleting one's Node goes.

    `code` and `message` say why a failed one has failed. `launched_as` is the shape that its group launched then; empty
    where that is not known.
    """

    name: str
    phase: str = CREATING
    due: float | None = 0.0  # None: never
    kind: str = ""
    code: str = ""
    message: str = ""
    launched_as: str = ""


class GroupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`made` counts all machines ever started; `made_of` is the configuration of an autoprovisioned group."""

    target: int = 0
    made: int = 0
    instances: tuple[InstanceEntry, ...] = ()
    made_of: GroupConfig | None = None

    @property
    def staying(self) -> int:
        """The number of instances that are present or upcoming."""
        return sum(each.phase != DELETING for each in self.instances)


class SimulatedState(msgspec.Struct, frozen=True):
    """All groups, by name."""

    groups: dict[str, GroupEntry] = {}

    def having(self, group: str, entry: GroupEntry) -> "SimulatedState":
        return SimulatedState({**self.groups, group: entry})

    def without_group(self, group: str) -> "SimulatedState":
        return SimulatedState({name: each for name, each in self.groups.items() if name != group})


def raise_target(entry: GroupEntry, group: GroupConfig, delta: int, now: float, name: Callable[[], str]) -> GroupEntry:
    """Requests `delta` more instances, and applies the group's faults to them."""
    faults = group.faults
    begun = delta if faults.fulfil is None else min(delta, faults.fulfil)
    there = entry.staying
    due = None if faults.never_register else now + group.boot_seconds
    new: list[InstanceEntry] = []
    for count in range(1, begun + 1):
        if faults.stock is not None and there + count > faults.stock:
            message = f"{group.zone} does not have enough resources available to fulfil the request"
            new.append(
                InstanceEntry(name(), FAILED, None, ErrorClass.OUT_OF_RESOURCES, "RESOURCE_POOL_EXHAUSTED", message)
            )
        elif faults.fail_every and (entry.made + count) % faults.fail_every == 0:
            new.append(
                InstanceEntry(name(), FAILED, None, ErrorClass.OTHER, "CREATION_FAILED", "the machine did not boot")
            )
        else:
            new.append(InstanceEntry(name(), CREATING, due, launched_as=group.shape))
    return replace(entry, target=entry.target + delta, made=entry.made + begun, instances=(*entry.instances, *new))


def mark_deleted(entry: GroupEntry, names: Collection[str], due: float) -> GroupEntry:
    """Starts the deletion of these instances, which no longer count towards the target."""
    instances = tuple(
        InstanceEntry(each.name, DELETING, due, launched_as=each.launched_as) if each.name in names else each
        for each in entry.instances
    )
    leaving = entry.staying - sum(each.phase != DELETING for each in instances)
    return replace(entry, target=entry.target - leaving, instances=instances)


def add_registered(entry: GroupEntry, names: Collection[str], due: float) -> GroupEntry:
    """These Nodes exist now, and are Ready when `due`. A deletion meanwhile stays in effect."""
    instances = tuple(
        replace(each, phase=RUNNING, due=due) if each.phase == CREATING and each.name in names else each
        for each in entry.instances
    )
    return replace(entry, instances=instances)


def remove_nodes(entry: GroupEntry, names: Collection[str]) -> GroupEntry:
    """These instances have no Node any more.

    The target shrinks by those whose deletion was not requested, as in kwok.
    """
    lost = sum(each.phase != DELETING and each.name in names for each in entry.instances)
    instances = tuple(each for each in entry.instances if each.name not in names)
    return replace(entry, target=entry.target - lost, instances=instances)


def entry_for_nodes(names: Collection[str], now: float) -> GroupEntry:
    """A group that is known only by its Nodes."""
    return GroupEntry(
        target=len(names), made=len(names), instances=tuple(InstanceEntry(name, RUNNING, now) for name in sorted(names))
    )
