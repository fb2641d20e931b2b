"""The deletions of nodes as values: their progress, the events, and the instructions.

`deletion_machine.step` maps states and events to states and instructions. Moments are of the monotonic clock, so that a
wall clock jump deletes no node early and keeps none; only `since` is in Unix seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.actuation.node_drain import NodeDrain, PodEviction, PodsToDrain
from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    DeletionProgress,
    DeletionStage,
    NodeToRemove,
    ScaleDownReason,
)
from manager.autoscaler.settings.scale_down import ActuationOptions, DrainRules
from manager.autoscaler.utilization.review import NodeReview
from shared.api.core import Node


@dataclass(frozen=True)
class DeletionOptions:
    """Pods with a priority below `expendable_below` do not keep a node."""

    actuation: ActuationOptions = field(default_factory=ActuationOptions)
    drain: DrainRules = field(default_factory=DrainRules)
    expendable_below: int = 0


@dataclass(frozen=True, slots=True)
class UnconfirmedDeletion:
    """A call to delete the node failed, and a later observation must show the result.

    The node counts as kept if it is still present in an observation after number `observation`, from `until` on.
    """

    error: str
    observation: int
    until: float
    of_many: bool


@dataclass(frozen=True, slots=True)
class NodeDeletion:
    """One node. In an `atomic` deletion all nodes of the group go, or none.

    It is tainted since `tainted_at`, and ready to be deleted since `ready_at`. With an `error` its taint is being
    removed, last tried at `untainted_at`. With `alone` the cloud is asked to delete it in a call of its own.

    With a `review` a scan has tainted it: it needs no other taint and no drain, is tried once, by the loop's thread,
    goes if the review still holds, and otherwise keeps its taint for the next scan.
    """

    removal: NodeToRemove
    ref: NodeRef
    uid: str
    since: float
    began_at: float
    atomic: bool = False
    stage: DeletionStage = DeletionStage.MARKING
    tainted_at: float | None = None
    drain: NodeDrain | None = None
    ready_at: float | None = None
    alone: bool = False
    unconfirmed: UnconfirmedDeletion | None = None
    error: str = ""
    untainted_at: float | None = None
    review: NodeReview | None = None

    @property
    def name(self) -> str:
        return self.removal.node

    @property
    def group(self) -> str:
        return self.removal.group

    @property
    def is_ready(self) -> bool:
        """Whether the node itself is ready to be deleted by the cloud."""
        return self.ready_at is not None and self.unconfirmed is None and not self.error

    def progress(self) -> DeletionProgress:
        drained = self.drain is not None and self.stage is DeletionStage.DRAINING
        waits_for = self.drain.waits_for if self.drain is not None and drained else ()
        return DeletionProgress(self.name, self.group, self.removal.kind, self.stage, self.since, waits_for, self.error)


def reviewed(group: str, review: NodeReview, node: Node, wall: float, now: float) -> NodeDeletion:
    """The deletion of a node that a scan has tainted, and that needs no drain."""
    kind = ScaleDownReason.EMPTY if review.is_empty else ScaleDownReason.UNDERUTILIZED
    removal, ref = NodeToRemove(node.metadata.name, group, kind, 0.0), NodeRef.from_node(node)
    stage, uid = DeletionStage.DELETING, node.metadata.uid
    return NodeDeletion(removal, ref, uid, wall, now, stage=stage, tainted_at=now, ready_at=now, review=review)


@dataclass(frozen=True, slots=True)
class DeletedNode:
    """A node whose deletion the cloud has accepted, until its Node object no longer exists, or until `until`."""

    group: str
    uid: str
    until: float


@dataclass(frozen=True, slots=True)
class CloudView:
    """The machines as last observed, by provider id, and how many nodes each group has above its minimum."""

    observation: int = 0
    present: frozenset[str] = frozenset()
    deleting: frozenset[str] = frozenset()
    spare: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DeletionState:
    """All deletions of this process, by node, in the order in which the nodes were chosen.

    `abandoned` are nodes with a scale-down taint that no deletion works on, with the moment of the last try to remove
    it. `ended` and `accepted` (nodes by group) wait until the loop takes them. `latest` is by group.
    """

    deletions: Mapping[str, NodeDeletion] = field(default_factory=dict)
    deleted: Mapping[str, DeletedNode] = field(default_factory=dict)
    abandoned: Mapping[str, float] = field(default_factory=dict)
    cloud: CloudView = CloudView()
    ended: tuple[DeletionProgress, ...] = ()
    accepted: Mapping[str, int] = field(default_factory=dict)
    latest: Mapping[str, CooldownTimestamps] = field(default_factory=dict)


# The events: decisions of the loop,
@dataclass(frozen=True, slots=True)
class NodesChosen:
    deletions: tuple[NodeDeletion, ...]


@dataclass(frozen=True, slots=True)
class InstancesChosen:
    """Instances that never became nodes: there is nothing to drain."""

    group: str
    refs: tuple[NodeRef, ...]


@dataclass(frozen=True, slots=True)
class TaintedChosen:
    """Nodes of one group that its scan has tainted before, and that go now."""

    deletions: tuple[NodeDeletion, ...]


@dataclass(frozen=True, slots=True)
class EvictionsChosen:
    """All pods of a node that its scan drains, whether or not the machine knows the node."""

    node: str
    pods: tuple[PodEviction, ...]


@dataclass(frozen=True, slots=True)
class TaintsAbandoned:
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodesAdded:
    groups: tuple[str, ...]
    now: float


@dataclass(frozen=True, slots=True)
class LeadershipEnded:
    pass


@dataclass(frozen=True, slots=True)
class EndedTaken:
    """The loop has seen what has ended; of `nodes` alone, if given, and there it waits for no further result."""

    nodes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class AcceptedTaken:
    pass


# observations,
@dataclass(frozen=True, slots=True)
class CloudObserved:
    present: frozenset[str]
    deleting: frozenset[str]
    spare: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CloudObservedAgain:
    """The cloud was observed once more, after a call whose result was not known."""

    now: float


@dataclass(frozen=True, slots=True)
class NodesObserved:
    """A pass begins. `pods` are by node; `uids` are those of the present Node objects, by name."""

    now: float
    pods: Mapping[str, PodsToDrain]
    uids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PassEnding:
    """The first instructions of the pass are carried out.

    `kept` nodes ask by an annotation to be kept for a while; with `stale` observations no drain is over.
    """

    now: float
    kept: frozenset[str] = frozenset()
    stale: bool = False


# and results of instructions.
@dataclass(frozen=True, slots=True)
class NodeTainted:
    node: str
    now: float


@dataclass(frozen=True, slots=True)
class TaintFailed:
    node: str
    now: float
    error: str


@dataclass(frozen=True, slots=True)
class NodeUntainted:
    node: str


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The Node object does not exist, or another Node has its name."""

    node: str


