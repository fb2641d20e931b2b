"""Headroom's effect in a cluster: its offers, what pods hold of them, how much is withdrawn, and what that avoids."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from deploy.rendering import HOURS_PER_MONTH
from deploy.savings import simulation
from deploy.savings.cluster import LookedAt
from deploy.savings.lending_record import LendingRecord
from deploy.savings.priced import OwnUnits, PricedNodes, cents
from deploy.savings.rows import LendingRecordRow, SinceRow
from deploy.savings.simulation import SimulatedCluster
from manager.nodeside import promises
from manager.nodeside.noderesource import report
from shared import durations, quantity
from shared.api import pods as api_pods
from shared.api.core import Container, Pod, Quantities
from shared.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import QuantityError, Resources

_LENT = frozenset((MID_CPU, MID_MEMORY, BATCH_CPU, BATCH_MEMORY))
_DAY_SECONDS = 86400


@dataclass(frozen=True)
class ReclaimedCapacity:
    """In native units: the Mid and Batch offers by node, and what pods hold of them. `asking` are these pods, as if
    they requested native resources instead.
    """

    by_node: Mapping[str, Resources]
    held: Resources
    asking: tuple[Pod, ...] = ()

    @property
    def offered(self) -> Resources:
        return quantity.total(list(self.by_node.values()))

    @property
    def exists(self) -> bool:
        return any(self.offered)


def reclaimed(found: LookedAt) -> ReclaimedCapacity:
    """The joint offer of both tiers, overlaps counted once, at the larger of the two."""
    by_node, held, asking = dict[str, Resources](), Resources(), list[Pod]()
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
        if all(_LENT.isdisjoint(each.resources.requests or ()) for each in pod.spec.containers):
            continue
        try:
            for each in pod.spec.containers:
                held = held.plus(_held(each.resources.requests))
            containers = tuple(map(_asking_itself, pod.spec.containers))
        except QuantityError:
            continue
        asking.append(with_fields(pod, spec=with_fields(pod.spec, containers=containers)))
    return ReclaimedCapacity(by_node, held, tuple(asking))


def _held(requests: Quantities | None) -> Resources:
    """The held amounts. Raises QuantityError."""
    lent = api_pods.amounts({name: value for name, value in (requests or {}).items() if name in _LENT})
    return Resources(lent.get(MID_CPU, 0) + lent.get(BATCH_CPU, 0), lent.get(MID_MEMORY, 0) + lent.get(BATCH_MEMORY, 0))


def _asking_itself(container: Container) -> Container:
    """The pod as if it requested native resources. Raises QuantityError."""
    held = _held(container.resources.requests)
    given, allowed = (
        {name: value for name, value in (amounts or {}).items() if name not in _LENT}
        for amounts in (container.resources.requests, container.resources.limits)
    )
    own = api_pods.amounts({name: given[name] for name in (CPU, MEMORY) if name in given})
    requests = {
        **given,
        CPU: quantity.format_milli(own.get(CPU, 0) + held.cpu_milli),
        MEMORY: own.get(MEMORY, 0) + held.memory_bytes,
    }
    return with_fields(container, resources=with_fields(container.resources, requests=requests, limits=allowed))


def since(
    lent: ReclaimedCapacity,
    found: LookedAt,
    cluster: SimulatedCluster,
    nodes: PricedNodes,
    record: LendingRecord | None,
) -> SinceRow | None:
    """The effect; None without an offer, or without a price."""
    units = nodes.units
    if not lent.exists or units is None:
        return None
    avoided = _avoided(lent, cluster, nodes)
    percent, known = _withdrawn(lent, found, units)
    return SinceRow(
        offered=round(units.month(*lent.offered), 2),
        lent=round(units.month(*lent.held), 2),
        avoided=cents(avoided.cost),
        avoided_nodes=avoided.nodes,
        avoided_known=avoided.known,
        withdrawn_percent_per_day=percent,
        withdrawn_known=known,
        record=None if record is None else _recorded(record, units, lent, avoided),
    )


class _Avoided(NamedTuple):
    """Per month; None if unknown."""

    cost: float | None
    nodes: int | None
    known: str


def _avoided(lent: ReclaimedCapacity, cluster: SimulatedCluster, nodes: PricedNodes) -> _Avoided:
    """The planner's purchase if these pods requested native resources for what they hold. They use idle capacity first,
    so that it does not count as avoided.
    """
    if not lent.asking:
        return _Avoided(0.0, 0, "no pod requests any of it")
    bought = simulation.find_bought(cluster, lent.asking)
    if bought.problem or bought.unplaced:
        why = bought.problem or f"{bought.unplaced} of these pods would not fit on new nodes of these groups"
        return _Avoided(None, None, f"not known: {why}")
    added = [(cluster.templates[group].metadata.name, count) for group, count in bought.added.items()]
    if any(name not in nodes.machines for name, _ in added):
        return _Avoided(None, None, "unknown: a group that would be scaled up has no known price")
    cost = sum(nodes.machines[name][1] * count for name, count in added) * HOURS_PER_MONTH
    known = f"the planner would launch them if the {len(lent.asking)} pods requested native resources instead"
    return _Avoided(cost, sum(count for _, count in added), known)


def _recorded(record: LendingRecord, units: OwnUnits, lent: ReclaimedCapacity, avoided: _Avoided) -> LendingRecordRow:
    """The record at today's prices. The held amounts avoided the same share of their value as now, at most all."""
    offered = units.month(*record.offered) / HOURS_PER_MONTH
    held = None if record.held is None else units.month(*record.held) / HOURS_PER_MONTH
    now = units.month(*lent.held)
    share = min(1.0, avoided.cost / now) if avoided.cost is not None and now > 0 else None
    saved = 0.0 if held == 0 else None if held is None or share is None else held * share
    known = f"{record.hours / 24:.1f} days are recorded"
    if held is None:
        known += "; the requests of pods are unknown without kube-state-metrics"
    elif saved is None:
        known += "; what the requests avoided is unknown"
    return LendingRecordRow(
        start=durations.timestamp(record.start),
        hours=record.hours,
        offered=round(offered, 2),
        lent=cents(held),
        avoided=cents(saved),
        known=known,
    )


def _withdrawn(lent: ReclaimedCapacity, found: LookedAt, units: OwnUnits) -> tuple[float | None, str]:
    """The share of the offers' value that is withdrawn per day, as agents measure it, and the source."""
    if not found.seen.metrics:
        return None, "unknown: the input has no NodeMetric"
    reports = map(report.read, found.seen.metrics)
    pooled = promises.pool_withdrawals((lent.by_node.get(each.name, Resources()), each.kept) for each in reports)
    if pooled is None:
        return None, "unknown: no agent of a lending node has measured it; Koordinator's agents do not"
    cpu, memory = (percent or 0.0 for percent in pooled.percents_per_day)
    whole = units.month(*pooled.lent)
    if whole <= 0:
        return None, "unknown: the offers of these nodes have no price"
    nodes = sum(map(any, lent.by_node.values()))
    days = pooled.window_seconds / _DAY_SECONDS
    share = units.month(pooled.lent.cpu_milli * cpu, pooled.lent.memory_bytes * memory) / whole
    known = f"measured by agents of {pooled.nodes} of {nodes} nodes that lend, over {days:g} days at most"
    return round(share, 2), known
