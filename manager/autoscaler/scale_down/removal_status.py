"""The options of scale-down, with Cluster Autoscaler's defaults; the verdict on each node, with the reason why it
stays; and the history from earlier passes: since when nodes are unneeded, which deletions are under way, and what
delays further ones. All times in Unix seconds.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

from manager.autoscaler.cloudprovider.contract import GroupOptions
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.settings.scale_down import Delays, DrainRules, Parallelism, RemovalRules
from manager.autoscaler.snapshot.taints import SoftTaints
from shared import durations
from shared.explanation import ScaleExplanation, Term

UNNEEDED_TIME = "unneededTime"  # the term that says how long a node must be unneeded


class UnremovableReason(enum.StrEnum):
    """Why a node stays: Cluster Autoscaler's reasons, followed by our own."""

    NOT_AUTOSCALED = "NotAutoscaled"
    BEING_DELETED = "CurrentlyBeingDeleted"
    DISABLED = "ScaleDownDisabledAnnotation"
    UNREADY_DISABLED = "ScaleDownUnreadyDisabled"
    AT_MINIMUM = "NodeGroupMinSizeReached"
    BELOW_LIMIT = "MinimalResourceLimitExceeded"
    NOT_UNDERUTILIZED = "NotUnderutilized"
    RECENTLY_UNREMOVABLE = "RecentlyUnremovable"
    BLOCKED_BY_POD = "BlockedByPod"
    ON_COMPLETION_POD = "BlockedByOnCompletionPod"
    NO_PLACE = "NoPlaceToMovePods"
    UNEXPECTED = "UnexpectedError"
    NOT_UNNEEDED_LONG = "NotUnneededLongEnough"
    NOT_UNREADY_LONG = "NotUnreadyLongEnough"
    ATOMIC = "AtomicScaleDownFailed"
    PEAKS = "NoRoomForPredictedPeaks"
    PEAK_UNKNOWN = "PredictedPeakUnknown"
    COOLDOWN = "InCooldown"
    BUDGET = "DeletionBudgetReached"
    STARTING = "NotStartedYet"
    OUT_OF_TIME = "SimulationTimedOut"
    REPLACEMENT = "PartOfReplacement"
    INTERRUPTED = "NodeInterrupted"


