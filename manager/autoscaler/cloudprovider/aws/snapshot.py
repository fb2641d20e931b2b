"""Groups and instances as of the last refresh, with the writes since. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from manager.autoscaler.cloudprovider.aws import NAME, groups
from manager.autoscaler.cloudprovider.aws.fleet import Joining, LaunchProgress
from manager.autoscaler.cloudprovider.aws.messages import ScalingGroup
from manager.autoscaler.cloudprovider.contract import Group, Instance, InstanceError, InstanceState
from manager.autoscaler.cloudprovider.errors import Refused
from shared.cached_property import cached_property

_PLACEHOLDER = "placeholder"


@dataclass(frozen=True)
class Snapshot:
    """`unlaunched`: why a group's last attempt to launch its missing instances has failed. `drifts`: how instances
    differ from what their group would launch now.
    """

    groups: Mapping[str, ScalingGroup] = field(default_factory=dict)
    underway: LaunchProgress = field(default_factory=LaunchProgress)
    unlaunched: Mapping[str, InstanceError] = field(default_factory=dict)
    drifts: Mapping[str, str] = field(default_factory=dict)

    def group(self, name: str) -> ScalingGroup:
        """Raises Refused."""
        if name not in self.groups:
            raise Refused(NAME, name, "not there")
        return self.groups[name]

    def group_at_target(self, name: str) -> Group:
        """The group; joining instances count towards its target, too."""
        group, joining = self.group(name), len(self.newcomers(name))
        return Group(
            name,
            group.min_size,
            group.max_size,
            group.desired_capacity + joining,
            debug=", ".join(group.availability_zones),
            joining=joining,
        )

    def newcomers(self, name: str) -> tuple[str, ...]:
        """The ids of the group's instances that have not joined it."""
        return tuple(each.id for each in (*self.underway.joining, *self.underway.lost) if each.group == name)

    def instances(self, name: str) -> tuple[Instance, ...]:
        """Raises Refused for a group whose sizes do not count instances."""
        group = self.group(name)
        if groups.is_weighted(group):
            raise Refused(NAME, name, "its instance types have weights, so its sizes are not numbers of nodes")
        members = tuple(
            Instance(
                groups.provider_id(each.availability_zone, each.instance_id),
                groups.state(each.lifecycle_state),
                drift=self.drifts.get(each.instance_id, ""),
            )
            for each in group.instances
        )
        joining = tuple(_newcomer(each) for each in self.underway.joining if each.group == name)
        lost = tuple(_newcomer(each, why) for each, why in self.underway.lost.items() if each.group == name)
        return (*members, *joining, *lost, *self._missing(name))

    @property
    def lost(self) -> dict[str, list[str]]:
        """The provider ids of the instances that will never join, by the group that they were launched for."""
        found: dict[str, list[str]] = {}
        for each in self.underway.lost:
            found.setdefault(each.group, []).append(groups.provider_id(each.zone, each.id))
        return found

    def placeholders(self, name: str) -> frozenset[str]:
        """The provider ids of instances that could not be launched."""
        return frozenset(each.provider_id for each in self._missing(name))

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Groups by the ids of their instances."""
        members = {each.instance_id: name for name, group in self.groups.items() for each in group.instances}
        return {each.id: each.group for each in (*self.underway.joining, *self.underway.lost)} | members

    def resized(self, name: str, target: int) -> "Snapshot":
        """The snapshot with another desired capacity of the group."""
        return self._replace_group(msgspec.structs.replace(self.group(name), desired_capacity=target))

    def ordered(self, new: tuple[Joining, ...]) -> "Snapshot":
        underway = replace(self.underway, joining=(*self.underway.joining, *new))
        return replace(self, underway=underway)

    def terminated(self, name: str, instance: str) -> "Snapshot":
        """The snapshot without the member and its place, or without the joining instance."""
        group = self.group(name)
        if instance in self.newcomers(name):
            joining = tuple(each for each in self.underway.joining if each.id != instance)
            lost = {each: why for each, why in self.underway.lost.items() if each.id != instance}
            return replace(self, underway=replace(self.underway, joining=joining, lost=lost))
        members = tuple(
            msgspec.structs.replace(each, lifecycle_state="Terminating") if each.instance_id == instance else each
            for each in group.instances
        )
        target = group.desired_capacity - 1
        return self._replace_group(msgspec.structs.replace(group, desired_capacity=target, instances=members))

    def _missing(self, name: str) -> tuple[Instance, ...]:
        """The instances that the group has failed to launch."""
        why, group = self.unlaunched.get(name), self.group(name)
        if why is None:
            return ()
        count = group.desired_capacity - groups.staying(group)
        names = (groups.provider_id(_PLACEHOLDER, f"{name}-{number}") for number in range(count))
        return tuple(Instance(each, InstanceState.CREATING, why) for each in names)

    def _replace_group(self, group: ScalingGroup) -> "Snapshot":
        return replace(self, groups={**self.groups, group.auto_scaling_group_name: group})


def _newcomer(found: Joining, error: InstanceError | None = None) -> Instance:
    return Instance(groups.provider_id(found.zone, found.id), InstanceState.CREATING, error)
