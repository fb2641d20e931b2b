"""The provider for AWS's Auto Scaling groups. It keeps the result of the last refresh for the iteration."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence

from manager.autoscaler.cloudprovider.aws import NAME, config, failures, fleet, groups, messages, templates
from manager.autoscaler.cloudprovider.aws.config import DISCOVERY_FLAG, Tags
from manager.autoscaler.cloudprovider.aws.drift import DriftObserver
from manager.autoscaler.cloudprovider.aws.fleet import AwsOptions, FleetOrders
from manager.autoscaler.cloudprovider.aws.messages import Ask, Call, ScalingGroup
from manager.autoscaler.cloudprovider.aws.nodegroups import ManagedNodegroups
from manager.autoscaler.cloudprovider.aws.session import Session
from manager.autoscaler.cloudprovider.aws.snapshot import Snapshot
from manager.autoscaler.cloudprovider.contract import Gpus, Group, GroupOptions, Instance, NodeRef, Provider
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused
from manager.autoscaler.cloudprovider.plugin import ManagedGroups, ProviderPlugin, ProviderRequest
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)


class AwsProvider(Provider):
    """See `Provider`. Groups are neither created nor deleted here."""

    name = NAME

    def __init__(
        self,
        ask: Ask,
        wanted: ManagedGroups,
        clock: Clock,
        *,
        discover: Sequence[Tags] = (),
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """The listed groups are observed, and those with all tags of one of `discover`; all groups if there is neither.
        Fleets of enforced groups are advanced. `close` ends the connection of `ask`.
        """
        self._ask = ask
        self._close = close
        self._wanted = wanted
        self._discover = discover
        self._fleets = {name: each for name, each in wanted.own_options.items() if isinstance(each, AwsOptions)}
        self._orders = FleetOrders(ask, clock, self._fleets, wanted.enforced)
        self._snapshot = Snapshot()
        self._kinds = templates.Kinds(ask)
        self._nodegroups = ManagedNodegroups(ask, clock)
        self._failed = failures.FailedLaunches(ask, clock)
        self._drift = DriftObserver(ask, clock)
        self._tagged: set[str] = set()

    def refresh(self) -> None:
        """Also advances the fleets, which need nothing else."""
        found = self._described()
        underway = self._orders.carry_on(found)
        if underway.joined:
            found = self._described()
        drifts = self._drift.drifts(found) if self._wanted.minds_drift else {}
        managed = found if self._wanted.discovery else self._wanted.listed
        self._snapshot = Snapshot(found, underway, self._failed.failures(found, managed), drifts)
        self._tag(found)

    def groups(self) -> Sequence[Group]:
        return [self._snapshot.group_at_target(name) for name in sorted(self._snapshot.groups)]

    def instances(self, group: str) -> Sequence[Instance]:
        return self._snapshot.instances(group)

    def strays(self) -> Mapping[str, Sequence[str]]:
        return self._snapshot.lost

    def group_of(self, node: NodeRef) -> str | None:
        try:
            return self._snapshot.owners.get(groups.instance_id(node.provider_id))
        except InvalidInput:
            return None

    def launched_at(self, node: NodeRef) -> float | None:
        """Raises ProviderError, and InvalidInput for an invalid instance id."""
        instance = groups.instance_id(node.provider_id)
        try:
            answer = messages.answer(self._ask, Call.DESCRIBE_INSTANCES, InstanceIds=[instance])
        except Refused as error:
            if failures.NO_INSTANCE in error.problem:
                return None
            raise
        found = answer.only_instance(instance)
        return None if found.state.name == messages.TERMINATED else found.launch_time.timestamp()

    def template(self, group: str) -> Node:
        found = self._snapshot.group(group)
        return templates.node(found, self._kinds.first_type(found), self._nodegroups.node(found))

    def options(self, group: str) -> GroupOptions:
        return templates.options(self._snapshot.group(group))

    def gpus(self) -> Gpus:
        return Gpus(templates.LABEL_GPU)

    def increase(self, group: str, delta: int) -> None:
        """By a fleet if the group has a launch template of its own among its options."""
        now = self._current(group)
        newcomers = len(self._snapshot.newcomers(group))
        target = now.desired_capacity + newcomers
        groups.raised_size(group, delta, target=target, most=now.max_size)
        options = self._fleets.get(group)
        if options is not None and options.launch_template_id:
            self._snapshot = self._snapshot.ordered(self._orders.place(now, delta))
            return
        self._set_desired(now, now.desired_capacity + delta)
        self._failed.raised(group)

    def decrease_target(self, group: str, delta: int) -> None:
        now = self._current(group)
        staying = groups.staying(now)
        self._set_desired(
            now, groups.lowered_size(group, -delta, target=now.desired_capacity, least=now.min_size, staying=staying)
        )

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Deletes members one by one until one fails: earlier ones are deleted.

        Instances that have not joined take no member's place, and are terminated together.
        """
        seen = self._snapshot.group(group)
        newcomers, absent = self._snapshot.newcomers(group), self._snapshot.placeholders(group)
        wanted = [(node, self._id(group, node)) for node in nodes]
        places = sum(instance not in newcomers for _, instance in wanted)
        if places:
            groups.deletable(group, places, target=seen.desired_capacity, least=seen.min_size)
        members = {each.instance_id for each in seen.instances}
        if returned := sum(node.provider_id in absent for node in nodes):
            self.decrease_target(group, returned)
        if orphans := [instance for _, instance in wanted if instance in newcomers]:
            self._orders.terminate(orphans, group)
            for instance in orphans:
                self._snapshot = self._snapshot.terminated(group, instance)
        for node, instance in wanted:
            if node.provider_id in absent or instance in newcomers:
                continue
            if instance not in members:
                raise _foreign(group, node)
            self._terminate(instance, group)
            self._snapshot = self._snapshot.terminated(group, instance)

    def close(self) -> None:
        self._close()

    def _described(self) -> dict[str, ScalingGroup]:
        return groups.describe_groups(self._ask, self._wanted.listed, self._discover)

    def _current(self, name: str) -> ScalingGroup:
        """The present group: AWS sets sizes, not differences, so the new size must start from the present one."""
        found = groups.one(self._ask, name)
        if found is None:
            raise Refused(NAME, name, "not there")
        return found

    def _set_desired(self, group: ScalingGroup, target: int) -> None:
        name = group.auto_scaling_group_name
        self._ask(
            Call.SET_DESIRED_CAPACITY, name, AutoScalingGroupName=name, DesiredCapacity=target, HonorCooldown=False
        )
        self._snapshot = self._snapshot.resized(name, target)

    def _terminate(self, instance: str, group: str) -> None:
        try:
            self._ask(Call.TERMINATE_IN_GROUP, group, InstanceId=instance, ShouldDecrementDesiredCapacity=True)
        except ProviderError as error:
            raise type(error)(NAME, group, f"failed to terminate instance. err: {error.problem}") from error

    def _id(self, group: str, node: NodeRef) -> str:
        try:
            return groups.instance_id(node.provider_id)
        except InvalidInput as error:
            raise _foreign(group, node) from error

    def _tag(self, found: Mapping[str, ScalingGroup]) -> None:
        """Adds Escalator's tag, if a group's options ask for it. Nothing depends on it."""
        wanted = {name for name, each in self._fleets.items() if each.resource_tagging}
        for name in wanted.intersection(self._wanted.enforced, found) - self._tagged:
            self._tagged.add(name)
            if fleet.TAG_ESCALATOR in found[name].labels:
                continue
            tag = {
                "ResourceType": "auto-scaling-group",
                "ResourceId": name,
                "Key": fleet.TAG_ESCALATOR,
                "Value": fleet.ENABLED,
                "PropagateAtLaunch": True,
            }
            try:
                self._ask(Call.TAG_GROUP, name, Tags=[tag])
            except ProviderError as error:
                logger.warning("the node group was not tagged: %s", error, extra={"group": name})


def _foreign(group: str, node: NodeRef) -> Refused:
    problem = f"node {node.name}, {node.provider_id} belongs in a different node group than {group}"
    return Refused(NAME, group, problem)


def make(request: ProviderRequest) -> AwsProvider:
    file = config.load(request.config)
    session = Session(file, request.clock)
    groups = request.groups if request.loops is not None else dataclasses.replace(request.groups, enforced=())
    discovered = config.parse_discovery(groups.discovery)
    if discovered and file.discover:
        problem = f"{DISCOVERY_FLAG} selects the managed groups; other groups cannot be reported"
        raise InvalidInput(source=str(request.config), field="discover", value=dict(file.discover), problem=problem)
    discover = discovered or ((file.discover,) if file.discover else ())
    return AwsProvider(session.ask, groups, request.clock, discover=discover, close=session.close)


PLUGIN = ProviderPlugin(
    make=make, needs_config=False, has_prices=False, discovers_groups=True, group_options=AwsOptions
)
