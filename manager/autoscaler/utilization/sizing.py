"""How many nodes a scan adds, removes, taints and untaints: the wanted number within all bounds."""

from dataclasses import replace

from manager.autoscaler.utilization import arithmetic, classes, scan_context
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.arithmetic import Uncomputable
from manager.autoscaler.utilization.decisions import Picks, ScanDecision, ScanRule, ScanStep
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.scan_context import ScanContext
from shared import quantity
from shared.quantity import Resources

BELOW_OWN_MIN = "the number of nodes({}) is less than specified minimum of {}. Taking no action"
STAY = "{} of {} nodes to be tainted stay: {}"
BREAKER_OPEN = "refusing to scale up as long as {} of {} instances are running: the last scale-ups brought none"


def room(wanted: int, *, target_size: int, max_size: int) -> int:
    """How many of the wanted nodes a cloud may add; negative if it has too many."""
    return min(wanted, max_size - target_size)


def scale_up(context: ScanContext, decision: ScanDecision, delta: int) -> ScanDecision:
    """Tainted nodes come back first, the cloud adds the rest."""
    fixes, cloud = context.rules.fixes, context.seen.cloud
    allowed = delta
    if fixes.keeps_max_nodes:
        allowed = min(delta, max(0, context.max_nodes - len(context.classes.untainted)))
    candidates = scan_context.untaintable(context.rules, context.classes.tainted, now=context.now)
    if fixes.reaps_while_growing:
        if fixes.keeps_max_nodes:
            candidates = candidates[: max(0, context.max_nodes - len(context.classes.untainted))]
        reaped = context.reap_tainted(decision.forced, decision.healthy is not False, coming_back=candidates)
        decision = replace(decision, reaped=reaped)
    untaint = Picks(candidates, min(allowed, len(candidates)))
    target = cloud.target_size - (len(decision.deletions) if fixes.counts_deletions else 0)
    most = context.most_nodes
    most_increase = 0 if decision.breaker.is_open else max(0, most - target)
    decision = replace(decision, untaint=untaint, most_increase=most_increase)
    missing = delta - untaint.count
    if not missing:
        return decision
    coming = min(missing, context.on_its_way)
    if coming == missing:
        if not untaint.count:
            decision = replace(decision, steps=(*decision.steps, ScanStep(ScanRule.ON_ITS_WAY, 0)))
        return decision
    more = room(missing - coming, target_size=target, max_size=most)
    increase = min(allowed - untaint.count - coming, more)
    if increase <= 0:
        refusal = (
            "refusing to scaleup up beyond the maximum size of the autoscaling group "
            f"(TargetSize: {target}; MaxNodes: {most}). Taking no action"
        )
        return replace(decision, refusals=(*decision.refusals, refusal))
    breaker = decision.breaker.before_increase(size=context.seen.size, most_failures=context.rules.breaker_failures)
    if breaker.open_until_size is not None:
        refusal = BREAKER_OPEN.format(context.seen.size, breaker.open_until_size)
        refusals = (*decision.refusals, refusal)
        return replace(decision, breaker=breaker, most_increase=0, refusals=refusals)
    return replace(decision, breaker=breaker, increase=increase)


def scale_down(context: ScanContext, decision: ScanDecision, wanted: int) -> ScanDecision:
    """The refusals say what keeps each node that is not tainted after all."""
    cloud, untainted = context.seen.cloud, context.classes.untainted
    gone = len(decision.deletions) if context.rules.fixes.counts_deletions else 0
    kept: list[str] = []

    def at_most(count: int, most: int, why: str) -> int:
        if most < count:
            kept.append(STAY.format(count - most, wanted, why))
        return min(count, most)

    above_min = len(untainted) - context.min_nodes
    if above_min < 0:
        refusal = BELOW_OWN_MIN.format(len(untainted), context.min_nodes)
        return replace(decision, refusals=(*decision.refusals, refusal))
    count = at_most(wanted, above_min, f"the group's minimum is {context.min_nodes}")
    deletable = cloud.target_size - gone - cloud.min_size
    if deletable >= 0:  # a target below the cloud's minimum already sets no limit
        count = at_most(count, deletable, f"the cloud's minimum is {cloud.min_size}")
    ordered = classes.fullest_zones_first if context.rules.group.balance_zones else classes.oldest_first
    candidates = tuple(node for node in ordered(untainted) if not _is_fresh(context, node))
    count = at_most(count, len(candidates), "the others were untainted a short time ago")
    if context.rules.fixes.taints_what_others_hold:
        # Nodes above the maximum go, whether or not the others can hold their pods.
        excess = max(0, len(untainted) - context.max_nodes)
        held = max(min(count, excess), _removable_count(context, candidates, count))
        count = at_most(count, held, f"without them the others would be above {_fullest_percent(context)} %")
    return replace(decision, taint=Picks(candidates, count), refusals=(*decision.refusals, *kept))


def _is_fresh(context: ScanContext, node: GroupNode) -> bool:
    """Whether it was untainted a short while ago, so that it stays."""
    since = context.memory.untainted_at.get(node.name)
    return memories.is_within(context.rules.untaint_grace_seconds, since=since, now=context.now)


def _fullest_percent(context: ScanContext) -> int:
    """How full the remaining nodes may get: below scale-up, and never more than full."""
    return min(context.rules.group.scale_up_threshold_percent, 100)


def _removable_count(context: ScanContext, candidates: tuple[GroupNode, ...], count: int) -> int:
    """How many of them may go so that the others can hold every pod of the group without a scale-up.

    That includes pods on nodes that are being removed, because their controllers recreate them elsewhere.
    """
    pods = scan_context.available(context.seen.pods, {node.name for node in context.seen.nodes}, with_unscheduled=True)
    _, demand = context.demand_of(pods, context.seen.nodes)
    left = context.capacity.minus(quantity.total([node.allocatable for node in candidates[:count]]))
    while count > 0 and not _fits(context, demand, left, len(context.classes.untainted) - count):
        count -= 1
        left = left.plus(candidates[count].allocatable)
    return count


def _fits(context: ScanContext, demand: Resources, capacity: Resources, nodes: int) -> bool:
    if not any(demand):
        return True
    try:
        return arithmetic.utilization(demand, capacity, nodes).percent <= _fullest_percent(context)
    except Uncomputable:
        return False
