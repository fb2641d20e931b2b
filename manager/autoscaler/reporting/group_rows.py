"""Rows about node groups: their state, what is done with them, and what they cost.

docs/schemas has them as JSON Schema. Instants are RFC 3339.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.state import GroupStatus, Readiness
from manager.autoscaler.iteration import Iteration
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
        cost_per_hour=cost_row(of.cost, decision_rows(of)),
        held=of.blocked_reason,
    )


def _group(of: GroupStatus, cost: Cost) -> GroupRow:
    group, asked, backoff, time = of.group, of.request, of.backoff, durations.timestamp
    errors = Tally((error.code, error.message) for error in of.errors)
    return GroupRow(
        id=group.id,
        mode=of.mode,
        min_size=group.min_size,
        max_size=group.max_size,
        target_size=group.target_size,
        upcoming=of.upcoming,
        nodes=of.readiness,
        healthy=of.healthy,
        autoprovisioned=group.autoprovisioned,
        request=None if asked is None else RequestRow(asked.nodes, time(asked.started_at), time(asked.deadline)),
        backoff=None if backoff is None else BackoffRow(backoff.reason, time(backoff.until)),
        errors=[ErrorRow(*named, count) for named, count in sorted(errors.items())],
        cost_per_hour=cost.by_group.get(group.id, 0.0),
    )


def decision_rows(of: Iteration) -> list[DecisionRow]:
    by_node = of.cost.by_node
    prices = {
        group.id: next(by_node[node] for node in group.nodes if node in by_node)
        for group in of.state.groups.values()
        if not by_node.keys().isdisjoint(group.nodes)
    }
    of_new: set[float | None] = set()
    for decision in of.decisions:
        prices |= _node_prices(decision)
        of_new |= _prices_of_new_groups(decision)
    option = None if of.consolidation is None else of.consolidation.option
    if option is not None:
        prices |= option.node_prices
        of_new |= {option.node_prices[each.group] for each in option.creations}
    # A created group has another name than its option; its cost is certain if all new groups cost the same.
    new = of_new.pop() if len(of_new) == 1 else None
    return [_decision(action, prices.get(action.group, new), of.cost) for action in of.actions]


def _decision(action: Action, node_price: float | None, cost: Cost) -> DecisionRow:
    kind, nodes = action.kind, action.to_size - action.from_size
    if kind is ActionKind.CREATE_GROUP and action.done:
        nodes = 0  # its increase adds them
    changes: float | None = 0.0
    if nodes and kind in (ActionKind.INCREASE, ActionKind.CREATE_GROUP):
        changes = None if node_price is None else node_price * nodes
    elif nodes < 0 and kind in (ActionKind.REMOVE_NODES, ActionKind.DELETE_NODES):
        unregistered = 0.0 if kind is ActionKind.DELETE_NODES else None  # unregistered instances are in no sum
        saved = total_cost(cost.by_node.get(node, unregistered) for node in action.nodes)
        changes = None if saved is None else -saved
    return DecisionRow(
        what=kind,
        group=action.group,
        mode=action.mode,
        from_size=action.from_size,
        to_size=action.to_size,
        max_size=action.max_size,
        nodes=nodes,
        node_names=action.nodes,
        cost_per_hour=changes,
        reason=action.reason,
        done=action.done,
        error=action.error,
        terms=list(action.explanation.terms),
        bound=action.explanation.bound,
    )


def _prices_of_new_groups(decision: ScaleUpDecision) -> set[float | None]:
    """The node price of each group that was chosen to be created."""
    if decision.chosen is None:
        return set()
    of = decision.comparison
    several = of.several if of is not None and of.uses_several else None
    used = {decision.chosen.group} if several is None else set(several.nodes)
    return {each.node_price for each in decision.considered if each.group in used and not each.exists}


def _node_prices(decision: ScaleUpDecision) -> dict[str, float]:
    """The price of one new node of each ranked group, and of its similar groups."""
    found: dict[str, float] = {}
    for each in decision.considered:
        if each.node_price is not None:
            found = dict.fromkeys(each.similar, each.node_price) | found | {each.group: each.node_price}
    return found


def cost_row(of: Cost, decided: Sequence[DecisionRow]) -> CostRow:
    """The cost now, and what the decided actions add."""
    return CostRow(
        total=of.total,
        by_group=dict(of.by_group),
        idle=of.idle,
        offered=of.offered,
        used=of.used,
        unpriced=len(of.unpriced),
        unpriced_nodes=of.unpriced[:MOST_NAMES],
        added=total_cost(each.cost_per_hour for each in decided),
    )


def total_cost(costs: Iterable[float | None]) -> float | None:
    """None if one of them is not known."""
    listed = list(costs)
    known = [each for each in listed if each is not None]
    return sum(known) if len(known) == len(listed) else None
