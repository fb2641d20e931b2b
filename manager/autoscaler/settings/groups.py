"""Where nodes come from: the cloud and its node groups."""

from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.settings.values import Key
from shared.settings import Fixed


class CloudSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster, and the cloud that its nodes come from."""

    cluster_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="Name of the cluster in API answers and on the page. If empty, the name in the "
            "kubeconfig, or else the address of the API server.",
        ),
    ] = ""
    cloud_provider: Annotated[
        str,
        Meta(
            description="Cloud provider that adds and deletes nodes: simulated, externalgrpc, aws, karpenter, "
            "clusterapi, or the name of an installed plug-in. If empty, the autoscaler does not "
            "run."
        ),
    ] = ""
    cloud_config: Annotated[
        str, Meta(description="File with the configuration of the cloud provider. aws and clusterapi need none.")
    ] = ""
    cloud_provider_timeout_seconds: Fixed[float] = 30.0
    autoscaling_mode: Annotated[
        str,
        Meta(
            pattern="^(observe|recommend|enforce)$",
            description="observe: only observe node groups and price them; recommend: decide and report, "
            "without effect; enforce: carry decisions out. The node groups file may restrict "
            "single groups further.",
        ),
    ] = "enforce"


class GroupSettings(CloudSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The existing groups, and those that may be created."""

    nodes: Annotated[
        tuple[str, ...],
        Meta(
            description="Node group that may be scaled, as <min>:<max>:<id>, for example 1:10:pool-a. May be "
            "given repeatedly."
        ),
    ] = ()
    node_group_auto_discovery: Annotated[
        tuple[Key, ...],
        Meta(
            description="Discover node groups by their tags, with the bounds that the cloud has for them: "
            "asg:tag=KEY,KEY=VALUE. May be given repeatedly."
        ),
    ] = ()
    node_groups: Annotated[str, Meta(description="File with node groups in Escalator's format.")] = ""
    node_autoprovisioning: Annotated[
        bool, Meta(description="Create a new node group if no existing group fits the pending pods.")
    ] = False
    autoprovisioning_prefix: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9][-A-Za-z0-9_.]*$",  # an id may be a path; the prefix applies to its last part
            description="Prefix of the names of created node groups. The autoscaler owns groups with this prefix.",
        ),
    ] = "nodeautoprovisioning"
    machine_types: Annotated[
        tuple[str, ...], Meta(description="Machine types for created node groups. If empty, all that the cloud offers.")
    ] = ()
    max_autoprovisioned_node_group_count: Annotated[
        int, Meta(ge=0, description="Largest number of created node groups.")
    ] = 15
    autoprovisioning_tolerations: Annotated[
        str,
        Meta(
            pattern="^(separate|never|always)$",
            description="Which tolerations lead to a node group with the matching taints. separate: those of "
            "pods with a matching node selector or affinity; never: none; always: all.",
        ),
    ] = "separate"
