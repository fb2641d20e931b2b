"""The verdict on each node: why it goes, or why it stays."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.taints import SoftTaints


class NodeStanding(enum.StrEnum):
    """NEEDED: the cluster needs the node, or the node may not go. UNNEEDED: it may go, but does not yet.

    A pass of scale-down returns GOES, UNNEEDED or NEEDED; reporting adds deletions in progress and nodes not judged.
    """

    GOES = "goes"
    UNNEEDED = "unneeded"
    LEAVING = "leaving"
    GONE = "gone"
    NEEDED = "needed"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class NodeRemovalStatus:
    """The verdict on one node; `reason` says why it stays, and is None where the node goes.

    It is unneeded since `unneeded_since`, long enough from `ripe_at` on, both in Unix seconds.
    """

    node: str
    group: str
    standing: NodeStanding
    reason: UnremovableReason | None
    detail: str
    utilization: float | None = None
    unneeded_since: float | None = None
    ripe_at: float | None = None

    def __str__(self) -> str:
        if self.reason is None:
            return f"{self.node} goes: {self.detail}"
        return f"{self.node} stays, {self.reason}: {self.detail}"


class ScaleDownReason(enum.StrEnum):
    """Why a node goes, in the words of Cluster Autoscaler's metrics."""

    EMPTY = "empty"
    UNDERUTILIZED = "underutilized"
    UNREADY = "unready"


@dataclass(frozen=True, slots=True)
class NodeToRemove:
    """A node that goes now, and the pods to evict first."""

    node: str
    group: str
    kind: ScaleDownReason
    utilization: float
    evicted: tuple[str, ...] = ()

    @property
    def is_drained(self) -> bool:
        return bool(self.evicted)


@dataclass(frozen=True, slots=True)
class SimulatedRemoval:
    """A node that the simulation removed, and the new places of its pods: pairs of pod and node."""

    node: str
    moves: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UnremovableNode:
    """Why a node could not go recently; it is not tried again before `until`."""

    until: float
    reason: UnremovableReason
    detail: str


@dataclass(frozen=True)
class ScaleDownHistory:
    """What one pass passes on to the next, by node; times in Unix seconds."""

    unneeded_since: Mapping[str, float] = field(default_factory=dict)
    unremovable: Mapping[str, UnremovableNode] = field(default_factory=dict)


@dataclass(frozen=True)
class ScaleDownDecision:
    """The result of one pass: a verdict on every node, the nodes to remove now, the soft taints, and the history.

    `going` gives the simulated places of the pods of nodes under deletion, as far as they found one; `simulated` gives
    the removals of the unneeded nodes after them, in order. `cooldown` says why nothing is deleted in the whole cluster
    for now; it is empty otherwise.
    """

    statuses: Mapping[str, NodeRemovalStatus]
    removals: tuple[NodeToRemove, ...]
    going: tuple[SimulatedRemoval, ...]
    simulated: tuple[SimulatedRemoval, ...]
    soft_taints: SoftTaints
    memory: ScaleDownHistory
    cooldown: str = ""

    @property
    def unneeded(self) -> tuple[str, ...]:
        """The nodes that the cluster can do without, all of them together."""
        return tuple(each.node for each in self.simulated)
