"""The API's answers, made from the controller's state. The schemas are in docs/schemas."""

from dataclasses import dataclass

from manager.nodeside import node_prediction
from manager.nodeside.decisions import KnownNode, LastWrite, Pending
from manager.nodeside.eviction.answers import PressureRow, pressure_row
from manager.nodeside.eviction.tracker import TrackedShortfall
from manager.nodeside.fleet import FleetOverview
from manager.nodeside.node_prediction import PredictionRow
from manager.nodeside.noderesource import writing
from manager.nodeside.noderesource.explain import Decision, Offer
from manager.nodeside.promises import RESOURCES, PooledWithdrawal
from shared import durations, names
from shared.api import colocation
from shared.explanation import ResourceExplanation
from shared.names import Tier
from shared.quantity import QuantityError, Resources


@dataclass(frozen=True)
class Amount:
    """cpu in thousandths of a core, memory in bytes."""

    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True)
class Bounds:
    """The term, or the rule, that decides each resource of a tier."""

    cpu: str
    memory: str


@dataclass(frozen=True)
class NodeRow:
    """One node. `mid` and `batch` are what its status offers now; an amount that is not known is null.

    `wanted` is what the newest decision wants for Mid, `reason` and `bound` say why. A write rule may delay it.
    `reported` is when the agent made its last report (RFC 3339), `report_reason` why. `history_percent` is how much of
    the cold start the node's history covers. `prod_used` is the part of `used` that `predicted_peak` is about: without
    the pods of Mid, Batch and Free.
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


@dataclass(frozen=True)
class Nodes:
    """All nodes of a cluster, at the manager's `time` (RFC 3339)."""

    cluster: str
    time: str
    nodes: list[NodeRow]

    def report_seconds(self, row: NodeRow) -> float | None:
        """The age of the row's report at the time of the answer."""
        if row.reported is None:
            return None
        return max(0.0, durations.instant(self.time) - durations.instant(row.reported))


@dataclass(frozen=True)
class TermRow:
    """One term; `unit` is "milli", "bytes" or "percent", `time` when its source said so (RFC 3339).

    A source that is not dated is dated by the decision that read it.
    """

    name: str
    value: int
    unit: str
    source: str
    time: str


@dataclass(frozen=True)
class ResourceRow:
    """How one resource came about; `bound` names the term that decided."""

    terms: list[TermRow]
    bound: str
    result: int


_UNDECIDED = ResourceRow([], "undecided", 0)


@dataclass(frozen=True)
class BothResources:
    cpu: ResourceRow
    memory: ResourceRow


@dataclass(frozen=True)
class PodRow:
    """A pod ("namespace/name"), and what it holds of its tier."""

    pod: str
    priority: int
    held: Amount


@dataclass(frozen=True)
class ShortfallRow:
    """Pods hold more of a tier than there is (null: unknown); `pods` would have to go, in this order.

    `reason` is all of it on one line, `since` when it began, so far as that is known (RFC 3339). Pods go
    `evicts_after_seconds` later (null: they stay).
    """

    cause: str
    held: Amount
    there_is: Amount | None
    missing: Amount
    since: str | None
    evicts_after_seconds: int | None
    pods: list[PodRow]
    reason: str


@dataclass(frozen=True)
class TierRow:
    """One tier: how what is decided came about, why, and what the Node's status offers now (null: nothing).

    `shortfall` is null while there is what the tier's pods hold.
    """

    cpu: ResourceRow
    memory: ResourceRow
    reason: str
    on_offer: Amount | None
    shortfall: ShortfallRow | None


@dataclass(frozen=True)
class LastWriteRow:
    """What this manager last wrote to the Node, and what called for it; null amounts when it took a tier away.

    `cpu_milli` and `memory_bytes` are Mid's, `offers` has all tiers.
    """

    time: str
    reason: str
    why: str
    cpu_milli: int | None
    memory_bytes: int | None
    offers: dict[str, Amount | None]


@dataclass(frozen=True)
class PendingWriteRow:
    """Why what is decided is not on the Node yet; `until` when time alone ends that (RFC 3339)."""

    reason: str
    until: str | None


@dataclass(frozen=True)
class Explained:
    """Every term of one node's offers; `resources` are those of Mid, which are in `tiers` as well.

    `cluster` is empty where no manager answers. `pending` is null while the Node says what is decided, `prediction`
    without a report, `pressure` where there is none, or none for which pods may be evicted.
    """

    node: str
    resources: BothResources
    tiers: dict[str, TierRow]
    last_write: LastWriteRow | None
    pending: PendingWriteRow | None
    cluster: str
    prediction: PredictionRow | None
    pressure: PressureRow | None


@dataclass(frozen=True)
class FleetRow:
    """How promises with a target were kept over all nodes; `missed` by at least a thousand outcomes."""

    resource: str
    horizon_seconds: int
    nodes: int
    outcomes: int
    violation_percent: float
    target_violation_percent: float
    missed: bool


