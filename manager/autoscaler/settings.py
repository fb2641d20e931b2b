"""The autoscaler's settings, which are part of the manager's (see `shared.settings`).

Flags have the names and meanings of Cluster Autoscaler and of "Node Auto-provisioning". `decision_settings` checks them
together. Each section adds to the one before, because flags and files know no sections. Every manager imports this
module, which imports nothing of the autoscaler.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

_RANGE = r"^([0-9]{1,12}:[0-9]{1,12})?$"
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"  # an object name in Kubernetes
_MOST_SECONDS = 2_592_000.0  # thirty days: more is a mistake
Key = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class CloudSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster, and the cloud that its nodes come from."""

    cluster_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="name of the cluster in answers and on the page; empty: kubeconfig's, or server's address",
        ),
    ] = ""
    cloud_provider: Annotated[
        str,
        Meta(
            description="where nodes come from: simulated, externalgrpc, aws, karpenter, clusterapi, or the name of an "
            "installed plug-in; empty: there is no autoscaler"
        ),
    ] = ""
    cloud_config: Annotated[
        str, Meta(description="file with the cloud's own configuration; aws and clusterapi need none")
    ] = ""
    cloud_provider_timeout_seconds: Annotated[
        float, Meta(gt=0, le=_MOST_SECONDS, description="how long one question to the cloud may take")
    ] = 30.0
    autoscaling_mode: Annotated[
        str,
        Meta(
            pattern="^(observe|recommend|enforce)$",
            description="observe: watch and price; recommend: decide, tell and do nothing; enforce: act; the node "
            "groups file may set less for one group",
        ),
    ] = "enforce"


class GroupSettings(CloudSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The groups that there are, and those that may be created."""

    nodes: Annotated[
        tuple[str, ...], Meta(description="a group that may grow, <min>:<max>:<id>; may be given more than once")
    ] = ()
    node_group_auto_discovery: Annotated[
        tuple[Key, ...],
        Meta(
            description="groups that ask by their tags to be managed, asg:tag=KEY,KEY=VALUE, with the cloud's own "
            "bounds; may be given more than once"
        ),
    ] = ()
    node_groups: Annotated[str, Meta(description="file with node groups, in Escalator's form")] = ""
    node_autoprovisioning: Annotated[bool, Meta(description="create the group that is missing")] = False
    autoprovisioning_prefix: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9][-A-Za-z0-9_.]*$",  # an id may be a path; the prefix applies to its last part
            description="what names of created groups begin with; such groups are the autoscaler's",
        ),
    ] = "nodeautoprovisioning"
    machine_types: Annotated[
        tuple[str, ...], Meta(description="machine types that groups are created of; empty: all the cloud has")
    ] = ()
    max_node_groups: Annotated[int, Meta(ge=0, description="groups in the cluster, created ones included, at most")] = (
        50
    )
    max_autoprovisioned_node_group_count: Annotated[int, Meta(ge=0, description="created groups at most")] = 15
    autoprovisioning_tolerations: Annotated[
        str,
        Meta(
            pattern="^(separate|never|always)$",
            description="which tolerations make a group with taints: those with a matching selector or affinity, none, "
            "or all",
        ),
    ] = "separate"
    autoprovisioning_gpu_type: Annotated[
        str, Meta(min_length=1, description="type of GPU for pods that ask for one and select no type")
    ] = "nvidia-tesla-k80"


class ExpanderSettings(GroupSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How options are ranked and priced."""

    expander: Annotated[
        str,
        Meta(
            description="price, least-waste, most-pods, least-nodes, priority, grpc, random, or the name of an "
            "installed plug-in; several by commas"
        ),
    ] = "price"
    grpc_expander_url: Annotated[str, Meta(description="host:port of the server that the expander grpc asks")] = ""
    grpc_expander_cert: Annotated[
        str, Meta(description="file with its certificate, or its authority's, in PEM; it is asked over TLS alone")
    ] = ""
    expander_preset: Annotated[
        str,
        Meta(
            pattern="^(seed|cluster-autoscaler|least-cost)$",
            description="constants of the cost-based rank, and what makes labels popular: those of the proposals, "
            "what Cluster Autoscaler ships, or those of the proposals without a preferred machine size",
        ),
    ] = "seed"
    prices: Annotated[
        str,
        Meta(
            min_length=1,
            description="auto: the cloud's own, or else Google's; provider, gce, none: these alone; or a file",
        ),
    ] = "auto"
    least_cost_mix: Annotated[
        bool, Meta(description="use several groups at once where that is cheaper than one, if price comes first")
    ] = True


class LimitSettings(ExpanderSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large the cluster may become."""

    min_cpu: Annotated[Count | None, Meta(description="cores in the cluster at least")] = None
    max_cpu: Annotated[Count | None, Meta(description="cores in the cluster at most")] = None
    min_memory: Annotated[Count | None, Meta(description="GiB of memory in the cluster at least")] = None
    max_memory: Annotated[Count | None, Meta(description="GiB of memory in the cluster at most")] = None
    cores_total: Annotated[str, Meta(pattern=_RANGE, description="<min>:<max> in place of min-cpu and max-cpu")] = ""
    memory_total: Annotated[
        str, Meta(pattern=_RANGE, description="<min>:<max> in place of min-memory and max-memory")
    ] = ""
    gpu_total: Annotated[
        tuple[str, ...],
        Meta(description="GPUs of one type in the cluster, <type>:<min>:<max>; may be given repeatedly"),
    ] = ()
    max_nodes_total: Annotated[int, Meta(ge=0, description="nodes in the cluster at most; 0: any number")] = 0
    capacity_quotas_enabled: Annotated[
        bool, Meta(description="CapacityQuotas of the cluster limit what is added, too")
    ] = False
    enforce_node_group_min_size: Annotated[bool, Meta(description="bring groups up to their minimum")] = False


class PendingPodSettings(LimitSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the loop runs, and which pods it is about."""

    scan_interval_seconds: Annotated[float, Meta(ge=0.1, le=_MOST_SECONDS, description="between two rounds")] = 10.0
    frequent_loops_enabled: Annotated[
        bool, Meta(description="begin a round at once when a pod turns unschedulable, and after one that did something")
    ] = True
    utilization_scan_interval_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=_MOST_SECONDS,
            description="between two scans of the groups that scale by how full their nodes are",
        ),
    ] = 60.0
    scale_up_from_zero: Annotated[bool, Meta(description="act also while no node is ready")] = True
    new_pod_scale_up_delay_seconds: Annotated[
        float,
        Meta(ge=0, le=_MOST_SECONDS, description="how old a pod has to be to count; its annotation may ask for more"),
    ] = 0.0
    expendable_pods_priority_cutoff: Annotated[
        int, Meta(description="nothing is bought for pods below this priority, and they hold nothing")
    ] = -10
    allowed_scheduler_names: Annotated[
        tuple[str, ...], Meta(description="schedulers whose pods count; empty: all of them")
    ] = ()
    bypassed_scheduler_names: Annotated[
        tuple[str, ...], Meta(description="schedulers whose pods count before those have judged them")
    ] = ()


