"""The agent's settings; flags, environment and file keys follow from the names (see `shared.settings`)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from shared import examples
from shared.api.nodemetric_spec import TrainingInput
from shared.api.predictpolicy import (
    DEFAULT_TARGET_PERCENT,
    LARGEST,
    LARGEST_TARGET_PERCENT,
    LEAST_TARGET_PERCENT,
    LONGEST_HORIZON_SECONDS,
    SHORTEST_HORIZON_SECONDS,
)
from shared.settings import Authorization, CgroupParent, CgroupRoot, Fixed, Kubeconfig, LogFormat, LogLevel


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The spec of the NodeMetric overrides predictor, target and horizon.

    The other fields of its `predictPolicy` have their defaults here, which no flag changes.
    """

    EXAMPLES: ClassVar[str] = examples.text(
        (
            "Report this machine to a cluster as node-1",
            "headroom agent --node-name node-1 --state-dir ./state",
        ),
        ("Compare another predictor with the one in force", "headroom agent --shadow-predictors percentile"),
    )
    REMOVED: ClassVar[Mapping[str, str]] = {
        "host_applications": (
            "The usage of programs outside of pods always counts as the system's, so remove the setting."
        ),
        "borg_ratio": "Set borgRatio in nodePredictPolicy of the policy.",
        "koordinator_metrics": "The table in docs/how-to/koordinator.md has our metrics.",
        "kubelet_insecure": (
            "Name the CA of the kubelet's certificate with --kubelet-ca-file, or read pods with --pods-source api."
        ),
        "kubelet_poll_interval_seconds": "The agent asks the kubelet for its pods every 10 s, so remove the setting.",
        "metric_cache_disk_free_percent": (
            "The metric cache leaves 10 % of the disk free. --metric-cache-bytes limits its size."
        ),
        "training_input": "Set trainingInput in nodePredictPolicy of the policy.",
        "sigma_cpu": "Set sigmaCPU in nodePredictPolicy of the policy.",
        "sigma_memory": "Set sigmaMemory in nodePredictPolicy of the policy.",
        "sigma_cap_pods": "Set sigmaCapPods in nodePredictPolicy of the policy.",
        "cpu_percentile": "Set cpuPercentile in nodePredictPolicy of the policy.",
        "memory_percentile": "Set memoryPercentile in nodePredictPolicy of the policy.",
        "safety_margin_percent": "Set safetyMarginPercent in nodePredictPolicy of the policy.",
        "cold_start_seconds": "Set coldStartPeriodSeconds in nodePredictPolicy of the policy.",
        "warm_up_samples": "Set warmUpSamples in nodePredictPolicy of the policy.",
        "resource_diff_threshold_percent": "Set resourceDiffThresholdPercent in nodePredictPolicy of the policy.",
        "reclaim_ratio_percent": "Set reclaimRatioPercent in nodePredictPolicy of the policy.",
        "cpu_half_life_seconds": "Set cpuHalfLifeSeconds in nodePredictPolicy of the policy.",
        "memory_half_life_seconds": "Set memoryHalfLifeSeconds in nodePredictPolicy of the policy.",
        "metric_cache_on_disk": "Samples are always kept in the state directory, so remove the setting.",
        "model_expiration_seconds": "Models of deleted pods are kept for half an hour, so remove the setting.",
        "shortest_reporting_interval_seconds": (
            "Any reportIntervalSeconds from 1 s is accepted, so set the interval in the policy."
        ),
        "workload_expiration_seconds": "Models of workloads are kept for a week, so remove the setting.",
    }

    node_name: Annotated[
        str, Meta(description="Name of the node to watch. If empty, $NODE_NAME is used, then the name of the host.")
    ] = ""
    kubeconfig: Kubeconfig = ""
    listen: Annotated[
        str,
        Meta(
            description="Address of the HTTP endpoints as host:port. If empty, the agent listens on all "
            "addresses in a pod, and on loopback elsewhere."
        ),
    ] = ""
    tls: Annotated[
        Literal["off", "self", "files"],
        Meta(
            description="Whether the HTTP endpoints use TLS. off: plain HTTP; self: with a certificate "
            "generated at startup; files: with the certificate in tls_certificate_directory."
        ),
    ] = "off"
    tls_certificate_directory: Annotated[
        str, Meta(description="Directory with tls.crt and tls.key. Needed if tls is files.")
    ] = ""
    authorization: Authorization = "auto"
    state_dir: Annotated[str, Meta(description="Directory of the checkpoint and of the stored samples.")] = (
        "/var/lib/headroom/agent"
    )
    cgroup_root: CgroupRoot = "/sys/fs/cgroup"
    cgroup_parent: CgroupParent = ""
    proc_root: Annotated[str, Meta(description="Directory where procfs is mounted.")] = "/proc"
    pods_source: Annotated[
        Literal["api", "kubelet"],
        Meta(description="Where the agent reads the pods of this node from: api (the API server) or kubelet."),
    ] = "api"
    kubelet_url: Annotated[str, Meta(description="URL of the kubelet.")] = "https://127.0.0.1:10250"
    kubelet_ca_file: Annotated[
        str,
        Meta(
            description="File with the CA that the kubelet's certificate is verified against. If empty, the "
            "cluster's CA is used in a pod, and the system's CAs elsewhere."
        ),
    ] = ""
    kubelet_token_file: Annotated[
        str,
        Meta(
            description="File with the bearer token for the kubelet. If empty, the pod's service account "
            "token is used in a pod, and none elsewhere."
        ),
    ] = ""

    enforcer_orders_dir: Annotated[
        str,
        Meta(
            description="Directory in which the agent writes the requests of Mid and Batch pods for the "
            "enforcer. If empty, no enforcer is used."
        ),
    ] = ""
    enforcer_status_dir: Annotated[
        str, Meta(description="Directory from which the agent reads the enforcer's reports.")
    ] = ""

    collect_interval_seconds: Annotated[float, Meta(ge=1.0, le=5.0, description="Time between two usage samples.")] = (
        1.0
    )
    metric_retention_seconds: Annotated[
        int, Meta(ge=600, le=86400, description="How long samples with a resolution of one second are kept.")
    ] = 3600
    metric_cache_bytes: Annotated[
        int, Meta(ge=32 << 20, description="Most bytes that the metric cache may use, on disk and in memory together.")
    ] = 256 << 20
    metric_cache_on_disk: Fixed[bool] = True
    histogram_update_interval_seconds: Annotated[
        float, Meta(ge=1.0, le=300.0, description="Time between two training steps of the models.")
    ] = 30.0
    check_prediction_interval_seconds: Annotated[
        float,
        Meta(
            ge=1.0,
            le=LARGEST,
            description="Time between two checks whether the prediction has changed enough to be reported at once.",
        ),
    ] = 20.0
    reporting_interval_seconds: Annotated[
        float,
        Meta(
            ge=1.0,
            le=LARGEST,
            description="Time between two complete reports. The NodeMetric's reportIntervalSeconds overrides it.",
        ),
    ] = 60.0
    report_size_bytes: Annotated[
        int,
        Meta(ge=16 << 10, description="Largest size of a report in bytes. A larger report is sent without its pods."),
    ] = 512 << 10
    force_update_interval_seconds: Annotated[
        float,
        Meta(
            ge=1.0,
            le=LARGEST,
            description="Age of the last report at which another one is sent even if nothing has changed.",
        ),
    ] = 600.0
    checkpoint_interval_seconds: Annotated[
        float,
        Meta(
            ge=1.0,
            le=LARGEST,
            description="Time between two checkpoints. A checkpoint is written after a training step.",
        ),
    ] = 30.0

    predictor: Annotated[
        str,
        Meta(
            description="Predictor of the peak: peak-mix, n-sigma-v1, n-sigma-v2, percentile, borg-default, "
            "resource-central, the name of an installed plug-in, or max(a,b) for the largest of "
            "several."
        ),
    ] = "peak-mix"
    shadow_predictors: Annotated[
        tuple[str, ...],
        Meta(
            description="Predictors, at most 8, that run beside the active one once an hour, without effect "
            "on the offer. The agent reports how much each would have offered, and how often its "
            "prediction would have been exceeded. If empty, none runs."
        ),
    ] = ("n-sigma-v2", "percentile")
    target_violation_percent: Annotated[
        float,
        Meta(
            ge=LEAST_TARGET_PERCENT,
            le=LARGEST_TARGET_PERCENT,
            description="Target for broken promises: the percentage of node-hours in which usage may exceed "
            "the predicted peak. Only peak-mix uses it.",
        ),
    ] = DEFAULT_TARGET_PERCENT
    horizon_seconds: Annotated[
        int,
        Meta(
            ge=SHORTEST_HORIZON_SECONDS,
            le=LONGEST_HORIZON_SECONDS,
            description="How far ahead the predicted peak must hold, in whole hours. The peak of the next "
            "hour is always reported beside it.",
        ),
    ] = 86400
    prediction_hour_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=3600,
            description="Length of an hour for the prediction, for demonstrations and tests. A smaller value "
            "makes horizon, cold start, half-lives and all daily patterns pass faster.",
        ),
    ] = 3600
    training_input: Fixed[TrainingInput] = "p90"
    sigma_cpu: Fixed[float] = 5.0
    sigma_memory: Fixed[float] = 5.0
    sigma_cap_pods: Fixed[bool] = False
    cpu_percentile: Fixed[float] = 95.0
    memory_percentile: Fixed[float] = 98.0
    safety_margin_percent: Fixed[Annotated[float, Meta(ge=0, le=LARGEST)] | None] = None
    cold_start_seconds: Fixed[float] = 86400.0
    warm_up_samples: Fixed[int] = 2
    resource_diff_threshold_percent: Fixed[float] = 5.0
    reclaim_ratio_percent: Fixed[int] = 100
    cpu_half_life_seconds: Fixed[float] = 43200.0
    memory_half_life_seconds: Fixed[float] = 86400.0

    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
