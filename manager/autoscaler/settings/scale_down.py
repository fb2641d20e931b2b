"""The removal of nodes."""

from typing import Annotated

from msgspec import Meta

from manager.autoscaler.settings.estimates import GroupHealthSettings
from manager.autoscaler.settings.values import MOST_SECONDS

_Share = Annotated[float, Meta(ge=0, le=1)]


class ScaleDownSettings(GroupHealthSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choice, the timing and the steps of node removals."""

    scale_down_enabled: Annotated[bool, Meta(description="take away nodes that the cluster can do without")] = True
    scale_down_unready_enabled: Annotated[bool, Meta(description="also those that are unready")] = True
    scale_down_delay_after_add_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="no node goes for so long after nodes were added")
    ] = 600.0
    scale_down_delay_after_delete_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="no node goes for so long after nodes were deleted")
    ] = 0.0
    scale_down_delay_after_failure_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="no node goes for so long after a deletion failed")
    ] = 180.0
    scale_down_delay_type_local: Annotated[
        bool, Meta(description="these delays hold for the one group in which it happened")
    ] = False
    scale_down_unneeded_time_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="how long a node has to be unneeded before it goes")
    ] = 600.0
    scale_down_unready_time_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="the same of an unready one")
    ] = 1200.0
    scale_down_simulation_timeout_seconds: Annotated[
        float, Meta(gt=0, le=MOST_SECONDS, description="of a pass, after which no further node is looked at in it")
    ] = 30.0
    scale_down_utilization_threshold: Annotated[
        _Share | None,
        Meta(
            description="share of cpu or memory requested, above which a node is needed; by default 0.5, and 1 with "
            "consolidation by price"
        ),
    ] = None
    scale_down_gpu_utilization_threshold: Annotated[
        _Share | None, Meta(description="the same share of GPUs, of a node that has some; by default likewise")
    ] = None
    ignore_daemonsets_utilization: Annotated[bool, Meta(description="leave DaemonSets' pods out of it")] = False
    ignore_mirror_pods_utilization: Annotated[bool, Meta(description="leave mirror pods out of it")] = False
    scale_down_peaks: Annotated[
        bool,
        Meta(
            description="a node goes only if the others hold what is predicted of its pods, too; without a NodeMetric "
            "in the cluster, peaks do not count"
        ),
    ] = True
    scale_down_peak_margin_percent: Annotated[
        int, Meta(ge=0, le=100, description="of a node that is kept free above its predicted peak")
    ] = 10
    max_scale_down_parallelism: Annotated[int, Meta(ge=0, description="nodes on their way out at one time")] = 10
    max_drain_parallelism: Annotated[int, Meta(ge=0, description="those of them with pods to evict")] = 1
    unremovable_node_recheck_timeout_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="after which a node that could not go is tried again")
    ] = 300.0
    skip_nodes_with_system_pods: Annotated[
        bool, Meta(description="keep nodes with pods of kube-system that no disruption budget is about")
    ] = True
    blocking_system_pod_distruption_timeout_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="age after which such a pod keeps its node no more")
    ] = 3600.0
    skip_nodes_with_local_storage: Annotated[
        bool, Meta(description="keep nodes with pods that have volumes on their disk")
    ] = True
    skip_nodes_with_custom_controller_pods: Annotated[
        bool, Meta(description="keep nodes with pods of controllers other than Kubernetes' own")
    ] = True
    min_replica_count: Annotated[
        int, Meta(ge=0, description="keep nodes with pods of a ReplicaSet of fewer replicas")
    ] = 0
    node_delete_delay_after_taint_seconds: Annotated[
        float, Meta(ge=0, le=600, description="between marking a node and draining it, for the scheduler to see")
    ] = 5.0
    cordon_node_before_terminating: Annotated[bool, Meta(description="cordon a node that goes, too")] = True
    max_graceful_termination_sec: Annotated[
        int, Meta(ge=0, le=86_400, description="seconds that an evicted pod is given at most")
    ] = 600
    max_pod_eviction_time_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="how long an eviction that is refused is tried again")
    ] = 120.0
    daemonset_eviction_for_occupied_nodes: Annotated[
        bool, Meta(description="evict DaemonSets' pods, too, of a node that is drained; their annotation may differ")
    ] = True
    daemonset_eviction_for_empty_nodes: Annotated[
        bool, Meta(description="evict DaemonSets' pods of a node that has no others; their annotation may differ")
    ] = False
    node_deletion_delay_timeout_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="how long a node may ask by annotations to be kept")
    ] = 120.0
    node_deletion_batcher_interval_seconds: Annotated[
        float, Meta(ge=0, le=600, description="how long nodes of a group are gathered to be deleted together")
    ] = 0.0
    max_bulk_soft_taint_count: Annotated[
        int, Meta(ge=0, description="nodes marked as likely to go, or no longer, in one round at most; 0: never")
    ] = 10
    max_bulk_soft_taint_time_seconds: Annotated[
        float, Meta(ge=0, le=600, description="how long that may take in one round")
    ] = 3.0
