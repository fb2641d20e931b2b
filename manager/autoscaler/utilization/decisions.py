"""The decision of one scan of one group, and its reasons in one line each. Nothing here acts."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.utilization.arithmetic import GroupUtilization
from manager.autoscaler.utilization.classes import Classes
from manager.autoscaler.utilization.memory import Breaker
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.reaping import Reaping
from manager.autoscaler.utilization.rules import ScanRules
from shared.explanation import ScaleExplanation, Term
from shared.names import CPU, MEMORY
from shared.quantity import Resources


class ScanRule(enum.StrEnum):
    """The rule that set how many nodes to add or remove."""

    NOTHING_THERE = "neither nodes nor pods"
    BELOW_MIN = "below the minimum"
    LOCKED = "a scale-up is under way"
    ON_ITS_WAY = "as many nodes as are wanted are on their way"
    FAST_REMOVAL = "below the lower threshold"
    SLOW_REMOVAL = "below the upper threshold"
    SCALE_UP = "above the scale-up threshold"
    ENOUGH = "between the thresholds"
    STARVING = "a pod does not fit on the free capacity of any node"
    TOO_OLD = "a node is too old"
    ABOVE_MAX = "above the maximum"
    UNHEALTHY = "too many new nodes are unhealthy"
    COOLING_DOWN = "nodes were tainted a short time ago"


@dataclass(frozen=True, slots=True)
class ScanStep:
    """One rule that applied, and the delta after it."""

    rule: ScanRule
    delta: int


@dataclass(frozen=True, slots=True)
class Picks:
    """The first `count` of the candidates; if a write fails, the next candidate is taken instead."""

    candidates: tuple[GroupNode, ...] = ()
    count: int = 0

    @property
    def planned(self) -> tuple[GroupNode, ...]:
        return self.candidates[: self.count]


@dataclass(frozen=True, slots=True)
class Fullness:
    """The values compared with the thresholds: demand on the capacity of untainted nodes."""

    requested: Resources = field(default_factory=Resources)
    demand: Resources = field(default_factory=Resources)
    capacity: Resources = field(default_factory=Resources)
    utilization: GroupUtilization | None = None


@dataclass(frozen=True, slots=True)
class ScanThresholds:
    """In percent: below `lower` a group loses nodes fast, below `upper` slowly, above `scale_up` it grows."""

    lower: int
    upper: int
    scale_up: int


@dataclass(frozen=True)
class ScanDecision:
    """`delta` is the wanted change, before clamps, as Escalator reports it; `error` says why the scan failed.

    The actions, in this order: taint `health_taints`, delete the nodes of `forced`, then those of `reaped`, drain
    `drains`, and either `taint`, or `untaint` and raise the cloud's target by `increase`, at most by `most_increase`.
    `refusals` names the parts that cannot be done. A `dry` decision does nothing. `healthy` is None where it was not
    checked. `arrived` are nodes created since the scale-up whose lock ended.
    """

    group: str
    delta: int = 0
    error: str = ""
    steps: tuple[ScanStep, ...] = ()
    classes: Classes = field(default_factory=Classes)
    fullness: Fullness = field(default_factory=Fullness)
    health_taints: tuple[GroupNode, ...] = ()
    forced: Reaping = field(default_factory=Reaping)
    reaped: Reaping = field(default_factory=Reaping)
    taint: Picks = Picks()
    untaint: Picks = Picks()
    increase: int = 0
    most_increase: int = 0
    refusals: tuple[str, ...] = ()
    healthy: bool | None = None
    arrived: tuple[GroupNode, ...] = ()
    locked: bool = False
    dry: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    thresholds: ScanThresholds = ScanThresholds(0, 0, 0)

    @property
    def deletions(self) -> tuple[GroupNode, ...]:
        return (*self.forced.nodes, *self.reaped.nodes)

    def increase_after(self, untainted: int) -> int:
        """The increase of the cloud's target if only this many nodes could be untainted."""
        return min(self.increase + self.untaint.count - untainted, self.most_increase)

    @property
    def drains(self) -> tuple[GroupNode, ...]:
        """Nodes whose pods are evicted; the scan that finds them empty deletes them."""
        return self.reaped.draining

    @property
    def target_change(self) -> int:
        """The change of the cloud's target once all actions are done."""
        return 0 if self.dry else self.increase - len(self.deletions)

    @property
    def writes(self) -> bool:
        """Whether there is anything to do."""
        to_do = (*self.health_taints, *self.deletions, *self.drains, *self.taint.planned, *self.untaint.planned)
        return not self.dry and bool(to_do or self.increase)


_THRESHOLDS: Mapping[str, str] = {
    ScanRule.FAST_REMOVAL: "taint_lower_capacity_threshold_percent",
    ScanRule.SLOW_REMOVAL: "taint_upper_capacity_threshold_percent",
    ScanRule.SCALE_UP: "scale_up_threshold_percent",
}


def explain_delta(rules: ScanRules, decision: ScanDecision) -> ScaleExplanation:
    """Why nodes are tainted, untainted or requested."""
    rule = decision.steps[-1].rule if decision.steps else ""
    terms = terms_of(decision)
    if rule == ScanRule.BELOW_MIN:
        reason = f"{rule}: {len(decision.classes.untainted)} nodes take pods, min_nodes is {_min_nodes(rules)}"
        return ScaleExplanation(reason, terms, rule, decision.delta)
    full, threshold = fullness_reason(decision), _THRESHOLDS.get(rule)
    compared = [f"{threshold} is {getattr(rules.group, threshold)}"] if threshold else []
    facts = ", ".join([*([full] if full else []), *compared])
    return ScaleExplanation(": ".join(filter(None, (rule, facts))), terms, rule, decision.delta)


def terms_of(decision: ScanDecision) -> tuple[Term, ...]:
    """The values compared with the thresholds, and the thresholds."""
    used, group = decision.fullness.utilization, f"group {decision.group}"
    shares = () if used is None or used.is_from_zero else ((CPU, used.cpu_percent), (MEMORY, used.memory_percent))
    values = (("lower", "lower"), ("upper", "upper"), ("scaleUp", "scale_up"))
    return (
        *(Term(f"{name}Utilization", round(100 * of), "basisPoints", "untainted nodes") for name, of in shares),
        *(Term(f"{name}Threshold", getattr(decision.thresholds, key), "percent", group) for name, key in values),
        Term("untainted", len(decision.classes.untainted), "nodes", group),
    )


def fullness_reason(decision: ScanDecision) -> str:
    """The utilization of the nodes that take pods."""
    found = decision.fullness.utilization
    if found is None:
        return ""
    if found.is_from_zero:
        return "pods exist and no nodes"
    resource = "cpu" if found.cpu_percent >= found.memory_percent else "memory"
    return f"{found.percent:.1f} % of {resource}"


def health_reason(rules: ScanRules) -> ScaleExplanation:
    return ScaleExplanation(f"not ready, unhealthy_node_grace_period is {rules.group.unhealthy_node_grace_period}")


def deletion_reason(reaping: Reaping) -> ScaleExplanation:
    return ScaleExplanation(", ".join(sorted({str(each.why) for each in reaping.statuses if each.goes})))


def drain_reason(reaping: Reaping) -> ScaleExplanation:
    return ScaleExplanation(", ".join(sorted({str(each.why) for each in reaping.statuses if each.drains})))


def _min_nodes(rules: ScanRules) -> str:
    return "the cloud's" if rules.group.bounds is None else str(rules.group.min_nodes)
