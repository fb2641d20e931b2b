"""The manager's settings; flags, environment and file keys follow from the names (see `shared.settings`)."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shared import names


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the manager but for its autoscaler.

    The policy in the ConfigMap, not these, configures its decisions about nodes.
    """

    kubeconfig: Annotated[str, Meta(description="kubeconfig file; empty: in-cluster, then the user's own")] = ""
    namespace: Annotated[str, Meta(min_length=1, description="namespace the manager runs in")] = names.INSTALL_NAMESPACE
    config_namespace: Annotated[str, Meta(description="namespace of the ConfigMap; empty: the manager's own")] = ""
    config_name: Annotated[str, Meta(min_length=1, description="name of the ConfigMap")] = names.CONFIG_MAP
    listen: Annotated[
        str,
        Meta(description="address of the HTTP endpoints; empty: port 8080, in a pod on all addresses, else loopback"),
    ] = ""

    tls: Annotated[
        bool, Meta(description="serve the HTTP endpoints over TLS, with the certificate that the webhook has")
    ] = False
    authorization: Annotated[
        Literal["auto", "delegated", "off"],
        Meta(
            description="who may ask; delegated: whom the API server lets; off: all; auto: on a loopback address "
            "this machine alone, elsewhere delegated"
        ),
    ] = "auto"

    check_interval_seconds: Annotated[
        float, Meta(ge=0.1, le=3600, description="between two looks for NodeMetrics that have turned stale")
    ] = 5.0
    writes_per_second: Annotated[
        float, Meta(gt=0, le=100_000, description="writes to the cluster, on average at most")
    ] = 50.0
    write_burst: Annotated[int, Meta(ge=1, le=100_000, description="writes to the cluster, at once at most")] = 100
    evictions_per_minute: Annotated[
        float, Meta(gt=0, le=100_000, description="pods evicted for want of their resource, at most and evenly spread")
    ] = 30.0
    offers: Annotated[
        str,
        Meta(
            pattern="^(mid|batch|mid,batch|batch,mid)$", description="which tiers are offered; others stay as they are"
        ),
    ] = "mid,batch"
    write_rule: Annotated[
        str,
        Meta(
            pattern="^(damped|upstream)$",
            description="damped: shrink at once, grow once it lasts; upstream: Koordinator's threshold and age alone",
        ),
    ] = "damped"
    dry_run: Annotated[bool, Meta(description="decide and explain, but write nothing")] = False

    leader_elect: Annotated[bool, Meta(description="let only the holder of a Lease write")] = True
    identity: Annotated[str, Meta(description="name of this candidate; empty: host name and a random part")] = ""
    lease_duration_seconds: Annotated[int, Meta(ge=1, le=86_400, description="how long others honour a lease")] = 15
    renew_deadline_seconds: Annotated[
        float, Meta(gt=0, le=86_400, description="when a leader that cannot renew gives up")
    ] = 10.0
    retry_period_seconds: Annotated[
        float, Meta(gt=0, le=86_400, description="between two tries to get or renew the lease")
    ] = 2.0

    webhook_listen: Annotated[str, Meta(description="address of the admission webhook; empty: there is none")] = ""
    webhook_certificates: Annotated[
        str,
        Meta(
            pattern="^(self|files)$",
            description="of all ports; self: made here, kept in the Secret; files: from a directory",
        ),
    ] = "self"
    webhook_certificate_directory: Annotated[str, Meta(description="where tls.crt and tls.key are, for files")] = ""
    webhook_secret: Annotated[str, Meta(min_length=1, description="name of the Secret, for self")] = "headroom-webhook"
    webhook_configuration: Annotated[
        str, Meta(min_length=1, description="name of the webhook configurations that are told the authority, for self")
    ] = "headroom"
    webhook_hosts: Annotated[
        tuple[str, ...],
        Meta(description="names and addresses of the ports, for self; empty: the Service headroom-webhook"),
    ] = ()

    translation: Annotated[
        Literal["kubelet", "koordinator"],
        Meta(
            description="what Mid and Batch pods become; kubelet: they keep native limits, which kubelets enforce; "
            "koordinator: they have none but those that a koordlet enforces"
        ),
    ] = "kubelet"
    mid_limit_factor: Annotated[
        float, Meta(ge=1, le=100, description="limit of a Mid container that has none, in terms of its request")
    ] = 1.0
    batch_limit_factor: Annotated[
        float, Meta(ge=1, le=100, description="limit of a Batch container that has none, in terms of its request")
    ] = 1.0
    limit_without_request_cpu_milli: Annotated[
        int, Meta(ge=10, le=1_000_000, description="CPU limit where there is no request either, in milli-cores")
    ] = 250
    limit_without_request_memory_mib: Annotated[
        int, Meta(ge=16, le=1 << 20, description="memory limit where there is no request either, in MiB")
    ] = 200
    mid_priority_class: Annotated[
        str, Meta(description="PriorityClass for Mid pods that name none; empty: they keep priority 0, as prod pods")
    ] = "headroom-mid"
    batch_priority_class: Annotated[
        str, Meta(description="PriorityClass for Batch pods that name none; empty: they keep priority 0, as prod pods")
    ] = "headroom-batch"

    load_aware_args: Annotated[
        str, Meta(description="file with LoadAwareSchedulingArgs for the extender; empty: load refuses no node")
    ] = ""

    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$", description="least level shown")] = "info"
    log_format: Annotated[str, Meta(pattern="^(auto|json|text)$", description="auto: text on a terminal")] = "auto"

    @property
    def tiers(self) -> tuple[names.Tier, ...]:
        """The tiers in `offers`."""
        return tuple(tier for tier in names.Tier if tier in self.offers.split(","))

    @property
    def config_map_key(self) -> str:
        """ "namespace/name" of the ConfigMap."""
        return f"{self.config_namespace or self.namespace}/{self.config_name}"
