"""The shapes of the answers of `headroom recommend` and `headroom savings`. docs/schemas has them as JSON Schema."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RecommendedAmountRow:
    """Of one resource: thousandths of a core, or bytes; null where nothing is set. `wanted` is what the rule came to
    where the request stays, `reason` the rule that decided.
    """

    request: int | None
    limit: int | None
    recommended_request: int | None
    recommended_limit: int | None
    wanted: int | None
    used_median: float | None
    used_quantile: float | None
    used_most: float | None
    reason: str
    detail: str


@dataclass(frozen=True)
class ContainerRecommendationRow:
    """One container of a workload. Money is per month in the answer's currency, a share of what its nodes cost: with a
    minus it costs more, null where no price is known. It is saved once nodes go.
    """

    namespace: str
    kind: str
    workload: str
    container: str
    role: str
    replicas: int
    scaling: str
    source: str
    days: float
    points: int
    gap_days: int
    confidence: str
    risk: str
    changes: bool
    cpu: RecommendedAmountRow
    memory: RecommendedAmountRow
    cost_now: float | None
    cost_then: float | None
    saved: float | None


@dataclass(frozen=True)
class Recommendations:
    """`cpu_saved` (thousandths of a core) and `memory_saved` (bytes) are what all replicas request less. `known` counts
    containers by the source of their usage.
    """

    cluster: str
    time: str
    estimator: str
    currency: str
    prices: str
    containers: list[ContainerRecommendationRow]
    known: dict[str, int]
    unknown: int
    cpu_saved: int
    memory_saved: int
    saved_per_month: float | None
    notes: list[str]
