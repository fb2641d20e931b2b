"""Rows about node groups: their state, what is done with them, and what they cost.

docs/schemas has them as JSON Schema. Instants are RFC 3339.
"""

from collections import Counter as Tally
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.state import GroupStatus, Readiness
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting.rows import row_of, total_cost
from manager.autoscaler.scale_up.decisions import ScaleUpDecision
from manager.autoscaler.scale_up.groups import Skipped
from shared import durations
from shared.explanation import Term

MOST_NAMES = 10  # of unpriced nodes


@dataclass(frozen=True)
class DecisionRow:
    """One action on a node group. `nodes` is the change of its target size, `node_names` are the nodes to delete.

    `cost_per_hour` is the cost of the new nodes, or the negative cost of the deleted ones (null: unknown). If `done` is
    false and `error` is empty, the action was not tried, because of a dry run or of the group's mode. `terms` are the
    values behind `reason`, and `bound` names the one that decided.
    """

    what: str
    group: str
    mode: str
    from_size: int
    to_size: int
    max_size: int
    nodes: int
    node_names: tuple[str, ...]
    cost_per_hour: float | None
    reason: str
    done: bool
    error: str
    terms: list[Term] = field(default_factory=list)
    bound: str = ""


@dataclass(frozen=True)
class CostRow:
    """Cost per hour. `by_group` has nodes without a group under the empty name.

    `unpriced` counts the nodes without a price, which no sum includes. `unpriced_nodes` names the first of them.
    `estimated` counts the nodes whose price is only estimated from their size. `estimated_groups` are the node groups,
    new ones included, for which a sum uses such a price.

    `idle`, `offered` and `used` do not overlap. `idle` is what no pod requests (null: the pods are not known).
    `offered` is what is reclaimed from requests and offered as Mid or Batch. `used` is what pods request of Mid and
    Batch. `added` is the cost that the decisions add, less what they save (null: a price is missing).
    """

    total: float
    by_group: dict[str, float]
    idle: float | None
    offered: float
    used: float
    unpriced: int
    unpriced_nodes: tuple[str, ...]
    added: float | None
    estimated: int = 0
    estimated_groups: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RequestRow:
    """A scale-up in progress. At the `deadline` (RFC 3339) it counts as failed."""

    nodes: int
    since: str
    deadline: str


@dataclass(frozen=True)
class BackoffRow:
    """A scale-up of the group failed. No other is tried before `until` (RFC 3339)."""

    reason: str
    until: str


@dataclass(frozen=True)
class ErrorRow:
    """The cloud could not create `instances` instances. `code` and `message` are the cloud's."""

    code: str
    message: str
    instances: int


