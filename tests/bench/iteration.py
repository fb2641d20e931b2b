"""An iteration of the autoscaler as its loop, `headroom plan` and the API plan it: from cached objects to explained
decisions.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from manager.autoscaler.cloudprovider.contract import (
    Gpus,
    Group,
    GroupSpec,
    Instance,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import Unsupported
from manager.autoscaler.cloudprovider.guard import CloudObservation, ObservedGroup
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.cluster_view import open_view
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.pricing.model import PricingModel
from manager.autoscaler.scale_down.removal_status import DeletionsInProgress
from shared.api.core import Node

NOW = 1_800_000_000.0
LARGEST_GROUP = 20_000


@dataclass(frozen=True)
class FixedCloud:
    """An `ObservedCloud` that gives the same answers each time. `machines` are the templates of its groups, or, where
    it `creates_groups`, its machine types.
    """

    machines: Mapping[str, Node]
    members: Mapping[str, Sequence[Node]] = field(default_factory=dict)
    creates_groups: bool = False
    observed: CloudObservation = field(init=False)

    def __post_init__(self) -> None:
        groups = {} if self.creates_groups else {name: self._group(name) for name in self.machines}
        of_node = {node.metadata.name: group for group, nodes in self.members.items() for node in nodes}
        object.__setattr__(self, "observed", CloudObservation(groups, group_of_node=of_node))

    def _group(self, name: str) -> ObservedGroup:
        nodes = self.members.get(name, ())
        group = Group(name, min(1, len(nodes)), LARGEST_GROUP, len(nodes))
        return ObservedGroup(group, tuple(Instance(node.spec.provider_id) for node in nodes))

    def template(self, group: str) -> Node:
        return self.machines[group]

    def gpus(self) -> Gpus:
        return Gpus()

    def pricing(self) -> PricingModel | None:
        return None

    def machine_types(self) -> Sequence[str]:
        if not self.creates_groups:
            raise Unsupported("bench", "", "it creates no groups")
        return tuple(self.machines)

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        machine = self.machines[spec.machine_type]
        labels = {**(machine.metadata.labels or {}), **spec.labels}
        made = msgspec.structs.replace(
            machine,
            metadata=msgspec.structs.replace(machine.metadata, labels=labels),
            spec=msgspec.structs.replace(machine.spec, taints=spec.taints),
        )
        suffix = "-".join(sorted(spec.labels.values()))
        return Theoretical(spec, "-".join(filter(None, (spec.prefix, spec.machine_type, suffix))), LARGEST_GROUP, made)


def settings_of(cloud: FixedCloud, settings: DecisionSettings) -> DecisionSettings:
    """The settings, with all groups of the cloud listed."""
    ours = Ownership(dict.fromkeys(cloud.observed.groups), settings.autoprovisioning.autoprovisioning_prefix)
    scale_up = replace(settings.scale_up, ownership=ours)
    return replace(settings, scale_up=scale_up)


def planned(
    objects: ClusterObjects,
    cloud: FixedCloud,
    settings: DecisionSettings,
    *,
    cache: AutoscalerCache | None = None,
    underway: DeletionsInProgress | None = None,
) -> PlannedIteration:
    """One iteration with nothing asked for before."""
    view = open_view(objects, cloud, Registry(), settings, chance=random.Random(1), cache=cache, underway=underway)
    return iteration_plan.plan(view)
