"""The calls to a cloud provider, and the values that it returns.

How clouds implement each call:

| call            | external gRPC                 | AWS groups             | Cluster API        | Karpenter           |
|-----------------|-------------------------------|------------------------|--------------------|---------------------|
| refresh         | Refresh                       | Describe...Groups      | its objects        | its objects         |
| groups          | NodeGroups, ...TargetSize     | min, max, desired      | bounds, replicas   | machine types       |
| instances       | NodeGroupNodes                | lifecycle state        | Machines           | NodeClaims          |
| group_of        | NodeGroupForNode              | instance's group       | Machine's group    | NodeClaim's group   |
| launched_at     | Unsupported                   | DescribeInstances      | Machine's age      | NodeClaim's age     |
| template        | ...TemplateNodeInfo           | launch template, tags  | annotations        | the catalogue       |
| options         | ...GetOptions                 | tags                   | annotations        | Unsupported         |
| increase        | ...IncreaseSize               | desired capacity, or a | replicas           | creates NodeClaims  |
|                 |                               | fleet that joins later |                    |                     |
| decrease_target | ...DecreaseTargetSize         | desired capacity       | replicas           | Refused             |
| delete_nodes    | ...DeleteNodes                | terminate, decrement,  | marked Machines    | deletes NodeClaims, |
|                 |                               | until one fails        | at once            | until one fails     |
| create_group    | Unsupported                   | Unsupported            | MachineDeployment  | in the registry     |
| pricing         | PricingNodePrice, ...PodPrice | none (a price file)    | prices of its file | the catalogue       |

Calls are synchronous; `guard.Guard` gives them a deadline, checks the answers and leaves unmanaged groups alone.
All raise ProviderError. An instance's id is its Node's `spec.providerID`.

One thread makes all calls, with one exception for plan requests: a second thread may call `template`, `gpus`,
`pricing` and its result, `machine_types` and `theoretical`, whatever call is under way in the first.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from manager.autoscaler.cloudprovider.errors import Unsupported
from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node, Taint
from shared.quantity import Amounts


class InstanceState(enum.StrEnum):
    """Where a machine is in its life. An instance that is being deleted no longer counts towards the target."""

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
    """One machine, whether or not it has a Node yet. `drift` says how it differs from what its group would launch now;
    empty where it does not, or where the cloud cannot tell.
    """

    provider_id: str
    state: InstanceState = InstanceState.RUNNING
    error: InstanceError | None = None
    drift: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of nodes of one kind. `target_size` is the requested size, not the present one.

    `joining` of it come from outside: until they join, the rest alone must satisfy the minimum. `autoprovisioned`:
    `create_group` created it, and it may be deleted when empty.
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
        """The size that limits deletions."""
        return self.target_size - self.joining


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options that a cloud overrides for one group; None keeps the autoscaler's own."""

    scale_down_utilization_threshold: float | None = None
    scale_down_gpu_utilization_threshold: float | None = None
    scale_down_unneeded_time_seconds: float | None = None
    scale_down_unready_time_seconds: float | None = None
    max_node_provision_time_seconds: float | None = None
    max_node_startup_time_seconds: float | None = None
    max_node_lifetime_seconds: float | None = None
    zero_or_max_node_scaling: bool | None = None
    ignore_daemonsets_utilization: bool | None = None


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A Node in requests to clouds."""

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
    """A group to create. `extra_resources` are those that the machine type lacks, such as GPUs."""

    machine_type: str
    prefix: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    extra_resources: Amounts = field(default_factory=dict)


class NoticeKind(enum.StrEnum):
    DELETED_BY_OTHERS = "deleted by others"  # a node goes, and not on our word
    DELAYED = "delayed"  # nodes of an increase are not asked for yet


@dataclass(frozen=True, slots=True)
class CloudNotice:
    """What has happened to `nodes` of a group and is no answer to a call, in a sentence."""

    kind: NoticeKind
    group: str
    nodes: int
    message: str


@dataclass(frozen=True, slots=True)
class Theoretical:
    """The group that `create_group` would make of a spec; it does not exist yet.

    `groups` counts it and its extra groups.
    """

    spec: GroupSpec
    id: str
    max_size: int
    template: Node
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Created:
    """The requested group, and others that came with it, such as one for each further zone. All are empty."""

    main: Group
    extras: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpus:
    """The label that marks nodes with GPUs, and its values."""

    label: str | None = None
    types: frozenset[str] = frozenset()


class Provider(Protocol):
    """A cloud. Optional calls may raise Unsupported, always or for one group; deriving from the protocol does that, and
    supplies the other defaults.
    """

    @property
    def name(self) -> str: ...

    def refresh(self) -> None:
        """Starts an iteration: cached answers may be dropped."""
        ...

    def groups(self) -> Sequence[Group]:
        """All groups, unmanaged ones included; with their targets only where these need no call of their own."""
        ...

    def unknown_groups(self) -> Mapping[str, str]:
        """Groups that machines of the cloud name, and that are not there, each with what is known of it."""
        return {}

    def strays(self) -> Mapping[str, Sequence[str]]:
        """Instances that never become nodes, so that they are to be deleted: ids by group. These are instances of
        unknown groups, and those that this provider has launched for a group in enforce mode and given up.
        """
        return {}

    def notices(self) -> Sequence[CloudNotice]:
        """What has happened since the refresh before, each once."""
        return ()

    def target_size(self, group: Group) -> int:
        """The target of one of `groups`; by default the one that it was listed with."""
        return group.target_size

    def instances(self, group: str) -> Sequence[Instance]:
        """Everything that counts towards the target, including instances that are being made or have failed; and
        instances being deleted.
        """
        ...

    def group_of(self, node: NodeRef) -> str | None:
        """Optional: the group of a node, also before the instances list it; None for a node without a group."""
        raise Unsupported(self.name, "", "this cloud does not support it")

    def launched_at(self, node: NodeRef) -> float | None:
        """Optional: when the node's machine was launched, in Unix seconds; None once the machine no longer exists."""
        raise Unsupported(self.name, "", "this cloud does not support it")

    def template(self, group: str) -> Node:
        """Optional: the next Node of the group, for groups that have none."""
        raise Unsupported(self.name, group, "this cloud does not support it")

    def options(self, group: str) -> GroupOptions:
        """Optional."""
        raise Unsupported(self.name, group, "this cloud does not support it")

    def gpus(self) -> Gpus:
        """Constant for the whole life of the process."""
        return Gpus()

    def pricing(self) -> PricingModel | None:
        """The cloud's own prices, if it has any."""
        return None

    def increase(self, group: str, delta: int) -> None:
        """Raises the target by `delta` > 0; returns when the cloud has accepted, not when the nodes exist."""
        ...

    def decrease_target(self, group: str, delta: int) -> None:
        """Takes `delta` > 0 missing nodes off the target; deletes no instance."""
        ...

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """Deletes exactly these nodes, and lowers the target by their number."""
        ...

    def machine_types(self) -> Sequence[str]:
        """Optional: the types that `theoretical` accepts."""
        raise Unsupported(self.name, "", "this cloud does not support it")

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        """Optional. Raises Refused for an impossible spec."""
        raise Unsupported(self.name, "", "this cloud does not support it")

    def create_group(self, spec: GroupSpec) -> Created:
        """Optional: creates an empty group whose name starts with the spec's prefix."""
        raise Unsupported(self.name, "", "this cloud does not support it")

    def delete_group(self, group: str) -> None:
        """Optional: deletes an autoprovisioned group without instances."""
        raise Unsupported(self.name, group, "this cloud does not support it")

    def cleanup(self) -> None:
        """The acting process ends. A cloud may undo what it has made."""
        return

    def close(self) -> None:
        """Ends the connection; called once, at the end."""
        return
