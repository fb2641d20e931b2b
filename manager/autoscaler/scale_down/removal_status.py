"""What was found about each node: why it goes, or why it is still here."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.taints import SoftTaints


class NodeStanding(enum.StrEnum):
    """NEEDED: the cluster could not do without the node, or it is not to go. UNNEEDED: it may go, and does not yet.

    A pass of scale-down says GOES, UNNEEDED or NEEDED; reporting adds deletions in progress and nodes not judged.
    """

    GOES = "goes"
    UNNEEDED = "unneeded"
    LEAVING = "leaving"
    GONE = "gone"
    NEEDED = "needed"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class NodeRemovalStatus:
    """On one node, with the one `reason` why it is here, None where it goes.

    `unneeded_since`, and from `ripe_at` on it has been so for long enough, both in Unix seconds.
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
    """A node that goes now, and the pods that are evicted before."""

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
    """A node that the simulation did without, and where its pods went: pairs of pod and node."""

    node: str
    moves: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UnremovableNode:
    """Why a node could not go a short while ago; until then it is not tried again."""

    until: float
    reason: UnremovableReason
    detail: str


@dataclass(frozen=True)
class ScaleDownHistory:
    """What one pass leaves to the next, by node; times in Unix seconds."""

    unneeded_since: Mapping[str, float] = field(default_factory=dict)
    unremovable: Mapping[str, UnremovableNode] = field(default_factory=dict)


@dataclass(frozen=True)
class ScaleDownDecision:
    """Of one pass: a verdict on every node, what goes now, and what is to be marked and remembered.

    `going` says where the pods of nodes that are being deleted went in the simulation, as far as they found a place;
    `simulated` how the unneeded ones left after them, in that order. `cooldown` says why nothing is deleted for a while
    anywhere, and is empty when something may be.
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
        """The nodes the cluster could do without, all of them together."""
        return tuple(each.node for each in self.simulated)
