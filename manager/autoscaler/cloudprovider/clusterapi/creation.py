"""Groups that are created: what one is made of, and how its nodes come by their labels and taints. Pure."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from manager.autoscaler.cloudprovider import node_template
from manager.autoscaler.cloudprovider.catalogue import EPHEMERAL_STORAGE, USUAL
from manager.autoscaler.cloudprovider.clusterapi import NAME, templates
from manager.autoscaler.cloudprovider.clusterapi.annotations import (
    CAPACITY,
    GPU_COUNT,
    GPU_TYPE,
    LABELS,
    MAX_PODS,
    PODS,
    TAINTS,
    AnnouncedNode,
)
from manager.autoscaler.cloudprovider.clusterapi.config import ClusterApiConfig
from manager.autoscaler.cloudprovider.clusterapi.creation_config import (
    ClusterApiAutoprovisioning,
    ClusterApiMachineType,
)
from manager.autoscaler.cloudprovider.clusterapi.groups import ManagementObjects, ScalableGroup
from manager.autoscaler.cloudprovider.clusterapi.wire import ScalableObject
from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cloudprovider.errors import Refused, Unsupported
from manager.autoscaler.cloudprovider.node_template import LABEL_ZONE
from shared import names
from shared.api.core import Taint
from shared.api.meta import ObjectMeta
from shared.names import CPU, MEMORY

MOST_NAME = 50  # names of Machines derive from it, and become labels, too
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class PlannedGroup:
    """A group to create. Cluster API passes `passed_labels` on from Machines to Nodes, which register with
    `own_labels` and `taints` themselves. An empty `zone` leaves that to what it is made from.
    """

    name: str
    spec: GroupSpec
    machine: ClusterApiMachineType
    zone: str
    annotations: Mapping[str, str]
    passed_labels: Mapping[str, str] = field(default_factory=dict)
    own_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def marks(self) -> dict[str, dict[str, str]]:
        """The labels and annotations by which what is made for it is known."""
        return {
            "labels": {names.LABEL_NODE_GROUP: self.name},
            "annotations": {names.ANNOTATION_NODE_GROUP_SPEC: _text(self.spec)},
        }

    @property
    def label_text(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.own_labels.items())

    @property
    def taint_objects(self) -> list[dict[str, str]]:
        return [{"key": each.key, "value": each.value, "effect": each.effect} for each in self.taints]

    def matches(self, meta: ObjectMeta) -> bool:
        """Whether an object was made for it, by an earlier try."""
        marked = meta.label(names.LABEL_NODE_GROUP) == self.name
        return marked and meta.annotation(names.ANNOTATION_NODE_GROUP_SPEC) == _text(self.spec)


class GroupCreator(Protocol):
    """One way to create groups in the management cluster. What writes raises ProviderError."""

    def look(self, found: ManagementObjects) -> ManagementObjects:
        """Reads what groups are made from. Adds groups that are there and have no object of their own yet."""
        ...

    def base(self) -> AnnouncedNode:
        """What nodes have of every group that is created. Raises Refused while none can be."""
        ...

    def draft(self, planned: PlannedGroup) -> ScalableObject:
        """The MachineDeployment that there will be."""
        ...

    def owns(self, group: ScalableGroup) -> bool:
        """Whether `create` made the group."""
        ...

    def create(self, planned: PlannedGroup) -> None:
        """Goes on with what an earlier try has left. Raises Refused where something of others has the name."""
        ...

    def delete(self, group: ScalableGroup) -> None:
        """Only one that it made, and only as it was seen."""
        ...

    def tidy(self) -> None:
        """Takes away what interrupted creations and deletions have left. Raises the client's errors."""
        ...


