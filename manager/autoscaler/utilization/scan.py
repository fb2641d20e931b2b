"""One scan of one group: observations in, one decision out.

The rules follow Escalator's order, and errors use Escalator's words. docs/how-to/escalator.md lists the differences.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from manager.autoscaler.utilization import arithmetic, classes, observation, scan_context
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.arithmetic import GroupUtilization, Uncomputable
from manager.autoscaler.utilization.classes import Classes
from manager.autoscaler.utilization.decisions import Fullness, Picks, ScanDecision, ScanRule, ScanStep, ScanThresholds
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from manager.autoscaler.utilization.observation import GroupNode, Observation
from manager.autoscaler.utilization.rules import ScanRules
from manager.autoscaler.utilization.scan_context import ScanContext, ScanInputs
from shared import quantity
from shared.quantity import Resources

BELOW_OWN_MIN = "the number of nodes({}) is less than specified minimum of {}. Taking no action"
STAY = "{} of {} nodes are not tainted: {}"
BREAKER_OPEN = "refusing to scale up as long as {} of {} instances are running: the last scale-ups brought none"
BROKE_DOWN = "the scan broke down: {!r}"


@dataclass(frozen=True)
class DueScans:
    """The scans that are due, with the memory of each group's last scan, by name. `dry`: nothing is written."""

    memories: Mapping[str, Memory] = field(default_factory=dict)
    dry: bool = False


@dataclass(frozen=True)
class PlannedScan:
    """The decision about one group, on which nothing has acted yet. Without `inputs` the scan broke down."""

    decision: ScanDecision
    inputs: ScanInputs | None = None


def decide(rules: ScanRules, seen: Observation, memory: Memory, *, now: float) -> ScanDecision:
    """The decision; `now` in Unix seconds. Pure."""
    if seen.unlisted:
        return ScanDecision(rules.group.name, error=seen.unlisted, dry=rules.dry)
    return _Scan(ScanContext(ScanInputs(rules, seen, memory, now))).decision()


def broken_down(rules: ScanRules, error: Exception) -> ScanDecision:
    return ScanDecision(rules.group.name, error=BROKE_DOWN.format(error), dry=rules.dry)


def remember(rules: ScanRules, seen: Observation, memory: Memory, decision: ScanDecision, *, now: float) -> Memory:
    """The memory for the next scan, once the decision is carried out.

    If part of it failed, `decision` is the part that was done: its increase is 0 if the cloud refused.
    """
    if seen.unlisted:
        return memory
    here = {node.name for node in seen.nodes}
    gone = 0 if rules.dry else len(decision.deletions)
    untainted_at = {name: at for name, at in memory.untainted_at.items() if name in here}
    untainted_at |= {node.name: now for node in decision.untaint.planned}
    lock = memory.lock if memories.lock_state(rules, memory, now=now) else None
    breaker = decision.breaker.deleted(gone)
    if decision.increase:
        lock = ScaleLock(now, decision.increase)
    asked = 0 if rules.dry else decision.increase
    if asked:
        asked_size = seen.cloud.target_size - gone + asked
        breaker = breaker.increased(size=seen.size - gone, asked_size=asked_size, now=now)
    scaled_out_at = memory.scaled_out_at
    if not decision.locked:
        scaled_out_at = now if decision.delta > 0 else None
    return replace(
        memory,
        lock=lock,
        awaited=memories.awaited(memory.awaited, seen, asked=asked, now=now),
        node_size=seen.nodes[0].allocatable if seen.nodes else memory.node_size,
        scaled_out_at=scaled_out_at,
        tainted_at=now if decision.taint.planned else memory.tainted_at,
        untainted_at=untainted_at,
        dry_tainted=_dry_tainted(memory.dry_tainted, decision, here) if rules.dry else memory.dry_tainted,
        breaker=breaker,
        marks={**memory.marks, **memories.marks_put((*decision.health_taints, *decision.taint.planned), now=now)},
    )


def thresholds(rules: ScanRules, utilized: GroupUtilization) -> ScanRule:
    """The rule by utilization alone. All comparisons are strict: at a threshold nothing happens."""
    group = rules.group
    if utilized.percent < group.taint_lower_capacity_threshold_percent:
        return ScanRule.FAST_REMOVAL
    if utilized.percent < group.taint_upper_capacity_threshold_percent:
        return ScanRule.SLOW_REMOVAL
    return ScanRule.SCALE_UP if utilized.percent > group.scale_up_threshold_percent else ScanRule.ENOUGH


