"""The answers of the API, `headroom plan` and the page about an iteration."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from manager.autoscaler.cluster_state.health import Readiness
from manager.autoscaler.cluster_state.state import GroupStatus, Incident
from manager.autoscaler.cost import Cost
from manager.autoscaler.expander.ranking import Rank
from manager.autoscaler.iteration import Action, ActionKind, Iteration
from manager.autoscaler.modes import Mode
from manager.autoscaler.pricing import gce
from manager.autoscaler.reporting import node_answers
from manager.autoscaler.reporting.schemas import (
    AsideRow,
    BackoffRow,
    CapRow,
    ClassCount,
    ComparisonRow,
    CostRow,
    DecisionRow,
    ErrorRow,
    FurtherRow,
    GroupRow,
    Groups,
    IncidentRow,
    OptionRow,
    PendingRow,
    PlacementRow,
    Plan,
    RankRow,
    ReadinessRow,
    ReasonRow,
    RefusedRow,
    RequestRow,
    SkippedRow,
    StepRow,
    UnplacedRow,
    UnreadRow,
)
from manager.autoscaler.scale_up.decisions import NodeMix as Placement
from manager.autoscaler.scale_up.decisions import RankedOption, ScaleUpDecision, ScaleUpOutcome, UnscheduledPods
from shared import durations
from shared.api.core import Taint

ValueT = TypeVar("ValueT", str, tuple[str, ...])

HELD = "nothing was decided"
MOST_NAMES = 10  # of unpriced nodes
BRIEF_NAMES = 3  # of pods of one class, in brief answers


def plan(of: Iteration) -> Plan:
    """The complete answer about an iteration."""
    decision = of.decision or ScaleUpDecision(ScaleUpOutcome.NOT_NEEDED)
    last = of.further[-1] if of.further else decision
    actions = _acts(of)
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
        held=of.blocked_reason,
        decisions=actions,
        options=_options(decision, positions),
        unplaced=unplaced,
        cost_per_hour=_cost(of.cost, _counted(actions)),
        pending=_pending(decision, {each.position: each.count for each in unplaced}),
        aside=[AsideRow(reason, pods, len(pods)) for reason, pods in _by_value(of.skipped_pods.items()).items()],
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
        unread=[UnreadRow(name, str(problem)) for name, problem in sorted(of.invalid_objects.items())],
        scale_down=node_answers.scale_down_row(of),
        leaving=node_answers.deletion_rows(of.leaving),
        scans=node_answers.scan_rows(of.scans),
        cluster=of.cluster,
    )


def without_untouched_nodes(of: Plan) -> Plan:
    """The form that is remembered: nodes that nothing happens to are only counted."""
    return replace(of, scale_down=node_answers.without_staying_nodes(of.scale_down))


def brief(of: Plan) -> Plan:
    """The same with only the first names of many pods and nodes; the counts stay complete."""
    return replace(
        of,
        pending=[replace(row, pods=row.pods[:BRIEF_NAMES]) for row in of.pending],
        unplaced=[replace(row, pods=row.pods[:BRIEF_NAMES]) for row in of.unplaced],
        aside=[replace(row, pods=row.pods[:BRIEF_NAMES]) for row in of.aside],
        scale_down=node_answers.first_rows(of.scale_down),
    )


def no_groups(cluster: str) -> Groups:
    """The answer before the first iteration."""
    nodes, cost = ReadinessRow(0, 0, 0, 0, 0, 0), CostRow(0.0, {}, 0.0, 0.0, 0.0, 0, [], 0.0)
    return Groups(cluster, None, True, [], [], [], [], nodes, cost, "")


def groups(of: Iteration) -> Groups:
    """The groups as of an iteration."""
    state = of.state
    return Groups(
        cluster=of.cluster,
        time=durations.timestamp(of.time),
        healthy=state.healthy,
        groups=[_group(each, of.cost) for _, each in sorted(state.groups.items())],
        refused=[RefusedRow(group, reason) for group, reason in sorted(state.refused.items())],
        foreign=sorted(state.unmanaged),
        ungrouped=sorted(state.ungrouped),
        nodes=_readiness(state.readiness),
        cost_per_hour=_cost(of.cost, _acts(of)),
        held=of.blocked_reason,
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


def _acts(of: Iteration) -> list[DecisionRow]:
    prices = {
        group.id: price
        for group in of.state.groups.values()
        if (price := next((of.cost.by_node[node] for node in group.nodes if node in of.cost.by_node), None)) is not None
    }
    of_new: set[float | None] = set()
    for decision in (of.decision, *of.further):
        prices |= _node_prices(decision)
        of_new |= _prices_of_new_groups(decision)
    # A created group has another name than its option; its cost is certain if all new groups cost the same.
    new = of_new.pop() if len(of_new) == 1 else None
    return [_act(action, prices.get(action.group, new), of.cost) for action in of.actions]


def _act(action: Action, node_price: float | None, cost: Cost) -> DecisionRow:
    nodes = action.to_size - action.from_size
    if action.kind is ActionKind.CREATE_GROUP and action.done:
        nodes = 0  # its increase adds them
    changes: float | None = 0.0
    if nodes and action.kind in (ActionKind.INCREASE, ActionKind.CREATE_GROUP):
        changes = None if node_price is None else node_price * nodes
    elif nodes < 0 and action.kind in (ActionKind.REMOVE_NODES, ActionKind.DELETE_NODES):
        unregistered = 0.0 if action.kind is ActionKind.DELETE_NODES else None  # unregistered instances are in no sum
        saved = [cost.by_node.get(node, unregistered) for node in action.nodes]
        known = [price for price in saved if price is not None]
        changes = -sum(known) if len(known) == len(saved) else None
    return DecisionRow(
        what=action.kind.value,
        group=action.group,
        mode=action.mode.value,
        from_size=action.from_size,
        to_size=action.to_size,
        max_size=action.max_size,
        nodes=nodes,
        node_names=list(action.nodes),
        cost_per_hour=changes,
        reason=action.reason,
        done=action.done,
        error=action.error,
    )


def _prices_of_new_groups(decision: ScaleUpDecision | None) -> set[float | None]:
    """The node price of each group that was chosen to be created."""
    if decision is None or decision.chosen is None:
        return set()
    of = decision.comparison
    several = of.several if of is not None and of.uses_several else None
    used = {decision.chosen.group} if several is None else set(several.nodes)
    return {_node_price(each) for each in decision.considered if each.group in used and not each.exists}


def _node_prices(decision: ScaleUpDecision | None) -> dict[str, float]:
    """The price of one new node of each ranked group, and of its similar groups."""
    found: dict[str, float] = {}
    for each in () if decision is None else decision.considered:
        price = _node_price(each)
        if price is not None:
            found = dict.fromkeys(each.similar, price) | found | {each.group: price}
    return found


def _node_price(of: RankedOption) -> float | None:
    rank = of.ranked.rank
    return None if rank is None else rank.nodes_price / of.node_count


def _options(decision: ScaleUpDecision, positions: Mapping[str, int]) -> list[OptionRow]:
    """Best first; options without a rank come last."""

    def order(each: RankedOption) -> tuple[float, str]:
        return (math.inf if each.ranked.rank is None else each.ranked.rank.rank), each.group

    return [_option(each, decision, positions) for each in sorted(decision.considered, key=order)]


def _option(of: RankedOption, decision: ScaleUpDecision, positions: Mapping[str, int]) -> OptionRow:
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


def _pending(decision: ScaleUpDecision, left: Mapping[int, int]) -> list[PendingRow]:
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


def _unplaced(decision: ScaleUpDecision, left: UnscheduledPods, positions: Mapping[str, int]) -> UnplacedRow:
    by_reasons: dict[tuple[str, ...], list[str]] = _by_value(decision.reasons(left).items())
    return UnplacedRow(
        position=_position(decision, left.position, positions),
        pods=list(left.pods),
        count=len(left.pods),
        awaiting=left.awaiting,
        reasons=[ReasonRow(list(reasons), listed) for reasons, listed in by_reasons.items()],
    )


def _position(decision: ScaleUpDecision, position: int, positions: Mapping[str, int]) -> int:
    """The class's position in the iteration's first decision; later decisions consider fewer pods of fewer classes."""
    return positions[decision.demands[position].pods[0]]


def _skipped(decision: ScaleUpDecision) -> list[SkippedRow]:
    by_reason = _by_value((each.group, each.reason) for each in decision.skipped)
    return [SkippedRow(reason, listed) for reason, listed in by_reason.items()]


def _steps(decision: ScaleUpDecision) -> list[StepRow]:
    return [StepRow(each.expander, list(each.groups)) for each in decision.steps]


def _caps(decision: ScaleUpDecision) -> list[CapRow]:
    return [CapRow(each.group, each.limit, each.wanted, each.allowed) for each in decision.caps]


def _incident(of: Incident) -> IncidentRow:
    code, message = ("", "") if of.error is None else (of.error.code, of.error.message)
    return IncidentRow(of.kind.value, of.group, of.nodes, of.seconds, code, message)


def _comparison(decision: ScaleUpDecision) -> ComparisonRow | None:
    of = decision.comparison
    if of is None:
        return None
    several = None if of.several is None else _placement(of.several)
    return ComparisonRow(_placement(of.single), several, of.minimum, of.uses_several)


def _placement(of: Placement) -> PlacementRow:
    return PlacementRow(dict(sorted(of.nodes.items())), of.pod_count, of.cost)


def _counted(actions: list[DecisionRow]) -> list[DecisionRow]:
    """Advice has no cost beside the actions that are carried out instead."""
    enforced = [each for each in actions if each.mode != Mode.RECOMMEND]
    return enforced if any(each.cost_per_hour != 0.0 for each in enforced) else actions


def _cost(of: Cost, decided: Iterable[DecisionRow]) -> CostRow:
    added = [each.cost_per_hour for each in decided]
    known = [each for each in added if each is not None]
    return CostRow(
        total=of.total,
        by_group=dict(of.by_group),
        idle=of.idle,
        offered=of.offered,
        used=of.used,
        unpriced=len(of.unpriced),
        unpriced_nodes=list(of.unpriced[:MOST_NAMES]),
        added=sum(known) if len(known) == len(added) else None,
    )


def _by_value(pairs: Iterable[tuple[str, ValueT]]) -> dict[ValueT, list[str]]:
    """The names that have each value, both sorted."""
    found: dict[ValueT, list[str]] = {}
    for name, value in sorted(pairs, key=lambda pair: pair[0]):
        found.setdefault(value, []).append(name)
    return dict(sorted(found.items()))
