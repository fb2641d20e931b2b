"""The provider of clusters whose machines Cluster API makes."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from manager.autoscaler.cloudprovider.clusterapi import NAME, config, groups, templates
from manager.autoscaler.cloudprovider.clusterapi.config import ClusterApiConfig
from manager.autoscaler.cloudprovider.clusterapi.groups import ScalableGroup, ScalableGroups
from manager.autoscaler.cloudprovider.clusterapi.reading import ClusterApiReader
from manager.autoscaler.cloudprovider.clusterapi.wire import MachineObject
from manager.autoscaler.cloudprovider.clusterapi.writing import ClusterApiWriter, OwnChanges
from manager.autoscaler.cloudprovider.contract import Gpus, Group, GroupOptions, Instance, NodeRef, Provider
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from shared.api.core import Node
from shared.clock import Clock
from shared.kube.client import Client
from shared.kube.config import from_kubeconfig

logger = logging.getLogger(__name__)

USER_AGENT = "headroom-manager"


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
        self._clock = clock
        self._may_write = may_write
        self._close = close
        self._seen = ScalableGroups()
        self._changes = OwnChanges()

    def refresh(self) -> None:
        """Takes also back marks that no write has followed."""
        self._look()
        for group in self._seen.groups.values() if self._may_write else ():
            if group.stale_marks:
                logger.info("marks to go are taken back", extra={"group": group.id})
                self._writer.unmark(group, group.stale_marks)

    def groups(self) -> Sequence[Group]:
        seen = self._seen
        refused = [Group(name, min_size=0, max_size=0, target_size=0) for name in seen.problems]
        return [*(_as_group(each) for each in seen.groups.values()), *refused]

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
            raise Refused(NAME, "", f"{node.provider_id} is of no Machine of ours")
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

    def increase(self, group: str, delta: int) -> None:
        self._check_writes(group)
        self._resize(self._group(group), delta)

    def decrease_target(self, group: str, delta: int) -> None:
        """Looks again before: a Machine may have been made since, which fewer replicas would take away."""
        self._check_writes(group)
        before = self._group(group)
        self._look()
        now = self._group(group)
        if now.replicas != before.replicas:
            raise Later(NAME, group, f"it had {before.replicas} replicas, and meanwhile has {now.replicas}")
        if now.replicas - delta < now.settled:
            raise Refused(NAME, group, f"{now.replicas} - {delta} is below its {now.settled} machines, which stay")
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

    def close(self) -> None:
        self._close()

    def _look(self) -> None:
        self._seen = groups.assemble(self._reader.objects(), self._config.api_group)
        for name, what in self._changes.compare(self._seen.groups, self._clock.monotonic()).items():
            logger.warning("left alone for a while: %s", what, extra={"group": name})

    def _group(self, name: str) -> ScalableGroup:
        seen = self._seen
        if problem := seen.problems.get(name):
            raise problem
        if name not in seen.groups:
            raise Refused(NAME, name, "there is no such group")
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
            problem = "has no Machine, and without one nobody can name it" if pool else "is not in it"
            raise Refused(NAME, group.id, f"node {node.name} ({node.provider_id}) {problem}")
        if found.is_leaving or (group.is_shrinking and found in group.marked):
            raise Refused(NAME, group.id, f"node {node.name} ({node.provider_id}) is being deleted already")
        return found

    def _check_writes(self, group: str) -> None:
        if not self._may_write:
            raise Refused(NAME, group, "it is only read from")
        if problem := self._changes.refusal(group, self._clock.monotonic()):
            raise Refused(NAME, group, problem)


def _as_group(group: ScalableGroup) -> Group:
    return Group(
        id=group.id,
        min_size=group.bounds.min_size,
        max_size=group.bounds.max_size,
        target_size=group.replicas,
        debug=f"cluster {group.object.spec.cluster_name}",
    )


def make(request: ProviderRequest) -> ClusterApiProvider:
    file = config.load(request.config)
    writes = request.loops is not None
    if not file.kubeconfig:
        return ClusterApiProvider(file, request.client, request.clock, may_write=writes)
    client = Client(from_kubeconfig(file.kubeconfig), USER_AGENT, clock=request.clock)
    return ClusterApiProvider(file, client, request.clock, may_write=writes, close=client.close)


PLUGIN = ProviderPlugin(make=make, needs_config=False, has_prices=False, groups_opt_in=True)