@dataclass(frozen=True, slots=True)
class EvictionTried:
    """The pod was evicted, or not by this `error`; without an answer no other pod of the node is tried in this pass."""

    node: str
    uid: str
    now: float
    error: str = ""
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Inspection:
    """A node right before its deletion, as the API server returns it: it does not exist, or stays, or cannot be read
    because of an error, or has these pods. Without a machine only its Node is left.
    """

    node: str
    is_gone: bool = False
    stays: str = ""
    error: str = ""
    pods: PodsToDrain | None = None
    has_machine: bool = True


@dataclass(frozen=True, slots=True)
class BatchInspected:
    group: str
    found: tuple[Inspection, ...]
    now: float


@dataclass(frozen=True, slots=True)
class BatchDeleted:
    group: str
    nodes: tuple[str, ...]
    now: float


@dataclass(frozen=True, slots=True)
class DeletionFailed:
    """`refused`: the cloud refused; `unconfirmed`: it may have deleted some nodes nevertheless."""

    group: str
    nodes: tuple[str, ...]
    now: float
    error: str
    refused: bool
    unconfirmed: bool


Event = (
    NodesChosen
    | InstancesChosen
    | TaintedChosen
    | EvictionsChosen
    | TaintsAbandoned
    | NodesAdded
    | LeadershipEnded
    | EndedTaken
    | AcceptedTaken
    | CloudObserved
    | CloudObservedAgain
    | NodesObserved
    | PassEnding
    | NodeTainted
    | TaintFailed
    | NodeUntainted
    | NodeGone
    | EvictionTried
    | BatchInspected
    | BatchDeleted
    | DeletionFailed
)


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Taint the node as being deleted, and cordon it if configured."""

    node: str
    uid: str


@dataclass(frozen=True, slots=True)
class UntaintNode:
    """Remove scale-down's taints, and its cordon; without a `uid`, from any Node of this name."""

    node: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class EvictPod:
    node: str
    pod: PodEviction


@dataclass(frozen=True, slots=True)
class InspectBatch:
    """Read these nodes and their pods from the API server itself, because a deletion cannot be undone."""

    group: str
    nodes: tuple[NodeDeletion, ...]


@dataclass(frozen=True, slots=True)
class DeleteBatch:
    """Have the cloud delete these nodes in one call; with `below_min` also those that its minimum would keep."""

    group: str
    nodes: tuple[NodeRef, ...]
    below_min: bool = False


@dataclass(frozen=True, slots=True)
class ObserveCloud:
    """Observe the cloud again at once: the loop waits for the result of a call."""


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete the Node object of a machine that no longer exists."""

    node: str
    uid: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """`level` is that of the logging module."""

    level: int
    text: str
    fields: Mapping[str, str]


Instruction = TaintNode | UntaintNode | EvictPod | InspectBatch | DeleteBatch | ObserveCloud | DeleteNode | LogLine
