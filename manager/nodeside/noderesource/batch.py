"""The Batch offer of a node, with every term explained.

    capacity - safety margin - max(system usage, reserved) - what pods above Batch use         policy usage
    capacity - safety margin - reserved - what pods above Batch request                        policy request
    capacity - safety margin - max(system usage, reserved) - sum of max(use, request)          policy maxUsageRequest

never below 0 and, with a threshold, never above that share of the capacity. This is Koordinator's formula, with its
messages and its peculiarities: `request` is a policy of memory alone, and ignores system usage; the sum of
`maxUsageRequest` leaves out pods without reported usage (within a NUMA zone it does not).
"""

from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from manager.nodeside.noderesource import rounding
from manager.nodeside.noderesource.report import ReportedUsage
from manager.nodeside.noderesource.rounding import GIGA
from manager.nodeside.noderesource.situation import NodeSituation
from manager.pods import PodRecord
from shared import names, quantity
from shared.api.colocation import ColocationStrategy
from shared.explanation import Explanation, ResourceExplanation, Term
from shared.names import PriorityClass, QoS
from shared.quantity import INT64_MAX, Resources

USAGE = "usage"
REQUEST = "request"
MAX_USAGE_REQUEST = "maxUsageRequest"
MARGIN = "safety_margin"
RESERVED = "reserved"
SYSTEM = "system_usage_or_reserved"
UNKNOWN_SYSTEM = "system usage unknown"
THRESHOLD = "threshold"
CAP = "cap"

# Pods of these classes do not precede Batch; all others do, also those without a class.
LOW_PRIORITY = frozenset({PriorityClass.BATCH, PriorityClass.FREE})


# Host applications of these classes take capacity from Batch; those without a class do not count.
HOST_APPLICATIONS_ABOVE = frozenset({PriorityClass.PROD, PriorityClass.MID})


class BatchRule(NamedTuple):
    """The strategy for one resource. A `threshold_percent` of None is no cap."""

    policy: str
    reclaim_percent: int
    threshold_percent: int | None

    def margin(self, capacity: int) -> int:
        """The share of the capacity that stays free; negative if more than all may be reclaimed."""
        return rounding.percent(capacity, 100 - self.reclaim_percent)

    def cap(self, capacity: int) -> int:
        return INT64_MAX if self.threshold_percent is None else rounding.percent(capacity, self.threshold_percent)

    def system_share(self, system: int, reserved: int) -> int:
        """The system's share of the node under the policy."""
        return reserved if self.policy == REQUEST else max(system, reserved)


class Above(NamedTuple):
    """The facts about a node's pods that Batch needs, regardless of reports.

    `pods` are those above Batch: key, requests, and whether the pod keeps its cpu when unused; `active` are the keys of
    all pods that hold their requests.
    """

    pods: tuple[tuple[str, int, int, bool], ...]
    requested: Resources
    active: frozenset[str]

    @classmethod
    def from_pods(cls, pods: Collection[PodRecord]) -> "Above":
        holding = [pod for pod in pods if pod.active]
        above = [pod for pod in holding if pod.priority_class not in LOW_PRIORITY]
        return cls(
            tuple((pod.key, *pod.requests, pod.qos is QoS.LSE) for pod in above),
            quantity.total([pod.requests for pod in above]),
            frozenset(pod.key for pod in holding),
        )


class _Axis(NamedTuple):
    """The differences between the two resources."""

    unit: str
    position: int
    message_name: str
    message_system: str
    message_unit: int
    reclaim_key: str
    threshold_key: str


_CPU = _Axis(
    unit="milli",
    position=0,
    message_name="CPU(Milli-Core)",
    message_system="systemUsageOrNodeReserved",
    message_unit=1,
    reclaim_key="cpuReclaimThresholdPercent",
    threshold_key="batchCPUThresholdPercent",
)
_MEMORY = _Axis(
    unit="bytes",
    position=1,
    message_name="Mem(GB)",
    message_system="systemUsage",
    message_unit=GIGA,
    reclaim_key="memoryReclaimThresholdPercent",
    threshold_key="batchMemoryThresholdPercent",
)