class BufferSettings(PendingPodSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which room is kept free."""

    capacity_buffer_pod_injection_enabled: Annotated[
        bool, Meta(description="keep the room free that CapacityBuffers ask for, and write their status")
    ] = False
    capacity_buffer_on_mid: Annotated[
        bool,
        Meta(
            description="Mid on offer counts as room of CapacityBuffers before a node is bought; the buffer's "
            "annotation headroom.io/buffer-on-mid overrides it"
        ),
    ] = False


class RequestSettings(BufferSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which room is promised."""

    enable_provisioning_requests: Annotated[
        bool,
        Meta(
            description="answer ProvisioningRequests, and book room for them; for a pod that consumes one, nodes are "
            "bought by its request alone"
        ),
    ] = False


class EstimateSettings(RequestSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How new nodes are estimated, and shared out over similar groups."""

    max_nodes_per_scaleup: Annotated[int, Meta(ge=0, description="nodes in one estimate at most; 0: any number")] = 1000
    fastpath_binpacking_enabled: Annotated[
        bool, Meta(description="estimate last those pods of which so many are alike that counting them saves most")
    ] = False
    scale_up_all_or_nothing: Annotated[
        bool, Meta(description="grow only where all pods that wait for nodes get one in the same decision")
    ] = False
    max_binpacking_time_seconds: Annotated[float, Meta(gt=0, description="for the estimates of all groups")] = 300.0
    max_nodegroup_binpacking_duration_seconds: Annotated[float, Meta(gt=0, description="for that of one group")] = 10.0
    parallel_scale_up: Annotated[bool, Meta(description="go on with the other groups when one cannot be raised")] = (
        False
    )
    salvo_scale_up: Annotated[
        bool, Meta(description="decide again in the same round, until no group helps any more")
    ] = False
    salvo_scale_up_time_budget_seconds: Annotated[float, Meta(gt=0, description="for a whole salvo")] = 60.0
    balance_similar_node_groups: Annotated[bool, Meta(description="level the sizes of groups that are alike")] = False
    balancing_ignore_label: Annotated[
        tuple[str, ...], Meta(description="labels in which groups that are alike may differ; may be given repeatedly")
    ] = ()
    balancing_label: Annotated[
        tuple[str, ...], Meta(description="labels that alone decide which groups are alike; may be given repeatedly")
    ] = ()
    memory_difference_ratio: Annotated[float, Meta(ge=0, description="in memory, of groups that are alike")] = 0.015
    max_allocatable_difference_ratio: Annotated[float, Meta(ge=0, description="in what is allocatable")] = 0.05
    max_free_difference_ratio: Annotated[float, Meta(ge=0, description="in what DaemonSets leave")] = 0.05
    startup_taint: Annotated[
        tuple[Key, ...], Meta(description="taints by key that nodes have until they are ready; may be given repeatedly")
    ] = ()
    status_taint: Annotated[
        tuple[Key, ...], Meta(description="taints by key that say nothing of a group; may be given repeatedly")
    ] = ()
    force_ds: Annotated[bool, Meta(description="reckon with every DaemonSet that fits a new node")] = False
    node_info_cache_expire_time_seconds: Annotated[
        float, Meta(gt=0, description="how long a group's template outlives its nodes")
    ] = 315_360_000.0


class GroupHealthSettings(EstimateSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long nodes may take, and when a group is left alone."""

    max_node_provision_time_seconds: Annotated[
        float, Meta(gt=0, le=_MOST_SECONDS, description="how long a node may take to register before it is given up")
    ] = 900.0
    max_node_startup_time_seconds: Annotated[
        float,
        Meta(
            gt=0, le=_MOST_SECONDS, description="how long a new node may take to be ready before it counts as unready"
        ),
    ] = 900.0
    force_delete_unregistered_nodes: Annotated[
        bool, Meta(description="delete nodes that never register also where that is below the group's minimum")
    ] = False
    ok_total_unready_count: Annotated[int, Meta(ge=0, description="so many unready nodes are never too many")] = 3
    max_total_unready_percentage: Annotated[
        float, Meta(ge=0, le=100, description="of nodes unready, beyond which nothing is done")
    ] = 45.0
    initial_node_group_backoff_duration_seconds: Annotated[
        float, Meta(gt=0, le=_MOST_SECONDS, description="for which a group is left alone after a failure")
    ] = 300.0
    max_node_group_backoff_duration_seconds: Annotated[
        float, Meta(gt=0, le=_MOST_SECONDS, description="the same after many failures, each of which doubles it")
    ] = 1800.0
    node_group_backoff_reset_timeout_seconds: Annotated[
        float, Meta(gt=0, description="after the last failure, when a group begins anew")
    ] = 10800.0


class ScaleDownSettings(GroupHealthSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes go, when and how."""

    scale_down_enabled: Annotated[bool, Meta(description="take away nodes that the cluster can do without")] = True
    scale_down_unready_enabled: Annotated[bool, Meta(description="also those that are unready")] = True
    scale_down_delay_after_add_seconds: Annotated[
        float, Meta(ge=0, le=_MOST_SECONDS, description="no node goes for so long after nodes were added")
    ] = 600.0
    scale_down_delay_after_delete_seconds: Annotated[
        float, Meta(ge=0, le=_MOST_SECONDS, description="no node goes for so long after nodes were deleted")
    ] = 0.0
    scale_down_delay_after_failure_seconds: Annotated[
        float, Meta(ge=0, le=_MOST_SECONDS, description="no node goes for so long after a deletion failed")
    ] = 180.0
    scale_down_delay_type_local: Annotated[
        bool, Meta(description="these delays hold for the one group in which it happened")
    ] = False
    scale_down_unneeded_time_seconds: Annotated[
        float, Meta(ge=0, le=_MOST_SECONDS, description="how long a node has to be unneeded before it goes")
    ] = 600.0
    scale_down_unready_time_seconds: Annotated[
        float, Meta(ge=0, le=_MOST_SECONDS, description="the same of an unready one")
    ] = 1200.0
    scale_down_simulation_timeout_seconds: Annotated[
        float, Meta(gt=0, le=_MOST_SECONDS, description="of a pass, after which no further node is looked at in it")
    ] = 30.0
    scale_down_utilization_threshold: Annotated[
        Share | None,
        Meta(
            description="share of cpu or memory requested, above which a node is needed; by default 0.5, and 1 with "
            "consolidation by price"
        ),
    ] = None
    scale_down_gpu_utilization_threshold: Annotated[
        Share | None, Meta(description="the same share of GPUs, of a node that has some; by default likewise")
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
        float, Meta(ge=0, le=_MOST_SECONDS, description="after which a node that could not go is tried again")
    ] = 300.0
    skip_nodes_with_system_pods: Annotated[
        bool, Meta(description="keep nodes with pods of kube-system that no disruption budget is about")
    ] = True
    blocking_system_pod_distruption_timeout_seconds: Annotated[
        float, Meta(ge=0, le=_MOST_SECONDS, description="age after which such a pod keeps its node no more")
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
        float, Meta(ge=0, le=_MOST_SECONDS, description="how long an eviction that is refused is tried again")
    ] = 120.0
    daemonset_eviction_for_occupied_nodes: Annotated[
        bool, Meta(description="evict DaemonSets' pods, too, of a node that is drained; their annotation may differ")
    ] = True
    daemonset_eviction_for_empty_nodes: Annotated[
        bool, Meta(description="evict DaemonSets' pods of a node that has no others; their annotation may differ")
    ] = False
    node_deletion_delay_timeout_seconds: Annotated[
        float, Meta(ge=0, le=_MOST_SECONDS, description="how long a node may ask by annotations to be kept")
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


class ConsolidationSettings(ScaleDownSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes are replaced by cheaper ones."""

    consolidation: Annotated[
        str,
        Meta(
            pattern="^(off|price)$",
            description="price: replace nodes by fewer or cheaper ones where that saves enough; needs scale-down and "
            "prices",
        ),
    ] = "off"
    consolidation_min_savings_percent: Annotated[
        float, Meta(ge=0, le=100, description="of what the replaced nodes cost, to be saved at least")
    ] = 10.0
    consolidation_balance: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="what the share of the cluster's cost that is saved has to be, of the share of its disruption",
        ),
    ] = 0.5
    consolidation_min_node_age_seconds: Annotated[
        float, Meta(ge=0, le=_MOST_SECONDS, description="no younger node is replaced")
    ] = 1800.0
    consolidation_cooldown_seconds: Annotated[
        float,
        Meta(ge=0, le=_MOST_SECONDS, description="no replacement begins for so long after nodes were added or deleted"),
    ] = 600.0
    consolidation_spot_alternatives: Annotated[
        int, Meta(ge=0, description="groups of spot nodes that would save, before spot nodes are replaced or bought")
    ] = 15


class DisruptionSettings(ConsolidationSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes are replaced for their own sake, and how many nodes at one time."""

    disruption_budgets: Annotated[
        tuple[Key, ...],
        Meta(
            description="nodes on their way out at one time at most, for a replacement to begin: 10%, 3, or "
            "0;schedule=0 8 * * mon-fri;duration=10h;reasons=Expired+Drifted; may be given repeatedly, and the "
            "smallest counts"
        ),
    ] = ("10%",)
    max_node_lifetime_seconds: Annotated[
        float, Meta(ge=0, le=315_360_000, description="after which a node is replaced; 0: never; a group may differ")
    ] = 0.0
    replace_drifted_nodes: Annotated[
        bool, Meta(description="replace nodes that are not what their group would launch now, where the cloud can tell")
    ] = False
    replace_interrupted_nodes: Annotated[
        bool,
        Meta(
            description="replace nodes for which the cloud has announced a scheduled maintenance or recommends a "
            "rebalance, before it takes them"
        ),
    ] = False
    node_repair_conditions: Annotated[
        tuple[Key, ...],
        Meta(
            description="replace nodes that have had a condition for so long: Ready=Unknown:30m; may be given "
            "repeatedly; none while more than 20 % of the nodes are unhealthy"
        ),
    ] = ()
    disruption_termination_grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=_MOST_SECONDS,
            description="after so long of draining, a node that is replaced for its own sake goes with the pods that "
            "are still there, whatever protects them; 0: never",
        ),
    ] = 0.0


class AutoscalerSettings(DisruptionSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections, and what is told of the decisions.

    Without a `cloud_provider` there is no autoscaler, and nothing else here means anything.
    """

    write_status_configmap: Annotated[bool, Meta(description="keep the status ConfigMap")] = True
    status_config_map_name: Annotated[
        str, Meta(pattern=_NAME, max_length=253, description="name of the status ConfigMap")
    ] = "cluster-autoscaler-status"
    cluster_autoscaler_metrics: Annotated[
        bool, Meta(description="serve Cluster Autoscaler's metrics, too, under their own names")
    ] = False
    emit_per_nodegroup_metrics: Annotated[bool, Meta(description="those of each group among them")] = False
    escalator_metrics: Annotated[
        bool, Meta(description="serve Escalator's metrics of groups that scale by how full they are, under its names")
    ] = False
    decisions_kept: Annotated[int, Meta(ge=1, description="how many past decisions are kept to be asked for")] = 100
    decisions_log: Annotated[str, Meta(description="file for a JSON line of each decision; -: standard output")] = ""
