"""Groups with their machines, as the objects say, and whether one of these may be named to go. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from manager.autoscaler.cloudprovider.clusterapi import NAME
from manager.autoscaler.cloudprovider.clusterapi.annotations import AnnouncedNode, GroupAnnotations
from manager.autoscaler.cloudprovider.clusterapi.wire import MachineObject, ScalableKind, ScalableObject
from manager.autoscaler.cloudprovider.contract import (
    ErrorClass,
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
)
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Later, ProviderError, Refused
from manager.autoscaler.cloudprovider.ownership import SizeBounds
from shared import names
from shared.cached_property import cached_property

SCHEME = "clusterapi://"  # of the ids of machines that have none yet
OUR_MARK = "headroom"  # what the value of our delete mark begins with
# What infrastructure providers say where another group may do better.
_OUT_OF_RESOURCES = frozenset({"InsufficientResources"})


@dataclass(frozen=True)
class ApiKeys:
    """The keys of annotations that are of Cluster API's own group."""

    api_group: str

    @property
    def delete_mark(self) -> str:
        """On a Machine that goes first when there are fewer replicas."""
        return f"{self.api_group}/delete-machine"

    @property
    def paused(self) -> str:
        return f"{self.api_group}/paused"

    @property
    def topology_name(self) -> str:
        """A label on a MachineDeployment of a Cluster's topology: the name of its entry there."""
        return f"topology.{self.api_group}/deployment-name"

    @property
    def managed_elsewhere(self) -> str:
        """On a MachinePool whose replicas another autoscaler sets."""
        return f"{self.api_group}/replicas-managed-by"

    def machine_key(self, node: NodeRef) -> str:
        """The Machine that a Node's annotations name, as namespace/name; empty for none."""
        name = node.annotations.get(f"{self.api_group}/machine", "")
        return f"{node.annotations.get(f'{self.api_group}/cluster-namespace', '')}/{name}" if name else ""


@dataclass(frozen=True)
class ScalableGroup:
    """A group; `sets` are the MachineSets of a MachineDeployment. `marked` are Machines, by name, that are to go."""

    kind: ScalableKind
    object: ScalableObject
    keys: ApiKeys
    bounds: SizeBounds
    options: GroupOptions
    announced: AnnouncedNode
    replicas: int
    sets: Sequence[ScalableObject] = ()
    machines: Sequence[MachineObject] = ()

    @property
    def id(self) -> str:
        return id_of(self.kind, self.object, self.keys)

    @property
    def exists(self) -> bool:
        """Whether it has an object, and not only an entry in a Cluster's topology."""
        return bool(self.object.metadata.uid)

    @cached_property
    def staying(self) -> Sequence[MachineObject]:
        return [each for each in self.machines if not each.is_leaving]

    @cached_property
    def marked(self) -> Sequence[MachineObject]:
        """Those of them with our mark."""
        return [each for each in self.staying if self._mark(each).startswith(OUR_MARK)]

    @property
    def is_shrinking(self) -> bool:
        """Whether Cluster API has still to take machines away, of which the marked ones are the first."""
        return len(self.staying) > self.replicas or any(
            self._staying_of(each) > (each.spec.replicas or 0) for each in self.sets
        )

    @property
    def stale_marks(self) -> Sequence[MachineObject]:
        """Machines that carry our mark, while none has to go: the write that should have followed never came."""
        return () if self.is_shrinking else self.marked

    @property
    def instances(self) -> list[Instance]:
        going = {each.metadata.name for each in self.marked} if self.is_shrinking else set()
        found = [_instance(each, is_going=each.metadata.name in going) for each in self.machines]
        known = {each.provider_id for each in found}
        # A MachinePool may have no Machines.
        pool = [each for each in self.object.spec.provider_ids or () if each not in known]
        return [*found, *(Instance(each, InstanceState.RUNNING) for each in dict.fromkeys(pool))]

    @property
    def settled(self) -> int:
        """The machines that stay, with those of a MachinePool that have no Machine."""
        return sum(each.state is not InstanceState.DELETING for each in self.instances)

    def machine(self, node: NodeRef) -> MachineObject | None:
        """The Machine of a Node, or of an instance that has none yet."""
        named = self.keys.machine_key(node)
        return next(
            (
                each
                for each in self.machines
                if instance_id(each) == node.provider_id or (named == each.metadata.key and node.name == each.node_name)
            ),
            None,
        )

    def check_removal(self) -> None:
        """Whether fewer replicas would take exactly the machines with our mark. Raises Later for a group where others
        could go, or none would.
        """
        strangers = [each.metadata.name for each in self.staying if each not in self.marked and self._mark(each)]
        if strangers:
            raise Later(NAME, self.id, f"Machine {strangers[0]} has the mark {self.keys.delete_mark} of another client")
        if sum(bool(each.spec.replicas or self._staying_of(each)) for each in self.sets) > 1:
            raise Later(NAME, self.id, "it is being rolled out, so Headroom cannot choose which Machines are deleted")
        left = len(self.staying) - len(self.marked)
        if left != self.replicas:
            problem = f"it has {left} Machines and {self.replicas} replicas; none is deleted until both agree"
            raise Later(NAME, self.id, problem)

    def resized(self, replicas: int, marked: Iterable[MachineObject] = ()) -> "ScalableGroup":
        """After a write of ours, before anything has been observed."""
        going = {each.metadata.name for each in marked}
        machines = [self._with_mark(each) if each.metadata.name in going else each for each in self.machines]
        return replace(self, replicas=replicas, machines=machines)

    def _with_mark(self, machine: MachineObject) -> MachineObject:
        annotations = {**(machine.metadata.annotations or {}), self.keys.delete_mark: OUR_MARK}
        meta = msgspec.structs.replace(machine.metadata, annotations=annotations)
        return msgspec.structs.replace(machine, metadata=meta)

    def _mark(self, machine: MachineObject) -> str:
        """A mark without a value counts, too."""
        found = machine.metadata.annotation(self.keys.delete_mark)
        return "" if found is None else found or "true"

    def _staying_of(self, found: ScalableObject) -> int:
        return sum(each.owner(ScalableKind.MACHINE_SET) == found.metadata.name for each in self.staying)