@dataclass(frozen=True)
class GroupRow:
    """One node group. `target_size` is the size requested from the cloud; `upcoming` nodes of it are not registered and
    ready yet.

    `cost_per_hour` is the cost of its present nodes. `price_unknown` says why consolidation launches no nodes of this
    group: their price is not known, or only estimated.
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
    price_unknown: str = ""


@dataclass(frozen=True)
class Groups:
    """All node groups of a cluster as of one iteration. `time` is null if there was none yet.

    `unmanaged` groups belong to others and are never changed. `blocked_reason` says why the iteration decided
    nothing, and is empty if it did decide. If it is not empty, the last known state is shown.
    """

    cluster: str
    time: str | None
    healthy: bool
    groups: list[GroupRow]
    refused: list[Skipped]
    unmanaged: list[str]
    ungrouped: list[str]
    nodes: Readiness
    cost_per_hour: CostRow
    blocked_reason: str


def no_groups(cluster: str) -> Groups:
    return replace(groups(Iteration(0, 0.0, cluster=cluster)), time=None)


def groups(of: Iteration) -> Groups:
    """The groups as of an iteration."""
    state = of.state
    unpriced = {} if of.consolidation is None else of.consolidation.unpriced_groups
    return Groups(
        cluster=of.cluster,
        time=durations.timestamp(of.time),
        healthy=state.healthy,
        groups=[_group(each, of.cost, unpriced.get(name, "")) for name, each in sorted(state.groups.items())],
        refused=[Skipped(group, reason) for group, reason in sorted(state.refused.items())],
        unmanaged=sorted(state.unmanaged),
        ungrouped=sorted(state.ungrouped),
        nodes=state.readiness,
        cost_per_hour=cost_row(of.cost, decision_rows(of)),
        blocked_reason=of.blocked_reason,
    )


def _group(of: GroupStatus, cost: Cost, price_unknown: str) -> GroupRow:
    asked, backoff, time = of.request, of.backoff, durations.timestamp
    errors = Tally((error.code, error.message) for error in of.errors)
    return row_of(
        GroupRow,
        of.group,
        mode=of.mode,
        upcoming=of.upcoming,
        nodes=of.readiness,
        healthy=of.healthy,
        request=None if asked is None else RequestRow(asked.nodes, time(asked.started_at), time(asked.deadline)),
        backoff=None if backoff is None else BackoffRow(backoff.reason, time(backoff.until)),
        errors=[ErrorRow(*named, count) for named, count in sorted(errors.items())],
        cost_per_hour=cost.by_group.get(of.id, 0.0),
        price_unknown=price_unknown,
    )


def decision_rows(of: Iteration) -> list[DecisionRow]:
    """All actions, with what each adds to the cost or saves."""
    prices, of_new = _node_prices(of)
    rows = []
    for action in of.actions:
        is_counted = action.kind is not ActionKind.CREATE_GROUP or not action.done  # else its increase adds the nodes
        nodes, explanation = action.change if is_counted else 0, action.explanation
        cost = _cost_change(action, nodes, prices.get(action.group, of_new), of.cost)
        named, terms = action.nodes, list(explanation.terms)
        of_action = {"what": action.kind, "nodes": nodes, "node_names": named, "cost_per_hour": cost}
        rows.append(row_of(DecisionRow, action, **of_action, terms=terms, bound=explanation.bound))
    return rows


def _cost_change(action: Action, nodes: int, node_price: float | None, cost: Cost) -> float | None:
    """None if a price is not known."""
    if nodes and action.kind in (ActionKind.INCREASE, ActionKind.CREATE_GROUP):
        return None if node_price is None else node_price * nodes
    if nodes < 0 and action.kind in (ActionKind.REMOVE_NODES, ActionKind.DELETE_NODES):
        unregistered = 0.0 if action.kind is ActionKind.DELETE_NODES else None  # they are in no sum
        saved = total_cost(cost.by_node.get(node, unregistered) for node in action.nodes)
        return None if saved is None else -saved
    return 0.0


def _node_prices(of: Iteration) -> tuple[dict[str, float], float | None]:
    """The price of one new node by group, and that in a group that is created: it has another name than its option, and
    so a price only if all new groups have the same.
    """
    by_node = of.cost.by_node
    prices = {
        group.id: next(by_node[node] for node in group.nodes if node in by_node)
        for group in of.state.groups.values()
        if not by_node.keys().isdisjoint(group.nodes)
    }
    of_new: set[float | None] = set()
    for decision in of.decisions:
        used = _chosen_groups(decision)
        of_new |= {each.node_price for each in decision.considered if each.group in used and not each.exists}
        known = [(each, each.node_price) for each in decision.considered if each.node_price is not None]
        similar = {group: price for each, price in reversed(known) for group in each.similar}
        prices |= similar | {each.group: price for each, price in known}
    option = None if of.consolidation is None else of.consolidation.option
    if option is not None:
        prices |= option.node_prices
        of_new |= {option.node_prices[each.group] for each in option.creations}
    return prices, of_new.pop() if len(of_new) == 1 else None


def _chosen_groups(decision: ScaleUpDecision) -> Collection[str]:
    if decision.chosen is None:
        return ()
    compared = decision.comparison
    if compared is not None and compared.uses_several and compared.several is not None:
        return compared.several.nodes.keys()
    return (decision.chosen.group,)


def cost_row(of: Cost, decided: Iterable[DecisionRow]) -> CostRow:
    """The cost now, and what the decided actions add."""
    return row_of(
        CostRow,
        of,
        by_group=dict(of.by_group),
        unpriced=len(of.unpriced),
        unpriced_nodes=of.unpriced[:MOST_NAMES],
        estimated_groups=sorted(of.estimated_groups),
        added=total_cost(each.cost_per_hour for each in decided),
    )
