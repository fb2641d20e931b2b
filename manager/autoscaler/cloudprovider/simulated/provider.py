"""The provider of the simulated cloud."""

import functools
import random
import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from manager.autoscaler.cloudprovider import gke, node_template
from manager.autoscaler.cloudprovider.contract import (
    Created,
    ErrorClass,
    Gpus,
    Group,
    GroupSpec,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
    Provider,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import Refused, Unavailable, Unsupported
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from manager.autoscaler.cloudprovider.rights import Right, config_map_rights
from manager.autoscaler.cloudprovider.simulated import NAME, cloud_state, config, fake_nodes, state_store
from manager.autoscaler.cloudprovider.simulated.cloud_state import GroupEntry, InstanceEntry, SimulatedState
from manager.autoscaler.cloudprovider.simulated.config import Autoprovisioning, GroupConfig
from manager.autoscaler.cloudprovider.simulated.machines import Machines
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.state_store import SimulatedStateStore, StateStore, Unwritten
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import Machine, PricingModel
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube import node_heartbeat
from shared.quantity import Amounts

_STATES = {
    cloud_state.CREATING: InstanceState.CREATING,
    cloud_state.FAILED: InstanceState.CREATING,
    cloud_state.RUNNING: InstanceState.RUNNING,
    cloud_state.DELETING: InstanceState.DELETING,
}


class SimulatedProvider(Provider):
    """See `Provider`. Nodes come and go only while `machines` run, here or elsewhere."""

    name = NAME

    def __init__(
        self,
        offer: MachineOffer,
        store: StateStore,
        nodes: Callable[[], Iterable[Node]],
        clock: Clock,
        chance: random.Random | None = None,
    ) -> None:
        """`nodes` returns the present Nodes of this cloud, for groups that the state does not know."""
        self._offer = offer
        self._store = store
        self._nodes = nodes
        self._clock = clock
        self._chance = chance or random.Random()
        self._state = SimulatedState()

    def refresh(self) -> None:
        self._offer.reread()
        self._check_outage("")
        self._state = self._store.change(self._with_new_groups)

    def groups(self) -> Sequence[Group]:
        self._check_outage("")
        known = self._offer.groups(self._state)
        return [_group(each, self._state.groups[name]) for name, each in known.items() if name in self._state.groups]

    def instances(self, group: str) -> Sequence[Instance]:
        self._check_outage(group)
        now = self._offer.group(group, self._state)
        return [_instance(each, now) for each in self._entry(self._state, group).instances]

    def group_of(self, node: NodeRef) -> str | None:
        self._check_outage("")
        group = node.annotations.get(fake_nodes.ANNOTATION_GROUP, "")
        entry = self._state.groups.get(group)
        if entry is None or all(fake_nodes.provider_id(each.name) != node.provider_id for each in entry.instances):
            return None
        return group

    def launched_at(self, node: NodeRef) -> float | None:
        """The time is not recorded, but missing Nodes are known."""
        self._check_outage("")
        if not fake_nodes.is_ours(node.provider_id):
            raise Refused(NAME, "", f"{node.provider_id} is not a machine of this cloud")
        there = (each for entry in self._state.groups.values() for each in entry.instances)
        if any(fake_nodes.provider_id(each.name) == node.provider_id for each in there):
            raise Unsupported(NAME, "", "the launch time of machines is unknown")
        return None

    def template(self, group: str) -> Node:
        found = self._config(group)
        try:
            return fake_nodes.node(f"template-{group}", found, self._offer.cloud)
        except InvalidInput as error:
            raise Refused(NAME, group, str(error)) from error

    def gpus(self) -> Gpus:
        return Gpus(LABEL_ACCELERATOR, gke.ACCELERATORS)

    def pricing(self) -> PricingModel | None:
        """None if the file has no price at all."""
        cloud = self._offer.cloud
        prices = [*(each.price for each in cloud.machine_types), *(each.price for each in cloud.groups)]
        return SimulatedPrices(self._offer) if any(price is not None for price in prices) else None

    def increase(self, group: str, delta: int) -> None:
        def step(entry: GroupEntry, found: GroupConfig) -> GroupEntry:
            if found.faults.refuse:
                raise Refused(NAME, group, found.faults.refuse)
            if entry.target + delta > found.max:
                raise Refused(NAME, group, f"{entry.target} + {delta} is above the maximum of {found.max}")
            return cloud_state.raise_target(entry, found, delta, self._clock.now(), self._names(group, entry))

        self._change(group, step)

    def decrease_target(self, group: str, delta: int) -> None:
        def step(entry: GroupEntry, _: GroupConfig) -> GroupEntry:
            if entry.target - delta < entry.staying:
                raise Refused(NAME, group, f"{entry.target} - {delta} is below its {entry.staying} instances")
            return msgspec.structs.replace(entry, target=entry.target - delta)

        self._change(group, step)

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        def step(entry: GroupEntry, found: GroupConfig) -> GroupEntry:
            known = {
                fake_nodes.provider_id(each.name): each
                for each in entry.instances
                if each.phase != cloud_state.DELETING
            }
            for node in nodes:
                if node.provider_id not in known:
                    raise Refused(NAME, group, f"node {node.name} ({node.provider_id}) is not in it")
            names = {known[node.provider_id].name for node in nodes}
            return cloud_state.mark_deleted(entry, names, self._clock.now() + found.delete_seconds)

        self._change(group, step)

    def machine_types(self) -> Sequence[str]:
        self._autoprovisioning()
        return self._offer.cloud.offered

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        """Its name distinguishes specs; the group that is created from it has another name."""
        offered = self._autoprovisioning()
        try:
            group, *extras = self._offer.created_groups(spec, offered, node_template.digest_suffix(spec))
            template = fake_nodes.node(f"template-{group.name}", group, self._offer.cloud)
        except InvalidInput as error:
            raise Refused(NAME, "", str(error)) from error
        return Theoretical(spec, group.name, group.max, template, 1 + len(extras))

    def create_group(self, spec: GroupSpec) -> Created:
        """One in each zone that has such machines, or in the one that the spec's labels name."""
        offered = self._autoprovisioning()
        self.theoretical(spec)
        made = self._offer.created_groups(spec, offered, self._suffix())

        def step(current: SimulatedState) -> SimulatedState:
            for group in made:
                if group.name in self._offer.groups(current):
                    raise Refused(NAME, group.name, "a group of this name exists already")
                current = current.having(group.name, GroupEntry(made_of=group))
            return current

        self._state = self._store.change(step)
        main, *extras = (_group(group, self._state.groups[group.name]) for group in made)
        return Created(main, tuple(extras))

    def delete_group(self, group: str) -> None:
        self._check_outage(group)

        def step(current: SimulatedState) -> SimulatedState:
            entry = self._entry(current, group)
            if entry.made_of is None:
                raise Refused(NAME, group, "it is in the file, so it is not deleted")
            if entry.target or entry.instances:
                raise Refused(NAME, group, f"not empty: target {entry.target}, {len(entry.instances)} instances")
            return current.without_group(group)

        self._state = self._store.change(step)

    def _change(self, group: str, step: Callable[[GroupEntry, GroupConfig], GroupEntry]) -> None:
        found = self._config(group)
        if found.faults.hang_seconds:
            self._clock.wait(threading.Event(), found.faults.hang_seconds)
        self._state = self._store.change(
            lambda current: current.having(group, step(self._entry(current, group), found))
        )

    def _config(self, group: str) -> GroupConfig:
        self._check_outage(group)
        found = self._offer.group(group, self._state)
        if found is None:
            raise Refused(NAME, group, "the group does not exist")
        return found

    def _entry(self, current: SimulatedState, group: str) -> GroupEntry:
        entry = current.groups.get(group)
        if entry is None:
            raise Refused(NAME, group, "the group does not exist")
        return entry

    def _check_outage(self, group: str) -> None:
        if self._offer.cloud.outage:
            raise Unavailable(NAME, group, self._offer.cloud.outage)

    def _with_new_groups(self, current: SimulatedState) -> SimulatedState:
        """Groups that are new in the file start at their size, unless they already have Nodes."""
        new = [group for group in self._offer.cloud.groups if group.name not in current.groups]
        if not new:
            return current
        by_group: dict[str, set[str]] = {}
        for node in self._nodes():
            if (owner := fake_nodes.belongs_to(node)) is not None:
                by_group.setdefault(owner, set()).add(node.metadata.name)
        now = self._clock.now()
        for group in new:
            if group.name in by_group:
                entry = cloud_state.entry_for_nodes(by_group[group.name], now)
            else:
                size = group.min if group.size is None else group.size
                entry = cloud_state.raise_target(GroupEntry(), group, size, now, self._names(group.name, GroupEntry()))
            current = current.having(group.name, entry)
        return current

    def _autoprovisioning(self) -> Autoprovisioning:
        self._check_outage("")
        found = self._offer.cloud.autoprovisioning
        if found is None:
            raise Unsupported(NAME, "", "the file has no autoprovisioning")
        return found

    def _suffix(self) -> str:
        return node_template.random_suffix(self._chance)

    def _names(self, group: str, entry: GroupEntry) -> Callable[[], str]:
        taken = {each.name for each in entry.instances}

        def name() -> str:
            while (found := f"{group}-{self._suffix()}") in taken:
                pass
            taken.add(found)
            return found

        return name


class SimulatedPrices:
    """The file's prices; see `PricingModel`. A machine without one is priced by the core and GiB."""

    def __init__(self, offer: MachineOffer) -> None:
        self._offer = offer

    def node_price(self, machine: Machine) -> float:
        cloud = self._offer.cloud
        name = machine.annotations.get(fake_nodes.ANNOTATION_GROUP)
        group = cloud.groups_by_name.get(name or "")
        if group is not None and group.price is not None:
            return group.price
        return cloud.prices_by_type.node_price(machine)

    def pod_price(self, requests: Amounts) -> float:
        return self._offer.cloud.prices_by_type.pod_price(requests)


def _group(found: config.GroupConfig, entry: GroupEntry) -> Group:
    return Group(
        id=found.name,
        min_size=found.min,
        max_size=found.max,
        target_size=entry.target,
        autoprovisioned=entry.made_of is not None,
        labels=found.labels,
        debug=f"{found.machine_type} in {found.zone}",
    )


def _instance(entry: InstanceEntry, group: GroupConfig | None) -> Instance:
    error = None
    if entry.phase == cloud_state.FAILED:
        error = InstanceError(ErrorClass(entry.kind), entry.code, entry.message)
    drift = ""
    if group is not None and entry.launched_as not in ("", group.shape):
        drift = f"it was launched as {entry.launched_as}, but its group launches {group.shape} now"
    return Instance(fake_nodes.provider_id(entry.name), _STATES[entry.phase], error, drift)


def make(request: ProviderRequest) -> SimulatedProvider:
    offer, kept = MachineOffer(request.file), SimulatedStateStore(request.client, request.namespace)
    listed = functools.partial(fake_nodes.listed, request.client)
    if request.loops is None:
        return SimulatedProvider(offer, Unwritten(kept.read), listed, request.clock)
    Machines(request.client, kept, offer, request.clock).start(request.loops)
    return SimulatedProvider(offer, kept, listed, request.clock)


def rights(request: ProviderRequest) -> list[Right]:
    namespace = node_heartbeat.LEASE_NAMESPACE
    return [
        Right("create", "", "nodes"),
        Right("create", "storage.k8s.io", "csinodes"),
        *(Right(verb, "coordination.k8s.io", "leases", namespace=namespace) for verb in ("create", "patch")),
        *config_map_rights(request.namespace, state_store.CONFIG_MAP),
    ]


PLUGIN = ProviderPlugin(make=make, rights=rights, creates_groups=True)
