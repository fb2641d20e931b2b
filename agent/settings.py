"""The agent's settings; flags, environment and file keys follow from the names (see `shared.settings`)."""

from typing import Annotated

import msgspec
from msgspec import Meta

LARGEST = 2**31 - 1  # seconds (68 years), sigmas, percent: beyond it a product may be no finite number


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policy fields (predictor, sigmas, ratios, half-lives, cold start) can be overridden by the NodeMetric's spec."""

    node_name: Annotated[str, Meta(description="Node to watch; empty: $NODE_NAME, then the host's name")] = ""
    kubeconfig: Annotated[str, Meta(description="kubeconfig file; empty: in-cluster, then the user's own")] = ""
    listen: Annotated[str, Meta(description="address of the HTTP endpoints; empty: loopback, all in a pod")] = ""
    state_dir: Annotated[str, Meta(description="directory of the prediction checkpoint")] = "/var/lib/headroom/agent"
    cgroup_root: Annotated[str, Meta(description="where cgroups are mounted")] = "/sys/fs/cgroup"
    cgroup_parent: Annotated[str, Meta(description="path below which kubepods lives; empty: look for it")] = ""
    proc_root: Annotated[str, Meta(description="where procfs is mounted")] = "/proc"

    collect_interval_seconds: Annotated[float, Meta(ge=1.0, description="between two samples")] = 1.0
    metric_retention_seconds: Annotated[int, Meta(ge=60, description="age of the oldest sample kept")] = 3600
    histogram_update_interval_seconds: Annotated[float, Meta(ge=1.0, description="between two training steps")] = 30.0
    check_prediction_interval_seconds: Annotated[float, Meta(ge=1.0, description="between looks for a change")] = 20.0
    reporting_interval_seconds: Annotated[
        float, Meta(ge=1.0, description="between two complete reports; the NodeMetric's reportIntervalSeconds wins")
    ] = 60.0
    force_update_interval_seconds: Annotated[
        float, Meta(ge=1.0, description="age of the last report that forces another one")
    ] = 600.0
    checkpoint_interval_seconds: Annotated[
        float, Meta(ge=1.0, description="between two checkpoints, taken after a training step")
    ] = 30.0
    model_expiration_seconds: Annotated[
        float, Meta(ge=1.0, description="how long the model of a vanished pod is kept")
    ] = 1800.0

    predictor: Annotated[str, Meta(description="name of the peak predictor")] = "n-sigma-v1"
    sigma_cpu: Annotated[float, Meta(ge=0, le=LARGEST, description="N of mean + N * stdev for cpu")] = 5.0
    sigma_memory: Annotated[float, Meta(ge=0, le=LARGEST, description="N of mean + N * stdev for memory")] = 5.0
    cold_start_seconds: Annotated[
        float, Meta(ge=0, le=LARGEST, description="history a pod needs before its unused request is lent")
    ] = 86400.0
    resource_diff_threshold_percent: Annotated[
        float, Meta(ge=0, description="change of peak or reclaimable that is reported at once")
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

    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$", description="least level shown")] = "info"
    log_format: Annotated[str, Meta(pattern="^(auto|json|text)$", description="auto: text on a terminal")] = "auto"