def is_too_old(rules: ScanRules, found: Classes, *, min_nodes: int, now: float) -> bool:
    """Whether to renew a group at its minimum, with no other change pending, by one additional node."""
    if rules.max_node_age_seconds <= 0 or not found.untainted or found.tainted or len(found.untainted) != min_nodes:
        return False
    return any(now - node.created_at > rules.max_node_age_seconds for node in found.untainted)


@dataclass
class _Scan:
    context: ScanContext
    steps: list[ScanStep] = field(default_factory=list)

    def decision(self) -> ScanDecision:
        rules, seen, untainted = self.context.rules, self.context.seen, len(self.context.classes.untainted)
        begun = ScanDecision(
            rules.group.name,
            classes=self.context.classes,
            health_taints=self.context.health_taints(),
            dry=rules.dry,
            breaker=self.context.memory.breaker.observe_size(
                size=seen.size, target=seen.cloud.target_size, now=self.context.now
            ),
            thresholds=ScanThresholds(
                rules.group.taint_lower_capacity_threshold_percent,
                rules.group.taint_upper_capacity_threshold_percent,
                rules.group.scale_up_threshold_percent,
            ),
        )
        if not seen.nodes and not seen.pods and self.context.min_nodes <= 0:
            return self.end(begun, ScanRule.NOTHING_THERE, 0)
        requested, demand = self.context.current_demand()
        begun = replace(begun, fullness=Fullness(requested, demand, self.context.capacity))
        if untainted < self.context.min_nodes and not self.context.is_locked:
            return self.raise_to_min(begun)
        try:
            utilized = arithmetic.utilization(demand, self.context.capacity, untainted)
            begun = replace(begun, fullness=replace(begun.fullness, utilization=utilized))
            if self.context.is_locked:
                return self.wait(begun)
            begun = replace(begun, arrived=self.arrived_nodes())
            delta = self.wanted_change(demand, utilized)
        except Uncomputable as problem:
            return replace(begun, error=str(problem))
        return self.record_action(begun, delta)

    def arrived_nodes(self) -> tuple[GroupNode, ...]:
        """The nodes that the last scale-up brought."""
        at = self.context.memory.scaled_out_at
        return () if at is None else tuple(node for node in self.context.seen.nodes if node.created_at > at)

    def step(self, rule: ScanRule, delta: int) -> int:
        self.steps.append(ScanStep(rule, delta))
        return delta

    def end(self, begun: ScanDecision, rule: ScanRule, delta: int) -> ScanDecision:
        return replace(begun, delta=self.step(rule, delta), steps=tuple(self.steps))

    def wanted_change(self, demand: Resources, utilized: GroupUtilization) -> int:
        """The number of nodes to add or remove, before clamps. Raises Uncomputable."""
        group, untainted = self.context.rules.group, len(self.context.classes.untainted)
        rule = thresholds(self.context.rules, utilized)
        delta = 0
        if rule is ScanRule.FAST_REMOVAL:
            delta = -group.fast_node_removal_rate
        elif rule is ScanRule.SLOW_REMOVAL:
            delta = -group.slow_node_removal_rate
        elif rule is ScanRule.SCALE_UP and utilized.is_from_zero:
            delta = arithmetic.nodes_from_zero(demand, self.context.node_size, group.scale_up_threshold_percent)
        elif rule is ScanRule.SCALE_UP:
            delta = arithmetic.nodes_more(utilized, group.scale_up_threshold_percent, untainted)
        self.step(rule, delta)
        if delta < 1 and self.is_starving():
            delta = self.step(ScanRule.STARVING, 1)
        if delta < 1 and self.is_to_renew():
            delta = self.step(ScanRule.TOO_OLD, 1)
        if untainted > self.context.max_nodes and delta > self.context.max_nodes - untainted:
            delta = self.step(ScanRule.ABOVE_MAX, self.context.max_nodes - untainted)
        return delta

    def is_to_renew(self) -> bool:
        """Whether a node is too old, and the cloud has room for its replacement."""
        if self.context.most_nodes <= self.context.seen.cloud.target_size:
            return False
        return is_too_old(
            self.context.rules, self.context.classes, min_nodes=self.context.min_nodes, now=self.context.now
        )

    def is_starving(self) -> bool:
        """Whether a pending pod is larger than the free cpu or memory of every node."""
        if (
            not self.context.rules.group.scale_on_starve
            or len(self.context.classes.untainted) >= self.context.max_nodes
        ):
            return False
        pending = arithmetic.largest(pod.requests for pod in self.context.seen.pods if pod.is_pending and not pod.node)
        return pending.exceeds(
            arithmetic.largest(observation.free(self.context.classes.untainted, self.context.seen.pods))
        )

    def wait(self, begun: ScanDecision) -> ScanDecision:
        """During a scale-up nothing else starts; nodes that may go are still deleted."""
        assert self.context.memory.lock is not None
        decision = replace(self.end(begun, ScanRule.LOCKED, self.context.memory.lock.nodes), locked=True)
        healthy = self.context.is_healthy()
        forced = self.context.reap_forced()
        return replace(
            decision, healthy=healthy, forced=forced, reaped=self.context.reap_tainted(forced, healthy is not False)
        )

    def raise_to_min(self, begun: ScanDecision) -> ScanDecision:
        """Raises the group to its minimum at once, before all else; nodes in the way are deleted."""
        wanted = self.context.min_nodes - len(self.context.classes.untainted)
        decision = self.end(begun, ScanRule.BELOW_MIN, wanted)
        decision = replace(decision, healthy=self.context.is_healthy(), forced=self.context.reap_forced())
        scaled = scale_up(self.context, decision, wanted)
        refusal = next(iter(scaled.refusals), "")
        begun_now = scaled.untaint.count + scaled.increase
        return replace(scaled, delta=0 if refusal else begun_now or wanted, error=refusal)

    def record_action(self, begun: ScanDecision, delta: int) -> ScanDecision:
        forced = self.context.reap_forced()
        healthy = self.context.is_healthy()
        if healthy is False:
            delta = self.step(ScanRule.UNHEALTHY, 0)
        if delta < 0 and self.is_cooling_down():
            delta = self.step(ScanRule.COOLING_DOWN, 0)
        decision = replace(begun, delta=delta, steps=tuple(self.steps), forced=forced, healthy=healthy)
        if delta > 0:
            return scale_up(self.context, decision, delta)
        # On the way down healthy nodes may go; an unhealthy group never gets here.
        reaped = self.context.reap_tainted(forced, healthy is not False)
        decision = replace(decision, reaped=reaped)
        return scale_down(self.context, decision, -delta) if delta < 0 else decision

    def is_cooling_down(self) -> bool:
        cool_down = self.context.rules.scale_down_cool_down_seconds
        return memories.is_within(cool_down, since=self.context.memory.tainted_at, now=self.context.now)


