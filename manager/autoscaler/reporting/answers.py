"""The answers of the API, `headroom plan` and the page about an iteration."""

import math
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from manager.autoscaler.cluster_state.state import GroupStatus, Incident
from manager.autoscaler.cost import Cost
from manager.autoscaler.iteration import Action, ActionKind, Iteration
from manager.autoscaler.modes import Mode
from manager.autoscaler.pricing import gce
from manager.autoscaler.reporting import node_answers
from manager.autoscaler.reporting.schemas import (
    AsideRow,
    BackoffRow,
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
    ReasonRow,
    RequestRow,
    SkippedRow,
    UnplacedRow,
    UnreadRow,
)
from manager.autoscaler.scale_up.decisions import NodeMix, RankedOption, ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.groups import Skipped
from shared import durations

ValueT = TypeVar("ValueT", str, tuple[str, ...])
RowT = TypeVar("RowT", PendingRow, UnplacedRow, AsideRow)

HELD = "nothing was decided"
MOST_NAMES = 10  # of unpriced nodes
BRIEF_NAMES = 3  # of pods of one class, in brief answers


def plan(of: Iteration) -> Plan:
    """The complete answer about an iteration."""
    decision = of.decision or ScaleUpDecision(ScaleUpOutcome.NOT_NEEDED)
    last = of.further[-1] if of.further else decision
    actions = _actions(of)
    positions = {
        pod: position
        for position, demand in enumerate(decision.demands)
        for pod in (demand.pods if of.further else demand.pods[:1])
    }
    first, *further = (_decided(each, positions) for each in (decision, *of.further))
    unplaced = _unplaced(last, positions)
    return Plan(
        round=of.number,
        time=durations.timestamp(of.time),
        dry_run=of.dry_run,
        outcome=HELD if of.decision is None else first.outcome,
        held=of.blocked_reason,
        decisions=actions,
        options=first.options,
        unplaced=unplaced,
        cost_per_hour=_cost(of.cost, _counted(actions)),
        pending=_pending(decision, {each.position: each.count for each in unplaced}),
        aside=[AsideRow(reason, pods, len(pods)) for reason, pods in _by_value(of.skipped_pods.items()).items()],
        skipped=first.skipped,
        steps=first.steps,
        comparison=first.comparison,
        caps=first.caps,
        advice=decision.advice,
        further=further,
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

    def first_names(rows: list[RowT]) -> list[RowT]:
        return [replace(row, pods=row.pods[:BRIEF_NAMES]) for row in rows]

    return replace(
        of,
        pending=first_names(of.pending),
        unplaced=first_names(of.unplaced),
        aside=first_names(of.aside),
        scale_down=node_answers.first_rows(of.scale_down),
    )


def no_groups(cluster: str) -> Groups:
    return replace(groups(Iteration(0, 0.0, cluster=cluster)), time=None)


def groups(of: Iteration) -> Groups:
    """The groups as of an iteration."""
    state = of.state
    return Groups(
        cluster=of.cluster,
        time=durations.timestamp(of.time),
        healthy=state.healthy,
        groups=[_group(each, of.cost) for _, each in sorted(state.groups.items())],
        refused=[Skipped(group, reason) for group, reason in sorted(state.refused.items())],
        foreign=sorted(state.unmanaged),
        ungrouped=sorted(state.ungrouped),
        nodes=state.readiness,
        cost_per_hour=_cost(of.cost, _actions(of)),
        held=of.blocked_reason,
    )


def _group(of: GroupStatus, cost: Cost) -> GroupRow:
    group, request, backoff, time = of.group, of.request, of.backoff, durations.timestamp
    errors = Tally((error.code, error.message) for error in of.errors)
    return GroupRow(
        id=group.id,
        mode=of.mode.value,
        min_size=group.min_size,
        max_size=group.max_size,
        target_size=group.target_size,
        upcoming=of.upcoming,
        nodes=of.readiness,
        healthy=of.healthy,
        autoprovisioned=group.autoprovisioned,
        request=(
            None if request is None else RequestRow(request.nodes, time(request.started_at), time(request.deadline))
        ),
        backoff=None if backoff is None else BackoffRow(backoff.reason, time(backoff.until)),
        errors=[ErrorRow(code, message, count) for (code, message), count in sorted(errors.items())],
        cost_per_hour=cost.by_group.get(group.id, 0.0),
    )


def _actions(of: Iteration) -> list[DecisionRow]:
    prices = {
        group.id: price
        for group in of.state.groups.values()
        if (price := next((of.cost.by_node[node] for node in group.nodes if node in of.cost.by_node), None)) is not None
    }
    of_new: set[float | None] = set()
    for decision in of.decisions:
        prices |= _node_prices(decision)
        of_new |= _prices_of_new_groups(decision)
    # A created group has another name than its option; its cost is certain if all new groups cost the same.
    new = of_new.pop() if len(of_new) == 1 else None
    return [_action(action, prices.get(action.group, new), of.cost) for action in of.actions]


def _action(action: Action, node_price: float | None, cost: Cost) -> DecisionRow:
    kind, nodes = action.kind, action.to_size - action.from_size
    if kind is ActionKind.CREATE_GROUP and action.done:
        nodes = 0  # its increase adds them
    changes: float | None = 0.0
    if nodes and kind in (ActionKind.INCREASE, ActionKind.CREATE_GROUP):
        changes = None if node_price is None else node_price * nodes
    elif nodes < 0 and kind in (ActionKind.REMOVE_NODES, ActionKind.DELETE_NODES):
        unregistered = 0.0 if kind is ActionKind.DELETE_NODES else None  # unregistered instances are in no sum
        saved = node_answers.total_cost(cost.by_node.get(node, unregistered) for node in action.nodes)
        changes = None if saved is None else -saved
    return DecisionRow(
        what=kind.value,
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


def _prices_of_new_groups(decision: ScaleUpDecision) -> set[float | None]:
    """The node price of each group that was chosen to be created."""
    if decision.chosen is None:
        return set()
    of = decision.comparison
    several = of.several if of is not None and of.uses_several else None
    used = {decision.chosen.group} if several is None else set(several.nodes)
    return {_node_price(each) for each in decision.considered if each.group in used and not each.exists}


def _node_prices(decision: ScaleUpDecision) -> dict[str, float]:
    """The price of one new node of each ranked group, and of its similar groups."""
    found: dict[str, float] = {}
    for each in decision.considered:
        price = _node_price(each)
        if price is not None:
            found = dict.fromkeys(each.similar, price) | found | {each.group: price}
    return found


def _node_price(of: RankedOption) -> float | None:
    rank = of.ranked.rank
    return None if rank is None else rank.nodes_price / of.node_count


def _decided(decision: ScaleUpDecision, positions: Mapping[str, int]) -> FurtherRow:
    """Options stand best first; those without a rank come last."""

    def order(each: RankedOption) -> tuple[float, str]:
        rank = each.ranked.rank
        return (math.inf if rank is None else rank.height[0]), each.group

    skipped = _by_value((each.group, each.reason) for each in decision.skipped)
    return FurtherRow(
        outcome=decision.outcome.value,
        options=[_option(each, decision, positions) for each in sorted(decision.considered, key=order)],
        skipped=[SkippedRow(reason, listed) for reason, listed in skipped.items()],
        steps=list(decision.steps),
        comparison=_comparison(decision),
        caps=list(decision.caps),
    )


def _option(of: RankedOption, decision: ScaleUpDecision, positions: Mapping[str, int]) -> OptionRow:
    machine, rank, spec = of.ranked.option.machine, of.ranked.rank, of.spec
    return OptionRow(
        group=of.group,
        exists=of.exists,
        machine_type=gce.machine_type(machine.labels),
        machine={name: amount for name, amount in sorted(machine.capacity.items()) if amount},
        nodes=of.node_count,
        pods=of.pod_count,
        classes=[ClassCount(_position(decision, at, positions), count) for at, count in sorted(of.pods.items())],
        node_price=_node_price(of),
        rank=rank,
        problem=of.ranked.problem,
        kept_by=[step.expander for step in decision.steps if of.group in step.groups],
        dropped_by=next((step.expander for step in decision.steps if of.group not in step.groups), ""),
        chosen=decision.chosen is not None and decision.chosen.group == of.group,
        similar=list(of.similar),
        labels={} if spec is None else dict(sorted(spec.labels.items())),
        taints=[] if spec is None else [f"{each.key}={each.value}:{each.effect}" for each in spec.taints],
    )


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


def _unplaced(decision: ScaleUpDecision, positions: Mapping[str, int]) -> list[UnplacedRow]:
    return [
        UnplacedRow(
            position=_position(decision, left.position, positions),
            pods=list(left.pods),
            count=len(left.pods),
            awaiting=left.awaiting,
            reasons=[
                ReasonRow(list(reasons), listed)
                for reasons, listed in _by_value(decision.reasons(left).items()).items()
            ],
        )
        for left in decision.left
    ]


def _position(decision: ScaleUpDecision, position: int, positions: Mapping[str, int]) -> int:
    """The class's position in the iteration's first decision; later decisions consider fewer pods of fewer classes."""
    return positions[decision.demands[position].pods[0]]


def _incident(of: Incident) -> IncidentRow:
    code, message = ("", "") if of.error is None else (of.error.code, of.error.message)
    return IncidentRow(of.kind.value, of.group, of.nodes, of.seconds, code, message)


def _comparison(decision: ScaleUpDecision) -> ComparisonRow | None:
    def placement(mix: NodeMix) -> PlacementRow:
        return PlacementRow(dict(sorted(mix.nodes.items())), mix.pod_count, mix.cost)

    of = decision.comparison
    if of is None:
        return None
    several = None if of.several is None else placement(of.several)
    return ComparisonRow(placement(of.single), several, of.minimum, of.uses_several)


def _counted(actions: list[DecisionRow]) -> list[DecisionRow]:
    """Advice has no cost beside the actions that are carried out instead."""
    enforced = [each for each in actions if each.mode != Mode.RECOMMEND]
    return enforced if any(each.cost_per_hour != 0.0 for each in enforced) else actions


def _cost(of: Cost, decided: Iterable[DecisionRow]) -> CostRow:
    return CostRow(
        total=of.total,
        by_group=dict(of.by_group),
        idle=of.idle,
        offered=of.offered,
        used=of.used,
        unpriced=len(of.unpriced),
        unpriced_nodes=list(of.unpriced[:MOST_NAMES]),
        added=node_answers.total_cost(each.cost_per_hour for each in decided),
    )


def _by_value(pairs: Iterable[tuple[str, ValueT]]) -> dict[ValueT, list[str]]:
    """The names that have each value, both sorted."""
    found: dict[ValueT, list[str]] = {}
    for name, value in sorted(pairs, key=lambda pair: pair[0]):
        found.setdefault(value, []).append(name)
    return dict(sorted(found.items()))
