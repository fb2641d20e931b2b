"""What every cloud is asked, and the values it answers with.

What a call is made of, where:

| call            | external gRPC                 | Cluster API                        | AWS auto-scaling groups       |
|-----------------|-------------------------------|------------------------------------|-------------------------------|
| refresh         | Refresh                       | list scalable objects and Machines | DescribeAutoScalingGroups     |
| groups          | NodeGroups, ...TargetSize     | min/max annotations, spec.replicas | min, max, desired capacity    |
| instances       | NodeGroupNodes                | Machines' providerID, phase, error | instances' lifecycle state    |
| group_of        | NodeGroupForNode              | the Machine's owner                | the instance's group          |
| launched_at     | Unsupported                   | Unsupported                        | DescribeInstances             |
| template        | ...TemplateNodeInfo           | capacity annotations               | launch template, tags         |
| options         | ...GetOptions                 | autoscaling-options annotations    | tags                          |
| increase        | ...IncreaseSize               | replicas + delta                   | SetDesiredCapacity; or fleet, |
|                 |                               |                                    | that joins at later refreshes |
| decrease_target | ...DecreaseTargetSize         | replicas - delta                   | SetDesiredCapacity            |
| delete_nodes    | ...DeleteNodes                | annotate Machines, replicas - n    | terminate with decrement,     |
|                 |                               |                                    | one by one, until one fails   |
| create_group    | Unsupported                   | a MachineDeployment                | Unsupported                   |
| pricing         | PricingNodePrice, ...PodPrice | none                               | none (a price file)           |

Calls are synchronous; `guard.Guard` gives them a deadline, checks the answers and keeps off the groups of others.
All raise ProviderError. An instance's id is its Node's `spec.providerID`.

One thread makes all calls, but that questions are answered beside it: `template`, `gpus`, `pricing` and what that
returns, `machine_types` and `theoretical` may be called in a second thread, whatever call is under way in the first.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node, Taint
from shared.quantity import Amounts


class InstanceState(enum.StrEnum):
    UNKNOWN = "Unknown"
    RUNNING = "Running"
    CREATING = "Creating"
    DELETING = "Deleting"


class ErrorClass(enum.StrEnum):
    """Whether another group may do better (quota, stockout), or something else is wrong."""

    OUT_OF_RESOURCES = "OutOfResources"
    OTHER = "Other"


@dataclass(frozen=True, slots=True)
class InstanceError:
    """Why an instance could not be made, in the cloud's words."""

    kind: ErrorClass
    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """One machine, whether or not it has a Node yet."""

    provider_id: str
    state: InstanceState = InstanceState.RUNNING
    error: InstanceError | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one kind. `target_size` is what was asked of the cloud, not what is there.

    `joining` of it come from outside: until then the rest alone has to keep the minimum. `autoprovisioned`: it was
    created by `create_group`, and may be deleted when it is empty.
    """

    id: str
    min_size: int
    max_size: int
    target_size: int
    autoprovisioned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    debug: str = ""
    joining: int = 0

    @property
    def settled_size(self) -> int:
        """What deletions are held against."""
        return self.target_size - self.joining


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """What a cloud wants otherwise for one group; None leaves the autoscaler's own."""

    scale_down_utilization_threshold: float | None = None
    scale_down_gpu_utilization_threshold: float | None = None
    scale_down_unneeded_seconds: float | None = None
    scale_down_unready_seconds: float | None = None
    max_node_provision_seconds: float | None = None
    max_node_startup_seconds: float | None = None
    zero_or_max_node_scaling: bool | None = None
    ignore_daemonsets_utilization: bool | None = None


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A Node as clouds are told of it."""

    name: str
    provider_id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_node(cls, node: Node) -> "NodeRef":
        meta = node.metadata
        return cls(meta.name, node.spec.provider_id, meta.labels or {}, meta.annotations or {})


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group that could be. `extra_resources` are what the machine type itself does not have, such as GPUs."""

    machine_type: str
    prefix: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    extra_resources: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Theoretical:
    """What `create_group` would make of a spec; nothing of it exists. `groups` counts it and those it comes with."""

    spec: GroupSpec
    id: str
    max_size: int
    template: Node
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Created:
    """The group that was asked for, and others that came with it, such as one for each further zone. All are empty."""

    main: Group
    extras: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpus:
    """Which label marks nodes with GPUs, and the values it takes."""

    label: str | None = None
    types: frozenset[str] = frozenset()


class Provider(Protocol):
    """A cloud. Optional calls may raise Unsupported, always or for one group."""

    @property
    def name(self) -> str: ...

    def refresh(self) -> None:
        """Begins a round: everything told before may be forgotten."""
        ...

    def groups(self) -> Sequence[Group]:
        """All there are, those of others included; their targets only where these cost no question of their own."""
        ...

    def target_size(self, group: Group) -> int:
        """Of one of `groups`."""
        ...

    def instances(self, group: str) -> Sequence[Instance]:
        """Everything that counts towards the target, what is being made or has failed included; and what is leaving."""
        ...

    def group_of(self, node: NodeRef) -> str | None:
        """Optional: whose node it is, also before the instances tell; None for a node of no group."""
        ...

    def launched_at(self, node: NodeRef) -> float | None:
        """Optional: when the node's machine was launched, in Unix seconds; None once the machine is gone."""
        ...

    def template(self, group: str) -> Node:
        """Optional: the next Node of the group, for groups that have none."""
        ...

    def options(self, group: str) -> GroupOptions:
        """Optional."""
        ...

    def gpus(self) -> Gpus:
        """The same for the whole life of the process."""
        ...

    def pricing(self) -> PricingModel | None:
        """The cloud's own prices, if it has any."""
        ...

    def increase(self, group: str, delta: int) -> None:
        """Raises the target by `delta` > 0; returns when the cloud has accepted, not when nodes are there."""
        ...

    def decrease_target(self, group: str, delta: int) -> None:
        """Takes back `delta` > 0 of what was asked for and is not there; no instance goes."""
        ...

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Removes these very nodes and lowers the target by as many."""
        ...

    def machine_types(self) -> Sequence[str]:
        """Optional: those that `theoretical` takes."""
        ...

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        """Optional. Raises Refused for a spec that cannot be."""
        ...

    def create_group(self, spec: GroupSpec) -> Created:
        """Optional: an empty group whose name begins with the spec's prefix."""
        ...

    def delete_group(self, group: str) -> None:
        """Optional: an autoprovisioned group without instances."""
        ...

    def cleanup(self) -> None:
        """Who has acted here goes. A cloud may undo what it has made."""
        ...

    def close(self) -> None:
        """Ends the connection; called once, at the end."""
        ...
