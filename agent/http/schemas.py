"""The answers of the API. Each amount has its unit in its name or in a field beside it; unknown values are null."""

from dataclasses import dataclass
from typing import Any

from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import StorageTier
from agent.metric_cache.series import Kind, Metric


@dataclass(frozen=True)
class ProblemSchema:
    """Why there is no answer: the parameter, its value, and what is wrong with it."""

    detail: str


@dataclass(frozen=True)
class AmountSchema:
    """cpu in thousandths of a core, memory in bytes."""

    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True)
class ReadingSchema:
    """A value of the last minute. Ratios are 0 to 1."""

    value: float
    unit: str


@dataclass(frozen=True)
class NodeUsage:
    """What the node uses, and the part of it that no pod accounts for; `classes` by priority class of pods."""

    name: str
    time: str
    source: str
    cpu_milli: int | None
    memory_bytes: int | None
    system: AmountSchema | None
    allocatable: AmountSchema | None
    classes: dict[str, AmountSchema]
    host_applications: dict[str, AmountSchema]
    readings: dict[str, ReadingSchema]


@dataclass(frozen=True)
class PodUsageSchema:
    """What a pod uses and what it requested; usage is null while it cannot be read."""

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
    """What a container uses; usage is null while it cannot be read."""

    name: str
    cpu_milli: int | None
    memory_bytes: int | None
    readings: dict[str, ReadingSchema]


@dataclass(frozen=True)
class UsageSummary:
    """Usage over the last `window_seconds`, as far as there are samples of it; `tier` says what of."""

    window_seconds: int
    tier: StorageTier
    samples: int
    avg: AmountSchema | None
    p95: AmountSchema | None
    max: AmountSchema | None


@dataclass(frozen=True)
class ModelHistory:
    """What a model knows: decayed mean and standard deviation over `samples` training steps."""

    first_observed: str
    observed_seconds: int
    samples: int
    mean: AmountSchema
    stdev: AmountSchema


@dataclass(frozen=True)
class Bound:
    """One file of one cgroup as the enforcer keeps it; docs/schemas/pod_bounds.json has each field."""

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
    """What the enforcer last did for a pod, in the order in which it writes; `omitted` are bounds beyond the first."""

    tier: str
    bounds: list[Bound]
    omitted: int


@dataclass(frozen=True)
class PodDetail(PodUsageSchema):
    """A pod with its containers and its past; `cold` while its history is too short to lend what it does not use.

    `enforcer` is null without an enforcer, and for a pod that it does not know.
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
    """One series; a value is null where there was no sample."""

    entity: str
    labels: dict[str, str]
    values: list[float | None]


@dataclass(frozen=True)
class SeriesSchema:
    """Samples at `times` (Unix seconds); those of a five-minute tier stand for the `step_seconds` from there on."""

    kind: Kind
    metric: Metric
    unit: str
    tier: StorageTier
    step_seconds: int
    times: list[int]
    series: list[Values]


@dataclass(frozen=True)
class Value:
    """The aggregate of one series; null without a sample."""

    entity: str
    labels: dict[str, str]
    value: float | None


@dataclass(frozen=True)
class Aggregate:
    """One number a series over the window that ends with `time`; a count's unit is samples.

    A window answered from the tier 5m-mean is widened to whole five minutes, and its percentiles are of their means.
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
class TermSchema:
    """One quantity that went into the answer; `unit` is "milli", "bytes", "percent" or "basisPoints" (of a ratio that
    is no whole percent).
    """

    name: str
    value: int
    unit: str
    source: str
    time: str | None


@dataclass(frozen=True)
class ExplainedSchema:
    """The terms of one resource, and which of them decided."""

    terms: list[TermSchema]
    bound: str
    result: int


@dataclass(frozen=True)
class PromiseSchema:
    """The peak for one horizon, and how the promises for it were kept in the last 28 days.

    The violations are the percentage of `outcomes` in which more was used than was promised, the severity is the mean
    excess in percent of the peak that came, the over-estimate what was promised beyond what came, lent the mean share
    of requests above the promise; null without outcomes. `coverage_percent` is the share of hours with an outcome.
    """

    horizon_seconds: int
    peak: AmountSchema
    outcomes: int
    coverage_percent: float
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
    """The peak that a model says, and what came of its promises for the first horizon in the last 28 days.

    That is known of the model in force and of those that run in its shadow; null for others and without outcomes.
    """

    outcomes: int | None = None
    cpu_violation_percent: float | None = None
    memory_violation_percent: float | None = None
    cpu_lent_percent: float | None = None
    memory_lent_percent: float | None = None


@dataclass(frozen=True)
class WithdrawalSchema:
    """How much of what is lent is taken back a day, on average over the last `window_seconds`."""

    window_seconds: int
    cpu_percent_per_day: float
    memory_percent_per_day: float


@dataclass(frozen=True)
class RecommendationSchema:
    """The model that this node should lend by, as far as the outcomes of those that run here say, and why."""

    model: str
    sentence: str


@dataclass(frozen=True)
class PriorSchema:
    """What margins start from until the node has outcomes of its own: "built-in", or "fleet" and its nodes."""

    source: str
    nodes: int


@dataclass(frozen=True)
class PredictionSchema:
    """The prediction of this moment; what rests on history is null until a model is trained.

    `models` holds what each model would say the peak of prod pods and the system is, `model` names the one in force,
    which keeps to `target_violation_percent` if it has a target. `history_percent` is how much of the cold start the
    node's history covers. `reclaimable` is the result, `resources` its terms.
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
    recommended: RecommendationSchema | None
    target_violation_percent: float | None
    prior: PriorSchema
    reclaimable: AmountSchema | None
    reason: str
    resources: dict[str, ExplainedSchema]
    policy_problem: str
    predictor_problem: str


@dataclass(frozen=True)
class Histogram:
    """A decaying histogram as VPA and Koordinator write it: weights relative to the heaviest bucket's 10000.

    `bucket_starts` says where those buckets begin, in `unit`.
    """

    unit: str
    reference_time: str
    bucket_weights: dict[int, int]
    bucket_starts: dict[int, float]
    total_weight: float


@dataclass(frozen=True)
class ReportSchema:
    """The last report that arrived at the API server, as it was sent."""

    time: str
    reason: str
    status: dict[str, Any]
