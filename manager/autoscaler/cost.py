"""What the cluster costs per hour, and where the money goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from manager.autoscaler.pricing.model import GIB, PricingModel, Unpriced
from manager.autoscaler.snapshot.cluster import NodeState, Snapshot
from shared.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import MILLI_PER_CORE, Amounts

_NATIVE_OF = {MID_CPU: CPU, BATCH_CPU: CPU, MID_MEMORY: MEMORY, BATCH_MEMORY: MEMORY}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """In the price model's currency per hour.

    `by_node` has the nodes that have a price, `by_group` nodes of no group under the empty name. `idle` is the share of
    nodes that no pod requests, `reclaimed` what is on offer as Mid and Batch, `avoided` what pods hold of that, which
    would have been bought otherwise. `unpriced` are the nodes without a price: none of these sums has them in it.
    """

    total: float = 0.0
    by_group: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0
    reclaimed: float = 0.0
    avoided: float = 0.0
    unpriced: tuple[str, ...] = ()
    by_node: Mapping[str, float] = field(default_factory=dict, repr=False)


def of(snapshot: Snapshot, group_of_node: Mapping[str, str], model: PricingModel | None) -> Cost:
    """The cost of the nodes there are; what is still to come costs nothing yet. Without a model nothing has a price.

    A node's idle share is that of its cores and that of its memory, each weighted by what the model takes for all of
    it; both count alike where the model has no price for them. Mid and Batch are worth the cores and memory they are.
    """
    prices = np.full(len(snapshot.nodes), np.nan)
    unpriced: list[str] = []
    by_group: dict[str, float] = {}
    by_node: dict[str, float] = {}
    for row, node in enumerate(snapshot.nodes):
        if node.state is NodeState.UPCOMING:
            continue
        try:
            price = None if model is None else model.node_price(node.machine)
        except Unpriced:
            price = None
        if price is None:
            unpriced.append(node.name)
            continue
        prices[row] = by_node[node.name] = price
        group = group_of_node.get(node.name, "")
        by_group[group] = by_group.get(group, 0.0) + price
    counted = ~np.isnan(prices)
    if model is None or not counted.any():
        return Cost(unpriced=tuple(unpriced))
    units = _unit_prices(model)
    worth = np.zeros(len(snapshot.kinds)) + [_worth(kind.requests, units) for kind in snapshot.kinds]
    held = counted[snapshot.placed_node]
    return Cost(
        total=float(prices[counted].sum()),
        by_group=dict(sorted(by_group.items())),
        idle=float((prices * _idle_share(snapshot, units))[counted].sum()),
        reclaimed=sum(
            _worth(node.allocatable, units)
            for node, counts in zip(snapshot.nodes, counted.tolist(), strict=True)
            if counts
        ),
        avoided=float((worth[snapshot.placed_kind] * snapshot.placed_count)[held].sum()),
        unpriced=tuple(unpriced),
        by_node=by_node,
    )


def _unit_prices(model: PricingModel) -> dict[str, float]:
    """Of a thousandth of a core, and of a byte; none that the model does not know."""
    found = {}
    for resource, amount in ((CPU, MILLI_PER_CORE), (MEMORY, GIB)):
        try:
            found[resource] = model.pod_price({resource: amount}) / amount
        except Unpriced:
            continue
    return found


def _worth(amounts: Amounts, units: Mapping[str, float]) -> float:
    """What Mid and Batch among these amounts would cost as cores and memory."""
    return sum(
        max(0, amounts[resource]) * units.get(native, 0.0)
        for resource, native in _NATIVE_OF.items()
        if resource in amounts
    )


def _idle_share(snapshot: Snapshot, units: Mapping[str, float]) -> Floats:
    """By node, between 0 and 1."""
    shares, weights = [], []
    for resource in (CPU, MEMORY):
        there = np.array([node.allocatable.get(resource, 0) for node in snapshot.nodes], np.float64)
        free = np.clip(snapshot.free_of(resource), 0, there)
        shares.append(np.divide(free, there, out=np.zeros_like(there), where=there > 0))
        weights.append(there * units.get(resource, 0.0))
    total = weights[0] + weights[1]
    weighted = np.divide(
        shares[0] * weights[0] + shares[1] * weights[1], total, out=np.zeros_like(total), where=total > 0
    )
    return np.where(total > 0, weighted, (shares[0] + shares[1]) / 2)