@dataclass(frozen=True)
class TailRow:
    """The tail that nodes without outcomes start from, in scales of the forecast."""

    horizon_seconds: int
    resource: str
    quantile: float
    mean_excess: float


@dataclass(frozen=True)
class PriorRow:
    """The prior in use: "built-in", or the "fleet"'s, pooled from so many nodes at that time (RFC 3339)."""

    source: str
    nodes: int
    pooled: str | None
    tails: list[TailRow]


@dataclass(frozen=True)
class FleetWithdrawal:
    """How much of what is lent is taken back a day, as agents of so many nodes measured it over that time at most.

    It is weighted by what is reclaimable; null where that is nothing.
    """

    nodes: int
    window_seconds: int
    cpu_percent_per_day: float | None
    memory_percent_per_day: float | None


@dataclass(frozen=True)
class FleetPrediction:
    """Whether the fleet's promises are kept. `alarms` are targets missed by a factor of two for more than a day.

    `refused_nodes` say of their promises what cannot be, and are left out. `withdrawal` is null if no agent reports it.
    """

    rates: list[FleetRow]
    prior: PriorRow
    alarms: list[str]
    refused_nodes: int
    withdrawal: FleetWithdrawal | None = None


@dataclass(frozen=True)
class Status:
    """The manager itself. `waiting_for` is what it has not seen in full yet; `config_problem` what it refused.

    `overdue_loops` take longer than they should: seconds by loop.
    """

    cluster: str
    leader: bool
    dry_run: bool
    waiting_for: list[str]
    colocation_enabled: bool
    config_map: str
    config_problem: str | None
    overdue_loops: dict[str, float]


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
        predicted_peak=_amount(report.peak if report else None),
        reclaimable=_amount(report.reclaimable if report else None),
        mid=Amount(*(writing.on_offer(node, Tier.MID) or Resources())),
        batch=Amount(*(writing.on_offer(node, Tier.BATCH) or Resources())),
        wanted=None if wanted is None else Amount(wanted.cpu.result, wanted.memory.result),
        bound=None if wanted is None else Bounds(wanted.cpu.bound, wanted.memory.bound),
        reason=_reason(decision),
        reported=report.updated if report else None,
        report_reason=report.reason if report else "",
        history_percent=report.history_percent if report else None,
        prod_used=_amount(report.prod_usage if report else None),
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
    )


def fleet(of: FleetOverview) -> FleetPrediction:
    """How promises are kept over all nodes."""
    prior = of.prior
    tails = [
        TailRow(horizon, resource, tail.quantile, tail.excess)
        for horizon, both in sorted(prior.by_horizon.items() if prior else ())
        for resource, tail in zip(RESOURCES, both, strict=True)
    ]
    return FleetPrediction(
        rates=[
            FleetRow(
                resource=rate.resource,
                horizon_seconds=rate.horizon_seconds,
                nodes=rate.nodes,
                outcomes=rate.outcomes,
                violation_percent=round(rate.violated_percent, 4),
                target_violation_percent=round(rate.target_percent, 4),
                missed=rate.is_missed,
            )
            for rate in of.rates
        ],
        prior=PriorRow("built-in", 0, None, [])
        if prior is None
        else PriorRow("fleet", prior.nodes, durations.timestamp(prior.time), tails),
        alarms=list(of.alarms),
        refused_nodes=of.refused_nodes,
        withdrawal=None if of.withdrawal is None else _fleet_withdrawal(of.withdrawal),
    )


def _fleet_withdrawal(of: PooledWithdrawal) -> FleetWithdrawal:
    cpu, memory = (None if each is None else round(each, 2) for each in of.percents_per_day)
    return FleetWithdrawal(of.nodes, of.window_seconds, cpu, memory)


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
        on_offer=_amount(writing.on_offer(state.node, tier)),
        shortfall=None if short is None else _shortfall(short),
    )


def _shortfall(of: TrackedShortfall) -> ShortfallRow:
    short = of.shortfall
    return ShortfallRow(
        cause=short.cause.value,
        held=Amount(*short.held),
        there_is=_amount(short.there_is),
        missing=Amount(*short.missing),
        since=None if of.began is None else durations.timestamp(of.began),
        evicts_after_seconds=of.patience_seconds,
        pods=[PodRow(pod.key, pod.priority, Amount(*pod.held)) for pod in short.pods],
        reason=short.reason,
    )


def _resource(of: ResourceExplanation, state: KnownNode, decided: str) -> ResourceRow:
    terms = [
        TermRow(term.name, term.value, term.unit, _source(term.source, state), term.time or decided)
        for term in of.terms
    ]
    return ResourceRow(terms, of.bound, of.result)


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
