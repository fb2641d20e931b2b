"""Rows about node groups: their state, what is done with them, and what they cost.

docs/schemas has them as JSON Schema. Instants are RFC 3339.
"""

from collections import Counter as Tally
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.state import GroupStatus, Readiness
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.reporting.rows import row_of, total_cost
from manager.autoscaler.scale_up.decisions import ScaleUpDecision
from manager.autoscaler.scale_up.groups import Skipped
from shared import durations
from shared.explanation import Term

MOST_NAMES = 10  # of unpriced nodes


@dataclass(frozen=True)
class DecisionRow:
    """One thing to do with a group. `nodes` says by how many its target changes, `node_names` which go.

    `cost_per_hour` is what its new nodes add, or with a minus what those cost that go (null: unknown). With `done`
    false and no `error` it was not tried: a dry run, or the mode of its group. `reason` is made of `terms`, of which
    `bound` decides.
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
    unpriced_nodes: tuple[str, ...]
    added: float | None


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

    `cost_per_hour` is that of its nodes now. `price_unknown` says why consolidation launches none of its nodes: what
    one costs is not known, or only guessed.
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
        foreign=sorted(state.unmanaged),
        ungrouped=sorted(state.ungrouped),
        nodes=state.readiness,
        cost_per_hour=cost_row(of.cost, decision_rows(of)),
        held=of.blocked_reason,
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
        added=total_cost(each.cost_per_hour for each in decided),
    )