def _dry_tainted(tainted: tuple[str, ...], decision: ScanDecision, here: Container[str]) -> tuple[str, ...]:
    left = [name for name in tainted if name in here]
    left += (node.name for node in decision.health_taints)
    for node in decision.untaint.planned:
        left.remove(node.name)
    return (*left, *(node.name for node in decision.taint.planned))


def room(wanted: int, *, target_size: int, max_size: int) -> int:
    """The number of wanted nodes that a cloud may add; negative if it has too many."""
    return min(wanted, max_size - target_size)


def scale_up(context: ScanContext, decision: ScanDecision, delta: int) -> ScanDecision:
    """Tainted nodes come back first, the cloud adds the rest."""
    below_max = max(0, context.max_nodes - len(context.classes.untainted))
    allowed = min(delta, below_max)
    candidates = scan_context.untaintable(context.rules, context.classes.tainted, now=context.now)[:below_max]
    reaped = context.reap_tainted(decision.forced, decision.healthy is not False, coming_back=candidates)
    decision = replace(decision, reaped=reaped)
    untaint = Picks(candidates, min(allowed, len(candidates)))
    target = context.seen.cloud.target_size - len(decision.deletions)
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
    """The refusals say why each node stays untainted."""
    cloud, untainted = context.seen.cloud, context.classes.untainted
    gone = len(decision.deletions)
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
    """The highest utilization for the remaining nodes: below scale-up, and never more than full."""
    return min(context.rules.group.scale_up_threshold_percent, 100)


def _removable_count(context: ScanContext, candidates: tuple[GroupNode, ...], count: int) -> int:
    """The number of nodes that may go such that the others can hold every pod of the group without a scale-up.

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
