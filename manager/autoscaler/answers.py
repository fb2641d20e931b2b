"""What the API, `headroom plan` and the page say of a round. The schemas are in docs/schemas."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from manager.autoscaler.cost import Cost
from manager.autoscaler.decisions import Considered, Decision, Left, Outcome
from manager.autoscaler.decisions import Plan as Placement
from manager.autoscaler.expander.ranking import Rank
from manager.autoscaler.health import Readiness
from manager.autoscaler.modes import Mode
from manager.autoscaler.pricing import gce
from manager.autoscaler.rounds import Act, Round, What
from manager.autoscaler.state import GroupStatus, Incident
from shared import durations
from shared.api.core import Taint

ValueT = TypeVar("ValueT", str, tuple[str, ...])

HELD = "nothing was decided"
MOST_NAMES = 10  # of nodes without a price
BRIEF_NAMES = 3  # of pods of one class, where not all are wanted


@dataclass(frozen=True)
class DecisionRow:
    """One thing to do with a group. `nodes` says by how many its target changes, `node_names` which go.

    `cost_per_hour` is what its new nodes add (null: unknown). With `done` false and no `error` it was not tried: a dry
    run, or the mode of its group.
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
class RankRow:
    """suppressed_unfitness x (nodes_price + stabilization_price) / (pods_price + stabilization_price)
    x new_group_factor; the lowest rank wins.

    `nodes_price` (C) is what the new nodes cost per hour, `pods_price` (T) what their pods would cost on machines that
    fit them perfectly, `stabilization_price` (X) that of one small pod. `unfitness` is how many times a machine is
    larger or smaller than the preferred one, suppressed the more nodes there are. Null where it is infinite.
    """

    nodes_price: float
    pods_price: float
    stabilization_price: float
    stabilized_ratio: float | None
    unfitness: float
    suppressed_unfitness: float
    new_group_factor: float
    rank: float | None


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
    rank: RankRow | None
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
class StepRow:
    """The groups that an expander left."""

    expander: str
    groups: list[str]


@dataclass(frozen=True)
class CapRow:
    """A limit that took nodes off what a group was to get."""

    group: str
    limit: str
    wanted: int
    allowed: int


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
    steps: list[StepRow]
    comparison: ComparisonRow | None
    caps: list[CapRow]


@dataclass(frozen=True)
class CostRow:
    """Per hour. `by_group` has nodes of no group under the empty name; `unpriced` counts the nodes that are in none of
    the sums, and `unpriced_nodes` names the first of them.

    `idle` is the share of nodes that no pod requests, `reclaimed` what is on offer as Mid and Batch, `avoided` what
    pods hold of that. `added` is what the decisions add (null: one of them has no price).
    """

    total: float
    by_group: dict[str, float]
    idle: float
    reclaimed: float
    avoided: float
    unpriced: int
    unpriced_nodes: list[str]
    added: float | None


@dataclass(frozen=True)
class Plan:
    """One round: what is to be done, every option with every term of its rank, and the pods that get no node.

    `options` stand in the order of their ranks, the best first. `outcome` says how it ended; `held` why nothing was
    decided, and is empty when something was. With `advice` the decision would have groups grow that are only
    recommended: nothing of it is done, and `further` is what is done without them. `preferred_cpu_milli` is the size of
    machine that suits the cluster best, `incidents` have happened since the round before.
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
    steps: list[StepRow]
    comparison: ComparisonRow | None
    caps: list[CapRow]
    advice: bool
    further: list[FurtherRow]
    preferred_cpu_milli: int | None
    incidents: list[IncidentRow]
    unread: list[UnreadRow]


@dataclass(frozen=True)
class Decisions:
    """`latest` is the last round (null: there was none yet), `rounds` those that did or changed something, the newest
    first. Where only what is brief was wanted, lists of pods are cut, and `count` says how many there are.
    """

    latest: Plan | None
    rounds: list[Plan]


@dataclass(frozen=True)
class ReadinessRow:
    """How many nodes are in which state; `unregistered` machines have no Node yet, `long_unregistered` too long."""

    ready: int
    unready: int
    not_started: int
    being_deleted: int
    unregistered: int
    long_unregistered: int


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
    nodes: ReadinessRow
    healthy: bool
    autoprovisioned: bool
    request: RequestRow | None
    backoff: BackoffRow | None
    errors: list[ErrorRow]
    cost_per_hour: float


@dataclass(frozen=True)
class RefusedRow:
    """A group of ours that cannot be judged, so that nothing is done to it."""

    group: str
    reason: str


@dataclass(frozen=True)
class Groups:
    """All node groups as of one round (null: there was none yet). `foreign` groups are others', and never touched."""

    time: str | None
    healthy: bool
    groups: list[GroupRow]
    refused: list[RefusedRow]
    foreign: list[str]
    ungrouped: list[str]
    nodes: ReadinessRow
    cost_per_hour: CostRow