# By policy: the term for the pods, its source, and its name in Koordinator's messages.
_PODS = {
    USAGE: ("pod_hp_used", "used by pods above Batch, or requested where no usage is reported", "podHPUsed"),
    REQUEST: ("pod_hp_request", "requested by pods above Batch", "podHPRequest"),
    MAX_USAGE_REQUEST: (
        "pod_hp_max_used_request",
        "of each pod above Batch whose usage is reported, the larger of usage and request",
        "podHPMaxUsedRequest",
    ),
}


def calculate(strategy: ColocationStrategy, situation: NodeSituation, above: Above) -> Explanation:
    """The Batch offer under the strategy's policies; freshness is not judged here.

    A resource whose system usage is not reported is not offered, unless its policy ignores that usage.
    """
    reported: Mapping[str, ReportedUsage] = {} if situation.report is None else situation.report.pods
    rules = cpu_rule(strategy), memory_rule(strategy)
    pods = {policy: _sum(policy, above, reported) for policy in {rule.policy for rule in rules}}
    system = situation.system_usage(HOST_APPLICATIONS_ABOVE)
    cpu, memory = (
        _explained(axis, rule, situation, system, pods[rule.policy])
        for axis, rule in zip((_CPU, _MEMORY), rules, strict=True)
    )
    return Explanation(cpu, memory)


def reason(explained: Explanation) -> str:
    """The calculation in Koordinator's words, with sums that are right as they are shown."""
    return f"{message(names.CPU, explained.cpu, exact=True)}; {message(names.MEMORY, explained.memory, exact=True)}"


def cpu_rule(strategy: ColocationStrategy) -> BatchRule:
    policy = MAX_USAGE_REQUEST if strategy.cpu_calculate_policy == MAX_USAGE_REQUEST else USAGE
    return BatchRule(policy, strategy.cpu_reclaim_threshold_percent, strategy.batch_cpu_threshold_percent)


def memory_rule(strategy: ColocationStrategy) -> BatchRule:
    named = strategy.memory_calculate_policy
    policy = named if named in (REQUEST, MAX_USAGE_REQUEST) else USAGE
    return BatchRule(policy, strategy.memory_reclaim_threshold_percent, strategy.batch_memory_threshold_percent)


def used(above: Above, reported: Mapping[str, ReportedUsage]) -> Resources:
    """The usage of the active pods above Batch.

    A pod without reported usage uses its requests, of each resource by itself; an LSE pod keeps its cpu, used or not.
    Reported usage of a pod that does not exist (any more, or yet) counts by its reported class.
    """
    cpu_milli = memory_bytes = 0
    usage_of = reported.get
    for key, cpu, memory, keeps_cpu in above.pods:
        usage = usage_of(key)
        if usage is None:
            cpu_milli += cpu
            memory_bytes += memory
        else:
            cpu_milli += cpu if keeps_cpu or usage.cpu_milli is None else usage.cpu_milli
            memory_bytes += memory if usage.memory_bytes is None else usage.memory_bytes
    return _with_dangling(Resources(cpu_milli, memory_bytes), above, reported)


def most(above: Above, reported: Mapping[str, ReportedUsage]) -> Resources:
    """The sum of max(usage, request) over the pods above Batch with reported usage."""
    cpu_milli = memory_bytes = 0
    for key, cpu, memory, _ in above.pods:
        usage = reported.get(key)
        if usage is not None:
            cpu_milli += max(cpu, usage.cpu_milli or 0)
            memory_bytes += max(memory, usage.memory_bytes or 0)
    return _with_dangling(Resources(cpu_milli, memory_bytes), above, reported)


def _with_dangling(found: Resources, above: Above, reported: Mapping[str, ReportedUsage]) -> Resources:
    cpu_milli, memory_bytes = found
    for usage in dangling(above.active, reported):
        cpu_milli += usage.cpu_milli or 0
        memory_bytes += usage.memory_bytes or 0
    return Resources(cpu_milli, memory_bytes)


def _sum(policy: str, above: Above, reported: Mapping[str, ReportedUsage]) -> Resources:
    """The amount that a policy subtracts for the pods above Batch."""
    if policy == REQUEST:
        return above.requested
    return used(above, reported) if policy == USAGE else most(above, reported)


