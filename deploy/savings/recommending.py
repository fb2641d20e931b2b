"""The rules for requests and limits per container. Pure.

cpu: the 95th percentile of the busiest replica's busiest day, plus a margin. memory: the largest sample of any replica,
plus a margin, or the amount that a kernel kill proves necessary. A value stays, with the reason, if too little is
known, if a HorizontalPodAutoscaler would undo the change, or if it is the amount that a JVM's heap was given.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from deploy.savings import vpa
from deploy.savings.usage import ContainerUse, KnownUsage, ResourceUse
from deploy.savings.workloads import ContainerRole, WorkloadContainer
from shared.quantity import MILLI_PER_CORE

MIB = 1 << 20
LEAST_DAYS_TO_LOWER = 1.0  # days of history before memory is lowered
WEEK_DAYS = 7.0
THROTTLED = 0.05  # share of throttled periods from which cpu is not lowered


class EstimatorName(enum.StrEnum):
    HEADROOM = "headroom"
    VPA = "vpa"


class LimitPolicy(enum.StrEnum):
    KEEP = "keep"  # a memory limit below the need is raised, and none is lowered
    RATIO = "ratio"  # the ratio of limit to request stays
    REQUEST = "request"  # memory's limit equals its request, cpu has none


class Risk(enum.StrEnum):
    """The risk of applying the line."""

    NONE = "none"  # nothing is lowered
    LOW = "low"  # lowered values stay above all usage
    MEDIUM = "medium"  # cpu falls below its largest sample, or less than a week was seen
    HIGH = "high"  # less than a day was seen


class DecidingRule(enum.StrEnum):
    """The rule that decided about a resource."""

    QUANTILE = "quantile"
    PEAK = "peak"
    OOM = "oom"
    FLOOR = "floor"
    VPA = "vpa"
    SMALL_CHANGE = "small change"
    HPA = "hpa"
    JVM = "jvm"
    SHORT = "too little history"
    RESTARTS = "restarts"
    THROTTLED = "throttled"
    NO_DATA = "no data"
    INIT = "init container"


@dataclass(frozen=True)
class RecommendationRules:
    """Margins and `least_change` are shares; floors are in thousandths of a core and bytes."""

    estimator: EstimatorName = EstimatorName.HEADROOM
    limits: LimitPolicy = LimitPolicy.KEEP
    cpu_margin: float = 0.15
    memory_margin: float = 0.15
    cpu_floor: int = 10
    memory_floor: int = 32 * MIB
    least_change: float = 0.10
    least_cpu_change: int = 25
    least_memory_change: int = 64 * MIB
    least_points: int = 100
    minds_hpa: bool = True


class Proposal(NamedTuple):
    """A proposal for one resource: thousandths of a core, or bytes; None for unset amounts. `detail` is a sentence."""

    request: int | None
    limit: int | None
    reason: DecidingRule
    detail: str
    wanted: int | None = None  # the rule's result, if the request stays


@dataclass(frozen=True)
class ContainerRecommendation:
    container: WorkloadContainer
    use: ContainerUse | None
    cpu: Proposal
    memory: Proposal
    risk: Risk
    confidence: str

    @property
    def changes(self) -> bool:
        now = self.container
        return (self.cpu.request, self.memory.request, self.cpu.limit, self.memory.limit) != (
            now.cpu_request,
            now.memory_request,
            now.cpu_limit,
            now.memory_limit,
        )

    @property
    def saved(self) -> tuple[int, int]:
        """Thousandths of a core and bytes that all replicas request less; negative for more."""
        now = self.container
        if now.role is ContainerRole.INIT or not self.changes:
            return 0, 0
        pairs = zip(now.requested, (self.cpu.request, self.memory.request), strict=True)
        cpu, memory = (0 if after is None else before - after * now.replicas for before, after in pairs)
        return cpu, memory


def recommend(
    containers: Iterable[WorkloadContainer], known: KnownUsage, rules: RecommendationRules
) -> list[ContainerRecommendation]:
    return [_container(each, known.uses.get(each.key), rules) for each in containers]


def _container(now: WorkloadContainer, use: ContainerUse | None, rules: RecommendationRules) -> ContainerRecommendation:
    blocked = _unknown(now, use, rules)
    if blocked is not None or use is None:
        reason, detail = blocked or (DecidingRule.NO_DATA, "no source has its usage")
        cpu = Proposal(now.cpu_request, now.cpu_limit, reason, detail)
        memory = Proposal(now.memory_request, now.memory_limit, reason, detail)
        return ContainerRecommendation(now, use, cpu, memory, Risk.NONE, "none")
    cpu = _limited_cpu(_cpu(now, use, rules), now, rules)
    memory = _limited_memory(_memory(now, use, rules), now, use, rules)
    return ContainerRecommendation(now, use, cpu, memory, _risk(now, use, cpu, memory), _confidence(use))


def _unknown(
    now: WorkloadContainer, use: ContainerUse | None, rules: RecommendationRules
) -> tuple[DecidingRule, str] | None:
    if use is None:
        return DecidingRule.NO_DATA, "no source has its usage"
    if now.role is ContainerRole.INIT:
        return (
            DecidingRule.INIT,
            "it ends before the other containers start, so its request does not count while theirs is larger",
        )
    if use.points < rules.least_points and not now.killed:
        return DecidingRule.NO_DATA, f"{use.points} of {rules.least_points} required samples"
    return None


def _cpu(now: WorkloadContainer, use: ContainerUse, rules: RecommendationRules) -> Proposal:
    if use.cpu is None:
        return Proposal(now.cpu_request, now.cpu_limit, DecidingRule.NO_DATA, "no source has its cpu usage")
    if rules.estimator is EstimatorName.VPA and use.history is not None:
        wanted, reason = use.history.target(now.containers).cpu_milli, DecidingRule.VPA
        detail = f"VPA's target, 90 % of {use.history.samples} samples, with a half-life of a day, and 15 %"
    else:
        wanted, reason = -int(-use.cpu.quantile * (1 + rules.cpu_margin) * MILLI_PER_CORE // 1), DecidingRule.QUANTILE
        detail = f"p95 {use.cpu.quantile * MILLI_PER_CORE:.0f}m of {use.cpu.busiest}, and {rules.cpu_margin:.0%}"
        if wanted < rules.cpu_floor:
            wanted, reason, detail = rules.cpu_floor, DecidingRule.FLOOR, f"no less than {rules.cpu_floor}m; {detail}"

    def stays(why: DecidingRule, what: str) -> Proposal:
        return Proposal(now.cpu_request, now.cpu_limit, why, what, wanted)

    before = now.cpu_request
    percent = None if now.scaling is None else now.scaling.cpu_percent
    if percent and rules.minds_hpa and before is not None:
        rule = now.scaling
        held = use.cpu.median / percent * 100 * MILLI_PER_CORE
        what = (
            f"HorizontalPodAutoscaler {rule.name if rule else ''} keeps it at {percent} % of its request: another one "
            f"changes the replicas; {held:.0f}m would fit the usual load of each replica"
        )
        return stays(DecidingRule.HPA, what)
    if before is None:
        return Proposal(wanted, now.cpu_limit, reason, f"{detail}; none was set")
    if wanted < before:
        if use.throttled is not None and use.throttled > THROTTLED:
            return stays(DecidingRule.THROTTLED, f"its limit throttled it in {use.throttled:.0%} of periods")
        if use.cpu.days < LEAST_DAYS_TO_LOWER:
            return stays(DecidingRule.SHORT, f"{use.cpu.days:.1f} days are known; a request is lowered only after one")
    if not _is_worth_it(before, wanted, rules.least_change, rules.least_cpu_change):
        return stays(
            DecidingRule.SMALL_CHANGE, f"less than {rules.least_change:.0%} or {rules.least_cpu_change}m; {detail}"
        )
    return Proposal(wanted, now.cpu_limit, reason, detail)


def _memory(now: WorkloadContainer, use: ContainerUse, rules: RecommendationRules) -> Proposal:
    if use.memory is None:
        return Proposal(now.memory_request, now.memory_limit, DecidingRule.NO_DATA, "no source has its memory usage")
    killed = (*now.killed, *use.killed)
    if rules.estimator is EstimatorName.VPA and use.history is not None:
        wanted, reason = use.history.target(now.containers).memory_bytes, DecidingRule.VPA
        detail = "VPA's target, 90 % of the days' peaks, and 15 %"
    else:
        wanted, reason = _whole_mib(use.memory.most * (1 + rules.memory_margin)), DecidingRule.PEAK
        detail = f"peak {use.memory.most / MIB:.0f}Mi of {use.memory.busiest}, and {rules.memory_margin:.0%}"
        if killed and (needed := _whole_mib(vpa.oom_need(max(killed)))) > wanted:
            wanted, reason = needed, DecidingRule.OOM
            detail = f"killed with {max(killed) / MIB:.0f}Mi: a fifth more, or 100Mi"
        if wanted < rules.memory_floor:
            wanted, reason = rules.memory_floor, DecidingRule.FLOOR
            detail = f"no less than {rules.memory_floor / MIB:.0f}Mi; {detail}"

    def stays(why: DecidingRule, what: str) -> Proposal:
        return Proposal(now.memory_request, now.memory_limit, why, what, wanted)

    before = now.memory_request
    if now.is_java and reason is not DecidingRule.OOM:
        what = "memory use of a JVM follows its heap setting, so the recommendation keeps the current request: "
        return stays(DecidingRule.JVM, what + "set the heap, then the request")
    if now.scaling is not None and now.scaling.memory_percent and rules.minds_hpa and before is not None:
        what = f"HorizontalPodAutoscaler {now.scaling.name} keeps it at {now.scaling.memory_percent} % of its request"
        return stays(DecidingRule.HPA, what)
    if before is None:
        return Proposal(wanted, now.memory_limit, reason, f"{detail}; none was set")
    if wanted < before:
        if killed:
            return stays(DecidingRule.RESTARTS, f"killed for its memory {len(killed)} times")
        if use.memory.days < LEAST_DAYS_TO_LOWER:
            return stays(
                DecidingRule.SHORT, f"{use.memory.days:.1f} days are known; a request is lowered only after one"
            )
    if reason is not DecidingRule.OOM and not _is_worth_it(
        before, wanted, rules.least_change, rules.least_memory_change
    ):
        least = f"{rules.least_memory_change / MIB:.0f}Mi"
        return stays(DecidingRule.SMALL_CHANGE, f"less than {rules.least_change:.0%} or {least}; {detail}")
    return Proposal(wanted, now.memory_limit, reason, detail)


def _is_worth_it(before: int, wanted: int, share: float, least: int) -> bool:
    """Whether a change is so large that the next day would not undo it."""
    return abs(wanted - before) >= max(share * before, least)


def _limited_cpu(made: Proposal, now: WorkloadContainer, rules: RecommendationRules) -> Proposal:
    if now.cpu_limit is None or made.request is None:
        return made
    match rules.limits:
        case LimitPolicy.REQUEST:
            limit = None
        case LimitPolicy.RATIO if now.cpu_request:
            limit = round(now.cpu_limit / now.cpu_request * made.request)
        case _:
            limit = max(now.cpu_limit, made.request)
    return made._replace(limit=limit)


def _limited_memory(made: Proposal, now: WorkloadContainer, use: ContainerUse, rules: RecommendationRules) -> Proposal:
    if made.request is None:
        return made
    if rules.limits is LimitPolicy.REQUEST:
        return made._replace(limit=made.request)
    if now.memory_limit is None:
        return made
    if rules.limits is LimitPolicy.RATIO and now.memory_request:
        peak = use.memory.most if use.memory else 0.0
        limit = round(now.memory_limit / now.memory_request * made.request)
        return made._replace(limit=max(limit, _whole_mib(peak)))
    return made._replace(limit=max(now.memory_limit, made.request))


def _whole_mib(amount: float) -> int:
    return -int(-amount // MIB) * MIB


def _confidence(use: ContainerUse) -> str:
    if use.days >= WEEK_DAYS:
        return "high"
    return "weekly cycle not seen" if use.days >= LEAST_DAYS_TO_LOWER else "low"


def _risk(now: WorkloadContainer, use: ContainerUse, cpu: Proposal, memory: Proposal) -> Risk:
    lowers_cpu = (cpu.request or 0) < (now.cpu_request or 0)
    lowers_memory = (memory.request or 0) < (now.memory_request or 0)
    if not lowers_cpu and not lowers_memory:
        return Risk.NONE
    if use.days < LEAST_DAYS_TO_LOWER:
        return Risk.HIGH
    if use.days < WEEK_DAYS or use.gaps or use.shared or (lowers_cpu and _below(use.cpu, cpu, MILLI_PER_CORE)):
        return Risk.MEDIUM
    return Risk.MEDIUM if lowers_memory and _below(use.memory, memory, 1) else Risk.LOW


def _below(use: ResourceUse | None, made: Proposal, scale: int) -> bool:
    return use is None or (made.request or 0) < use.most * scale
