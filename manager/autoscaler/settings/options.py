"""Which group grows: rank, prices, and limits of the cluster."""

from typing import Annotated

from msgspec import Meta

from manager.autoscaler.settings.groups import GroupSettings

_Count = Annotated[int, Meta(ge=0)]


class ExpanderSettings(GroupSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ranking and pricing of options."""

    expander: Annotated[
        str,
        Meta(
            description="How the node group to scale up is chosen: price, least-waste, most-pods, "
            "least-nodes, priority, grpc, random, or the name of an installed plug-in. Several, "
            "separated by commas, are applied one after the other."
        ),
    ] = "price"
    grpc_expander_url: Annotated[str, Meta(description="Address of the grpc expander's server as host:port.")] = ""
    grpc_expander_cert: Annotated[
        str,
        Meta(
            description="PEM file with the certificate of the grpc expander's server, or of its CA. The "
            "connection always uses TLS."
        ),
    ] = ""
    expander_preset: Annotated[
        str,
        Meta(
            pattern="^(seed|cluster-autoscaler|least-cost)$",
            description="Constants of the price expander, and its rule for popular labels. seed: those of the "
            "proposals; cluster-autoscaler: those of Cluster Autoscaler; least-cost: those of the "
            "proposals without a preferred machine size.",
        ),
    ] = "seed"
    prices: Annotated[
        str,
        Meta(
            min_length=1,
            description="Source of prices. auto: the cloud's own prices, or else Google's; provider, gce: "
            "only these; none: no prices; or the path of a price file, of a table of `headroom "
            "prices refresh`, or of a directory of such tables.",
        ),
    ] = "auto"
    least_cost_mix: Annotated[
        bool,
        Meta(
            description="Combine several node groups in one decision where that is cheaper than a single "
            "group. Applies if price is the first expander."
        ),
    ] = True


class LimitSettings(ExpanderSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size limits of the cluster."""

    min_cpu: Annotated[
        _Count | None, Meta(description="Least number of CPU cores in the cluster. If unset, there is no lower limit.")
    ] = None
    max_cpu: Annotated[
        _Count | None,
        Meta(description="Largest number of CPU cores in the cluster. If unset, there is no upper limit."),
    ] = None
    min_memory: Annotated[
        _Count | None, Meta(description="Least GiB of memory in the cluster. If unset, there is no lower limit.")
    ] = None
    max_memory: Annotated[
        _Count | None, Meta(description="Most GiB of memory in the cluster. If unset, there is no upper limit.")
    ] = None
    gpu_total: Annotated[
        tuple[str, ...],
        Meta(
            description="Limits of the GPUs of one type in the cluster as <type>:<min>:<max>. May be given repeatedly."
        ),
    ] = ()
    max_nodes_total: Annotated[int, Meta(ge=0, description="Largest number of nodes in the cluster. 0: no limit.")] = 0
    capacity_quotas_enabled: Annotated[
        bool, Meta(description="Apply the limits of the cluster's CapacityQuotas to scale-up.")
    ] = False
    enforce_node_group_min_size: Annotated[
        bool, Meta(description="Scale node groups that are below their minimum size up to it.")
    ] = False
