"""The answers of the API and `headroom plan` about nodes. docs/schemas has them as JSON Schema.

Instants are RFC 3339.
"""

from dataclasses import dataclass

from manager.autoscaler.utilization.decisions import ScanStep, ScanThresholds


@dataclass(frozen=True)
class NodeStatusRow:
    """Why one node is still here. `standing` is one of: goes, unneeded (it may go, and does not yet), leaving, gone,
    needed, unjudged (nobody has looked).

    `reason` is Cluster Autoscaler's word where it has one, or what the scan of its group says, `detail` the same in a
    sentence; `headroom plan` has not watched the nodes, and has none for those that only have to wait. `utilization` is
    the share of what is requested most, and `ripe_at` when the node will have been unneeded for long enough. `pods` are
    to be evicted, `stage` is how far it is on its way out, `cost_per_hour` null where it has no price. `replacement`
    says why the node is replaced by cheaper ones, or is not, and `replacement_saves_per_month` what that saves, or
    would (null: nothing cheaper is known); both are empty where consolidation does not look at it.
    """

    node: str
    group: str
    standing: str
    reason: str
    detail: str
    utilization: float | None
    unneeded_since: str | None
    ripe_at: str | None
    pods: int
    stage: str
    cost_per_hour: float | None
    replacement: str = ""
    replacement_saves_per_month: float | None = None


@dataclass(frozen=True)
class StayReasonRow:
    """Nodes that stay for one reason; `detail` is that of the first."""

    reason: str
    standing: str
    count: int
    nodes: list[str]
    detail: str


@dataclass(frozen=True)
class ScaleDownRow:
    """`nodes` are all there are, those that go first, and the dearest of these; in what is brief, and of past rounds,
    those alone that go or could. `stay` counts by their reasons those that neither go nor are on their way.
    `cooldown` says why nothing is deleted for a while.

    `saved_per_hour` is what those that go now cost, `savable_per_hour` with all that could (null: one of them has no
    price). `replacement` says which nodes are replaced by cheaper ones, and how far that has come.
    """

    goes: int
    unneeded: int
    leaving: int
    needed: int
    unjudged: int
    cooldown: str
    saved_per_hour: float | None
    savable_per_hour: float | None
    stay: list[StayReasonRow]
    nodes: list[NodeStatusRow]
    replacement: str = ""


@dataclass(frozen=True)
class DeletionRow:
    """A node on its way out: marking, draining, deleting, gone, or failed, with the `error`, so that it stays."""

    node: str
    group: str
    kind: str
    stage: str
    since: str
    waits_for: list[str]
    error: str


@dataclass(frozen=True)
class AmountRow:
    """Thousandths of a core, and bytes."""

    cpu: int
    memory: int


@dataclass(frozen=True)
class ScanRow:
    """How full a group that scales by utilization is, and what is done about it.

    `demand` is what is `requested`, or the predicted peak where that is more; the percentages are of `capacity`, that
    of untainted nodes (null: unknown, or `from_zero`, pods without any node). `delta` is what is wanted; of it nodes
    are tainted, or untainted and the cloud's target raised by `increase`. `deleted` and `drained` nodes were tainted
    before, `unhealthy` ones are tainted for not being ready. `refusals` are what cannot be done, `error` why the scan
    came to nothing. In a `dry` one nothing is done. `healthy` is null where nobody looked; with the `breaker` open, the
    cloud is not asked for more.
    """

    group: str
    cpu_percent: float | None
    memory_percent: float | None
    from_zero: bool
    thresholds: ScanThresholds
    requested: AmountRow
    demand: AmountRow
    capacity: AmountRow
    untainted: int
    tainted: int
    force_tainted: int
    cordoned: int
    steps: list[ScanStep]
    delta: int
    unhealthy: list[str]
    taint: list[str]
    untaint: list[str]
    increase: int
    deleted: list[str]
    drained: list[str]
    refusals: list[str]
    error: str
    locked: bool
    dry: bool
    healthy: bool | None
    breaker_open: bool


@dataclass(frozen=True)
class NodesLeft:
    """Why every node of a cluster is still here, as of one round (null: there was none yet). `held` says why that
    decided nothing, and is empty when it did.
    """

    cluster: str
    time: str | None
    held: str
    dry_run: bool
    scale_down: ScaleDownRow | None
    leaving: list[DeletionRow]
    scans: list[ScanRow]


@dataclass(frozen=True)
class NodeLeft:
    """The same of one node. `moves` says where its pods would go, by pod; `scan` is that of its group."""

    cluster: str
    time: str
    held: str
    answer: NodeStatusRow
    moves: dict[str, str]
    waits_for: list[str]
    scan: ScanRow | None
