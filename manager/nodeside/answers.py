"""The API's answers, made from the controller's state. The schemas are in docs/schemas."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from manager.nodeside import node_prediction
from manager.nodeside.decisions import KnownNode, LastWrite, Pending
from manager.nodeside.eviction.answers import PressureRow, pressure_row
from manager.nodeside.eviction.tracker import TrackedShortfall
from manager.nodeside.node_prediction import PredictionRow
from manager.nodeside.noderesource import holdings, prod_first
from manager.nodeside.noderesource.explain import Decision, Offer
from manager.nodeside.noderesource.prod_first import ProdWaiting
from manager.nodeside.noderesource.report import NodeReport, complete
from shared import durations, names
from shared.api import colocation
from shared.explanation import ResourceExplanation
from shared.names import Tier
from shared.quantity import QuantityError, Resources


@dataclass(frozen=True)
class Amount:
    """CPU in milli-cores and memory in bytes."""

    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True)
class Bounds:
    """The term or rule that decided each resource of a tier."""

    cpu: str
    memory: str


@dataclass(frozen=True)
class ProdWaitRow:
    """How long Prod pods wait for a resource, in percent of their time; `baseline_percent` without Mid and Batch.

    They wait too long since `since` (RFC 3339), null while they do not.
    """

    resource: str
    wait_percent: float | None
    baseline_percent: float | None
    since: str | None
    sentence: str


@dataclass(frozen=True)
class NodeRow:
    """One node. `mid` and `batch` are what its Node status offers now. An unknown amount is null.

    `wanted` is the latest decision for Mid, and `reason` and `bound` explain it. A write rule may delay its write.
    `reported` is the time of the agent's last report (RFC 3339), and `report_reason` why the agent sent it.
    `history_percent` is the percentage of the cold-start period that the node's history covers. `prod_used` is the part
    of `used` that `predicted_peak` predicts: usage without the pods of Mid, Batch and Free.
    `prod_slowed` has the resources that Prod pods wait too long for; `prod_slowed_minutes_per_day` is for how long they
    did, of the worse resource.
    """

    name: str
    simulated: bool
    allocatable: Amount | None
    requested: Amount
    used: Amount | None
    predicted_peak: Amount | None
    reclaimable: Amount | None
    mid: Amount
    batch: Amount
    reason: str
    reported: str | None
    report_reason: str
    # An older manager does not say these.
    wanted: Amount | None = None
    bound: Bounds | None = None
    history_percent: int | None = None
    prod_used: Amount | None = None
    prod_slowed: list[ProdWaitRow] = field(default_factory=list)
    prod_slowed_minutes_per_day: float | None = None


@dataclass(frozen=True)
class Nodes:
    """All nodes of a cluster at the manager's `time` (RFC 3339)."""

    cluster: str
    time: str
    nodes: list[NodeRow]

    def report_seconds(self, row: NodeRow) -> float | None:
        """The age of the row's report at the time of the answer."""
        if row.reported is None:
            return None
        return max(0.0, durations.instant(self.time) - durations.instant(row.reported))


_UNDECIDED = ResourceExplanation((), "undecided", 0)


@dataclass(frozen=True)
class BothResources:
    cpu: ResourceExplanation
    memory: ResourceExplanation


@dataclass(frozen=True)
class PodRow:
    """A pod ("namespace/name") and what it requests of its tier."""

    pod: str
    priority: int
    requested: Amount


@dataclass(frozen=True)
class ShortfallRow:
    """The tier's pods request more than the node can offer. `pods` are those that would be evicted, in this order.

    `requested` is what the pods request, `available` what the node can offer (null: unknown), and `missing` the
    difference. `reason` explains the shortfall in one line. `since` is when it began, if known (RFC 3339). Eviction
    starts `evicts_after_seconds` after that (null: never).
    """

    cause: str
    requested: Amount
    available: Amount | None
    missing: Amount
    since: str | None
    evicts_after_seconds: int | None
    pods: list[PodRow]
    reason: str


