"""The Mid formulas, each term of them explained.

`seed` and `seed-mixed` are "Mid-tier Overcommitment" of Koordinator's proposal "Node Prediction"; `upstream` is what
Koordinator's manager computes, in its two reclaim modes, with its messages. Percentages are taken as Go does,
`int(amount * (percent / 100))`, so that the numbers agree to the last unit.
"""

from typing import NamedTuple

from manager.noderesource.situation import Situation
from shared import explanation, names, quantity
from shared.api.colocation import ColocationStrategy, MidFormula
from shared.explanation import Explanation, ResourceExplanation, Term

STATIC = "static"
RECLAIMABLE = "reclaimable"
REQUESTED = "prod_requested"
PEAK = "prod_peak"
_GIGA = 10**9


class _Axis(NamedTuple):
    """What distinguishes one resource from the other."""

    resource: str
    unit: str
    position: int
    message_name: str
    message_unit: int


_CPU = _Axis(names.CPU, "milli", 0, "CPU(milli-core)", 1)
_MEMORY = _Axis(names.MEMORY, "bytes", 1, "Memory(GB)", _GIGA)


class _Inputs(NamedTuple):
    """A situation and a strategy, seen along one axis."""

    axis: _Axis
    situation: Situation
    capacity: int
    allocatable: int
    reclaimable: int
    threshold_percent: int
    static_percent: int
    unallocated_percent: int
    buffer_percent: int

    def of(self, name: str, value: int, source: str, unit: str | None = None) -> Term:
        """A term; those that come from the NodeMetric carry its time."""
        reported = source.startswith("NodeMetric")
        return Term(name, value, unit or self.axis.unit, source, self.situation.updated if reported else None)


def calculate(strategy: ColocationStrategy, situation: Situation) -> Explanation:
    """What Mid is by the strategy's formula; freshness is not judged here. An unknown reclaimable counts as 0."""
    cpu, memory = (_along(axis, strategy, situation) for axis in (_CPU, _MEMORY))
    if strategy.formula is MidFormula.UPSTREAM:
        static = strategy.mid_reclaim_mode == STATIC
        results = [_static(each) if static else _dynamic(each) for each in (cpu, memory)]
        reason = "; ".join(
            message(each.axis.resource, result) for each, result in zip((cpu, memory), results, strict=True)
        )
        return Explanation(results[0], results[1], reason)
    mixed = strategy.formula is MidFormula.SEED_MIXED
    explained = [_seed(each, mixed=mixed) for each in (cpu, memory)]
    return Explanation(explained[0], explained[1], summary(explained[0], explained[1]))


def summary(cpu: ResourceExplanation, memory: ResourceExplanation) -> str:
    """The result on one line: "cpu 1500m by reclaimable (requested 4, peak 2500m), memory 2.00 GiB by cap"."""
    return ", ".join(_said(axis, each) for axis, each in ((_CPU, cpu), (_MEMORY, memory)))


def _said(axis: _Axis, explained: ResourceExplanation) -> str:
    head = f"{axis.resource} {explanation.amount(explained.result, axis.unit)} by {explained.bound}"
    said = {term.name: explanation.amount(term.value, term.unit) for term in explained.terms}
    if not explained.bound.startswith(RECLAIMABLE) or PEAK not in said:
        return head
    return f"{head} (requested {said[REQUESTED]}, peak {said[PEAK]})"


def message(resource: str, explained: ResourceExplanation) -> str:
    """Koordinator's message for a result of the `upstream` formula."""
    axis = _CPU if resource == names.CPU else _MEMORY
    value = {term.name: term.value for term in explained.terms}
    shown = {name: _scaled(amount, axis.message_unit) for name, amount in value.items()}
    ratio = {name: f"{percent / 100:g}" for name, percent in value.items()}
    head = f"midAllocatable[{axis.message_name}]:{_scaled(explained.result, axis.message_unit)}"
    if "static_reserved" in value:
        return (
            f"{head} = min(nodeCapacity:{shown['capacity']} * staticReservedPercent:{ratio['static_reserved']}, "
            f"nodeCapacity:{shown['capacity']} * thresholdRatio:{ratio['threshold']})"
        )
    return (
        f"{head} = min(min(ProdReclaimable:{shown['reclaimable']}, NodeUnused:{shown['node_unused']}) + "
        f"Unallocated:{shown['unallocated']} * midUnallocatedRatio:{ratio['unallocated_ratio']}, "
        f"NodeCapacity:{shown['capacity']} * thresholdRatio:{ratio['threshold']})"
    )


def _along(axis: _Axis, strategy: ColocationStrategy, situation: Situation) -> _Inputs:
    is_cpu = axis is _CPU
    reclaimable = situation.reclaimable
    return _Inputs(
        axis=axis,
        situation=situation,
        capacity=situation.capacity[axis.position],
        allocatable=situation.allocatable[axis.position],
        reclaimable=0 if reclaimable is None else reclaimable[axis.position],
        threshold_percent=strategy.mid_cpu_threshold_percent if is_cpu else strategy.mid_memory_threshold_percent,
        static_percent=(
            strategy.mid_static_cpu_reserved_percent if is_cpu else strategy.mid_static_memory_reserved_percent
        ),
        unallocated_percent=strategy.mid_unallocated_percent or 0,
        buffer_percent=strategy.buffer_percent,
    )