NO_GROUPS = Groups(
    None, True, [], [], [], [], ReadinessRow(0, 0, 0, 0, 0, 0), CostRow(0.0, {}, 0.0, 0.0, 0.0, 0, [], 0.0)
)


def plan(of: Round) -> Plan:
    """All that a round has to say."""
    decision = of.decision or Decision(Outcome.NOT_NEEDED)
    last = of.further[-1] if of.further else decision
    acts = _acts(of)
    positions = {
        pod: position
        for position, demand in enumerate(decision.demands)
        for pod in (demand.pods if of.further else demand.pods[:1])
    }
    unplaced = [_unplaced(last, left, positions) for left in last.left]
    return Plan(
        round=of.number,
        time=durations.timestamp(of.time),
        dry_run=of.dry_run,
        outcome=HELD if of.decision is None else decision.outcome.value,
        held=of.held,
        decisions=acts,
        options=_options(decision, positions),
        unplaced=unplaced,
        cost_per_hour=_cost(of.cost, _counted(acts)),
        pending=_pending(decision, {each.position: each.count for each in unplaced}),
        aside=[AsideRow(reason, pods, len(pods)) for reason, pods in _by_value(of.aside.items()).items()],
        skipped=_skipped(decision),
        steps=_steps(decision),
        comparison=_comparison(decision),
        caps=_caps(decision),
        advice=decision.advice,
        further=[
            FurtherRow(
                each.outcome.value,
                _options(each, positions),
                _skipped(each),
                _steps(each),
                _comparison(each),
                _caps(each),
            )
            for each in of.further
        ],
        preferred_cpu_milli=decision.preferred_cpu_milli,
        incidents=[_incident(each) for each in of.incidents],
        unread=[UnreadRow(name, str(problem)) for name, problem in sorted(of.unread.items())],
    )


def brief(of: Plan) -> Plan:
    """The same with no more than the first names of many pods; how many there are stays said."""
    return replace(
        of,
        pending=[replace(row, pods=row.pods[:BRIEF_NAMES]) for row in of.pending],
        unplaced=[replace(row, pods=row.pods[:BRIEF_NAMES]) for row in of.unplaced],
        aside=[replace(row, pods=row.pods[:BRIEF_NAMES]) for row in of.aside],
    )


def groups(of: Round | None) -> Groups:
    """What the groups are as of a round."""
    if of is None:
        return NO_GROUPS
    state = of.state
    return Groups(
        time=durations.timestamp(of.time),
        healthy=state.healthy,
        groups=[_group(each, of.cost) for _, each in sorted(state.groups.items())],
        refused=[RefusedRow(group, reason) for group, reason in sorted(state.refused.items())],
        foreign=sorted(state.foreign),
        ungrouped=sorted(state.ungrouped),
        nodes=_readiness(state.readiness),
        cost_per_hour=_cost(of.cost, _acts(of)),
    )


def _group(of: GroupStatus, cost: Cost) -> GroupRow:
    group, request, backoff = of.group, of.request, of.backoff
    errors: dict[tuple[str, str], int] = {}
    for error in of.errors:
        errors[error.code, error.message] = errors.get((error.code, error.message), 0) + 1
    return GroupRow(
        id=group.id,
        mode=of.mode.value,
        min_size=group.min_size,
        max_size=group.max_size,
        target_size=group.target_size,
        upcoming=of.upcoming,
        nodes=_readiness(of.readiness),
        healthy=of.healthy,
        autoprovisioned=group.autoprovisioned,
        request=(
            None
            if request is None
            else RequestRow(
                request.nodes, durations.timestamp(request.started_at), durations.timestamp(request.deadline)
            )
        ),
        backoff=None if backoff is None else BackoffRow(backoff.reason, durations.timestamp(backoff.until)),
        errors=[ErrorRow(code, message, count) for (code, message), count in sorted(errors.items())],
        cost_per_hour=cost.by_group.get(group.id, 0.0),
    )


