"""The reasons of a scan's actions, one line each: the rule, the group's utilization, and the threshold."""

from manager.autoscaler.utilization.decisions import ScanDecision, ScanRule
from manager.autoscaler.utilization.reaping import Reaping
from manager.autoscaler.utilization.rules import ScanRules

_THRESHOLDS = {
    ScanRule.FAST_REMOVAL: "taint_lower_capacity_threshold_percent",
    ScanRule.SLOW_REMOVAL: "taint_upper_capacity_threshold_percent",
    ScanRule.SCALE_UP: "scale_up_threshold_percent",
}


def of_delta(rules: ScanRules, decision: ScanDecision) -> str:
    """Why nodes are tainted, untainted or requested."""
    rule = decision.steps[-1].rule if decision.steps else None
    if rule is ScanRule.BELOW_MIN:
        return f"{rule}: {len(decision.classes.untainted)} nodes take pods, min_nodes is {_min_nodes(rules)}"
    known = [str(rule)] if rule is not None else []
    if full := fullness(decision):
        known.append(full)
    if rule in _THRESHOLDS:
        known.append(f"{_THRESHOLDS[rule]} is {getattr(rules.group, _THRESHOLDS[rule])}")
    return ": ".join((known[0], ", ".join(known[1:]))) if len(known) > 1 else "".join(known)


def fullness(decision: ScanDecision) -> str:
    """The utilization of the nodes that take pods."""
    found = decision.fullness.utilization
    if found is None:
        return ""
    if found.is_from_zero:
        return "there are pods and no nodes"
    resource = "cpu" if found.cpu_percent >= found.memory_percent else "memory"
    return f"{found.percent:.1f} % of {resource}"


def of_health(rules: ScanRules) -> str:
    return f"not ready, unhealthy_node_grace_period is {rules.group.unhealthy_node_grace_period}"


def of_deletion(reaping: Reaping) -> str:
    return ", ".join(sorted({str(each.why) for each in reaping.statuses if each.goes}))


def of_drain(reaping: Reaping) -> str:
    return ", ".join(sorted({str(each.why) for each in reaping.statuses if each.drains}))


def _min_nodes(rules: ScanRules) -> str:
    return "the cloud's" if rules.group.bounds is None else str(rules.group.min_nodes)
