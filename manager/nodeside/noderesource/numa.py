"""The Batch offer of each NUMA zone, by the same rules as for the whole node.

Amounts that are not known by zone are divided equally: system usage, reservations, unbound pods, and usage of pods that
do not exist. Shares are rounded up in thousandths, as in Koordinator; results are integers, rounded down.
"""

from collections.abc import Collection, Mapping

from manager.nodeside.noderesource import batch
from manager.nodeside.noderesource.batch import (
    HOST_APPLICATIONS_ABOVE,
    LOW_PRIORITY,
    MAX_USAGE_REQUEST,
    REQUEST,
    BatchRule,
)
from manager.nodeside.noderesource.report import ReportedUsage
from manager.nodeside.noderesource.rounding import divided
from manager.nodeside.noderesource.situation import NodeSituation
from manager.pods import PodRecord
from shared.api.colocation import ColocationStrategy
from shared.names import QoS
from shared.quantity import Resources

_CPU, _MEMORY = 0, 1
_FINER = (1, 1000)  # thousandths per unit: cpu is already counted in them


def calculate(
    strategy: ColocationStrategy, situation: NodeSituation, pods: Collection[PodRecord], zones: Mapping[int, Resources]
) -> dict[int, Resources]:
    """The Batch offer of each zone, from the allocatable by NUMA node; freshness is not judged here.

    A pod that is bound to none of these zones counts in all of them.
    """
    if not zones:
        return {}
    cpu = _along(_CPU, batch.cpu_rule(strategy), situation, pods, zones)
    memory = _along(_MEMORY, batch.memory_rule(strategy), situation, pods, zones)
    return {zone: Resources(cpu[zone], memory[zone]) for zone in zones}


def _along(
    where: int, rule: BatchRule, situation: NodeSituation, pods: Collection[PodRecord], zones: Mapping[int, Resources]
) -> dict[int, int]:
    """The result for one resource; intermediate values are in thousandths."""
    finer = _FINER[where]
    held = _held_in_zone(where, rule, {} if situation.report is None else situation.report.pods, pods, zones)
    taken = rule.system_share(situation.system_usage(HOST_APPLICATIONS_ABOVE)[where], situation.reserved[where])
    results = {}
    for zone, amount in zones.items():
        capacity = amount[where]
        left = (capacity - rule.margin(capacity)) * finer - divided(taken * finer, len(zones)) - held[zone]
        results[zone] = min(max(0, left) // finer, rule.cap(capacity))
    return results


def _held_in_zone(
    where: int,
    rule: BatchRule,
    reported: Mapping[str, ReportedUsage],
    pods: Collection[PodRecord],
    zones: Collection[int],
) -> dict[int, int]:
    """The amounts that the pods above Batch hold of each zone, in thousandths."""
    finer = _FINER[where]
    held = dict.fromkeys(zones, 0)
    for pod in pods:
        if pod.active and pod.priority_class not in LOW_PRIORITY:
            bound = [zone for zone in pod.numa_nodes if zone in held] or zones
            share = divided(_counted(where, rule, pod, reported.get(pod.key)) * finer, len(bound))
            for zone in bound:
                held[zone] += share
    if rule.policy != REQUEST:
        for metric in batch.dangling(frozenset(pod.key for pod in pods if pod.active), reported):
            share = divided(metric.usage[where] * finer, len(zones))
            for zone in zones:
                held[zone] += share
    return held


def _counted(where: int, rule: BatchRule, pod: PodRecord, metric: ReportedUsage | None) -> int:
    """The amount of a pod above Batch. Unlike at node level, a pod without a metric counts under each policy."""
    request = pod.requests[where]
    if metric is None or rule.policy == REQUEST:
        return request
    usage = metric.usage[where]
    if rule.policy == MAX_USAGE_REQUEST:
        return max(request, usage)
    return request if where == _CPU and pod.qos is QoS.LSE else usage
