"""Which group grows: rank, prices, and limits of the cluster."""

from typing import Annotated

from msgspec import Meta

from manager.autoscaler.settings.groups import GroupSettings

_RANGE = r"^([0-9]{1,12}:[0-9]{1,12})?$"
_Count = Annotated[int, Meta(ge=0)]


class ExpanderSettings(GroupSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ranking and pricing of options."""

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
            description="auto: the cloud's own, or else Google's; provider, gce, none: these alone; or a path: a file "
            "of prices, a table of `headroom prices refresh`, or a folder of such tables",
        ),
    ] = "auto"
    least_cost_mix: Annotated[
        bool, Meta(description="use several groups at once where that is cheaper than one, if price comes first")
    ] = True


class LimitSettings(ExpanderSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size limits of the cluster."""

    min_cpu: Annotated[_Count | None, Meta(description="cores in the cluster at least")] = None
    max_cpu: Annotated[_Count | None, Meta(description="cores in the cluster at most")] = None
    min_memory: Annotated[_Count | None, Meta(description="GiB of memory in the cluster at least")] = None
    max_memory: Annotated[_Count | None, Meta(description="GiB of memory in the cluster at most")] = None
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
