"""The Mid formulas, with every term explained.

`seed` and `seed-mixed` are "Mid-tier Overcommitment" of Koordinator's proposal "Node Prediction"; `upstream` is the
formula of Koordinator's manager, in its two reclaim modes, with its messages. Under each, the reclaimable amount is at
most what pods have requested by the manager's own count, and under the seed's at most that less the peak (see
`plausibility`).
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

import msgspec

from manager.nodeside.noderesource import plausibility, rounding
from manager.nodeside.noderesource.buffer import Learned
from manager.nodeside.noderesource.prod_first import Lesson
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.noderesource.rounding import GIGA, percent
from manager.nodeside.noderesource.situation import NodeSituation
from shared import explanation, names
from shared.api.colocation import ColocationStrategy, MidFormula
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.explanation import Explanation, ResourceExplanation, Term
from shared.names import PriorityClass

STATIC = "static"
RECLAIMABLE = "reclaimable"
REQUESTED = "prod_requested"
ALLOCATABLE = "allocatable"
PEAK = "prod_peak"
LIMIT = "reclaimable_limit"
LESSON = "prod_slowed_lately"
BUFFER = "buffer"
STATIC_RESERVED = "static_reserved"
UNALLOCATED_RATIO = "unallocated_ratio"
NO_LESSONS: Mapping[str, Lesson] = {}
_NOT_REPORTED = NodeReport("", "", "", NodeMetricSpec())

# Host applications of these classes take capacity from Mid; those without a class do not count.
_ABOVE_MID = frozenset({PriorityClass.PROD})


# Sources of terms; `{node}` stands for the node's name.
_PODS = "Pods on Node {node} above Mid, spec.containers requests"
_CAPACITY = "Node {node} status.capacity"
_ALLOCATABLE = "Node {node} status.allocatable"
_LIMIT = "what pods above Mid request, or did when the report was made"
_LIMIT_NOW = "what pods above Mid request"
_RECLAIMABLE = "NodeMetric {node} status.prodReclaimableMetric"
_PEAK = "NodeMetric {node} status.prodPeakMetric"
_UNUSED = "capacity - NodeMetric {node} status.nodeMetric.nodeUsage"
_RESERVED = "the larger of what Node {node} reserves and NodeMetric {node} system usage"


class _Axis(NamedTuple):
    """The differences between the two resources."""

    resource: str
    unit: str
    position: int
    message_name: str
    message_unit: int
    threshold_key: str
    static_key: str


_CPU = _Axis(names.CPU, "milli", 0, "CPU(milli-core)", 1, "midCPUThresholdPercent", "midStaticCPUReservedPercent")
_MEMORY = _Axis(
    names.MEMORY, "bytes", 1, "Memory(GB)", GIGA, "midMemoryThresholdPercent", "midStaticMemoryReservedPercent"
)


class _Inputs(msgspec.Struct, frozen=True, gc=False):
    """The inputs of one resource: situation and strategy."""

    axis: _Axis
    situation: NodeSituation
    report: NodeReport
    reclaimable: int
    threshold_percent: int
    static_percent: int
    unallocated_percent: int
    buffer_permille: int
    buffer_source: str
    lesson: Lesson | None

    @property
    def capacity(self) -> int:
        return self.situation.capacity[self.axis.position]

    @property
    def allocatable(self) -> int:
        return self.situation.allocatable[self.axis.position]

    @property
    def prod_requested(self) -> int:
        return self.situation.requested.prod[self.axis.position]

    def limited(self, *, seed: bool, lends_unallocated: bool) -> tuple[int, tuple[Term, ...]]:
        """The reclaimable amount, limited by the manager's own sums, and the limit's term where it applies.

        The requests are those of the report's time, unless unallocated capacity is lent as well: the requests of a pod
        that has ended since would count in both.
        """
        peak = self.report.peak[self.axis.position] if seed else None
        of = self.situation.requested.prod if lends_unallocated else self.situation.most_requested
        limit = plausibility.limit(of[self.axis.position], peak)
        if self.reclaimable <= limit:
            return self.reclaimable, ()
        source = (_LIMIT_NOW if lends_unallocated else _LIMIT) + ("" if peak is None else f", less {PEAK}")
        return limit, (Term(LIMIT, limit, self.axis.unit, source),)


def calculate(
    strategy: ColocationStrategy,
    situation: NodeSituation,
    learned: Learned | None = None,
    lessons: Mapping[str, Lesson] = NO_LESSONS,
) -> Explanation:
    """The Mid offer under the strategy's formula; freshness is not judged here. An unknown reclaimable counts as 0.

    `learned` is the buffer of this node, for `midBuffer: auto`; `lessons` are what it withholds by resource, since Prod
    has been slowed. See `reason` for the sentence.
    """
    cpu_held, memory_held = _held_back(strategy, learned)
    cpu = _along(_CPU, strategy, situation, cpu_held, lessons)
    memory = _along(_MEMORY, strategy, situation, memory_held, lessons)
    match strategy.formula:
        case MidFormula.UPSTREAM if strategy.mid_reclaim_mode == STATIC:
            return Explanation(_static(cpu), _static(memory))
        case MidFormula.UPSTREAM:
            return Explanation(_dynamic(cpu), _dynamic(memory))
        case MidFormula.SEED_MIXED:
            return Explanation(_seed(cpu, mixed=True), _seed(memory, mixed=True))
        case _:
            return Explanation(_seed(cpu, mixed=False), _seed(memory, mixed=False))


def reason(explained: Explanation) -> str:
    """The result on one line; in Koordinator's words for Koordinator's formula."""
    if any(term.name in (STATIC_RESERVED, UNALLOCATED_RATIO) for term in explained.cpu.terms):
        return f"{message(names.CPU, explained.cpu, exact=True)}; {message(names.MEMORY, explained.memory, exact=True)}"
    return summary(explained.cpu, explained.memory)


def summary(cpu: ResourceExplanation, memory: ResourceExplanation) -> str:
    """The result on one line: "cpu 1500m by reclaimable (requested 4, peak 2500m), memory 2.00 GiB by cap"."""
    return ", ".join(_said(axis, each) for axis, each in ((_CPU, cpu), (_MEMORY, memory)))


def _said(axis: _Axis, explained: ResourceExplanation) -> str:
    head = f"{axis.resource} {explanation.amount(explained.result, axis.unit)} by {explained.bound}"
    said = {term.name: explanation.amount(term.value, term.unit) for term in explained.terms}
    if not explained.bound.startswith(RECLAIMABLE) or PEAK not in said:
        return head
    held_back = f", buffer {said[BUFFER]}" if explained.bound.endswith(BUFFER) else ""
    lesson = f", {said[LESSON]} withheld since Prod was slowed" if LESSON in said else ""
    return f"{head} (requested {said[REQUESTED]}, peak {said[PEAK]}{lesson}{held_back})"


def message(resource: str, explained: ResourceExplanation, *, exact: bool = False) -> str:
    """Koordinator's message for a result of the `upstream` formula.

    `exact` adds the buffer, and the decimals and the bound of 0 that make its sum right.
    """
    axis = _CPU if resource == names.CPU else _MEMORY
    value = {term.name: term.value for term in explained.terms}
    unit, ratio = axis.message_unit, {name: f"{amount / 100:g}" for name, amount in value.items()}
    exactly = rounding.summed(unit, explained.result, lambda of: _evaluated(value, of))
    shown = exactly if exact else rounding.whole(unit)
    amount = {name: shown(each) for name, each in value.items()}
    head = f"midAllocatable[{axis.message_name}]:{shown(explained.result)}"
    buffer = f" - prodSlowed:{amount[LESSON]}" if exact and value.get(LESSON) else ""
    buffer += f" - buffer:{amount[BUFFER]}" if exact and value.get(BUFFER) else ""
    if STATIC_RESERVED in value:
        return (
            f"{head} = min(nodeCapacity:{amount['capacity']} * staticReservedPercent:{ratio[STATIC_RESERVED]}, "
            f"nodeCapacity:{amount['capacity']} * thresholdRatio:{ratio['threshold']}){buffer}"
        )
    reclaimable = LIMIT if LIMIT in value else RECLAIMABLE
    unused = f"min(ProdReclaimable:{amount[reclaimable]}, NodeUnused:{amount['node_unused']})"
    if exact and min(value[reclaimable], value["node_unused"]) < 0:
        unused = f"max(0, {unused})"
    unallocated = f"Unallocated:{amount['unallocated']} * midUnallocatedRatio:{ratio[UNALLOCATED_RATIO]}"
    return (
        f"{head} = min({unused} + {unallocated}, "
        f"NodeCapacity:{amount['capacity']} * thresholdRatio:{ratio['threshold']}){buffer}"
    )


def _evaluated(value: Mapping[str, int], of: rounding.Shown) -> Decimal:
    """The formula of a message, computed from the amounts as they are shown."""
    cap = of(value["capacity"]) * rounding.fraction(value["threshold"])
    if STATIC_RESERVED in value:
        uncapped = of(value["capacity"]) * rounding.fraction(value[STATIC_RESERVED])
    else:
        unused = min(of(value.get(LIMIT, value[RECLAIMABLE])), of(value["node_unused"]))
        uncapped = max(Decimal(0), unused) + of(value["unallocated"]) * rounding.fraction(value[UNALLOCATED_RATIO])
    return min(uncapped, cap) - of(value.get(LESSON, 0)) - of(value.get(BUFFER, 0))


def _held_back(strategy: ColocationStrategy, learned: Learned | None) -> tuple[tuple[int, str], tuple[int, str]]:
    """The held-back shares of cpu and memory, in thousandths, each with its source."""
    if isinstance(strategy.mid_buffer, int):
        fixed = (10 * strategy.mid_buffer, f"midBuffer {strategy.mid_buffer} %")
        return fixed, fixed
    if strategy.mid_buffer == "off" or learned is None:
        return (0, ""), (0, "")
    cpu, memory = learned
    return (cpu.permille, cpu.source), (memory.permille, memory.source)


def _along(
    axis: _Axis,
    strategy: ColocationStrategy,
    situation: NodeSituation,
    held: tuple[int, str],
    lessons: Mapping[str, Lesson],
) -> _Inputs:
    is_cpu = axis is _CPU
    report = situation.report or _NOT_REPORTED
    return _Inputs(
        axis,
        situation,
        report,
        0 if report.reclaimable is None else report.reclaimable[axis.position],
        strategy.mid_cpu_threshold_percent if is_cpu else strategy.mid_memory_threshold_percent,
        strategy.mid_static_cpu_reserved_percent if is_cpu else strategy.mid_static_memory_reserved_percent,
        strategy.mid_unallocated_percent or 0,
        *held,
        lessons.get(axis.resource),
    )


def _seed(of: _Inputs, *, mixed: bool) -> ResourceExplanation:
    """min(Reclaimable, NodeAllocatable * threshold), and with `mixed` + max(NodeAllocatable - Allocated[Prod], 0).

    The sum never exceeds NodeAllocatable, although a report with outdated requests could.
    """
    axis, allocatable, requested = of.axis, of.allocatable, of.prod_requested
    reclaimable, limit = of.limited(seed=True, lends_unallocated=mixed)
    cap = percent(allocatable, of.threshold_percent)
    offered = max(0, min(reclaimable, cap))
    bound = "cap" if reclaimable > cap else LIMIT if limit else RECLAIMABLE
    terms = [
        Term(REQUESTED, requested, axis.unit, _PODS),
        *_peak(of),
        Term(RECLAIMABLE, of.reclaimable, axis.unit, _RECLAIMABLE, of.report.updated),
        *limit,
        Term(ALLOCATABLE, allocatable, axis.unit, _ALLOCATABLE),
        Term("threshold", of.threshold_percent, "percent", axis.threshold_key),
        Term("cap", cap, axis.unit, "allocatable x threshold"),
    ]
    if mixed:
        unallocated = max(0, allocatable - requested)
        terms.append(Term("unallocated", unallocated, axis.unit, "allocatable - prod_requested"))
        offered += unallocated
        bound += " + unallocated"
        if offered > allocatable:
            offered, bound = max(0, allocatable), ALLOCATABLE
    return _buffered(of, terms, bound, offered)


def _dynamic(of: _Inputs) -> ResourceExplanation:
    """min(max0(min(Reclaimable, NodeUnused)) + Unallocated * ratio, NodeCapacity * threshold).

    Without reported usage nothing counts as unused. Without that or the system's usage of the resource, no unallocated
    capacity is lent.
    """
    axis, situation, capacity, requested = of.axis, of.situation, of.capacity, of.prod_requested
    where, unit, updated = axis.position, axis.unit, of.report.updated
    unused = 0 if of.report.usage is None else capacity - of.report.usage[where]
    reserved = max(situation.reserved[where], situation.system_usage(_ABOVE_MID)[where])
    unallocated = max(0, capacity - reserved - requested)
    is_known = of.report.usage is not None and not situation.lacks_system_usage(where, _ABOVE_MID)
    ratio = of.unallocated_percent if is_known else 0
    lent = percent(unallocated, ratio)
    reclaimable, limit = of.limited(seed=False, lends_unallocated=lent > 0)
    uncapped = max(0, min(reclaimable, unused)) + lent
    cap = percent(capacity, of.threshold_percent)
    terms = [
        Term(RECLAIMABLE, of.reclaimable, unit, _RECLAIMABLE, updated),
        *limit,
        Term("node_unused", unused, unit, _UNUSED, updated),
        Term("reserved", reserved, unit, _RESERVED, updated),
        Term(REQUESTED, requested, unit, _PODS),
        Term("unallocated", unallocated, unit, "capacity - reserved - prod_requested"),
        Term(UNALLOCATED_RATIO, ratio, "percent", "midUnallocatedPercent, 0 without reported usage of node and system"),
        *_cap(of, capacity, cap),
    ]
    if uncapped > cap:
        bound = "cap"
    else:
        bound = "node_unused" if reclaimable > unused else LIMIT if limit else RECLAIMABLE
        bound += " + unallocated" if ratio else ""
    return _buffered(of, terms, bound, min(uncapped, cap))


def _static(of: _Inputs) -> ResourceExplanation:
    """min(NodeCapacity * static share, NodeCapacity * threshold)."""
    capacity = of.capacity
    share, cap = percent(capacity, of.static_percent), percent(capacity, of.threshold_percent)
    terms = [Term(STATIC_RESERVED, of.static_percent, "percent", of.axis.static_key), *_cap(of, capacity, cap)]
    return _buffered(of, terms, "cap" if share > cap else STATIC_RESERVED, min(share, cap))


def _cap(of: _Inputs, capacity: int, cap: int) -> tuple[Term, ...]:
    """Koordinator's cap of Mid."""
    return (
        Term("capacity", capacity, of.axis.unit, _CAPACITY),
        Term("threshold", of.threshold_percent, "percent", of.axis.threshold_key),
        Term("cap", cap, of.axis.unit, "capacity x threshold"),
    )


def _buffered(of: _Inputs, terms: list[Term], bound: str, offered: int) -> ResourceExplanation:
    """The offer less what a lesson withholds, and less the share of midBuffer, which is shown even while it is 0."""
    if of.lesson is not None:
        taught = offered * (1000 - of.lesson.permille) // 1000
        terms.append(Term(LESSON, offered - taught, of.axis.unit, of.lesson.source))
        bound = f"{bound} - {LESSON}" if taught < offered else bound
        offered = taught
    if not of.buffer_source:
        return ResourceExplanation(tuple(terms), bound, offered)
    kept = offered * (1000 - of.buffer_permille) // 1000
    terms.append(Term(BUFFER, offered - kept, of.axis.unit, of.buffer_source))
    return ResourceExplanation(tuple(terms), f"{bound} - {BUFFER}" if kept < offered else bound, kept)


def _peak(of: _Inputs) -> tuple[Term, ...]:
    """The peak that the agent subtracted from the requests, if reported."""
    peak = of.report.peak[of.axis.position]
    return () if peak is None else (Term(PEAK, peak, of.axis.unit, _PEAK, of.report.updated),)
