"""The agent's settings; flags, environment and file keys follow from the names (see `shared.settings`)."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shared.api.nodemetric import TrainingInput
from shared.api.predictpolicy import (
    DEFAULT_TARGET_PERCENT,
    LARGEST,
    LARGEST_TARGET_PERCENT,
    LEAST_TARGET_PERCENT,
    LONGEST_HORIZON_SECONDS,
    SHORTEST_HORIZON_SECONDS,
)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policy fields (predictor, sigmas, ratios, half-lives, cold start) can be overridden by the NodeMetric's spec."""

    node_name: Annotated[str, Meta(description="Node to watch; empty: $NODE_NAME, then the host's name")] = ""
    kubeconfig: Annotated[str, Meta(description="kubeconfig file; empty: in-cluster, then the user's own")] = ""
    listen: Annotated[str, Meta(description="address of the HTTP endpoints; empty: loopback, all in a pod")] = ""
    tls: Annotated[
        Literal["off", "self", "files"],
        Meta(description="self: with a certificate made at the start; files: with one from tls_certificate_directory"),
    ] = "off"
    tls_certificate_directory: Annotated[str, Meta(description="where tls.crt and tls.key are, for files")] = ""
    authorization: Annotated[
        Literal["auto", "delegated", "off"],
        Meta(
            description="who may ask; delegated: whom the API server lets; off: all; auto: on a loopback address "
            "this machine alone, elsewhere delegated"
        ),
    ] = "auto"
    state_dir: Annotated[str, Meta(description="directory of checkpoint and samples")] = "/var/lib/headroom/agent"
    cgroup_root: Annotated[str, Meta(description="where cgroups are mounted")] = "/sys/fs/cgroup"
    cgroup_parent: Annotated[str, Meta(description="path below which kubepods lives; empty: look for it")] = ""
    proc_root: Annotated[str, Meta(description="where procfs is mounted")] = "/proc"
    pods_source: Annotated[
        Literal["api", "kubelet"], Meta(description="who says which pods run here: api or kubelet")
    ] = "api"
    kubelet_url: Annotated[str, Meta(description="address of the kubelet")] = "https://127.0.0.1:10250"
    kubelet_ca_file: Annotated[
        str, Meta(description="what its certificate is verified by; empty: in a pod the cluster's, else the system's")
    ] = ""
    kubelet_insecure: Annotated[bool, Meta(description="do not verify the kubelet's certificate")] = False
    kubelet_token_file: Annotated[
        str, Meta(description="bearer token for the kubelet; empty: the pod's own, none outside of a pod")
    ] = ""
    kubelet_poll_interval_seconds: Annotated[
        float, Meta(ge=1.0, le=60.0, description="between two lists of its pods")
    ] = 10.0
    host_applications: Annotated[
        str, Meta(description="YAML file of the node's own programs to measure by cgroup, as a NodeSLO lists them")
    ] = ""

    enforcer_orders_dir: Annotated[
        str, Meta(description="directory to tell an enforcer what pods hold; empty: there is no enforcer")
    ] = ""
    enforcer_status_dir: Annotated[str, Meta(description="directory where the enforcer says what it did")] = ""

    collect_interval_seconds: Annotated[float, Meta(ge=1.0, le=5.0, description="between two samples")] = 1.0
    metric_retention_seconds: Annotated[
        int, Meta(ge=600, le=86400, description="for how long the samples of single seconds are kept")
    ] = 3600
    metric_cache_bytes: Annotated[
        int, Meta(ge=32 << 20, description="what the metric cache may take, on disk and in memory together")
    ] = 256 << 20
    metric_cache_on_disk: Annotated[bool, Meta(description="keep samples in state_dir, for the next start")] = True
    metric_cache_disk_free_percent: Annotated[
        float, Meta(ge=0, le=100, description="of the disk, left to others; beyond it samples go to memory")
    ] = 10.0
    histogram_update_interval_seconds: Annotated[
        float, Meta(ge=1.0, le=300.0, description="between two training steps")
    ] = 30.0
    check_prediction_interval_seconds: Annotated[
        float, Meta(ge=1.0, le=LARGEST, description="between looks for a change")
    ] = 20.0
    reporting_interval_seconds: Annotated[
        float,
        Meta(
            ge=1.0, le=LARGEST, description="between two complete reports; the NodeMetric's reportIntervalSeconds wins"
        ),
    ] = 60.0
    shortest_reporting_interval_seconds: Annotated[
        float,
        Meta(
            ge=1.0,
            le=LARGEST,
            description="lower bound of the NodeMetric's reportIntervalSeconds; Koordinator's is 30s",
        ),
    ] = 1.0
    report_size_bytes: Annotated[
        int, Meta(ge=16 << 10, description="of a report; one that would be larger goes out without its pods")
    ] = 512 << 10
    force_update_interval_seconds: Annotated[
        float, Meta(ge=1.0, le=LARGEST, description="age of the last report that forces another one")
    ] = 600.0
    checkpoint_interval_seconds: Annotated[
        float, Meta(ge=1.0, le=LARGEST, description="between two checkpoints, taken after a training step")
    ] = 30.0
    model_expiration_seconds: Annotated[
        float, Meta(ge=1.0, le=LARGEST, description="how long the model of a vanished pod is kept")
    ] = 1800.0
    workload_expiration_seconds: Annotated[
        float, Meta(ge=1.0, le=LARGEST, description="how long the model of a workload without pods here is kept")
    ] = 604800.0

    predictor: Annotated[
        str,
        Meta(
            description="peak predictor: peak-mix, n-sigma-v1, n-sigma-v2, percentile, borg-default, resource-central, "
            "the name of a plug-in, or max(a,b) of some"
        ),
    ] = "peak-mix"
    shadow_predictors: Annotated[
        tuple[str, ...],
        Meta(
            description="predictors, 8 at most, that run beside the one in force once an hour and lend nothing: what "
            "each would have lent and how often it would have been wrong is reported; empty: none"
        ),
    ] = ("n-sigma-v2", "percentile")
    target_violation_percent: Annotated[
        float,
        Meta(
            ge=LEAST_TARGET_PERCENT,
            le=LARGEST_TARGET_PERCENT,
            description="in at most so many percent of hours is more to be used than was promised, for peak-mix",
        ),
    ] = DEFAULT_TARGET_PERCENT
    horizon_seconds: Annotated[
        int,
        Meta(
            ge=SHORTEST_HORIZON_SECONDS,
            le=LONGEST_HORIZON_SECONDS,
            description="how long a promised peak is to hold, to the hour; that of the next hour is reported beside it",
        ),
    ] = 86400
    prediction_hour_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=3600,
            description="how long an hour of the prediction takes, for demonstrations and tests: horizon, cold start, "
            "half-lives and all that models know of hours and days pass sooner by that",
        ),
    ] = 3600
    training_input: Annotated[
        TrainingInput, Meta(description="what an interval's samples are to a model: mean, p90, p95 or max")
    ] = "p90"
    sigma_cpu: Annotated[float, Meta(ge=0, le=LARGEST, description="N of mean + N * stdev for cpu")] = 5.0
    sigma_memory: Annotated[float, Meta(ge=0, le=LARGEST, description="N of mean + N * stdev for memory")] = 5.0
    cpu_percentile: Annotated[
        float, Meta(ge=1, le=100, description="percentile of cpu, 1 to 100, for predictors that use one")
    ] = 95.0
    memory_percentile: Annotated[
        float, Meta(ge=1, le=100, description="percentile of memory, 1 to 100, for predictors that use one")
    ] = 98.0
    safety_margin_percent: Annotated[
        Annotated[float, Meta(ge=0, le=LARGEST)] | None,
        Meta(description="added to the predicted peak; unset: 10 for percentile, 0 for other predictors"),
    ] = None
    borg_ratio: Annotated[float, Meta(ge=1, le=LARGEST, description="what borg-default divides requests by")] = 1.1
    cold_start_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=LARGEST,
            description="history a pod, or its workload, needs before the pod's unused request is lent",
        ),
    ] = 86400.0
    warm_up_samples: Annotated[
        int, Meta(ge=0, le=LARGEST, description="training steps a model needs before it is believed")
    ] = 2
    resource_diff_threshold_percent: Annotated[
        float, Meta(ge=0, le=LARGEST, description="change of peak or reclaimable that is reported at once")
    ] = 5.0
    reclaim_ratio_percent: Annotated[
        int, Meta(ge=0, le=100, description="share of requests that may be lent at most")
    ] = 100
    cpu_half_life_seconds: Annotated[
        float, Meta(gt=0, le=LARGEST, description="in which a cpu sample loses half its weight")
    ] = 43200.0
    memory_half_life_seconds: Annotated[
        float, Meta(gt=0, le=LARGEST, description="in which a memory sample loses half its weight")
    ] = 86400.0

    koordinator_metrics: Annotated[
        bool, Meta(description="show at /metrics under Koordinator's names too what its agent also shows")
    ] = False
    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$", description="least level shown")] = "info"
    log_format: Annotated[str, Meta(pattern="^(auto|json|text)$", description="auto: text on a terminal")] = "auto"
