"""The answers of the API. Each amount has its unit in its name or in a field beside it; unknown values are null."""

from dataclasses import dataclass
from typing import Any

from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import StorageTier
from agent.metric_cache.series import Kind, Metric
from shared.explanation import ResourceExplanation
from shared.recommendation import ModelRecommendation


@dataclass(frozen=True)
class ProblemSchema:
    """Why the request failed: the parameter, its value, and what is wrong with it."""

    detail: str


@dataclass(frozen=True)
class AmountSchema:
    """CPU in milli-cores and memory in bytes."""

    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True)
class ReadingSchema:
    """A measurement of the last minute. Ratios are between 0 and 1."""

    value: float
    unit: str


@dataclass(frozen=True)
class NodeUsage:
    """Usage of the node. `system` is the part that belongs to no pod. `classes` has the usage of pods by priority
    class.
    """

    name: str
    time: str
    source: str
    cpu_milli: int | None
    memory_bytes: int | None
    system: AmountSchema | None
    allocatable: AmountSchema | None
    classes: dict[str, AmountSchema]
    readings: dict[str, ReadingSchema]


@dataclass(frozen=True)
class PodUsageSchema:
    """Usage and request of a pod. Usage is null if it cannot be read."""

    uid: str
    namespace: str
    name: str
    priority: str
    qos: str
    workload: str
    cpu_milli: int | None
    memory_bytes: int | None
    request: AmountSchema


@dataclass(frozen=True)
class PodsSchema:
    time: str
    pods: list[PodUsageSchema]


@dataclass(frozen=True)
class ContainerUsage:
    """Usage of a container; null if it cannot be read."""

    name: str
    cpu_milli: int | None
    memory_bytes: int | None
    readings: dict[str, ReadingSchema]


@dataclass(frozen=True)
class UsageSummary:
    """Usage over the last `window_seconds`, as far as there are samples. `tier` is the resolution that it was computed
    from.
    """

    window_seconds: int
    tier: StorageTier
    samples: int
    avg: AmountSchema | None
    p95: AmountSchema | None
    max: AmountSchema | None


@dataclass(frozen=True)
class ModelHistory:
    """The state of a model: decayed mean and standard deviation over `samples` training steps."""

    first_observed: str
    observed_seconds: int
    samples: int
    mean: AmountSchema
    stdev: AmountSchema


@dataclass(frozen=True)
class Bound:
    """One cgroup file that the enforcer writes. docs/schemas/pod_bounds.json describes each field."""

    cgroup: str
    file: str
    term: str
    amount: int | None
    unit: str
    value: str
    outcome: str
    time: str
    before: str
    problem: str


@dataclass(frozen=True)
class PodBoundsSchema:
    """The enforcer's last writes for a pod, in the order of writing. `omitted` is the number of further bounds that are
    not listed.
    """

    tier: str
    bounds: list[Bound]
    omitted: int


@dataclass(frozen=True)
class PodDetail(PodUsageSchema):
    """A pod with its containers and its history. `cold` is true while its history is too short to offer its unused
    request.

    `enforcer` is null if there is no enforcer, or if the enforcer does not know the pod.
    """

    time: str
    created: str
    cold: bool
    readings: dict[str, ReadingSchema]
    containers: list[ContainerUsage]
    usage: list[UsageSummary]
    history: ModelHistory | None
    workload_history: ModelHistory | None
    enforcer: PodBoundsSchema | None = None


@dataclass(frozen=True)
class Values:
    """One series. A value is null if there was no sample."""

    entity: str
    labels: dict[str, str]
    values: list[float | None]


@dataclass(frozen=True)
class SeriesSchema:
    """Samples at `times` (Unix seconds). In a five-minute tier, each one covers the `step_seconds` that follow."""

    kind: Kind
    metric: Metric
    unit: str
    tier: StorageTier
    step_seconds: int
    times: list[int]
    series: list[Values]


@dataclass(frozen=True)
class Value:
    """The aggregate of one series; null if there was no sample."""

    entity: str
    labels: dict[str, str]
    value: float | None