@dataclass(frozen=True)
class TierRow:
    """One tier: how its offer was calculated, why, and what the Node status offers now (null: nothing).

    `shortfall` is null as long as the node can offer what the tier's pods request.
    """

    cpu: ResourceExplanation
    memory: ResourceExplanation
    reason: str
    on_offer: Amount | None
    shortfall: ShortfallRow | None


@dataclass(frozen=True)
class LastWriteRow:
    """What this manager last wrote to the Node, and why. Amounts are null if the write withdrew a tier.

    `cpu_milli` and `memory_bytes` are those of Mid. `offers` has all tiers.
    """

    time: str
    reason: str
    why: str
    cpu_milli: int | None
    memory_bytes: int | None
    offers: dict[str, Amount | None]


@dataclass(frozen=True)
class PendingWriteRow:
    """Why the latest decision is not on the Node yet. `until` is when it will be written, if only time delays it (RFC
    3339).
    """

    reason: str
    until: str | None


@dataclass(frozen=True)
class Explained:
    """Every term of one node's offers. `resources` are those of Mid, which `tiers` contains as well.

    `cluster` is empty if the answer does not come from a manager. `pending` is null if the Node shows the latest
    decision. `prediction` is null if there is no report. `pressure` is null if the node is not under pressure, or if
    the policy allows no evictions for it. `prod_waits` is empty where they are not measured.
    """

    node: str
    resources: BothResources
    tiers: dict[str, TierRow]
    last_write: LastWriteRow | None
    pending: PendingWriteRow | None
    cluster: str
    prediction: PredictionRow | None
    pressure: PressureRow | None
    prod_waits: list[ProdWaitRow]


@dataclass(frozen=True)
class Status:
    """The state of the manager itself.

    `waiting_for` lists what it has not read completely yet, and `config_problem` is the error in the policy that it
    rejected. `overdue_loops` has the loops that take longer than they should, with their seconds. `autoscaler` says
    whether the manager runs one.
    """

    cluster: str
    leader: bool
    dry_run: bool
    waiting_for: list[str]
    colocation_enabled: bool
    config_map: str
    config_problem: str | None
    overdue_loops: dict[str, float]
    autoscaler: bool = True  # an older manager does not say it


def nodes(states: list[KnownNode], cluster: str, now: float) -> Nodes:
    return Nodes(cluster, durations.timestamp(now), [row(state) for state in states])


def row(state: KnownNode) -> NodeRow:
    """One row of the table."""
    node, decision = state.node, state.decision
    seen = None if decision is None else decision.observed
    report = None if seen is None else seen.report
    wanted = None if decision is None or Tier.MID not in decision.offers else decision.offers[Tier.MID].told
    try:
        allocatable: Resources | None = node.allocatable
    except QuantityError:
        allocatable = None
    return NodeRow(
        name=node.metadata.name,
        simulated=node.metadata.label(names.LABEL_SIMULATED) == "true",
        allocatable=_amount(allocatable),
        requested=Amount(*state.requested.total),
        used=_amount(report.usage if report else None),
        predicted_peak=_amount(complete(report.peak) if report else None),
        reclaimable=_amount(report.reclaimable if report else None),
        mid=Amount(*(holdings.on_offer(node, Tier.MID) or Resources())),
        batch=Amount(*(holdings.on_offer(node, Tier.BATCH) or Resources())),
        wanted=None if wanted is None else Amount(wanted.cpu.result, wanted.memory.result),
        bound=None if wanted is None else Bounds(wanted.cpu.bound, wanted.memory.bound),
        reason=_reason(decision),
        reported=report.updated if report else None,
        report_reason=report.reason if report else "",
        history_percent=report.history_percent if report else None,
        prod_used=_amount(report.prod_usage if report else None),
        prod_slowed=[each for each in _prod_waits(report) if each.since is not None],
        prod_slowed_minutes_per_day=prod_first.slowed_minutes_per_day(report.prod_waits) if report else None,
    )


