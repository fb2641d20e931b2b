"""The manager's settings; flags, environment and file keys follow from the names (see `shared.settings`)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from shared import names
from shared.settings import Authorization, Fixed, Kubeconfig, LogFormat, LogLevel


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the manager but for its autoscaler.

    The policy in the ConfigMap, not these, configures its decisions about nodes.
    """

    REMOVED: ClassVar[Mapping[str, str]] = {
        "batch_limit_factor": "Batch containers are limited to their requests. Set limits in the pods, or LimitRanges.",
        "check_interval_seconds": "NodeMetrics are checked every 5 s, so remove the setting.",
        "limit_without_request_cpu_milli": "250m is the limit. Set requests in the pods, or in a LimitRange.",
        "limit_without_request_memory_mib": "200Mi is the limit. Set requests in the pods, or in a LimitRange.",
        "webhook_certificates": (
            "With --webhook-certificate-directory the certificate comes from files; otherwise the manager generates it."
        ),
    }

    kubeconfig: Kubeconfig = ""
    namespace: Annotated[str, Meta(min_length=1, description="Namespace that the manager runs in.")] = (
        names.INSTALL_NAMESPACE
    )
    config_namespace: Annotated[
        str, Meta(description="Namespace of the policy ConfigMap. If empty, the manager's own namespace.")
    ] = ""
    config_name: Annotated[str, Meta(min_length=1, description="Name of the policy ConfigMap.")] = names.CONFIG_MAP
    listen: Annotated[
        str,
        Meta(
            description="Address of the HTTP endpoints as host:port. If empty, the manager listens on port "
            "8080: on all addresses in a pod, on loopback elsewhere."
        ),
    ] = ""

    tls: Annotated[bool, Meta(description="Serve the HTTP endpoints over TLS with the webhook's certificate.")] = False
    authorization: Authorization = "auto"

    check_interval_seconds: Fixed[float] = 5.0
    writes_per_second: Annotated[
        float, Meta(gt=0, le=100_000, description="Average rate of writes to the cluster, in requests per second.")
    ] = 50.0
    write_burst: Annotated[
        int, Meta(ge=1, le=100_000, description="Number of writes to the cluster that may be sent at once.")
    ] = 100
    evictions_per_minute: Annotated[
        float,
        Meta(
            gt=0,
            le=100_000,
            description="Largest number of pods evicted per minute because their node no longer offers what "
            "they request. Evictions are spread evenly.",
        ),
    ] = 30.0
    offers: Annotated[
        str,
        Meta(
            pattern="^(mid|batch|mid,batch|batch,mid)$",
            description="Tiers that the manager offers on nodes: mid, batch, or both. It leaves the resources "
            "of other tiers unchanged.",
        ),
    ] = "mid,batch"
    write_rule: Annotated[
        str,
        Meta(
            pattern="^(damped|upstream)$",
            description="When the manager updates a node's offer. damped: it reduces the offer at once, and "
            "raises it after an increase has lasted; upstream: by Koordinator's threshold and age "
            "only.",
        ),
    ] = "damped"
    dry_run: Annotated[bool, Meta(description="Compute and explain the offers, but write nothing to the cluster.")] = (
        False
    )

    leader_elect: Annotated[
        bool, Meta(description="Elect a leader with a Lease. Only the leader writes to the cluster.")
    ] = True
    identity: Annotated[
        str,
        Meta(
            description="Name of this candidate in the leader election. If empty, the host name with a random suffix."
        ),
    ] = ""
    lease_duration_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Time after its last renewal at which other candidates may take over the Lease.",
        ),
    ] = 15
    renew_deadline_seconds: Annotated[
        float,
        Meta(gt=0, le=86_400, description="Time after which a leader that cannot renew its Lease gives up leadership."),
    ] = 10.0
    retry_period_seconds: Annotated[
        float, Meta(gt=0, le=86_400, description="Time between two attempts to acquire or renew the Lease.")
    ] = 2.0

    webhook_listen: Annotated[
        str, Meta(description="Address of the admission webhook as host:port. If empty, there is no webhook.")
    ] = ""
    webhook_certificate_directory: Annotated[
        str,
        Meta(
            description="Directory with tls.crt and tls.key, the certificate for all ports. If empty, the manager "
            "generates it and stores it in the Secret."
        ),
    ] = ""
    webhook_secret: Annotated[
        str,
        Meta(
            min_length=1,
            description="Name of the Secret that stores the generated certificate. Not used with "
            "webhook_certificate_directory.",
        ),
    ] = "headroom-webhook"
    webhook_configuration: Annotated[
        str,
        Meta(
            min_length=1,
            description="Name of the webhook configurations in which the manager sets the CA bundle. Not used with "
            "webhook_certificate_directory.",
        ),
    ] = "headroom"
    webhook_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="DNS names and IP addresses in the generated certificate. Not used "
            "with webhook_certificate_directory. If empty, those of the Service headroom-webhook."
        ),
    ] = ()

    translation: Annotated[
        Literal["kubelet", "koordinator"],
        Meta(
            description="How the webhook translates Mid and Batch pods. kubelet: pods keep native CPU and "
            "memory limits, which the kubelet enforces; koordinator: pods keep no native limits, "
            "and a koordlet must enforce those of Batch pods; nothing bounds Mid pods."
        ),
    ] = "kubelet"
    mid_limit_factor: Annotated[
        float, Meta(ge=1, le=100, description="Limit of a Mid container that sets none, as a multiple of its request.")
    ] = 1.0
    mid_priority_class: Annotated[
        str,
        Meta(description="PriorityClass for Mid pods that name none. If empty, they keep priority 0, like Prod pods."),
    ] = "headroom-mid"
    batch_priority_class: Annotated[
        str,
        Meta(
            description="PriorityClass for Batch pods that name none. If empty, they keep priority 0, like Prod pods."
        ),
    ] = "headroom-batch"

    scheduler_name: Annotated[
        str,
        Meta(
            description="Scheduler that the webhook sets in new Mid and Batch pods that name none but the default one. "
            "Its Lease has this name too, in the namespace of the manager. If empty, pods keep their scheduler."
        ),
    ] = ""
    scheduler_fallback_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="Time after the scheduler's last renewal of its Lease at which new pods keep the default "
            "scheduler, until it renews again. 0: they get the scheduler anyway, and wait for it.",
        ),
    ] = 60.0
    scheduler_account: Annotated[
        str,
        Meta(
            description="ServiceAccount of the scheduler. The manager keeps a client certificate for it in the Secret "
            "of the same name. If empty, it issues none."
        ),
    ] = ""

    load_aware_args: Annotated[
        str,
        Meta(
            description="File with the LoadAwareSchedulingArgs of the scheduler extender. If empty, the "
            "extender rejects no node for its load."
        ),
    ] = ""

    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

    @property
    def tiers(self) -> tuple[names.Tier, ...]:
        """The tiers in `offers`."""
        return tuple(tier for tier in names.Tier if tier in self.offers.split(","))

    @property
    def config_map_key(self) -> str:
        """ "namespace/name" of the ConfigMap."""
        return f"{self.config_namespace or self.namespace}/{self.config_name}"