@dataclass(frozen=True)
class Aggregate:
    """One number per series, over the window that ends at `time`. The unit of a count is samples.

    In the tier 5m-mean the window is extended to whole five minutes, and percentiles are those of the five-minute
    means.
    """

    kind: Kind
    metric: Metric
    agg: Aggregation
    unit: str
    window_seconds: int
    time: str
    tier: StorageTier
    values: list[Value]


@dataclass(frozen=True)
class DebtSchema:
    """What broken promises cost. A surprise breaks all promises that are open; `surprises` are those of 28 days.

    `broken_promises` are those not made up for by kept ones, `withheld` (milli-cores or bytes) is lent less because of
    them, until `paid_time` if nothing else breaks. `cause` is the likely one of the last surprise: Correlated (pods
    peak together), Growing (more from day to day) or Bursting; empty without one.
    """

    surprises: int
    last_surprise_time: str | None
    cause: str
    broken_promises: float
    withheld: int
    paid_time: str | None


@dataclass(frozen=True)
class PromiseSchema:
    """The predicted peak for one horizon, and how promises for it were kept in the last 28 days.

    A violation is the percentage of `outcomes` in which usage exceeded the promise. Severity is the mean excess as a
    percentage of the actual peak. Over-estimate is the mean amount by which the promise exceeded the actual peak. Lent
    is the mean percentage of requests above the promise. These are null without outcomes. `coverage_percent` is the
    percentage of hours with an outcome.
    """

    horizon_seconds: int
    peak: AmountSchema
    outcomes: int
    coverage_percent: float
    target_note: str
    cpu_debt: DebtSchema | None
    memory_debt: DebtSchema | None
    cpu_violation_percent: float | None
    memory_violation_percent: float | None
    cpu_severity_percent: float | None
    memory_severity_percent: float | None
    cpu_over_estimate_percent: float | None
    memory_over_estimate_percent: float | None
    cpu_lent_percent: float | None
    memory_lent_percent: float | None


@dataclass(frozen=True)
class ModelSays(AmountSchema):
    """The peak that a model predicts, and the outcomes of its promises for the first horizon in the last 28 days.

    Outcomes are known for the active model and for its shadow models. They are null for others, and as long as there
    are none.
    """

    outcomes: int | None = None
    cpu_violation_percent: float | None = None
    memory_violation_percent: float | None = None
    cpu_lent_percent: float | None = None
    memory_lent_percent: float | None = None


@dataclass(frozen=True)
class WithdrawalSchema:
    """Percentage of the offer that is withdrawn per day, averaged over the last `window_seconds`."""

    window_seconds: int
    cpu_percent_per_day: float
    memory_percent_per_day: float


@dataclass(frozen=True)
class PriorSchema:
    """What margins start from until the node has outcomes: "built-in", or "fleet" with the number of its nodes."""

    source: str
    nodes: int


@dataclass(frozen=True)
class PredictionSchema:
    """The current prediction. Values that need history are null until a model is trained.

    `model` names the active model, and `models` has the peak that each model predicts for Prod pods and the system
    together. `target_violation_percent` is the active model's target, null if it has none. `history_percent` is the
    percentage of the cold-start period that the node's history covers. `reclaimable` is the result, and `resources` has
    its terms.
    """

    time: str
    model: str
    samples: int
    history_percent: int
    requested: AmountSchema
    cold_requested: AmountSchema
    mean: AmountSchema | None
    stdev: AmountSchema | None
    models: dict[str, ModelSays]
    peak: AmountSchema | None
    node_peak: AmountSchema | None
    promises: list[PromiseSchema]
    withdrawals: list[WithdrawalSchema]
    recommended: ModelRecommendation | None
    target_violation_percent: float | None
    prior: PriorSchema
    reclaimable: AmountSchema | None
    reason: str
    resources: dict[str, ResourceExplanation]
    policy_problem: str
    predictor_problem: str


@dataclass(frozen=True)
class Histogram:
    """A decaying histogram in the format of VPA and Koordinator. The weight of the heaviest bucket is 10000.

    `bucket_starts` has the lower bounds of the buckets in `unit`.
    """

    unit: str
    reference_time: str
    bucket_weights: dict[int, int]
    bucket_starts: dict[int, float]
    total_weight: float


@dataclass(frozen=True)
class ReportSchema:
    """The last report that the API server accepted, as it was sent."""

    time: str
    reason: str
    status: dict[str, Any]