def explained(state: KnownNode, cluster: str = "") -> Explained:
    """Every term of one node's offers."""
    decision = state.decision
    tiers = (
        {}
        if decision is None
        else {tier.value: _tier(state, tier, offer, decision.time) for tier, offer in decision.offers.items()}
    )
    mid = tiers.get(Tier.MID)
    report = None if decision is None or decision.observed is None else decision.observed.report
    return Explained(
        node=state.node.metadata.name,
        resources=BothResources(mid.cpu, mid.memory) if mid else BothResources(_UNDECIDED, _UNDECIDED),
        tiers=tiers,
        last_write=None if state.last_write is None else _last_write(state.last_write),
        pending=None if state.pending is None else _pending(state.pending),
        cluster=cluster,
        prediction=None if report is None else node_prediction.answer(report),
        pressure=None if state.pressed is None else pressure_row(state.pressed),
        prod_waits=_prod_waits(report),
    )


def _prod_waits(report: NodeReport | None) -> list[ProdWaitRow]:
    return [] if report is None else [_prod_wait(*each) for each in report.prod_waits.items()]


def _prod_wait(resource: str, of: ProdWaiting) -> ProdWaitRow:
    since = None if of.since is None else durations.timestamp(of.since)
    return ProdWaitRow(resource, of.wait_percent, of.baseline_percent, since, prod_first.sentence(resource, of))


def _reason(decision: Decision | None) -> str:
    """The reason for Mid, if Mid is managed."""
    if decision is None:
        return "not decided yet"
    mid = decision.offers.get(Tier.MID)
    return decision.reason if mid is None else mid.reason


def _tier(state: KnownNode, tier: Tier, offer: Offer, time: float) -> TierRow:
    decided, explanation = durations.timestamp(time), offer.told
    cpu, memory = (_resource(each, state, decided) for each in (explanation.cpu, explanation.memory))
    short = state.shortfalls.get(tier)
    return TierRow(
        cpu=cpu,
        memory=memory,
        reason=offer.reason,
        on_offer=_amount(holdings.on_offer(state.node, tier)),
        shortfall=None if short is None else _shortfall(short),
    )


def _shortfall(of: TrackedShortfall) -> ShortfallRow:
    short = of.shortfall
    return ShortfallRow(
        cause=short.cause.value,
        requested=Amount(*short.held),
        available=_amount(short.there_is),
        missing=Amount(*short.missing),
        since=None if of.began is None else durations.timestamp(of.began),
        evicts_after_seconds=of.patience_seconds,
        pods=[PodRow(pod.key, pod.priority, Amount(*pod.held)) for pod in short.pods],
        reason=short.reason,
    )


def _resource(of: ResourceExplanation, state: KnownNode, decided: str) -> ResourceExplanation:
    """With the node's own name in the sources; a term whose source has no date gets that of the decision."""
    terms = (replace(term, source=_source(term.source, state), time=term.time or decided) for term in of.terms)
    return replace(of, terms=tuple(terms))


def _source(source: str, state: KnownNode) -> str:
    """The source with the node's name; a key of the strategy gets the location of its value."""
    key = source.partition(" ")[0]
    if state.strategy is not None and key in colocation.KEYS:
        source = f"{source} ({state.strategy.source(key)})"
    return source.replace("{node}", state.node.metadata.name)


def _last_write(last: LastWrite) -> LastWriteRow:
    offers = {tier.value: _amount(change.new) for tier, change in last.changes.items()}
    mid = offers.get(Tier.MID)
    return LastWriteRow(
        time=durations.timestamp(last.time),
        reason=last.reason,
        why=last.why,
        cpu_milli=mid.cpu_milli if mid else None,
        memory_bytes=mid.memory_bytes if mid else None,
        offers=offers,
    )


def _pending(pending: Pending) -> PendingWriteRow:
    return PendingWriteRow(pending.reason, None if pending.until is None else durations.timestamp(pending.until))


def _amount(of: Resources | None) -> Amount | None:
    return None if of is None else Amount(*of)
