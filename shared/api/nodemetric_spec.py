"""The spec of the NodeMetric custom resource, which the manager writes."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from shared.api.meta import Wire

Percent: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100)]

# The bounds of what a policy may ask of an agent; the API server, the webhook, the manager and the agent know them.
LONGEST_REPORT_INTERVAL_SECONDS: Final = 3600
LONGEST_WINDOW_SECONDS: Final = 7 * 86400  # the longest reach of the metric cache
MOST_WINDOWS: Final = 10
LONGEST_HISTORY_SECONDS: Final = 90 * 86400  # cold start and half-lives; more than agents judge promises over
LARGEST_SIGMA: Final = 100
LARGEST_BORG_RATIO: Final = 100
LARGEST_MARGIN_PERCENT: Final = 1000
MOST_WARM_UP_SAMPLES: Final = 100_000  # 35 days of training steps

Past: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=LONGEST_HISTORY_SECONDS)]

# How a model uses the samples of an interval.
TrainingInput: TypeAlias = Literal["mean", "p90", "p95", "max"]

# Of a node's memory. Mid pods that use no more than they hold use what was promised to them, so a node that is well
# used, but not in danger, keeps them. Koordinator's threshold of 70 is for best-effort pods.
WITHIN_PERCENT = 90


class NodeAggregatePolicy(Wire, frozen=True):
    durations: tuple[str, ...] | None = None


class MetricCollectPolicy(Wire, frozen=True):
    aggregate_duration_seconds: int | None = None
    report_interval_seconds: int | None = None
    node_aggregate_policy: NodeAggregatePolicy | None = None
    node_memory_collect_policy: str | None = None


class PredictPolicy(Wire, frozen=True):
    """How the node's peak is predicted, and which change of it is reported; absent fields keep the agent's settings."""

    resource_diff_threshold_percent: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_MARGIN_PERCENT)] | None = None
    cold_start_period_seconds: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_HISTORY_SECONDS)] | None = None
    predictor: str | None = None
    target_violation_percent: str | Percent | None = None
    horizon_seconds: Annotated[int, msgspec.Meta(gt=0, le=LONGEST_WINDOW_SECONDS)] | None = None
    sigma_cpu: str | Annotated[int, msgspec.Meta(ge=0, le=LARGEST_SIGMA)] | None = msgspec.field(
        default=None, name="sigmaCPU"
    )
    sigma_memory: str | Annotated[int, msgspec.Meta(ge=0, le=LARGEST_SIGMA)] | None = None
    sigma_cap_pods: bool | None = None
    cpu_percentile: str | Percent | None = None
    memory_percentile: str | Percent | None = None
    borg_ratio: str | Annotated[int, msgspec.Meta(ge=0, le=LARGEST_BORG_RATIO)] | None = None
    safety_margin_percent: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_MARGIN_PERCENT)] | None = None
    reclaim_ratio_percent: Percent | None = None
    cpu_half_life_seconds: Past | None = None
    memory_half_life_seconds: Past | None = None
    training_input: TrainingInput | None = None
    warm_up_samples: Annotated[int, msgspec.Meta(ge=0, le=MOST_WARM_UP_SAMPLES)] | None = None


class MidPolicy(Wire, frozen=True):
    """The Mid policy in effect on this node, for people to read; the manager computes from its own copy."""

    mid_formula: str | None = None
    mid_cpu_threshold_percent: int | None = msgspec.field(default=None, name="midCPUThresholdPercent")
    mid_memory_threshold_percent: int | None = None
    mid_reclaim_mode: str | None = None
    mid_unallocated_percent: int | None = None
    mid_static_cpu_reserved_percent: int | None = msgspec.field(default=None, name="midStaticCPUReservedPercent")
    mid_static_memory_reserved_percent: int | None = None
    mid_buffer: str | int | None = None


class WireTail(Wire, frozen=True):
    """The tail of residuals as decimal texts; a measured tail has its `days` of outcomes. See `predictionprior`."""

    quantile: str = ""
    mean_excess: str = ""
    days: str = ""


class HorizonPrior(Wire, frozen=True):
    """The tail to start from, for one horizon."""

    horizon_seconds: int = 0
    cpu: WireTail = WireTail()
    memory: WireTail = WireTail()


class PredictionPrior(Wire, frozen=True):
    """What the fleet has learned, by horizon; from how many nodes, and at which time (RFC 3339)."""

    nodes: int = 0
    pooled_time: str = ""
    horizons: tuple[HorizonPrior, ...] = ()


class ResourceThresholds(Wire, frozen=True):
    """The use of the node from which pods of Mid and Batch are throttled or evicted; see `thresholds`.

    `enable` lets the enforcer throttle; with `evict_enabled` too, the manager evicts. Memory: eviction starts when this
    share of capacity is used, and stops at the lower bound; Mid pods within what they hold go later. CPU: eviction
    starts when pods get at most the lower bound of their requests, and stops at the upper one; without both bounds no
    pod is evicted for that. Prod is slowed when it waits this many points more of its time than without Mid and Batch;
    100 is never.
    """

    enable: bool = False
    evict_enabled: bool = False
    cpu_suppress_threshold_percent: Percent = 65
    cpu_suppress_min_percent: Percent = 0
    memory_evict_threshold_percent: Percent = 70
    memory_evict_lower_percent: Percent | None = None
    cpu_satisfaction_lower_percent: Percent | None = msgspec.field(
        default=None, name="cpuEvictBESatisfactionLowerPercent"
    )
    cpu_satisfaction_upper_percent: Percent | None = msgspec.field(
        default=None, name="cpuEvictBESatisfactionUpperPercent"
    )
    cpu_usage_threshold_percent: Percent = msgspec.field(default=90, name="cpuEvictBEUsageThresholdPercent")
    prod_wait_threshold_percent: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10

    @property
    def evicts(self) -> bool:
        """Whether pods may be evicted at all."""
        return self.enable and self.evict_enabled

    @property
    def ignores_waits(self) -> bool:
        """Whether no wait of Prod is too long."""
        return self.prod_wait_threshold_percent == 100

    @property
    def memory_lower_percent(self) -> int:
        """The use of memory at which eviction stops; Koordinator's default is two percent below the threshold."""
        given = self.memory_evict_lower_percent
        return max(0, self.memory_evict_threshold_percent - 2) if given is None else given

    @property
    def memory_within_percent(self) -> int:
        """The use of memory from which Mid pods go, too, that use no more than they hold."""
        return max(self.memory_evict_threshold_percent, WITHIN_PERCENT)

    @property
    def memory_within_lower_percent(self) -> int:
        """What they bring the use of memory down to."""
        return (
            self.memory_lower_percent if self.memory_evict_threshold_percent >= WITHIN_PERCENT else WITHIN_PERCENT - 2
        )


class NodeMetricSpec(Wire, frozen=True):
    metric_collect_policy: MetricCollectPolicy | None = None
    predict_policy: PredictPolicy | None = None
    prediction_prior: PredictionPrior | None = None
    mid_policy: MidPolicy | None = None
    resource_used_threshold_with_be: ResourceThresholds | None = msgspec.field(
        default=None, name="resourceUsedThresholdWithBE"
    )
