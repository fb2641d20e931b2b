"""The cluster's cost per hour, and its shares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.autoscaler.pricing import model as pricing
from manager.autoscaler.pricing.model import GIB, Machine, PricingModel, Unpriced
from manager.autoscaler.snapshot.cluster import ClusterSnapshot, NodeState, NodeTemplate
from shared.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import MILLI_PER_CORE

_TIERS_OF = {CPU: (MID_CPU, BATCH_CPU), MEMORY: (MID_MEMORY, BATCH_MEMORY)}  # Mid and Batch, by their native resource

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RequestedCost:
    """The hourly cost of what some pods request: of nodes' own resources, and of Mid and Batch."""

    requested: float
    used: float


@dataclass(frozen=True)
class KindCost:
    """The cost of all placed pods of one kind, which share namespace and labels."""

    namespace: str
    labels: Mapping[str, str]
    cost: RequestedCost


@dataclass(frozen=True)
class Cost:
    """The cost in the price model's currency per hour.

    `by_node` holds the nodes that have a price, `by_group` has nodes without a group under the empty name. `unpriced`
    are the nodes without a price: no sum includes them. `unknown` says of these, and of nodes
    whose price is only a guess, why no price is known for which they could be replaced. `estimated_groups` are the
    groups whose nodes have such a price.

    The shares do not overlap, and together are at most the `total`: `used` is what pods hold as Mid and Batch, `idle`
    what no pod of any tier requests, and `offered` what is reclaimed from the requests of pods and not held yet.
    Capacity that both Mid and Batch offer counts once, and Batch capacity from the idle part counts as idle.

    `by_kind` divides the same total another way: by the requests of the pods. What no pod requests is in no kind's
    cost, and what a kind uses as Mid and Batch is no part of its `requested`.
    """

    total: float = 0.0
    by_group: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0
    offered: float = 0.0
    used: float = 0.0
    unpriced: tuple[str, ...] = ()
    by_node: Mapping[str, float] = field(default_factory=dict, repr=False)
    unknown: Mapping[str, str] = field(default_factory=dict, repr=False)
    estimated_groups: frozenset[str] = frozenset()
    by_kind: tuple[KindCost, ...] = field(default=(), repr=False)

    @property
    def estimated(self) -> int:
        """The nodes in the sums whose price is a guess."""
        return sum(name in self.by_node for name in self.unknown)

    @property
    def known_by_node(self) -> dict[str, float]:
        """Without guesses."""
        return {name: price for name, price in self.by_node.items() if name not in self.unknown}

    def divided(self, part_of: Callable[[KindCost], str | None]) -> dict[str | None, RequestedCost]:
        """The costs of all kinds, added up by the part that each belongs to."""
        found: dict[str | None, RequestedCost] = {}
        for kind in self.by_kind:
            part = part_of(kind)
            before = found.get(part, RequestedCost(0.0, 0.0))
            found[part] = RequestedCost(before.requested + kind.cost.requested, before.used + kind.cost.used)
        return found


def cluster_cost(
    snapshot: ClusterSnapshot,
    group_of_node: Mapping[str, str],
    model: PricingModel | None,
    templates: Mapping[str, NodeTemplate] | None = None,
) -> Cost:
    """The cost of the present nodes; upcoming nodes cost nothing yet. Without a model nothing has a price.

    Nodes of a group with one of the `templates` cost what it costs, so that a cloud is not asked about each.

    A node's share is that of its cores and that of its memory, each weighted by the model's price for all of it; both
    weigh the same if the model has no price for them. Mid and Batch count as cores and memory.
    """
    prices = np.full(len(snapshot.nodes), np.nan)
    unpriced: list[str] = []
    by_group: dict[str, float] = {}
    by_node: dict[str, float] = {}
    unknown: dict[str, str] = {}
    of_group: dict[str, tuple[float | None, str]] = {}
    for row, node in enumerate(snapshot.nodes):
        if node.state is NodeState.UPCOMING:
            continue
        group = group_of_node.get(node.name, "")
        if templates and group in templates:
            if group not in of_group:
                of_group[group] = price_of(model, templates[group].machine)
            price, problem = of_group[group]
        else:
            price, problem = price_of(model, node.machine)
        if problem:
            unknown[node.name] = problem
        if price is None:
            unpriced.append(node.name)
            continue
        prices[row] = by_node[node.name] = price
        by_group[group] = by_group.get(group, 0.0) + price
    counted = ~np.isnan(prices)
    if model is None or not counted.any():
        return Cost(unpriced=tuple(unpriced), unknown=unknown)
    parts = _parts(snapshot, _unit_prices(model))
    used, idle, offered = (float((prices * share)[counted].sum()) for share in _shares(snapshot, parts))
    return Cost(
        total=float(prices[counted].sum()),
        by_group=dict(sorted(by_group.items())),
        idle=idle,
        offered=offered,
        used=used,
        unpriced=tuple(unpriced),
        by_node=by_node,
        unknown=unknown,
        by_kind=_by_kind(snapshot, np.where(counted, prices, 0.0), parts),
    )


