"""The shapes of the answers of `headroom recommend` and `headroom savings`. docs/schemas has them as JSON Schema."""

from dataclasses import dataclass, field


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
    containers by the source of their usage. `estimated`: sums rest on a price that is estimated by a machine's size.
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
    estimated: bool
    notes: list[str]


@dataclass(frozen=True)
class BillRow:
    """Per month. No part is in two of these: `idle` is requested by no pod, `unused` is requested and was not used
    (null: nothing is known of usage), `offered` is on offer as Mid and Batch now and `lent` held as those; `used` is
    the rest. Together they are the `total`, which has no node of `unpriced_nodes`. Without pods in the input, every
    part is null. `estimated_nodes` of them have a price that is estimated by their size, and so has every sum here and
    in the stages: `prices_remedy` says how to give them a known one.
    """

    total: float
    used: float | None
    unused: float | None
    idle: float | None
    offered: float | None
    lent: float | None
    nodes: int
    spot_nodes: int
    unpriced_nodes: int
    unpriced_types: list[str]
    estimated_nodes: int = 0
    estimated_types: list[str] = field(default_factory=list)
    prices_remedy: str = ""


@dataclass(frozen=True)
class StageRow:
    """A step from one state of the cluster to the next. `saved` is by how much the bill falls a month, so that stages
    add up; null if no node has a price, or if the stage was skipped, for the reason in `skipped`. `cpu` (thousandths of
    a core) and `memory` (bytes) are requests that are freed, capacity that goes, or what can be lent.
    `needs_headroom`: nothing else does this.
    """

    stage: str
    saved: float | None
    bill: float | None
    nodes: int
    cpu: int
    memory: int
    needs_headroom: bool
    skipped: str
    how: str


@dataclass(frozen=True)
class GroupSavingsRow:
    """One node group. `goes` of its nodes could go (null: not known), `then` are left or bought with a cheaper mix
    (null: none). `estimated`: its machines' price is estimated by their size.
    """

    group: str
    machine_type: str
    nodes: int
    price_per_hour: float | None
    cost: float | None
    goes: int | None
    then: int | None
    saved: float | None
    estimated: bool = False


@dataclass(frozen=True)
class OwnerSavingsRow:
    """A namespace, or with `workload` one of its workloads: what its requests cost a month, and what right-sizing frees
    of that. Negative: it asks for too little.
    """

    namespace: str
    kind: str
    workload: str
    replicas: int
    cpu_requested: int
    memory_requested: int
    cost: float | None
    cpu_freed: int
    memory_freed: int
    freed: float | None


@dataclass(frozen=True)
class ObstacleRow:
    """Nodes that stay for one reason, and what they cost a month; `estimated` where some have a price by their size."""

    reason: str
    nodes: int
    cost: float | None
    example: str
    detail: str
    estimated: bool = False


@dataclass(frozen=True)
class ReplacementRow:
    """Whether consolidation by price replaces a node that costs `cost` a month, or why not, and what that saves a
    month, or would; with `saves_at_most` no more is known than that it would save no more. `estimated`: the node's
    price is estimated by its size. Null: not known.
    """

    node: str
    cost: float | None
    saves: float | None
    sentence: str
    saves_at_most: bool = False
    estimated: bool = False


@dataclass(frozen=True)
class KnowledgeRow:
    """What is known of usage: containers by source, days of history of the least and the median container, and the
    largest number of days without a sample between others.
    """

    containers: int
    known: dict[str, int]
    days_least: float
    days_median: float
    gap_days: int
    sure: str


@dataclass(frozen=True)
class LendableRow:
    """The calibrated model over the recorded usage of one resource, in thousandths of a core or bytes: what pods
    requested, and the peak that was promised for the next hours, over the last day. `violation_percent` of all its
    promises in the recording were broken, of `target_percent` that may be.
    """

    resource: str
    model: str
    target_percent: float
    violation_percent: float | None
    horizon_hours: int
    requested: int
    promised: int
    nodes: int
    days: float


@dataclass(frozen=True)
class LendingRecordRow:
    """The hours from `start` on of which a Prometheus remembers an offer, at today's prices, in all and not per month:
    what was on offer, what of it was held, and what nodes that avoided (null: not known). `known` says how.
    """

    start: str
    hours: int
    offered: float
    lent: float | None
    avoided: float | None
    known: str


@dataclass(frozen=True)
class SinceRow:
    """With Headroom installed, per month: what is on offer and what of it is held now, at what a core and a GiB cost.
    `avoided` is the price of the `avoided_nodes` that the planner would buy if those pods asked nodes themselves for
    what they hold. `withdrawn_percent_per_day` of what is lent is taken back. Null: not known. `avoided_known` and
    `withdrawn_known` say how each is known, or why not.
    """

    offered: float
    lent: float
    avoided: float | None
    avoided_nodes: int | None
    avoided_known: str
    withdrawn_percent_per_day: float | None
    withdrawn_known: str
    record: LendingRecordRow | None


@dataclass(frozen=True)
class Savings:
    """`without_headroom` and `with_headroom` are what the stages save a month in all, and never exceed the bill. They
    are null where no stage has a sum: without pods in the input, or without any price.
    """

    cluster: str
    time: str
    currency: str
    bill: BillRow
    stages: list[StageRow]
    without_headroom: float | None
    with_headroom: float | None
    groups: list[GroupSavingsRow]
    namespaces: list[OwnerSavingsRow]
    workloads: list[OwnerSavingsRow]
    obstacles: list[ObstacleRow]
    replacements: list[ReplacementRow]
    knowledge: KnowledgeRow
    lendable: list[LendableRow]
    since: SinceRow | None
    assumptions: list[str]
    notes: list[str]
