"""Where nodes come from: the cloud and its node groups."""

from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.settings.values import MOST_SECONDS, Key


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
        float, Meta(gt=0, le=MOST_SECONDS, description="how long one question to the cloud may take")
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
    """The existing groups, and those that may be created."""

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