@dataclass(frozen=True)
class ScalableGroups:
    """The groups that may be scaled, and the `problems` of those that ask for it and may not, both by id."""

    groups: Mapping[str, ScalableGroup] = field(default_factory=dict)
    problems: Mapping[str, ProviderError] = field(default_factory=dict)

    @cached_property
    def by_instance(self) -> Mapping[str, str]:
        return {each.provider_id: name for name, group in self.groups.items() for each in group.instances}

    @cached_property
    def by_machine(self) -> Mapping[tuple[str, str], str]:
        """Groups by Machine, as namespace/name, and the Node that it has become."""
        return {
            (each.metadata.key, each.node_name): name
            for name, group in self.groups.items()
            for each in group.machines
            if each.node_name
        }


@dataclass(frozen=True)
class ManagementObjects:
    """Everything that was listed in the management cluster; `scalable` are those that the selection takes."""

    machines: Sequence[MachineObject]
    sets: Sequence[ScalableObject]
    scalable: Sequence[tuple[ScalableKind, ScalableObject]]

    def machines_of(self, kind: ScalableKind, owner: ScalableObject) -> Sequence[MachineObject]:
        return self._owned_machines.get((kind, owner.metadata.key), ())

    def sets_of(self, deployment: ScalableObject) -> Sequence[ScalableObject]:
        return self._owned_sets.get(deployment.metadata.key, ())

    @cached_property
    def _owned_machines(self) -> Mapping[tuple[ScalableKind, str], Sequence[MachineObject]]:
        found: dict[tuple[ScalableKind, str], list[MachineObject]] = {}
        for each in self.machines:
            for kind in (ScalableKind.MACHINE_SET, ScalableKind.MACHINE_POOL):
                if owner := each.owner(kind):
                    found.setdefault((kind, f"{each.metadata.namespace}/{owner}"), []).append(each)
        return found

    @cached_property
    def _owned_sets(self) -> Mapping[str, Sequence[ScalableObject]]:
        found: dict[str, list[ScalableObject]] = {}
        for each in self.sets:
            if owner := each.owner(ScalableKind.MACHINE_DEPLOYMENT):
                found.setdefault(f"{each.metadata.namespace}/{owner}", []).append(each)
        return found


