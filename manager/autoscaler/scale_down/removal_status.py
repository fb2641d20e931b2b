"""The verdict on each node: why it goes, or why it stays."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.scale_down.node_utilization import NodeUtilization
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.snapshot.cluster import NodeInfo
from manager.autoscaler.taints import SoftTaints
from shared.errors import InvalidInput


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


class NodeStatuses:
    """The verdicts of a pass as they are reached. A later verdict on a node replaces an earlier one.

    `used` is what the pass has found of each node's utilization, `unremovable` which nodes are not tried again soon.
    """

    def __init__(self, group_of: Mapping[str, str], retry_at: float) -> None:
        self._group_of = group_of
        self._retry_at = retry_at
        self.used: dict[str, NodeUtilization | InvalidInput] = {}
        self.unremovable: dict[str, UnremovableNode] = {}
        self.by_node: dict[str, NodeRemovalStatus] = {}

    def keep(self, node: NodeInfo, reason: UnremovableReason, detail: str) -> None:
        """The cluster needs the node, or it may not go."""
        self._record(node, NodeStanding.NEEDED, reason, detail, None)

    def keep_for_a_while(self, node: NodeInfo, reason: UnremovableReason, detail: str) -> None:
        """The same for a node that is not tried again before the recheck time is over."""
        self.unremovable[node.name] = UnremovableNode(self._retry_at, reason, detail)
        self.keep(node, reason, detail)

    def delay(self, node: NodeInfo, reason: UnremovableReason, detail: str, *, since: float, ripe_at: float) -> None:
        """The node is unneeded, and does not go yet."""
        self._record(node, NodeStanding.UNNEEDED, reason, detail, (since, ripe_at))

    def remove(self, node: NodeInfo, detail: str, *, since: float, ripe_at: float) -> None:
        """The node goes."""
        self._record(node, NodeStanding.GOES, None, detail, (since, ripe_at))

    def _record(
        self,
        node: NodeInfo,
        standing: NodeStanding,
        reason: UnremovableReason | None,
        detail: str,
        times: tuple[float, float] | None,
    ) -> None:
        used = self.used.get(node.name)
        share = used.share if isinstance(used, NodeUtilization) else None
        group = self._group_of.get(node.name, "")
        since, ripe_at = times or (None, None)
        self.by_node[node.name] = NodeRemovalStatus(node.name, group, standing, reason, detail, share, since, ripe_at)
