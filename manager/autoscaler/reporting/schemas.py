"""The answers of the API and `headroom plan` about an iteration. docs/schemas has them as JSON Schema."""

from dataclasses import dataclass

from manager.autoscaler.cluster_state.state import Readiness
from manager.autoscaler.expander.ranking import Rank
from manager.autoscaler.reporting.node_schemas import DeletionRow, ScaleDownRow, ScanRow
from manager.autoscaler.scale_up.decisions import Cap, ExpanderStep
from manager.autoscaler.scale_up.groups import Skipped


@dataclass(frozen=True)
class DecisionRow:
    """One thing to do with a group. `nodes` says by how many its target changes, `node_names` which go.

    `cost_per_hour` is what its new nodes add, or with a minus what those cost that go (null: unknown). With `done`
    false and no `error` it was not tried: a dry run, or the mode of its group.
    """

    what: str
    group: str
    mode: str
    from_size: int
    to_size: int
    max_size: int
    nodes: int
    node_names: list[str]
    cost_per_hour: float | None
    reason: str
    done: bool
    error: str


@dataclass(frozen=True)
class ClassCount:
    """So many pods of the class at this position of `pending`."""

    position: int
    pods: int


@dataclass(frozen=True)
class OptionRow:
    """`nodes` new nodes of a group take `pods` pods. One that does not exist would be created with `labels`, `taints`.

    `kept_by` are the expanders that left it in, `dropped_by` the one that did not (empty: none). `rank` is null where
    there is none, for the reason in `problem`. Nodes may be shared out over `similar` groups.
    """

    group: str
    exists: bool
    machine_type: str
    machine: dict[str, int]
    nodes: int
    pods: int
    classes: list[ClassCount]
    node_price: float | None
    rank: Rank | None
    problem: str
    kept_by: list[str]
    dropped_by: str
    chosen: bool
    similar: list[str]
    labels: dict[str, str]
    taints: list[str]


@dataclass(frozen=True)
class SkippedRow:
    """Groups that were not even looked at, and why."""

    reason: str
    groups: list[str]


@dataclass(frozen=True)
class PlacementRow:
    """New nodes by group that take so many pods; the cost is null where a group has no price."""

    nodes: dict[str, int]
    pods: int
    cost_per_hour: float | None


@dataclass(frozen=True)
class ComparisonRow:
    """One group against the cheapest mix of several that places the same pods (null: none was found).

    `minimum` is what the pods would cost on machines that fit them perfectly.
    """

    single: PlacementRow
    several: PlacementRow | None
    minimum: float | None
    uses_several: bool


@dataclass(frozen=True)
class PendingRow:
    """Pods that are alike. Of them so many go to nodes there are or on their way, so many to what reclaiming gives
    within a reporting interval; of the rest, `triggered` get a new node and `unplaced` none.

    `count` is the number of all, `requests` are those of one: cpu in thousandths of a core, all else in whole units.
    """

    position: int
    namespace: str
    pods: list[str]
    count: int
    requests: dict[str, int]
    on_nodes: int
    reclaimed: int
    triggered: int
    unplaced: int


@dataclass(frozen=True)
class ReasonRow:
    """Why each of these groups cannot take a pod."""

    reasons: list[str]
    groups: list[str]


@dataclass(frozen=True)
class UnplacedRow:
    """Pods of one class that get no node now. `awaiting`: some group could take them, in a later round."""

    position: int
    pods: list[str]
    count: int
    awaiting: bool
    reasons: list[ReasonRow]


@dataclass(frozen=True)
class AsideRow:
    """Pending pods that the round is not about."""

    reason: str
    pods: list[str]
    count: int


@dataclass(frozen=True)
class IncidentRow:
    """What has become of an increase, or of a group that failed, told once. `seconds` since it was asked for."""

    what: str
    group: str
    nodes: int
    seconds: float
    code: str
    message: str


@dataclass(frozen=True)
class UnreadRow:
    """An object that could not be read, and so does not count."""

    object: str
    problem: str


@dataclass(frozen=True)
class FurtherRow:
    """What was decided after that in the same round, for the pods that were left; positions are those of `pending`."""

    outcome: str
    options: list[OptionRow]
    skipped: list[SkippedRow]
    steps: list[ExpanderStep]
    comparison: ComparisonRow | None
    caps: list[Cap]


