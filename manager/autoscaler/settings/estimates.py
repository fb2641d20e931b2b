"""The estimation of new nodes, and the time that they may take."""

from typing import Annotated

from msgspec import Meta

from manager.autoscaler.settings.pending_pods import RequestSettings
from manager.autoscaler.settings.values import MOST_SECONDS, Key


class EstimateSettings(RequestSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The estimation of new nodes, and their distribution over similar groups."""

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
        bool, Meta(description="decide again in the same iteration, until no group helps any more")
    ] = True
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
    """The time that nodes may take, and the conditions under which a group is left alone."""

    max_node_provision_time_seconds: Annotated[
        float, Meta(gt=0, le=MOST_SECONDS, description="how long a node may take to register before it is given up")
    ] = 900.0
    max_node_startup_time_seconds: Annotated[
        float,
        Meta(gt=0, le=MOST_SECONDS, description="how long a new node may take to be ready before it counts as unready"),
    ] = 900.0
    force_delete_unregistered_nodes: Annotated[
        bool, Meta(description="delete nodes that never register also where that is below the group's minimum")
    ] = False
    ok_total_unready_count: Annotated[int, Meta(ge=0, description="so many unready nodes are never too many")] = 3
    max_total_unready_percentage: Annotated[
        float, Meta(ge=0, le=100, description="of nodes unready, beyond which nothing is done")
    ] = 45.0
    initial_node_group_backoff_duration_seconds: Annotated[
        float, Meta(gt=0, le=MOST_SECONDS, description="for which a group is left alone after a failure")
    ] = 300.0
    max_node_group_backoff_duration_seconds: Annotated[
        float, Meta(gt=0, le=MOST_SECONDS, description="the same after many failures, each of which doubles it")
    ] = 1800.0
    node_group_backoff_reset_timeout_seconds: Annotated[
        float, Meta(gt=0, description="after the last failure, when a group begins anew")
    ] = 10800.0
