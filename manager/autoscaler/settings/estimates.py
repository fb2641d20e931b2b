"""The estimation of new nodes, and the time that they may take."""

from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.settings.pending_pods import BufferSettings
from manager.autoscaler.settings.values import MOST_SECONDS, Key
from shared.settings import Fixed


class SimilarityRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The labels by which groups are similar, or that do not matter for it."""

    balancing_ignore_label: Annotated[
        tuple[str, ...],
        Meta(
            description="Label that is ignored when node groups are compared for similarity. May be given repeatedly."
        ),
    ] = ()
    balancing_label: Annotated[
        tuple[str, ...],
        Meta(description="Label that alone decides whether node groups are similar. May be given repeatedly."),
    ] = ()


class TaintRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of further taints that reflect the condition of one node, and not its group."""

    startup_taint: Annotated[
        tuple[Key, ...],
        Meta(description="Key of a taint that nodes have until they are ready. May be given repeatedly."),
    ] = ()
    status_taint: Annotated[
        tuple[Key, ...],
        Meta(
            description="Key of a taint that describes the state of a single node. It is left out of the "
            "group's node template. May be given repeatedly."
        ),
    ] = ()


class StartTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time that a new node may take, if its group sets none."""

    max_node_provision_time_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=MOST_SECONDS,
            description="Time in which a new node must register. After that the autoscaler deletes it, and "
            "the group backs off.",
        ),
    ] = 900.0
    max_node_startup_time_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=MOST_SECONDS,
            description="Time in which a registered node must become ready. After that it counts as unready.",
        ),
    ] = 900.0


class HealthLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Too many nodes are unready if both limits are exceeded."""

    ok_total_unready_count: Annotated[
        int, Meta(ge=0, description="Number of unready nodes up to which max_total_unready_percentage is not checked.")
    ] = 3
    max_total_unready_percentage: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="Percentage of unready nodes above which the autoscaler neither adds nor deletes nodes.",
        ),
    ] = 45.0


class BackoffTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a group is not scaled up after a failure."""

    initial_node_group_backoff_duration_seconds: Annotated[
        float,
        Meta(
            gt=0, le=MOST_SECONDS, description="How long no scale-up of a node group is tried after its first failure."
        ),
    ] = 300.0
    max_node_group_backoff_duration_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=MOST_SECONDS,
            description="Longest backoff of a node group. Each failure in a row doubles its backoff up to this.",
        ),
    ] = 1800.0
    node_group_backoff_reset_timeout_seconds: Fixed[float] = 10800.0  # after the last failure


class EstimateSettings(BufferSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The estimation of new nodes, and their distribution over similar groups."""

    max_nodes_per_scaleup: Annotated[
        int, Meta(ge=0, description="Largest number of new nodes in one estimate. 0: no limit.")
    ] = 1000
    fastpath_binpacking_enabled: Annotated[
        bool,
        Meta(
            description="Estimate the group of equal pods last for which counting saves most simulation time, as "
            "Cluster Autoscaler does with this flag.",
        ),
    ] = False
    scale_up_all_or_nothing: Annotated[
        bool, Meta(description="Scale up only if one decision provides nodes for all pods that wait for one.")
    ] = False
    max_binpacking_time_seconds: Fixed[float] = 300.0
    max_nodegroup_binpacking_duration_seconds: Fixed[float] = 10.0
    parallel_scale_up: Annotated[
        bool, Meta(description="If scaling up one node group fails, continue with the other groups of the decision.")
    ] = False
    salvo_scale_up: Annotated[
        bool,
        Meta(
            description="Repeat the scale-up decision in the same iteration until no node group helps another "
            "pending pod."
        ),
    ] = True
    salvo_scale_up_time_budget_seconds: Fixed[float] = 60.0
    balance_similar_node_groups: Annotated[
        bool, Meta(description="Distribute new nodes over similar node groups so that their sizes become equal.")
    ] = False
    force_ds: Annotated[
        bool,
        Meta(
            description="Estimate with a pod of every DaemonSet that fits a new node, even if none runs on "
            "the group's nodes now."
        ),
    ] = False
    similarity: SimilarityRules = SimilarityRules()
    taints: TaintRules = TaintRules()


class GroupHealthSettings(EstimateSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time that nodes may take, and the conditions under which a group is left alone."""

    force_delete_unregistered_nodes: Annotated[
        bool,
        Meta(description="Delete nodes that do not register in time even if their group falls below its minimum size."),
    ] = False
    start: StartTimes = StartTimes()
    health: HealthLimits = HealthLimits()
    backoff: BackoffTimes = BackoffTimes()