def dangling(active: frozenset[str], reported: Mapping[str, ReportedUsage]) -> Iterator[ReportedUsage]:
    """The reported usage of each pod above Batch that is not `active`."""
    for key in reported.keys() - active:
        if (metric := reported[key]).priority_class not in LOW_PRIORITY:
            yield metric


def message(resource: str, explained: ResourceExplanation, *, exact: bool = False) -> str:
    """Koordinator's message for a result; `exact` adds the decimals and the bound of 0 that make its sum right.

    For memory by usage under a threshold, Koordinator's message names maxUsageRequest; this one does not.
    """
    axis = _CPU if resource == names.CPU else _MEMORY
    value = {term.name: term.value for term in explained.terms}
    if explained.bound == UNKNOWN_SYSTEM:
        head = f"batchAllocatable[{axis.message_name}]:0"
        where = "status.nodeMetric.systemUsage or status.hostApplicationMetric"
        return f"{head}, since the NodeMetric lacks {resource} in {where}"
    pods, name = next((pods, name) for pods, _, name in _PODS.values() if pods in value)
    system, taken = (axis.message_system, SYSTEM) if SYSTEM in value else ("nodeReserved", RESERVED)
    subtracted = (MARGIN, taken, pods)

    def formula(of: rounding.Shown) -> Decimal:
        left = max(Decimal(0), of(value["capacity"]) - sum(of(value[each]) for each in subtracted))
        return (
            left if THRESHOLD not in value else min(of(value["capacity"]) * rounding.fraction(value[THRESHOLD]), left)
        )

    unit = axis.message_unit
    shown = rounding.summed(unit, explained.result, formula) if exact else rounding.whole(unit)
    capacity = f"nodeCapacity:{shown(value['capacity'])}"
    difference = (
        f"{capacity} - nodeSafetyMargin:{shown(value[MARGIN])} - "
        f"{system}:{shown(value[taken])} - {name}:{shown(value[pods])}"
    )
    if exact and value["capacity"] < sum(value[each] for each in subtracted):
        difference = f"max(0, {difference})"
    head = f"batchAllocatable[{axis.message_name}]:{shown(explained.result)}"
    if THRESHOLD not in value:
        return f"{head} = {difference}"
    return f"{head} = min({capacity} * thresholdRatio:{rounding.ratio(value[THRESHOLD])}, {difference})"


def _explained(
    axis: _Axis, rule: BatchRule, situation: NodeSituation, system: Resources, above: Resources
) -> ResourceExplanation:
    unit, where = axis.unit, axis.position
    capacity, reserved, used = situation.capacity[where], situation.reserved[where], system[where]
    updated = None if situation.report is None else situation.report.updated
    margin, taken, pods = rule.margin(capacity), rule.system_share(used, reserved), above[where]
    terms = [
        Term("capacity", capacity, unit, "Node {node} status.capacity"),
        Term(MARGIN, margin, unit, f"capacity x (100 - {axis.reclaim_key} {rule.reclaim_percent}) %"),
        Term(RESERVED, reserved, unit, "the larger of what the kubelet withholds and the node's annotation reserves"),
    ]
    if rule.policy != REQUEST:
        terms.append(Term("system_usage", used, unit, "NodeMetric {node} status, with host applications", updated))
        terms.append(Term(SYSTEM, taken, unit, "the larger of system_usage and reserved"))
    name, source, _ = _PODS[rule.policy]
    if rule.policy != REQUEST and situation.lacks_system_usage(where, HOST_APPLICATIONS_ABOVE):
        return ResourceExplanation(tuple(terms), UNKNOWN_SYSTEM, 0)
    terms.append(Term(name, pods, unit, source, updated))
    left = max(0, capacity - margin - taken - pods)
    if rule.threshold_percent is None:
        return ResourceExplanation(tuple(terms), rule.policy, min(left, INT64_MAX))
    cap = rule.cap(capacity)
    terms.append(Term("uncapped", left, unit, f"policy {rule.policy}"))
    terms.append(Term(THRESHOLD, rule.threshold_percent, "percent", axis.threshold_key))
    terms.append(Term(CAP, cap, unit, "capacity x threshold"))
    return ResourceExplanation(tuple(terms), CAP if left > cap else rule.policy, min(left, cap))
