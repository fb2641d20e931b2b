"""What teams cost: `GET /api/v1/costs/namespaces` and `GET /api/v1/costs/labels`."""

from collections import defaultdict
from dataclasses import dataclass

from manager.autoscaler.cluster_state.cost import Cost, RequestedCost
from manager.autoscaler.planning.iteration import Iteration
from shared import durations

MOST_KEYS = 50
# Labels that controllers set, with a value of their own for each revision, pod or Job.
_GENERATED = {
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
}


@dataclass(frozen=True)
class NamespaceRow:
    """Per hour, in the currency of the prices: what the pods of a namespace request of the nodes' own resources.

    `used` is what they request as Mid and Batch, at the same prices; it is not bought, and no part of `requested`.
    """

    namespace: str
    requested: float
    used: float


@dataclass(frozen=True)
class NamespaceCosts:
    """The namespaces with pods on nodes that have a price, the most expensive first, of `total` ones.

    `time` is the iteration's, and null before the first one. `idle` is what no pod requests (null: not known).
    `label_keys` are up to 50 keys of labels by which costs can be divided, those of the most expensive pods first.
    """

    time: str | None
    total: int
    idle: float | None
    namespaces: list[NamespaceRow]
    label_keys: list[str]


@dataclass(frozen=True)
class LabelRow:
    """What pods with this `value` of the label request, in the terms of a namespace. null: pods without the label."""

    value: str | None
    requested: float
    used: float


@dataclass(frozen=True)
class LabelCosts:
    """The values of the label `key`, the most expensive first, of `total` ones; otherwise like those of namespaces."""

    key: str
    time: str | None
    total: int
    idle: float | None
    values: list[LabelRow]
    label_keys: list[str]


def namespace_costs(of: Iteration | None, limit: int) -> NamespaceCosts:
    """The first `limit` rows; none before the first iteration, and where it counted nothing."""
    if of is None:
        return NamespaceCosts(None, 0, None, [], [])
    costs = _dearest(of.cost.divided(lambda kind: kind.namespace))
    rows = [NamespaceRow(name or "", each.requested, each.used) for name, each in costs[:limit]]
    return NamespaceCosts(durations.timestamp(of.time), len(costs), _idle(of), rows, _label_keys(of.cost))


def label_costs(of: Iteration | None, key: str, limit: int) -> LabelCosts:
    """The first `limit` rows; none before the first iteration, and where it counted nothing."""
    if of is None:
        return LabelCosts(key, None, 0, None, [], [])
    costs = _dearest(of.cost.divided(lambda kind: kind.labels.get(key)))
    rows = [LabelRow(value, each.requested, each.used) for value, each in costs[:limit]]
    return LabelCosts(key, durations.timestamp(of.time), len(costs), _idle(of), rows, _label_keys(of.cost))


def _dearest(costs: dict[str | None, RequestedCost]) -> list[tuple[str | None, RequestedCost]]:
    return sorted(costs.items(), key=lambda each: (-each[1].requested - each[1].used, each[0] or ""))


def _idle(of: Iteration) -> float | None:
    return None if of.blocked_reason else of.cost.idle


def _label_keys(cost: Cost) -> list[str]:
    costs: defaultdict[str, float] = defaultdict(float)
    for kind in cost.by_kind:
        for key in kind.labels.keys() - _GENERATED:
            costs[key] += kind.cost.requested + kind.cost.used
    return sorted(costs, key=lambda key: (-costs[key], key))[:MOST_KEYS]