def _readiness(of: Readiness) -> ReadinessRow:
    return ReadinessRow(of.ready, of.unready, of.not_started, of.being_deleted, of.unregistered, of.long_unregistered)


def _acts(of: Round) -> list[DecisionRow]:
    prices: dict[str, float] = {}
    of_new: set[float | None] = set()
    for decision in (of.decision, *of.further):
        prices |= _node_prices(decision)
        of_new |= _prices_of_new_groups(decision)
    # A group that was created since has another name than its option; what it costs is certain where all cost the same.
    new = of_new.pop() if len(of_new) == 1 else None
    return [_act(act, prices.get(act.group, new)) for act in of.acts]


def _act(act: Act, node_price: float | None) -> DecisionRow:
    nodes = act.to_size - act.from_size
    if act.what is What.CREATE_GROUP and act.done:
        nodes = 0  # they come by its increase
    grows = act.what in (What.INCREASE, What.CREATE_GROUP)
    return DecisionRow(
        what=act.what.value,
        group=act.group,
        mode=act.mode.value,
        from_size=act.from_size,
        to_size=act.to_size,
        max_size=act.max_size,
        nodes=nodes,
        node_names=list(act.nodes),
        cost_per_hour=(None if node_price is None else node_price * nodes) if grows and nodes else 0.0,
        reason=act.reason,
        done=act.done,
        error=act.error,
    )


def _prices_of_new_groups(decision: Decision | None) -> set[float | None]:
    """What one node costs of the groups that were chosen to be created."""
    if decision is None or decision.chosen is None:
        return set()
    of = decision.comparison
    several = of.several if of is not None and of.uses_several else None
    used = {decision.chosen.group} if several is None else set(several.nodes)
    return {_node_price(each) for each in decision.considered if each.group in used and not each.exists}


def _node_prices(decision: Decision | None) -> dict[str, float]:
    """Of one new node of each group that was ranked, and of the groups that would share its nodes."""
    found: dict[str, float] = {}
    for each in () if decision is None else decision.considered:
        price = _node_price(each)
        if price is not None:
            found = dict.fromkeys(each.similar, price) | found | {each.group: price}
    return found


def _node_price(of: Considered) -> float | None:
    rank = of.ranked.rank
    return None if rank is None else rank.nodes_price / of.node_count


def _options(decision: Decision, positions: Mapping[str, int]) -> list[OptionRow]:
    """Best first; those without a rank come last."""

    def order(each: Considered) -> tuple[float, str]:
        return (math.inf if each.ranked.rank is None else each.ranked.rank.rank), each.group

    return [_option(each, decision, positions) for each in sorted(decision.considered, key=order)]


def _option(of: Considered, decision: Decision, positions: Mapping[str, int]) -> OptionRow:
    machine = of.ranked.option.machine
    kept = [step.expander for step in decision.steps if of.group in step.groups]
    dropped = next((step.expander for step in decision.steps if of.group not in step.groups), "")
    return OptionRow(
        group=of.group,
        exists=of.exists,
        machine_type=gce.machine_type(machine.labels),
        machine={name: amount for name, amount in sorted(machine.capacity.items()) if amount},
        nodes=of.node_count,
        pods=of.pod_count,
        classes=[
            ClassCount(_position(decision, position, positions), count) for position, count in sorted(of.pods.items())
        ],
        node_price=_node_price(of),
        rank=None if of.ranked.rank is None else _rank(of.ranked.rank),
        problem=of.ranked.problem,
        kept_by=kept,
        dropped_by=dropped,
        chosen=decision.chosen is not None and decision.chosen.group == of.group,
        similar=list(of.similar),
        labels={} if of.spec is None else dict(sorted(of.spec.labels.items())),
        taints=[] if of.spec is None else [_taint(taint) for taint in of.spec.taints],
    )