def assemble(found: ManagementObjects, api_group: str) -> ScalableGroups:
    """Groups of the objects that have the annotations; a MachineSet with a MachineDeployment is none by itself."""
    keys = ApiKeys(api_group)
    groups: dict[str, ScalableGroup] = {}
    problems: dict[str, ProviderError] = {}
    for kind, each in found.scalable:
        if kind is ScalableKind.MACHINE_SET and each.owner(ScalableKind.MACHINE_DEPLOYMENT):
            continue
        name = id_of(kind, each, keys)
        try:
            group = read_group(kind, each, keys)
            if group is not None:
                groups[name] = _with_machines(group, found)
        except ProviderError as error:
            problems[name] = error
    clusters = sorted({each.object.spec.cluster_name for each in groups.values()})
    if len(clusters) > 1:
        problem = f"groups of several clusters, {', '.join(clusters)}: set cluster_name in `discover`"
        problems |= {name: Refused(NAME, name, problem) for name in groups}
        groups = {}
    return ScalableGroups(groups, problems)


def read_group(kind: ScalableKind, found: ScalableObject, keys: ApiKeys) -> ScalableGroup | None:
    """The group without its machines; None for an object that asks for no autoscaler.

    Raises InvalidAnswer for values that mean nothing, Refused for a group that others hold.
    """
    name = id_of(kind, found, keys)
    annotations = GroupAnnotations(name, keys.api_group, found.metadata.annotations or {})
    bounds = annotations.bounds()
    if bounds is None:
        return None
    if keys.paused in annotations.given:
        raise Refused(NAME, name, f"paused by its annotation {keys.paused}")
    if owner := annotations.given.get(keys.managed_elsewhere):
        raise Refused(NAME, name, f"its replicas are managed by {owner}, says its annotation {keys.managed_elsewhere}")
    if found.metadata.deletion_timestamp is not None:
        raise Refused(NAME, name, "it is being deleted")
    if found.spec.replicas is None or found.spec.replicas < 0:
        raise InvalidAnswer(NAME, name, "spec.replicas", found.spec.replicas, "no number of replicas")
    return ScalableGroup(kind, found, keys, bounds, annotations.options(), annotations.node(), found.spec.replicas)


def id_of(kind: ScalableKind, found: ScalableObject, keys: ApiKeys) -> str:
    """Kind and key. An entry of ours in a topology has its own: it is there before its object, whose name varies."""
    meta = found.metadata
    entry = meta.label(keys.topology_name)
    if entry and meta.label(names.LABEL_NODE_GROUP) == entry:
        return f"Cluster/{meta.namespace}/{found.spec.cluster_name}/{entry}"
    return f"{kind}/{meta.key}"


def instance_id(machine: MachineObject) -> str:
    """The Node's provider id as soon as it is known."""
    return machine.spec.provider_id or SCHEME + machine.metadata.key


def _with_machines(group: ScalableGroup, found: ManagementObjects) -> ScalableGroup:
    own = group.object
    if group.kind is not ScalableKind.MACHINE_DEPLOYMENT:
        return replace(group, machines=found.machines_of(group.kind, own))
    sets = found.sets_of(own)
    return replace(
        group,
        sets=sets,
        machines=[each for owner in sets for each in found.machines_of(ScalableKind.MACHINE_SET, owner)],
    )


def _instance(machine: MachineObject, *, is_going: bool) -> Instance:
    """A Machine that has failed after it was a Node is a Node that is not ready, which others deal with."""
    name = instance_id(machine)
    if machine.is_leaving or is_going:
        return Instance(name, InstanceState.DELETING)
    if machine.node_name:
        return Instance(name, InstanceState.RUNNING)
    reason, message = machine.failure
    if not reason:
        return Instance(name, InstanceState.CREATING)
    kind = ErrorClass.OUT_OF_RESOURCES if reason in _OUT_OF_RESOURCES else ErrorClass.OTHER
    return Instance(name, InstanceState.CREATING, InstanceError(kind, reason, message))