def estimated_groups(model: PricingModel | None, machines: Mapping[str, Machine]) -> frozenset[str]:
    """The groups, of these by what a node of each is, whose nodes have a price that is only a guess."""
    found = {group: price_of(model, machine) for group, machine in machines.items()}
    return frozenset(group for group, (price, problem) in found.items() if problem and price is not None)


def price_of(model: PricingModel | None, machine: Machine) -> tuple[float | None, str]:
    """Per hour, None without one; and why it is not known or only a guess, empty if it is known."""
    if model is None:
        return None, ""
    try:
        return pricing.known_node_price(model, machine), ""
    except Unpriced as problem:
        why = str(problem)
    try:
        return model.node_price(machine), why
    except Unpriced:
        return None, why


def _unit_prices(model: PricingModel) -> dict[str, float]:
    """The price of a thousandth of a core, and of a byte, where the model knows it."""
    found = {}
    for resource, amount in ((CPU, MILLI_PER_CORE), (MEMORY, GIB)):
        try:
            found[resource] = model.pod_price({resource: amount}) / amount
        except Unpriced:
            continue
    return found


def _parts(snapshot: ClusterSnapshot, units: Mapping[str, float]) -> dict[str, Floats]:
    """By native resource, the part of each node that one unit of it is; all units of a node are the whole node."""
    there = {native: _allocatable(snapshot, native) for native in _TIERS_OF}
    total = sum((there[native] * units.get(native, 0.0) for native in _TIERS_OF), np.zeros(len(snapshot.nodes)))
    found = {}
    for native, amount in there.items():
        priced = amount * units.get(native, 0.0)
        weight = np.divide(priced, total, out=np.full_like(amount, 1 / len(_TIERS_OF)), where=total > 0)
        found[native] = np.divide(weight, amount, out=np.zeros_like(amount), where=amount > 0)
    return found


def _shares(snapshot: ClusterSnapshot, parts: Mapping[str, Floats]) -> tuple[Floats, Floats, Floats]:
    """The shares by node, each between 0 and 1, in sum at most 1: used as Mid and Batch, idle, and offered."""
    used, idle, offered = (np.zeros(len(snapshot.nodes), np.float64) for _ in range(3))
    for native, (mid, batch) in _TIERS_OF.items():
        there, of_whole = _allocatable(snapshot, native), parts[native]
        held_mid, held_batch = _pod_requests(snapshot, mid), _pod_requests(snapshot, batch)
        held = np.minimum(held_mid + held_batch, there)
        free = np.clip(snapshot.free_of(native), 0, there - held)
        # Both tiers offer what pods request and do not use; Batch also offers what is free.
        left = np.maximum(_allocatable(snapshot, mid) - held_mid, _allocatable(snapshot, batch) - held_batch - free)
        used += held * of_whole
        idle += free * of_whole
        offered += np.clip(left, 0, there - held - free) * of_whole
    return used, idle, offered


def _by_kind(snapshot: ClusterSnapshot, prices: Floats, parts: Mapping[str, Floats]) -> tuple[KindCost, ...]:
    """What the pods of each kind request, at the prices of their nodes; nodes without a price count nothing."""
    requested, used = np.zeros(len(snapshot.kinds)), np.zeros(len(snapshot.kinds))
    for native, tiers in _TIERS_OF.items():
        placed = snapshot.placed_count * (prices * parts[native])[snapshot.placed_node]
        priced = np.bincount(snapshot.placed_kind, placed, len(snapshot.kinds))
        requested += _requests_of(snapshot, native) * priced
        for tier in tiers:
            used += _requests_of(snapshot, tier) * priced
    costs = zip(snapshot.kinds, requested.tolist(), used.tolist(), strict=True)
    return tuple(KindCost(kind.namespace, kind.labels, RequestedCost(own, held)) for kind, own, held in costs)


def _allocatable(snapshot: ClusterSnapshot, resource: str) -> Floats:
    return np.array([max(0, node.allocatable.get(resource, 0)) for node in snapshot.nodes], np.float64)


def _pod_requests(snapshot: ClusterSnapshot, resource: str) -> Floats:
    """The sum of the pods' requests on every node."""
    held = np.zeros(len(snapshot.nodes), np.float64)
    each = _requests_of(snapshot, resource)
    np.add.at(held, snapshot.placed_node, each[snapshot.placed_kind] * snapshot.placed_count)
    return held


def _requests_of(snapshot: ClusterSnapshot, resource: str) -> Floats:
    """The request of one pod of every kind."""
    return np.array([max(0, kind.requests.get(resource, 0)) for kind in snapshot.kinds], np.float64)
