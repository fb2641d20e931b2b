"""The options of scale-down, with Cluster Autoscaler's defaults, and the reasons why a node stays."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from manager.autoscaler.cloudprovider.contract import GroupOptions
from manager.autoscaler.estimator.limits import ResourceBounds

T = TypeVar("T")


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
    """Why a pod cannot be evicted."""

    CONTROLLER_NOT_FOUND = "ControllerNotFound"
    MIN_REPLICAS = "MinReplicasReached"
    NOT_REPLICATED = "NotReplicated"
    KUBE_SYSTEM = "UnmovableKubeSystemPod"
    NOT_SAFE_TO_EVICT = "NotSafeToEvictAnnotation"
    LOCAL_STORAGE = "LocalStorageRequested"
    NOT_ENOUGH_PDB = "NotEnoughPdb"


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The options that a group may override. `zero_or_max`: the group has all of its nodes or none."""

    utilization_threshold: float = 0.5
    gpu_utilization_threshold: float = 0.5
    unneeded_seconds: float = 600.0
    unready_seconds: float = 1200.0
    ignores_daemons: bool = False
    zero_or_max: bool = False

    def overridden_by(self, options: GroupOptions) -> "GroupRules":
        """These rules with the overrides from the group's cloud."""
        return GroupRules(
            _either(options.scale_down_utilization_threshold, self.utilization_threshold),
            _either(options.scale_down_gpu_utilization_threshold, self.gpu_utilization_threshold),
            _either(options.scale_down_unneeded_seconds, self.unneeded_seconds),
            _either(options.scale_down_unready_seconds, self.unready_seconds),
            _either(options.ignore_daemonsets_utilization, self.ignores_daemons),
            _either(options.zero_or_max_node_scaling, self.zero_or_max),
        )


def _either(wanted: T | None, own: T) -> T:
    return own if wanted is None else wanted


@dataclass(frozen=True, slots=True)
class DrainRules:
    """Which pods block the removal of their node."""

    min_replica_count: int = 0
    skips_system_pods: bool = True
    skips_local_storage: bool = True
    skips_custom_controllers: bool = True
    system_pod_seconds: float = 3600.0  # age after which a kube-system pod without a budget no longer blocks its node


@dataclass(frozen=True, slots=True)
class Delays:
    """The pauses of deletion after nodes were added or deleted, or after a failed deletion; `local`: per group."""

    after_add_seconds: float = 600.0
    after_delete_seconds: float = 0.0
    after_failure_seconds: float = 180.0
    local: bool = False


@dataclass(frozen=True, slots=True)
class Parallelism:
    """The limits on nodes under deletion at one time: all of them, and those that must be drained."""

    nodes: int = 10
    drained: int = 1


@dataclass(frozen=True)
class ScaleDownRules:
    """`bounds` are the cluster's; only the lower ones count here.

    `peak_margin_percent` of a node stays free above its predicted peak.
    """

    group: GroupRules = field(default_factory=GroupRules)
    drain: DrainRules = field(default_factory=DrainRules)
    delays: Delays = field(default_factory=Delays)
    parallelism: Parallelism = field(default_factory=Parallelism)
    bounds: Mapping[str, ResourceBounds] = field(default_factory=dict)
    unready_enabled: bool = True
    ignores_mirror_pods: bool = False
    recheck_seconds: float = 300.0
    deletion_seconds: float = 300.0  # after which a node with the deletion taint is considered again
    soft_taints_at_once: int = 10
    gpu_label: str | None = None
    peak_margin_percent: int = 10


@dataclass(frozen=True)
class ActuationOptions:
    """How a chosen node goes.

    `delay_seconds`: between taint and eviction, so that the scheduler sees the taint; `hold_seconds`: how long a node
    may ask by its annotations to be kept; `gather_seconds`: how long nodes of a group are batched for one deletion;
    `soft_taint_seconds`: for all soft taints of an iteration. DaemonSet pods without an own annotation are evicted,
    too: `evicts_daemons` on nodes with other pods, `evicts_daemons_of_empty` on nodes without.
    """

    delay_seconds: float = 5.0
    cordons: bool = True
    most_grace_seconds: int = 600
    eviction_seconds: float = 120.0
    hold_seconds: float = 120.0
    gather_seconds: float = 0.0
    soft_taint_seconds: float = 3.0
    evicts_daemons: bool = True
    evicts_daemons_of_empty: bool = False