@dataclass(frozen=True)
class CostRow:
    """Per hour. `by_group` has nodes of no group under the empty name; `unpriced` counts the nodes that are in none of
    the sums, and `unpriced_nodes` names the first of them.

    No part of a node is in two of these: `idle` is what no pod requests (null: there is no word on pods), `offered`
    what is reclaimed from requests and on offer as Mid or Batch, `used` what pods hold of Mid and Batch. `added` is
    what the decisions add, less what they save (null: one of them has no price).
    """

    total: float
    by_group: dict[str, float]
    idle: float | None
    offered: float
    used: float
    unpriced: int
    unpriced_nodes: list[str]
    added: float | None


@dataclass(frozen=True)
class Plan:
    """One round: what is to be done, every option with every term of its rank, and the pods that get no node.

    `cluster` is the name of the cluster it is about, and empty where it has none.

    `options` stand in the order of their ranks, the best first. `outcome` says how it ended; `held` why nothing was
    decided, and is empty when something was. With `advice` the decision would have groups grow that are only
    recommended: nothing of it is done, and `further` is what is done without them. `preferred_cpu_milli` is the size of
    machine that suits the cluster best, `incidents` have happened since the round before. `scale_down` says why every
    node is still here (null: there is no word on any), `leaving` are nodes on their way out, and `scans` say of groups
    that scale by utilization how full they are.
    """

    round: int
    time: str
    dry_run: bool
    outcome: str
    held: str
    decisions: list[DecisionRow]
    options: list[OptionRow]
    unplaced: list[UnplacedRow]
    cost_per_hour: CostRow
    pending: list[PendingRow]
    aside: list[AsideRow]
    skipped: list[SkippedRow]
    steps: list[ExpanderStep]
    comparison: ComparisonRow | None
    caps: list[Cap]
    advice: bool
    further: list[FurtherRow]
    preferred_cpu_milli: int | None
    incidents: list[IncidentRow]
    unread: list[UnreadRow]
    scale_down: ScaleDownRow | None
    leaving: list[DeletionRow]
    scans: list[ScanRow]
    cluster: str = ""


@dataclass(frozen=True)
class Decisions:
    """`latest` is the last round (null: there was none yet), `rounds` those that did or changed something, the newest
    first. Where only what is brief was wanted, lists of pods and nodes are cut, and `count` says how many there are.

    `earlier` are such rounds of managers before this one, always brief; numbers of rounds begin anew with each manager.
    """

    cluster: str
    latest: Plan | None
    rounds: list[Plan]
    earlier: list[Plan]


@dataclass(frozen=True)
class RequestRow:
    """An increase under way; given up at the `deadline` (RFC 3339)."""

    nodes: int
    since: str
    deadline: str


@dataclass(frozen=True)
class BackoffRow:
    """The group failed to grow, and is left alone until then (RFC 3339)."""

    reason: str
    until: str


@dataclass(frozen=True)
class ErrorRow:
    """So many instances could not be made, in the cloud's words."""

    code: str
    message: str
    instances: int


@dataclass(frozen=True)
class GroupRow:
    """One node group. `target_size` is what was asked of the cloud; `upcoming` nodes of it are not up yet.

    `cost_per_hour` is that of its nodes now.
    """

    id: str
    mode: str
    min_size: int
    max_size: int
    target_size: int
    upcoming: int
    nodes: Readiness
    healthy: bool
    autoprovisioned: bool
    request: RequestRow | None
    backoff: BackoffRow | None
    errors: list[ErrorRow]
    cost_per_hour: float


@dataclass(frozen=True)
class Groups:
    """All node groups of a cluster as of one round (null: there was none yet). `foreign` ones are others', and never
    touched.

    `held` says why that round decided nothing, and is empty when it did; then what was known before it is shown.
    """

    cluster: str
    time: str | None
    healthy: bool
    groups: list[GroupRow]
    refused: list[Skipped]
    foreign: list[str]
    ungrouped: list[str]
    nodes: Readiness
    cost_per_hour: CostRow
    held: str
