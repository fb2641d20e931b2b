"""The autoscaler's settings, which are part of the manager's (see `shared.settings`).

Flags have the names and meanings of Cluster Autoscaler and of "Node Auto-provisioning". `decision_settings` checks them
together. Each section adds to the one before, because flags and files know no sections. Every manager imports this
room, which imports nothing else of the autoscaler.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from manager.autoscaler.settings.replacement import DisruptionSettings
from shared.settings import Fixed

_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"  # an object name in Kubernetes


class AutoscalerSettings(DisruptionSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the autoscaler.

    Without a `cloud_provider` there is no autoscaler, and all other settings have no effect.
    """

    REMOVED: ClassVar[Mapping[str, str]] = {
        "autoprovisioning_gpu_type": (
            "Name the GPU type in the pod's node selector; pods that name none get nvidia-tesla-k80."
        ),
        "blocking_system_pod_distruption_timeout_seconds": (
            "A kube-system pod without a PodDisruptionBudget blocks for an hour. Give it a budget, or set "
            "--skip-nodes-with-system-pods=false."
        ),
        "cloud_provider_timeout_seconds": "A call to the cloud provider may take 30 s, so remove the setting.",
        "cluster_autoscaler_metrics": "The table in docs/how-to/cluster-autoscaler.md has our metrics.",
        "consolidation_cooldown_seconds": (
            "Consolidation waits 10 minutes after nodes were added or deleted, so remove the setting."
        ),
        "consolidation_spot_alternatives": "15 spot groups must offer a saving, so remove the setting.",
        "cores_total": "Set --min-cpu and --max-cpu.",
        "daemonset_eviction_for_empty_nodes": (
            'Annotate the DaemonSet\'s pods with cluster-autoscaler.kubernetes.io/enable-ds-eviction: "true".'
        ),
        "decisions_kept": "The API returns the last 100 decisions. --decisions-log keeps all of them.",
        "emit_per_nodegroup_metrics": "Metrics of each group are always there: headroom_autoscaler_group_*.",
        "escalator_metrics": "The table in docs/how-to/escalator.md has our metrics.",
        "frequent_loops_enabled": (
            "An iteration always starts at once when a pod becomes unschedulable, so remove the setting."
        ),
        "ignore_mirror_pods_utilization": (
            "Mirror pods count in a node's utilization. Set --scale-down-utilization-threshold."
        ),
        "max_allocatable_difference_ratio": "Select similar groups by labels with --balancing-label.",
        "max_binpacking_time_seconds": "The estimates of a decision may take 5 minutes, so remove the setting.",
        "max_bulk_soft_taint_time_seconds": ("Limit the soft taints of an iteration with --max-bulk-soft-taint-count."),
        "max_free_difference_ratio": "Select similar groups by labels with --balancing-label.",
        "max_node_groups": "Limit created groups with --max-autoprovisioned-node-group-count.",
        "max_nodegroup_binpacking_duration_seconds": (
            "The estimate of a group may take 10 s. Limit its nodes with --max-nodes-per-scaleup."
        ),
        "memory_difference_ratio": "Select similar groups by labels with --balancing-label.",
        "memory_total": "Set --min-memory and --max-memory.",
        "node_deletion_batcher_interval_seconds": (
            "Nodes are deleted as soon as they are drained, so remove the setting."
        ),
        "node_deletion_delay_timeout_seconds": (
            "Annotations delay the deletion of a node by up to 2 minutes, so remove the setting."
        ),
        "node_group_backoff_reset_timeout_seconds": (
            "A backoff is reset 3 hours after the last failure, so remove the setting."
        ),
        "node_info_cache_expire_time_seconds": (
            "A group's template is kept as long as the manager runs, so remove the setting."
        ),
        "salvo_scale_up_time_budget_seconds": ("The decisions of one iteration may take 60 s, so remove the setting."),
        "scale_down_simulation_timeout_seconds": (
            "The simulation of removals may take 30 s in an iteration, so remove the setting."
        ),
        "scale_up_from_zero": "The autoscaler always scales up, even if no node is ready, so remove the setting.",
        "unremovable_node_recheck_timeout_seconds": (
            "A node that could not be removed is examined again after 5 minutes, so remove the setting."
        ),
        "write_status_configmap": (
            "The status ConfigMap is always written, so remove the setting. --status-config-map-name names it."
        ),
    }

    write_status_configmap: Fixed[bool] = True
    status_config_map_name: Annotated[
        str, Meta(pattern=_NAME, max_length=253, description="Name of the status ConfigMap.")
    ] = "cluster-autoscaler-status"
    decisions_log: Annotated[
        str,
        Meta(
            description="File to which each decision is appended as a line of JSON; - for standard output. If "
            "empty, decisions are not logged."
        ),
    ] = ""