def _seed(of: _Inputs, *, mixed: bool) -> ResourceExplanation:
    """min(Reclaimable, NodeAllocatable * threshold), and with `mixed` + max(NodeAllocatable - Allocated[Prod], 0)."""
    cap = _percent(of.allocatable, of.threshold_percent)
    offered = max(0, min(of.reclaimable, cap))
    bound = "cap" if of.reclaimable > cap else RECLAIMABLE
    prod_requested = of.situation.requested.prod[of.axis.position]
    terms = [
        of.of(REQUESTED, prod_requested, "requests of pods above Mid"),
        *_peak(of),
        _reclaimable(of),
        of.of("allocatable", of.allocatable, f"Node {of.situation.node} status.allocatable"),
        _threshold(of),
        of.of("cap", cap, "allocatable x threshold"),
    ]
    if mixed:
        unallocated = max(0, of.allocatable - prod_requested)
        terms.append(of.of("unallocated", unallocated, "allocatable - prod_requested"))
        offered += unallocated
        bound += " + unallocated"
    return _buffered(of, terms, bound, offered)


def _dynamic(of: _Inputs) -> ResourceExplanation:
    """min(max0(min(Reclaimable, NodeUnused)) + Unallocated * ratio, NodeCapacity * threshold)."""
    where, situation = of.axis.position, of.situation
    unused = 0 if situation.usage is None else of.capacity - situation.usage[where]
    reserved = max(situation.reserved[where], situation.system_usage[where])
    prod_requested = situation.requested.prod[where]
    unallocated = max(0, of.capacity - reserved - prod_requested)
    uncapped = max(0, min(of.reclaimable, unused)) + _percent(unallocated, of.unallocated_percent)
    cap = _percent(of.capacity, of.threshold_percent)
    terms = [
        _reclaimable(of),
        of.of("node_unused", unused, f"capacity - NodeMetric {situation.node} status.nodeMetric.nodeUsage"),
        of.of("reserved", reserved, "the larger of the node's reservation and system usage"),
        of.of(REQUESTED, prod_requested, "requests of pods above Mid"),
        of.of("unallocated", unallocated, "capacity - reserved - prod_requested"),
        of.of("unallocated_ratio", of.unallocated_percent, "midUnallocatedPercent", "percent"),
        _capacity(of),
        _threshold(of),
        of.of("cap", cap, "capacity x threshold"),
    ]
    if uncapped > cap:
        bound = "cap"
    else:
        bound = RECLAIMABLE if of.reclaimable <= unused else "node_unused"
        bound += " + unallocated" if of.unallocated_percent else ""
    return _buffered(of, terms, bound, min(uncapped, cap))


def _static(of: _Inputs) -> ResourceExplanation:
    """min(NodeCapacity * static share, NodeCapacity * threshold)."""
    share = _percent(of.capacity, of.static_percent)
    cap = _percent(of.capacity, of.threshold_percent)
    terms = [
        _capacity(of),
        of.of("static_reserved", of.static_percent, "the strategy's static share", "percent"),
        _threshold(of),
        of.of("cap", cap, "capacity x threshold"),
    ]
    return _buffered(of, terms, "cap" if share > cap else "static_reserved", min(share, cap))


def _buffered(of: _Inputs, terms: list[Term], bound: str, offered: int) -> ResourceExplanation:
    """The offer without the share that midBuffer holds back."""
    if not of.buffer_percent:
        return ResourceExplanation(tuple(terms), bound, offered)
    kept = _percent(offered, 100 - of.buffer_percent)
    buffer = of.of("buffer", offered - kept, f"midBuffer {of.buffer_percent} %")
    return ResourceExplanation((*terms, buffer), f"{bound} - buffer", kept)


def _peak(of: _Inputs) -> list[Term]:
    """What the agent subtracted from the requests; an agent need not say."""
    peak = of.situation.peak
    source = f"NodeMetric {of.situation.node} status.prodPeakMetric"
    return [] if peak is None else [of.of(PEAK, peak[of.axis.position], source)]


def _reclaimable(of: _Inputs) -> Term:
    return of.of(RECLAIMABLE, of.reclaimable, f"NodeMetric {of.situation.node} status.prodReclaimableMetric")


def _capacity(of: _Inputs) -> Term:
    return of.of("capacity", of.capacity, f"Node {of.situation.node} status.capacity")


def _threshold(of: _Inputs) -> Term:
    key = "midCPUThresholdPercent" if of.axis is _CPU else "midMemoryThresholdPercent"
    return of.of("threshold", of.threshold_percent, key, "percent")


def _percent(amount: int, percent: int) -> int:
    # A static share has no upper bound, and a product beyond all doubles is no int.
    return int(min(amount * (percent / 100), quantity.INT64_MAX))


def _scaled(amount: int, unit: int) -> int:
    """In units, rounded away from zero, as Quantity.ScaledValue does."""
    return -(-amount // unit) if amount >= 0 else amount // unit
