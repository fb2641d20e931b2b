"""The cloud as a process of its own: it outlives all managers, answers late or wrongly, and notes who asked what."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from manager.autoscaler.cloudprovider.contract import (
    Created,
    Gpus,
    Group,
    GroupSpec,
    Instance,
    NodeRef,
    Provider,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.cloud_state import GroupEntry, SimulatedState
from manager.autoscaler.cloudprovider.simulated.config import Faults as GroupFaults
from manager.autoscaler.cloudprovider.simulated.config import GroupConfig
from manager.autoscaler.cloudprovider.simulated.machines import Machines
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node
from shared.clock import Clock
from shared.kube.client import Client
from shared.telemetry import Loops
from tests.simulation import faults as fault_names
from tests.simulation.faults import Fault, FaultKind, Faults
from tests.simulation.virtual import WORLD, Process

T = TypeVar("T")

NAME = "simulation"
LATENCY_SECONDS = (0.01, 0.1)
MOST_LATE_SECONDS = 50.0


@dataclass(frozen=True)
class CloudRequest:
    """A write as it took effect: by whom, and the group before it. `seen` is the group's version that the process had
    last read, `version` the one it had.
    """

    at: float
    process: Process
    what: str
    group: str
    before: GroupEntry
    after: GroupEntry
    seen: int
    version: int


class Cloud:
    """A `StateStore` in memory, and the machines."""

    def __init__(self, file: Path, faults: Faults) -> None:
        self.process = Process(fault_names.CLOUD)
        self.faults = faults
        self.offer = FaultyOffer(file, faults)
        self.watchers: list[Callable[[CloudRequest], None]] = []
        self._state = SimulatedState()
        self._versions: dict[str, int] = {}
        self._seen: dict[tuple[str, str], int] = {}

    def read(self) -> SimulatedState:
        return self._state

    def change(self, step: Callable[[SimulatedState], SimulatedState]) -> SimulatedState:
        before, self._state = self._state, step(self._state)
        for name, entry in self._state.groups.items():
            if entry.target != before.groups.get(name, GroupEntry()).target:
                self._versions[name] = self._versions.get(name, 0) + 1
        return self._state

    def start(self, client: Client, clock: Clock, loops: Loops) -> None:
        store: Any = self
        Machines(client, store, self.offer, clock).start(loops)

    def note_refresh(self, process: Process) -> None:
        """The process has read all groups."""
        for name in self._state.groups:
            self._seen[process.name, name] = self._versions.get(name, 0)

    def note_request(self, process: Process, what: str, group: str, before: GroupEntry, version: int) -> None:
        after, seen = self._state.groups.get(group, GroupEntry()), self._seen.get((process.name, group), -1)
        for watcher in self.watchers:
            watcher(CloudRequest(WORLD.now, process, what, group, before, after, seen, version))
        self._seen[process.name, group] = self._versions.get(group, 0)

    def version(self, group: str) -> int:
        return self._versions.get(group, 0)

    def lose_machine(self, fault: Fault) -> str | None:
        """A running machine vanishes, and its target stays; its name."""
        running = [
            (name, each)
            for name, entry in sorted(self._state.groups.items())
            for each in entry.instances
            if each.phase == "running"
        ]
        if not running:
            return None
        group, lost = self.faults.chance_of(fault).choice(running)
        entry = self._state.groups[group]
        left = tuple(each for each in entry.instances if each is not lost)
        self._state = self._state.having(group, msgspec.structs.replace(entry, instances=left))
        return lost.name


class FaultyOffer(MachineOffer):
    """The offer with the faults that are in force now."""

    def __init__(self, path: Path, faults: Faults) -> None:
        super().__init__(path)
        self._faults = faults

    def groups(self, state: SimulatedState) -> dict[str, GroupConfig]:
        found = super().groups(state)
        active = {each.kind for each in self._faults.active.values() if each.target == fault_names.CLOUD}
        if FaultKind.STOCK_OUT in active:
            stocked = {name: state.groups[name].staying if name in state.groups else 0 for name in found}
            found = {
                name: msgspec.structs.replace(each, faults=GroupFaults(stock=stocked[name]))
                for name, each in found.items()
            }
        elif FaultKind.NEVER_JOIN in active:
            lost = GroupFaults(never_register=True)
            found = {name: msgspec.structs.replace(each, faults=lost) for name, each in found.items()}
        return found


class RemoteCloud(Provider):
    """The provider in a manager: each call is a message to the cloud."""

    name = NAME

    def __init__(self, cloud: Cloud, nodes: Callable[[], Sequence[Node]], clock: Clock) -> None:
        store: Any = cloud
        self._cloud = cloud
        self._there = SimulatedProvider(cloud.offer, store, nodes, clock)
        self._process = WORLD.process

    def refresh(self) -> None:
        self._ask(self._there.refresh)
        self._cloud.note_refresh(self._process)

    def groups(self) -> Sequence[Group]:
        return self._there.groups()

    def instances(self, group: str) -> Sequence[Instance]:
        return self._there.instances(group)

    def group_of(self, node: NodeRef) -> str | None:
        return self._there.group_of(node)

    def launched_at(self, node: NodeRef) -> float | None:
        return self._there.launched_at(node)

    def template(self, group: str) -> Node:
        return self._there.template(group)

    def gpus(self) -> Gpus:
        return self._there.gpus()

    def pricing(self) -> PricingModel | None:
        return self._there.pricing()

    def machine_types(self) -> Sequence[str]:
        return self._there.machine_types()

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        return self._there.theoretical(spec)

    def increase(self, group: str, delta: int) -> None:
        self._change("increase", group, lambda: self._there.increase(group, delta))

    def decrease_target(self, group: str, delta: int) -> None:
        self._change("decrease target", group, lambda: self._there.decrease_target(group, delta))

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        self._change("delete nodes", group, lambda: self._there.delete_nodes(group, nodes))

    def create_group(self, spec: GroupSpec) -> Created:
        return self._ask(lambda: self._there.create_group(spec))

    def delete_group(self, group: str) -> None:
        self._change("delete group", group, lambda: self._there.delete_group(group))

    def _change(self, what: str, group: str, work: Callable[[], None]) -> None:
        faults, cloud = self._cloud.faults, self._cloud

        def done() -> None:
            before, version = cloud.read().groups.get(group, GroupEntry()), cloud.version(group)
            work()
            cloud.note_request(self._process, what, group, before, version)

        if faults.hits(FaultKind.FORGET, fault_names.CLOUD):
            self._ask(lambda: None)
            return
        self._ask(done)
        if faults.hits(FaultKind.FAIL_AFTER, fault_names.CLOUD):
            raise Unavailable(NAME, group, "the connection broke off")

    def _ask(self, work: Callable[[], T]) -> T:
        """The call's result. What the cloud does, it does whatever becomes of the manager meanwhile."""
        faults, chance = self._cloud.faults, WORLD.chance
        WORLD.park(chance.uniform(*LATENCY_SECONDS))
        if faults.hits(FaultKind.FAIL_BEFORE, fault_names.CLOUD):
            raise Unavailable(NAME, "", "it is overloaded")
        result = work()
        if fault := faults.hits(FaultKind.ANSWER_LATE, fault_names.CLOUD):
            WORLD.park(MOST_LATE_SECONDS * faults.chance_of(fault).random())
        WORLD.park(chance.uniform(*LATENCY_SECONDS))
        return result


CLOUD: list[Cloud] = []  # the one of this world


def _make(request: ProviderRequest) -> RemoteCloud:
    return RemoteCloud(CLOUD[0], lambda: fake_nodes.listed(request.client), request.clock)


PLUGIN = ProviderPlugin(make=_make, creates_groups=True)


def install(directory: Path, file: Path, faults: Faults) -> Cloud:
    """Makes the cloud, and the provider that reaches it known under `NAME`."""
    metadata = directory / "site" / "headroom_simulation-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: headroom-simulation\nVersion: 0\n")
    entry = f"[headroom.cloudproviders]\n{NAME} = tests.simulation.cloud:PLUGIN\n"
    (metadata / "entry_points.txt").write_text(entry)
    sys.path.append(str(metadata.parent))
    importlib.invalidate_caches()
    cloud = Cloud(file, faults)
    CLOUD.append(cloud)
    return cloud