def _rank(of: Rank) -> RankRow:
    return RankRow(
        nodes_price=of.nodes_price,
        pods_price=of.pods_price,
        stabilization_price=of.stabilization_price,
        stabilized_ratio=_finite(of.stabilized_ratio),
        unfitness=of.unfitness,
        suppressed_unfitness=of.suppressed_unfitness,
        new_group_factor=of.new_group_factor,
        rank=_finite(of.rank),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _taint(of: Taint) -> str:
    return f"{of.key}={of.value}:{of.effect}"


def _pending(decision: Decision, left: Mapping[int, int]) -> list[PendingRow]:
    return [
        PendingRow(
            position=position,
            namespace=demand.namespace,
            pods=list(demand.pods),
            count=len(demand.pods),
            requests=dict(sorted(demand.requests.items())),
            on_nodes=demand.schedulable,
            reclaimed=demand.reclaimed,
            triggered=len(demand.unplaced) - left.get(position, 0),
            unplaced=left.get(position, 0),
        )
        for position, demand in enumerate(decision.demands)
    ]


def _unplaced(decision: Decision, left: Left, positions: Mapping[str, int]) -> UnplacedRow:
    by_reasons: dict[tuple[str, ...], list[str]] = _by_value(decision.reasons(left).items())
    return UnplacedRow(
        position=_position(decision, left.position, positions),
        pods=list(left.pods),
        count=len(left.pods),
        awaiting=left.awaiting,
        reasons=[ReasonRow(list(reasons), listed) for reasons, listed in by_reasons.items()],
    )


def _position(decision: Decision, position: int, positions: Mapping[str, int]) -> int:
    """Of a class in the round's first decision; later ones are about fewer pods of fewer classes."""
    return positions[decision.demands[position].pods[0]]


def _skipped(decision: Decision) -> list[SkippedRow]:
    by_reason = _by_value((each.group, each.reason) for each in decision.skipped)
    return [SkippedRow(reason, listed) for reason, listed in by_reason.items()]


def _steps(decision: Decision) -> list[StepRow]:
    return [StepRow(each.expander, list(each.groups)) for each in decision.steps]


def _caps(decision: Decision) -> list[CapRow]:
    return [CapRow(each.group, each.limit, each.wanted, each.allowed) for each in decision.caps]


def _incident(of: Incident) -> IncidentRow:
    code, message = ("", "") if of.error is None else (of.error.code, of.error.message)
    return IncidentRow(of.what.value, of.group, of.nodes, of.seconds, code, message)


def _comparison(decision: Decision) -> ComparisonRow | None:
    of = decision.comparison
    if of is None:
        return None
    several = None if of.several is None else _placement(of.several)
    return ComparisonRow(_placement(of.single), several, of.minimum, of.uses_several)


def _placement(of: Placement) -> PlacementRow:
    return PlacementRow(dict(sorted(of.nodes.items())), of.pod_count, of.cost)


def _counted(acts: list[DecisionRow]) -> list[DecisionRow]:
    """Advice costs nothing beside what is done in its place."""
    enforced = [each for each in acts if each.mode != Mode.RECOMMEND]
    return enforced if any(each.cost_per_hour != 0.0 for each in enforced) else acts


def _cost(of: Cost, decided: Iterable[DecisionRow]) -> CostRow:
    added = [each.cost_per_hour for each in decided]
    known = [each for each in added if each is not None]
    return CostRow(
        total=of.total,
        by_group=dict(of.by_group),
        idle=of.idle,
        reclaimed=of.reclaimed,
        avoided=of.avoided,
        unpriced=len(of.unpriced),
        unpriced_nodes=list(of.unpriced[:MOST_NAMES]),
        added=sum(known) if len(known) == len(added) else None,
    )


def _by_value(pairs: Iterable[tuple[str, ValueT]]) -> dict[ValueT, list[str]]:
    """The names that have each value, both in order."""
    found: dict[ValueT, list[str]] = {}
    for name, value in sorted(pairs, key=lambda pair: pair[0]):
        found.setdefault(value, []).append(name)
    return dict(sorted(found.items()))