@dataclass(frozen=True)
class GroupPlanner:
    config: ClusterApiConfig

    @property
    def autoprovisioning(self) -> ClusterApiAutoprovisioning:
        if self.config.autoprovisioning is None:
            raise Unsupported(NAME, "", "the file has no autoprovisioning")
        return self.config.autoprovisioning

    @property
    def machine_types(self) -> tuple[str, ...]:
        """Those that groups may be created of. Raises Unsupported without auto-provisioning."""
        wanted = self.autoprovisioning.machine_types
        return tuple(each.name for each in self.config.machine_types) if wanted is None else wanted

    def plan(self, spec: GroupSpec, base: AnnouncedNode, existing: Collection[str]) -> PlannedGroup:
        """The group for a spec, in the first zone that suits it and has none yet. `base` is what all nodes have,
        whatever their machine type is; `existing` are names of groups. Raises Refused.
        """
        offered = self.autoprovisioning
        if spec.machine_type not in self.machine_types:
            raise Refused(NAME, "", f"{spec.machine_type} is not in the catalogue")
        machine = next(each for each in self.config.machine_types if each.name == spec.machine_type)
        for resource, amount in spec.extra_resources.items():
            if machine.allocatable_amounts.get(resource, 0) < amount:
                raise Refused(NAME, "", f"{resource}: {amount}: machine type {spec.machine_type} has fewer")
        name, zone = _named(spec, machine, existing)
        given = {**base.labels, **machine.node_labels, **({LABEL_ZONE: zone} if zone else {})}
        own = {key: value for key, value in spec.labels.items() if key not in given}
        for key, value in spec.labels.items():
            if given.get(key, value) != value:
                raise Refused(NAME, "", f"label {key}: {value!r}: it is {given[key]!r} on all of them")
            if key in own and (problem := self._label_problem(key, value)):
                raise Refused(NAME, "", f"label {key}: {value!r}: {problem}")
        taints = tuple(each for each in spec.taints if each not in base.taints)
        if taints and not offered.gives_taints:
            raise Refused(NAME, "", f"taint {taints[0].key}: autoprovisioning has no field for taints")
        announced = AnnouncedNode(labels=given | own, taints=(*base.taints, *taints))
        return PlannedGroup(
            name=name,
            spec=spec,
            machine=machine,
            zone=zone,
            annotations=self._bounds(offered.max) | _announcement(machine, announced),
            passed_labels={key: value for key, value in own.items() if self._is_passed(key)},
            own_labels={key: value for key, value in own.items() if not self._is_passed(key)},
            taints=taints,
        )

    def _bounds(self, most: int) -> dict[str, str]:
        prefix = f"{self.config.api_group}/cluster-api-autoscaler-node-group"
        return {f"{prefix}-min-size": "0", f"{prefix}-max-size": str(most)}

    def _label_problem(self, key: str, value: str) -> str:
        if problem := node_template.syntax_problem(key, value):
            return problem
        if self._is_passed(key):
            return ""
        if node_template.is_reserved(key):
            return "a group must not set labels of this domain"
        if self.autoprovisioning.gives_labels:
            return ""
        return "Cluster API does not copy it to nodes (synced_labels), and autoprovisioning has no field for labels"

    def _is_passed(self, key: str) -> bool:
        """Whether a Machine's label becomes its Node's."""
        synced = self.autoprovisioning.synced_labels
        return templates.is_managed(key) or any(
            key.startswith(each[:-1]) if each.endswith("*") else key == each for each in synced
        )


def _named(spec: GroupSpec, machine: ClusterApiMachineType, existing: Collection[str]) -> tuple[str, str]:
    """Name and zone. The same spec has the same name again, so that a creation that was interrupted goes on."""
    asked = spec.labels.get(LABEL_ZONE)
    zones = [each for each in machine.zones if asked in (None, each)] if machine.zones else [""]
    if not zones:
        raise Refused(NAME, "", f"{spec.machine_type} is not offered in {asked}")
    machine_type = spec.machine_type.replace(".", "-")

    def name_in(zone: str) -> str:
        return node_template.group_name(spec.prefix, machine_type, node_template.digest_suffix((spec, zone)), MOST_NAME)

    found = {name_in(zone): zone for zone in zones}
    name = next((each for each in found if each not in existing), None)
    if name is None:
        raise Refused(NAME, "", f"all groups of such nodes exist already: {', '.join(found)}")
    if not (_NAME.fullmatch(name) and name.startswith(spec.prefix)):
        raise Refused(NAME, "", f"{name!r} cannot be a group's name, because of the prefix {spec.prefix!r}")
    return name, found[name]


def _announcement(machine: ClusterApiMachineType, announced: AnnouncedNode) -> dict[str, str]:
    """The annotations that say what the next node is."""
    amounts = machine.allocatable_amounts
    found = {
        f"{CAPACITY}cpu": str(machine.allocatable[CPU]),
        f"{CAPACITY}memory": str(machine.allocatable[MEMORY]),
        MAX_PODS: str(amounts[PODS]),
        LABELS: ",".join(f"{key}={value}" for key, value in announced.labels.items()),
        TAINTS: ",".join(f"{each.key}={each.value}:{each.effect}" for each in announced.taints),
    }
    if EPHEMERAL_STORAGE in machine.allocatable:
        found[f"{CAPACITY}ephemeral-disk"] = str(machine.allocatable[EPHEMERAL_STORAGE])
    for device in machine.allocatable.keys() - USUAL:
        found |= {GPU_TYPE: device, GPU_COUNT: str(amounts[device])}
    return {key: value for key, value in found.items() if value}


def _text(spec: GroupSpec) -> str:
    return msgspec.json.encode(spec, order="deterministic").decode()
