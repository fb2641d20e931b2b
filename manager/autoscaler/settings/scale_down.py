"""The removal of nodes."""

from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.settings.estimates import GroupHealthSettings
from manager.autoscaler.settings.values import MOST_SECONDS
from shared.settings import Fixed

_Share = Annotated[float, Meta(ge=0, le=1)]


class DrainRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which pods block the removal of their node."""

    min_replica_count: Annotated[
        int,
        Meta(ge=0, description="Keep nodes with pods of a ReplicaSet that has fewer replicas than this. 0: no limit."),
    ] = 0
    skip_nodes_with_system_pods: Annotated[
        bool, Meta(description="Keep nodes with kube-system pods that no PodDisruptionBudget covers.")
    ] = True
    skip_nodes_with_local_storage: Annotated[
        bool, Meta(description="Keep nodes with pods that use local storage, such as emptyDir or hostPath.")
    ] = True
    skip_nodes_with_custom_controller_pods: Annotated[
        bool, Meta(description="Keep nodes with pods of controllers other than those of Kubernetes itself.")
    ] = True


class Delays(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pauses of deletion after nodes were added or deleted, or after a failed deletion."""

    scale_down_delay_after_add_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="Wait this long after a scale-up before deleting any node.")
    ] = 600.0
    scale_down_delay_after_delete_seconds: Annotated[
        float,
        Meta(ge=0, le=MOST_SECONDS, description="Wait this long after nodes were deleted before deleting another one."),
    ] = 0.0
    scale_down_delay_after_failure_seconds: Annotated[
        float,
        Meta(ge=0, le=MOST_SECONDS, description="Wait this long after a failed deletion before deleting any node."),
    ] = 180.0
    scale_down_delay_type_local: Annotated[
        bool,
        Meta(description="Apply the three delays after scale-up, deletion and failure to each node group separately."),
    ] = False


class Parallelism(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits on nodes under deletion at one time: all of them, and those that must be drained."""

    max_scale_down_parallelism: Annotated[
        int, Meta(ge=0, description="Largest number of nodes being deleted at the same time.")
    ] = 10
    max_drain_parallelism: Annotated[
        int, Meta(ge=0, description="Largest number of nodes being drained at the same time.")
    ] = 1


class RemovalRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which nodes are considered, and how often."""

    scale_down_unready_enabled: Annotated[bool, Meta(description="Delete unneeded nodes even if they are unready.")] = (
        True
    )
    unremovable_node_recheck_timeout_seconds: Fixed[float] = 300.0
    max_bulk_soft_taint_count: Annotated[
        int,
        Meta(
            ge=0,
            description="Largest number of nodes whose soft taint (PreferNoSchedule on unneeded nodes) is "
            "added or removed in one iteration. 0: never.",
        ),
    ] = 10
    scale_down_peak_margin_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Percentage of each remaining node's allocatable that must stay free above its "
            "predicted peak after the move.",
        ),
    ] = 10


class ActuationOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a chosen node is drained and deleted."""

    node_delete_delay_after_taint_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=600,
            description="Wait this long between tainting a node and draining it, so that the scheduler "
            "notices the taint.",
        ),
    ] = 5.0
    cordon_node_before_terminating: Annotated[bool, Meta(description="Cordon a node before it is drained.")] = True
    max_graceful_termination_sec: Annotated[
        int, Meta(ge=0, le=86_400, description="Longest grace period in seconds for an evicted pod.")
    ] = 600
    max_pod_eviction_time_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="How long a refused eviction is retried.")
    ] = 120.0
    daemonset_eviction_for_occupied_nodes: Annotated[
        bool,
        Meta(
            description="Evict DaemonSet pods when a node with other pods is drained. An annotation of the "
            "pod overrides it."
        ),
    ] = True


class ScaleDownSettings(GroupHealthSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choice, the timing and the steps of node removals."""

    scale_down_enabled: Annotated[bool, Meta(description="Delete nodes that the cluster does not need.")] = True
    scale_down_unneeded_time_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="How long a node must be unneeded before it is deleted.")
    ] = 600.0
    scale_down_unready_time_seconds: Annotated[
        float,
        Meta(ge=0, le=MOST_SECONDS, description="How long an unready node must be unneeded before it is deleted."),
    ] = 1200.0
    scale_down_simulation_timeout_seconds: Fixed[float] = 30.0
    scale_down_utilization_threshold: Annotated[
        _Share | None,
        Meta(
            description="Requested share of a node's CPU or memory above which the node is needed. If unset, "
            "0.5, or 1 with consolidation by price."
        ),
    ] = None
    scale_down_gpu_utilization_threshold: Annotated[
        _Share | None,
        Meta(
            description="Requested share of a GPU node's GPUs above which the node is needed. If unset, 0.5, "
            "or 1 with consolidation by price."
        ),
    ] = None
    ignore_daemonsets_utilization: Annotated[
        bool, Meta(description="Ignore DaemonSet pods when a node's utilization is computed.")
    ] = False
    scale_down_peaks: Annotated[
        bool,
        Meta(
            description="Delete a node only if the remaining nodes also have room for the predicted peaks of "
            "its pods. Without NodeMetrics in the cluster, only requests count."
        ),
    ] = True
    delays: Delays = Delays()
    parallelism: Parallelism = Parallelism()
    removal: RemovalRules = RemovalRules()
    drain: DrainRules = DrainRules()
    actuation: ActuationOptions = ActuationOptions()
