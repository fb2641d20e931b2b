"""The provider of clusters whose machines Cluster API makes."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from manager.autoscaler.cloudprovider.clusterapi import NAME, config, groups, templates
from manager.autoscaler.cloudprovider.clusterapi.cloning import Cloning, CopyRules
from manager.autoscaler.cloudprovider.clusterapi.config import ClusterApiConfig
from manager.autoscaler.cloudprovider.clusterapi.creation import GroupCreator, GroupPlanner, PlannedGroup
from manager.autoscaler.cloudprovider.clusterapi.groups import ScalableGroup, ScalableGroups
from manager.autoscaler.cloudprovider.clusterapi.prices import MachineTypePrices
from manager.autoscaler.cloudprovider.clusterapi.reading import ClusterApiReader
from manager.autoscaler.cloudprovider.clusterapi.rights import rights
from manager.autoscaler.cloudprovider.clusterapi.topology import TopologyEntries
from manager.autoscaler.cloudprovider.clusterapi.wire import MachineObject, ScalableKind
from manager.autoscaler.cloudprovider.clusterapi.writing import ClusterApiWriter, OwnChanges
from manager.autoscaler.cloudprovider.contract import (
    Created,
    Gpus,
    Group,
    GroupOptions,
    GroupSpec,
    Instance,
    NodeRef,
    Provider,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, Unsupported
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.config import from_kubeconfig

logger = logging.getLogger(__name__)

USER_AGENT = "headroom-manager"
RENDERING_SECONDS = 10.0  # Cluster API makes the MachineDeployment of a topology's entry within about one


class ClusterApiProvider(Provider):
    """See `Provider`. Only groups with the annotations are ever listed or changed.

    Two threads may read what was seen, which is replaced as a whole.
    """

    name = NAME

    def __init__(
        self,
        config: ClusterApiConfig,
        client: Client,
        clock: Clock,
        *,
        may_write: bool,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`client` is of the management cluster; `close` ends its connections, if they are our own."""
        self._config = config
        self._reader = ClusterApiReader(client, config)
        self._writer = ClusterApiWriter(client, self._reader)
        self._planner = GroupPlanner(config)
        self._creator = _creator(config, client, self._reader, clock)
        self._clock = clock
        self._may_write = may_write
        self._close = close
        self._seen = ScalableGroups()
        self._changes = OwnChanges()
        self._untidy = ""  # why something was left, as it was logged

    def refresh(self) -> None:
        """Takes also back marks that no write has followed, and what is left of groups."""
        self._look()
        if self._may_write and self._creator is not None:
            try:
                self._creator.tidy()
                self._untidy = ""
            except HeadroomError as error:
                if str(error) != self._untidy:
                    logger.warning("objects of deleted node groups were not deleted, it is retried: %s", error)
                self._untidy = str(error)
        for group in self._seen.groups.values() if self._may_write else ():
            if group.stale_marks:
                logger.info("deletion marks of Machines removed", extra={"group": group.id})
                self._writer.unmark(group, group.stale_marks)

    def groups(self) -> Sequence[Group]:
        seen = self._seen
        refused = [Group(name, min_size=0, max_size=0, target_size=0) for name in seen.problems]
        return [*(self._as_group(each) for each in seen.groups.values()), *refused]

    def target_size(self, group: Group) -> int:
        if problem := self._seen.problems.get(group.id):
            raise problem
        return group.target_size

    def instances(self, group: str) -> Sequence[Instance]:
        return self._group(group).instances

    def group_of(self, node: NodeRef) -> str | None:
        seen = self._seen
        named = groups.ApiKeys(self._config.api_group).machine_key(node)
        return seen.by_instance.get(node.provider_id) or seen.by_machine.get((named, node.name))

    def launched_at(self, node: NodeRef) -> float | None:
        group = self.group_of(node)
        machine = self._group(group).machine(node) if group is not None else None
        if machine is None:
            raise Refused(NAME, "", f"{node.provider_id} belongs to no Machine of a managed group")
        return machine.metadata.created_at

    def template(self, group: str) -> Node:
        found = self._group(group)
        try:
            said = self._reader.template(found)
        except ProviderError:
            if not templates.is_complete(found):
                raise
            said = None
        return templates.node(found, said, self._config.default_arch)

    def options(self, group: str) -> GroupOptions:
        return self._group(group).options

    def gpus(self) -> Gpus:
        return Gpus(templates.LABEL_GPU)

    def pricing(self) -> PricingModel | None:
        prices = {each.name: each.price for each in self._config.machine_types}
        return MachineTypePrices(prices) if prices else None

    def increase(self, group: str, delta: int) -> None:
        self._check_writes(group)
        found = self._group(group)
        if not found.exists:
            raise Later(NAME, group, "Cluster API has not created its MachineDeployment yet")
        self._resize(found, delta)

    def decrease_target(self, group: str, delta: int) -> None:
        """Looks again before: a Machine may have been made since, which fewer replicas would take away."""
        self._check_writes(group)
        before = self._group(group)
        self._look()
        now = self._group(group)
        if now.replicas != before.replicas:
            raise Later(NAME, group, f"it had {before.replicas} replicas, but now has {now.replicas}")
        if now.replicas - delta < now.settled:
            raise Refused(NAME, group, f"{now.replicas} - {delta} is below its {now.settled} machines")
        self._resize(now, -delta)

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Marks their Machines, and lowers the replicas by as many in one write; takes the marks back if that fails.

        After a write without an answer the marks stay: it may have taken effect, and unmarked, others would go.
        """
        self._check_writes(group)
        found = self._group(group)
        named = [self._deletable(found, node) for node in nodes]
        found.check_removal()
        self._writer.mark(found, named, self._clock.now())
        try:
            self._resize(found, -len(named), named)
        except ProviderError as error:
            if not error.leaves_doubt:
                self._writer.unmark(found, named)
            raise

    def machine_types(self) -> Sequence[str]:
        return self._planner.machine_types

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        _, group = self._draft(spec)
        return Theoretical(
            spec, group.id, group.bounds.max_size, templates.node(group, None, self._config.default_arch)
        )

    def create_group(self, spec: GroupSpec) -> Created:
        """Waits a little for Cluster API to make what it makes of it, and to fill that in: then the group can grow."""
        planned, draft = self._draft(spec)
        self._check_writes(draft.id)
        self._existing_creator.create(planned)
        ends = self._clock.monotonic() + RENDERING_SECONDS
        self._look()
        while not self._is_made(draft.id) and self._clock.monotonic() < ends:
            self._clock.wait(threading.Event(), 1.0)
            self._look()
        return Created(self._as_group(self._group(draft.id)))

    def delete_group(self, group: str) -> None:
        """Looks again before."""
        self._check_writes(group)
        self._look()
        found = self._group(group)
        if not self._existing_creator.owns(found):
            raise Refused(NAME, group, "not created by auto-provisioning, so it is not deleted")
        if found.replicas or found.instances:
            raise Refused(NAME, group, f"not empty: {found.replicas} replicas, {len(found.instances)} machines")
        self._existing_creator.delete(found)

    def close(self) -> None:
        self._close()

    @property
    def _existing_creator(self) -> GroupCreator:
        if self._creator is None:
            raise Unsupported(NAME, "", "its configuration has no autoprovisioning")
        return self._creator

    def _draft(self, spec: GroupSpec) -> tuple[PlannedGroup, ScalableGroup]:
        """The group that there will be, and how it is made. Raises Refused for an impossible spec."""
        creator, seen = self._existing_creator, self._seen
        existing = {name.rpartition("/")[2] for name in (*seen.groups, *seen.problems)}
        planned = self._planner.plan(spec, creator.base(), existing)
        keys = groups.ApiKeys(self._config.api_group)
        found = groups.read_group(ScalableKind.MACHINE_DEPLOYMENT, creator.draft(planned), keys)
        if found is None:
            raise Refused(NAME, planned.name, "it would have no minimum and maximum size")
        return planned, found

    def _as_group(self, group: ScalableGroup) -> Group:
        return Group(
            id=group.id,
            min_size=group.bounds.min_size,
            max_size=group.bounds.max_size,
            target_size=group.replicas,
            autoprovisioned=self._creator is not None and self._creator.owns(group),
            debug=f"cluster {group.object.spec.cluster_name}",
        )

    def _look(self) -> None:
        found = self._reader.objects()
        found = found if self._creator is None else self._creator.look(found)
        self._seen = groups.assemble(found, self._config.api_group)
        for name, what in self._changes.compare(self._seen.groups, self._clock.monotonic()).items():
            logger.warning("the group is skipped for 10 minutes: %s", what, extra={"group": name})

    def _is_made(self, name: str) -> bool:
        found = self._seen.groups.get(name)
        return found is not None and found.exists

    def _group(self, name: str) -> ScalableGroup:
        seen = self._seen
        if problem := seen.problems.get(name):
            raise problem
        if name not in seen.groups:
            raise Refused(NAME, name, "the group does not exist")
        return seen.groups[name]

    def _resize(self, group: ScalableGroup, delta: int, marked: Sequence[MachineObject] = ()) -> None:
        replicas = group.replicas + delta
        self._writer.resize(group, replicas)
        self._changes.note(group.id, group.replicas, replicas, self._clock.monotonic())
        self._seen = replace(self._seen, groups={**self._seen.groups, group.id: group.resized(replicas, marked)})

    def _deletable(self, group: ScalableGroup, node: NodeRef) -> MachineObject:
        """Raises Refused for all others."""
        found = group.machine(node)
        if found is None:
            pool = any(each.provider_id == node.provider_id for each in group.instances)
            problem = "has no Machine, so it cannot be selected for deletion" if pool else "is not in it"
            raise Refused(NAME, group.id, f"node {node.name} ({node.provider_id}) {problem}")
        if found.is_leaving or (group.is_shrinking and found in group.marked):
            raise Refused(NAME, group.id, f"node {node.name} ({node.provider_id}) is already being deleted")
        return found

    def _check_writes(self, group: str) -> None:
        if not self._may_write:
            raise Refused(NAME, group, "it is only read")
        if problem := self._changes.refusal(group, self._clock.monotonic()):
            raise Refused(NAME, group, problem)


def make(request: ProviderRequest) -> ClusterApiProvider:
    file = config.load(request.config)
    writes = request.loops is not None
    if not file.kubeconfig:
        return ClusterApiProvider(file, request.client, request.clock, may_write=writes)
    client = Client(from_kubeconfig(file.kubeconfig), USER_AGENT, clock=request.clock)
    return ClusterApiProvider(file, client, request.clock, may_write=writes, close=client.close)


def with_file(path: Path | None) -> ProviderPlugin:
    """What it can do depends on what its file has. Raises InvalidInput."""
    file = config.load(path)
    creates, prices = file.autoprovisioning is not None, bool(file.machine_types)
    return replace(PLUGIN, creates_groups=creates, has_prices=prices)


PLUGIN = ProviderPlugin(
    make=make,
    rights=rights,
    needs_config=False,
    has_prices=False,
    creation_needs="`autoprovisioning` in its configuration",
    groups_opt_in=True,
    with_file=with_file,
)


def _creator(config: ClusterApiConfig, client: Client, reader: ClusterApiReader, clock: Clock) -> GroupCreator | None:
    """None where no group is to be created."""
    found = config.autoprovisioning
    if found is not None and found.clone is not None:
        return Cloning(client, reader, CopyRules(config.api_group, found.namespace, found.clone), clock)
    if found is not None and found.topology is not None:
        return TopologyEntries(client, reader, found.topology, found.namespace, groups.ApiKeys(config.api_group))
    return None
