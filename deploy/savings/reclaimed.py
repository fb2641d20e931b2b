"""With Headroom in the cluster: what it offers, what pods hold of that, and how much is taken back."""

from collections.abc import Mapping
from dataclasses import dataclass

from deploy.savings import recommend
from deploy.savings.cluster import LookedAt
from deploy.savings.rows import SinceRow
from manager.nodeside import promises
from manager.nodeside.noderesource import report
from shared import quantity
from shared.api import pods as api_pods
from shared.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import QuantityError, Resources

_LENT = frozenset((MID_CPU, MID_MEMORY, BATCH_CPU, BATCH_MEMORY))
_DAY_SECONDS = 86400


@dataclass(frozen=True)
class ReclaimedCapacity:
    """In native units: what Mid and Batch offer, by node, and what pods hold of it."""

    by_node: Mapping[str, Resources]
    held: Resources

    @property
    def offered(self) -> Resources:
        return quantity.total(list(self.by_node.values()))

    @property
    def exists(self) -> bool:
        return any(self.offered)


def reclaimed(found: LookedAt) -> ReclaimedCapacity:
    """What both tiers offer counts once, at the larger of the two."""
    by_node, held = dict[str, Resources](), Resources()
    for node in found.seen.objects.nodes:
        try:
            there = api_pods.amounts(
                {name: value for name, value in (node.status.allocatable or {}).items() if name in _LENT}
            )
        except QuantityError:
            continue
        cpu = max(there.get(MID_CPU, 0), there.get(BATCH_CPU, 0))
        by_node[node.metadata.name] = Resources(cpu, max(there.get(MID_MEMORY, 0), there.get(BATCH_MEMORY, 0)))
    for pod in found.seen.objects.pods:
        if not pod.spec.node_name or not api_pods.is_active(pod):
            continue
        for container in pod.spec.containers:
            asked = container.resources.requests or {}
            if _LENT.isdisjoint(asked):
                continue
            try:
                amounts = api_pods.amounts({name: value for name, value in asked.items() if name in _LENT})
            except QuantityError:
                continue
            cpu = amounts.get(MID_CPU, 0) + amounts.get(BATCH_CPU, 0)
            held = held.plus(Resources(cpu, amounts.get(MID_MEMORY, 0) + amounts.get(BATCH_MEMORY, 0)))
    return ReclaimedCapacity(by_node, held)


def since(lent: ReclaimedCapacity, found: LookedAt, split: recommend.OwnUnits | None) -> SinceRow | None:
    """None where nothing is on offer, or nothing has a price."""
    if not lent.exists or split is None:
        return None
    held = round(split.month(*lent.held), 2)
    percent, known = _withdrawn(lent, found, split)
    return SinceRow(round(split.month(*lent.offered), 2), held, held, percent, known)


def _withdrawn(lent: ReclaimedCapacity, found: LookedAt, split: recommend.OwnUnits) -> tuple[float | None, str]:
    """The share of its worth that is taken back a day, by the agents' own measure, and how that is known."""
    if not found.seen.metrics:
        return None, "not known: there is no NodeMetric in what was read"
    reports = map(report.read, found.seen.metrics)
    pooled = promises.pool_withdrawals((lent.by_node.get(each.name, Resources()), each.kept) for each in reports)
    if pooled is None:
        return None, "not known: no agent of a node that lends has measured it, as Koordinator's agents do not"
    cpu, memory = (percent or 0.0 for percent in pooled.percents_per_day)
    whole = split.month(*pooled.lent)
    if whole <= 0:
        return None, "not known: what these nodes lend has no price"
    nodes = sum(map(any, lent.by_node.values()))
    days = pooled.window_seconds / _DAY_SECONDS
    share = split.month(pooled.lent.cpu_milli * cpu, pooled.lent.memory_bytes * memory) / whole
    known = f"measured by agents of {pooled.nodes} of {nodes} nodes that lend, over {days:g} days at most"
    return round(share, 2), known