class BlockingReason(enum.StrEnum):
    """Why a pod cannot be evicted: Cluster Autoscaler's reasons, followed by our own."""

    CONTROLLER_NOT_FOUND = "ControllerNotFound"
    MIN_REPLICAS = "MinReplicasReached"
    NOT_REPLICATED = "NotReplicated"
    KUBE_SYSTEM = "UnmovableKubeSystemPod"
    NOT_SAFE_TO_EVICT = "NotSafeToEvictAnnotation"
    LOCAL_STORAGE = "LocalStorageRequested"
    NOT_ENOUGH_PDB = "NotEnoughPdb"
    GANG = "GangAtMinimum"


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The options that a group may override. `zero_or_max_node_scaling`: the group has all of its nodes or none."""

    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    scale_down_unneeded_time_seconds: float = 600.0
    scale_down_unready_time_seconds: float = 1200.0
    ignore_daemonsets_utilization: bool = False
    zero_or_max_node_scaling: bool = False

    def overridden_by(self, options: GroupOptions) -> "GroupRules":
        """These rules with the overrides from the group's cloud."""
        given = {each.name: getattr(options, each.name) for each in fields(self)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class ScaleDownRules:
    """`bounds` are the cluster's; only the lower ones count here."""

    group: GroupRules = field(default_factory=GroupRules)
    delays: Delays = field(default_factory=Delays)
    parallelism: Parallelism = field(default_factory=Parallelism)
    removal: RemovalRules = field(default_factory=RemovalRules)
    drain: DrainRules = field(default_factory=DrainRules)
    bounds: Mapping[str, ResourceBounds] = field(default_factory=dict)
    gpu_label: str | None = None
    deletion_seconds: float = 300.0  # after which a node with the deletion taint is considered again


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
    """The verdict on one node. The `explanation` is bound by the reason why it stays, or by none where the node goes.

    It is unneeded since `unneeded_since`, long enough from `ripe_at` on, both in Unix seconds.
    """

    node: str
    group: str
    standing: NodeStanding
    explanation: ScaleExplanation
    utilization: float | None = None
    unneeded_since: float | None = None
    ripe_at: float | None = None

    @property
    def reason(self) -> UnremovableReason | None:
        return UnremovableReason(self.explanation.bound) if self.explanation.bound else None

    @property
    def detail(self) -> str:
        return self.explanation.reason

    def __str__(self) -> str:
        if self.reason is None:
            return f"{self.node} is deleted: {self.detail}"
        return f"{self.node} is not deleted, {self.reason}: {self.detail}"


class Objection(NamedTuple):
    """Why a node stays, in one line, with what was compared."""

    reason: UnremovableReason
    detail: str
    terms: tuple[Term, ...] = ()


class ScaleDownReason(enum.StrEnum):
    """Why a node goes, in the words of Cluster Autoscaler's metrics."""

    EMPTY = "empty"
    UNDERUTILIZED = "underutilized"
    UNREADY = "unready"


@dataclass(frozen=True, slots=True)
class NodeToRemove:
    """A node that goes now, and the pods to evict first. After `grace_seconds` of draining it goes with the pods that
    are still there; None waits for all of them.
    """

    node: str
    group: str
    kind: ScaleDownReason
    utilization: float
    evicted: tuple[str, ...] = ()
    grace_seconds: float | None = None

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
    """The state that one pass hands to the next, by node; times in Unix seconds."""

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

    @property
    def unneeded_by_group(self) -> Counter[str]:
        """How many of them each group has."""
        return Counter(self.statuses[node].group for node in self.unneeded)


@dataclass(frozen=True, slots=True)
class CooldownTimestamps:
    """When each event happened last, None if never; for the cluster or for one group."""

    added: float | None = None
    deleted: float | None = None
    failed: float | None = None

    def latest(self, other: "CooldownTimestamps") -> "CooldownTimestamps":
        """The later timestamp of each pair."""
        pairs = zip(self._all, other._all, strict=True)
        return CooldownTimestamps(*(max(filter(None, pair), default=None) for pair in pairs))

    def shifted(self, seconds: float) -> "CooldownTimestamps":
        """The same on a clock that is `seconds` ahead."""
        return CooldownTimestamps(*(None if each is None else each + seconds for each in self._all))

    @property
    def _all(self) -> tuple[float | None, ...]:
        return self.added, self.deleted, self.failed


def unneeded_since(before: Mapping[str, float], unneeded: Iterable[str], now: float) -> dict[str, float]:
    """The start of each node's unneeded time. It restarts if the node was needed in between; a clock set back does not
    prolong it.
    """
    return {name: min(before.get(name, now), now) for name in unneeded}


def wanted_seconds(is_ready: bool, rules: GroupRules) -> float:
    """How long a node must be unneeded before it goes."""
    return rules.scale_down_unneeded_time_seconds if is_ready else rules.scale_down_unready_time_seconds


def too_short(since: float, is_ready: bool, rules: GroupRules, now: float) -> Objection | None:
    """Why a node that is unneeded since `since` still waits; None once it has waited for more than the set time."""
    wanted = wanted_seconds(is_ready, rules)
    if since + wanted < now:
        return None
    reason = UnremovableReason.NOT_UNNEEDED_LONG if is_ready else UnremovableReason.NOT_UNREADY_LONG
    what = "not needed" if is_ready else "unready and not needed"
    terms = (
        Term("unneeded", round(now - since), "seconds", "earlier iterations"),
        Term(UNNEEDED_TIME, round(wanted), "seconds", "options of the group"),
    )
    return Objection(
        reason, f"{what} for {_duration(now - since)}, and is deleted after more than {_duration(wanted)}", terms
    )


def cooldown(happened: CooldownTimestamps, delays: Delays, now: float) -> str | None:
    """The delay of deletions, None without one. If several apply, the one that ends last."""
    waits = [
        (moment + seconds, what)
        for moment, seconds, what in (
            (happened.added, delays.scale_down_delay_after_add_seconds, "nodes were added"),
            (happened.deleted, delays.scale_down_delay_after_delete_seconds, "nodes were deleted"),
            (happened.failed, delays.scale_down_delay_after_failure_seconds, "a deletion failed"),
        )
        if moment is not None and moment + seconds > now
    ]
    if not waits:
        return None
    end, what = max(waits)
    return f"{what} not long ago; nothing is deleted for another {_duration(end - now)}"


def _duration(seconds: float) -> str:
    return durations.render(round(seconds))


class DeletionStage(enum.StrEnum):
    """A node is tainted so that no pods come, drained if it has pods to move, and deleted.

    FAILED: the node stays, and its taint is taken off.
    """

    MARKING = "marking"
    DRAINING = "draining"
    DELETING = "deleting"
    GONE = "gone"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (DeletionStage.GONE, DeletionStage.FAILED)


@dataclass(frozen=True, slots=True)
class DeletionProgress:
    """One node. `since` is when it was chosen, in Unix seconds; `waits_for` are the pods still to end."""

    node: str
    group: str
    kind: ScaleDownReason
    stage: DeletionStage
    since: float
    waits_for: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class DeletionCounts:
    """The nodes under deletion."""

    empty: int = 0
    drained: int = 0


@dataclass(frozen=True)
class DeletionsInProgress:
    """`leaving` holds the nodes under deletion and those whose deletion ended since the iteration before.

    `gone` maps each node that the cloud has deleted to its group, for as long as its Node may exist. `happened_in` is
    by group.
    """

    memory: ScaleDownHistory = field(default_factory=ScaleDownHistory)
    leaving: tuple[DeletionProgress, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    in_progress: DeletionCounts = field(default_factory=DeletionCounts)
    happened: CooldownTimestamps = field(default_factory=CooldownTimestamps)
    happened_in: Mapping[str, CooldownTimestamps] = field(default_factory=dict)

    @property
    def on_their_way(self) -> dict[str, str]:
        """The group of each node that no longer counts as capacity."""
        return {**self.gone, **{each.node: each.group for each in self.leaving if not each.stage.is_over}}

    @property
    def draining(self) -> frozenset[str]:
        """The nodes whose pods are being moved, or are about to be."""
        return frozenset(
            each.node for each in self.leaving if each.stage in (DeletionStage.MARKING, DeletionStage.DRAINING)
        )


def history_after_failures(
    memory: ScaleDownHistory, leaving: Iterable[DeletionProgress], until: float
) -> ScaleDownHistory:
    """Nodes whose deletion failed are not tried again before `until`, and their unneeded time starts again."""
    failed = {each.node: each.error for each in leaving if each.stage is DeletionStage.FAILED}
    if not failed:
        return memory
    since = {node: moment for node, moment in memory.unneeded_since.items() if node not in failed}
    remembered = {node: UnremovableNode(until, UnremovableReason.UNEXPECTED, error) for node, error in failed.items()}
    return ScaleDownHistory(since, {**memory.unremovable, **remembered})


def shifted_history(memory: ScaleDownHistory, seconds: float) -> ScaleDownHistory:
    """The history after a clock jump of `seconds`: all ages stay the same."""
    return ScaleDownHistory(
        {node: moment + seconds for node, moment in memory.unneeded_since.items()},
        {node: replace(each, until=each.until + seconds) for node, each in memory.unremovable.items()},
    )
