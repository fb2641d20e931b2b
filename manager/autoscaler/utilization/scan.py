"""One scan of one group: observations in, one decision out.

The rules follow Escalator's order, and errors use Escalator's words. `rules.Fixes` names the differences.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace

from manager.autoscaler import taints
from manager.autoscaler.utilization import arithmetic, classes, node_health, observation, reaping
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.arithmetic import GroupUtilization, Uncomputable
from manager.autoscaler.utilization.classes import Classes
from manager.autoscaler.utilization.decisions import Fullness, Picks, ScanDecision, ScanRule, ScanStep, ScanThresholds
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from manager.autoscaler.utilization.observation import GroupNode, GroupPod, Observation
from manager.autoscaler.utilization.reaping import Reaping
from manager.autoscaler.utilization.rules import ScanRules
from shared import quantity
from shared.quantity import Resources

BELOW_MIN = "node count less than the minimum"
BELOW_OWN_MIN = "the number of nodes({}) is less than specified minimum of {}. Taking no action"
STAY = "{} of {} nodes to be tainted stay: {}"
BREAKER_OPEN = "refusing to scale up as long as {} of {} instances are running: the last scale-ups brought none"


def decide(rules: ScanRules, seen: Observation, memory: Memory, *, now: float) -> ScanDecision:
    """The decision; `now` in Unix seconds. Pure."""
    if seen.unlisted:
        return ScanDecision(rules.group.name, error=seen.unlisted, dry=rules.dry)
    return _Scan(rules, seen, memory, now).decision()


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
    lock = memory.lock if lock_state(rules, memory, now=now) else None
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


def lock_state(rules: ScanRules, memory: Memory, *, now: float) -> bool:
    """Whether the previous scale-up is still under way."""
    return memory.lock is not None and memory.lock.is_held(now=now, cool_down_seconds=rules.cool_down_seconds)


def thresholds(rules: ScanRules, utilized: GroupUtilization) -> ScanRule:
    """The rule by utilization alone. All comparisons are strict: at a threshold nothing happens."""
    group = rules.group
    if utilized.percent < group.taint_lower_capacity_threshold_percent:
        return ScanRule.FAST_REMOVAL
    if utilized.percent < group.taint_upper_capacity_threshold_percent:
        return ScanRule.SLOW_REMOVAL
    return ScanRule.SCALE_UP if utilized.percent > group.scale_up_threshold_percent else ScanRule.ENOUGH


def room(wanted: int, *, target_size: int, max_size: int) -> int:
    """How many of the wanted nodes a cloud may add; negative if it has too many."""
    return min(wanted, max_size - target_size)


def is_too_old(rules: ScanRules, found: Classes, *, min_nodes: int, now: float) -> bool:
    """Whether to renew a group at its minimum, with no other change pending, by one additional node."""
    if rules.max_node_age_seconds <= 0 or not found.untainted or found.tainted or len(found.untainted) != min_nodes:
        return False
    return any(now - node.created_at > rules.max_node_age_seconds for node in found.untainted)


def untaintable(rules: ScanRules, tainted: tuple[GroupNode, ...], *, now: float) -> tuple[GroupNode, ...]:
    """The newest first; with health checks only healthy nodes come back."""
    grace = rules.unhealthy_grace_seconds
    return tuple(
        node
        for node in classes.newest_first(tainted)
        if not (rules.checks_health and node_health.is_unhealthy(node, grace_seconds=grace, now=now))
    )


@dataclass
class _Scan:
    rules: ScanRules
    seen: Observation
    memory: Memory
    now: float
    steps: list[ScanStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        rules, seen, memory = self.rules, self.seen, self.memory
        bounds = rules.bounds(seen.cloud.bounds)
        self.min_nodes, self.max_nodes = bounds.min_size, bounds.max_size
        if rules.dry:
            self.classes = classes.classify_dry(seen.nodes, memory.dry_tainted, memory.dry_force_tainted)
        else:
            self.classes = classes.classify(seen.nodes)
        self.pods_by_node = reaping.pods_that_keep_nodes(rules, seen)
        self.capacity = quantity.total([node.allocatable for node in self.classes.untainted])
        self.is_locked = lock_state(rules, memory, now=self.now)

    def decision(self) -> ScanDecision:
        rules, seen, untainted = self.rules, self.seen, len(self.classes.untainted)
        begun = ScanDecision(
            rules.group.name,
            classes=self.classes,
            health_taints=self.health_taints(),
            dry=rules.dry,
            breaker=self.memory.breaker.observe_size(size=seen.size, target=seen.cloud.target_size, now=self.now),
            thresholds=ScanThresholds(
                rules.group.taint_lower_capacity_threshold_percent,
                rules.group.taint_upper_capacity_threshold_percent,
                rules.group.scale_up_threshold_percent,
            ),
        )
        is_to_grow = rules.fixes.grows_below_min and self.min_nodes > 0
        if not seen.nodes and not seen.pods and not is_to_grow:
            return self.ended(begun, ScanRule.NOTHING_THERE, 0)
        if len(seen.nodes) < self.min_nodes and not rules.fixes.grows_below_min:
            return replace(begun, error=BELOW_MIN)
        requested, demand = self.demand(self.demanding_pods(), self.demanding_nodes())
        begun = replace(begun, fullness=Fullness(requested, demand, self.capacity))
        if untainted < self.min_nodes and not (rules.fixes.locks_below_min and self.is_locked):
            return self.raised_to_min(begun)
        try:
            utilized = arithmetic.utilization(demand, self.capacity, untainted)
            begun = replace(begun, fullness=replace(begun.fullness, utilization=utilized))
            if self.is_locked:
                return self.waiting(begun)
            begun = replace(begun, arrived=self.arrived())
            delta = self.wanted(demand, utilized)
        except Uncomputable as problem:
            return replace(begun, error=str(problem))
        return self.record_action(begun, delta)

    def health_taints(self) -> tuple[GroupNode, ...]:
        if not self.rules.checks_health:
            return ()
        bad = node_health.unhealthy(self.seen.nodes, grace_seconds=self.rules.unhealthy_grace_seconds, now=self.now)
        if not self.rules.dry:
            return tuple(node for node in bad if not taints.has_taint(node.taints, taints.TO_BE_REMOVED))
        known = self.memory.dry_tainted if self.rules.fixes.marks_once else ()
        return tuple(node for node in bad if node.name not in known)

    def arrived(self) -> tuple[GroupNode, ...]:
        """The nodes that the last scale-up brought."""
        at = self.memory.scaled_out_at
        return () if at is None else tuple(node for node in self.seen.nodes if node.created_at > at)

    def demanding_pods(self) -> tuple[GroupPod, ...]:
        """Pods that need room on the nodes that stay: the pods there, and pods without a node."""
        if not self.rules.fixes.excludes_unavailable:
            return self.seen.pods
        return available(self.seen.pods, {node.name for node in self.classes.untainted}, with_unscheduled=True)

    def demanding_nodes(self) -> tuple[GroupNode, ...]:
        return self.classes.untainted if self.rules.fixes.excludes_unavailable else self.seen.nodes

    def demand(self, pods: Iterable[GroupPod], nodes: Iterable[GroupNode]) -> tuple[Resources, Resources]:
        """The pods' requests, and the demand: the nodes' expected usage where that is higher.

        A pod that no node's peak covers counts by its requests.
        """
        found = {node.name: self.rules.peak(prod=node.prod_peak, mid=node.mid_peak) for node in nodes}
        peaks = {name: peak for name, peak in found.items() if peak is not None}
        requested = quantity.total([pod.requests for pod in pods])
        beside = quantity.total([pod.requests for pod in pods if pod.node not in peaks])
        return requested, requested.most(quantity.total(list(peaks.values())).plus(beside))

    def step(self, rule: ScanRule, delta: int) -> int:
        self.steps.append(ScanStep(rule, delta))
        return delta

    def ended(self, begun: ScanDecision, rule: ScanRule, delta: int) -> ScanDecision:
        return replace(begun, delta=self.step(rule, delta), steps=tuple(self.steps))

    def wanted(self, demand: Resources, utilized: GroupUtilization) -> int:
        """How many nodes to add or remove, before clamps. Raises Uncomputable."""
        group, untainted = self.rules.group, len(self.classes.untainted)
        rule = thresholds(self.rules, utilized)
        delta = 0
        if rule is ScanRule.FAST_REMOVAL:
            delta = -group.fast_node_removal_rate
        elif rule is ScanRule.SLOW_REMOVAL:
            delta = -group.slow_node_removal_rate
        elif rule is ScanRule.SCALE_UP and utilized.is_from_zero:
            delta = arithmetic.nodes_from_zero(demand, self.node_size, group.scale_up_threshold_percent)
        elif rule is ScanRule.SCALE_UP:
            delta = arithmetic.nodes_more(utilized, group.scale_up_threshold_percent, untainted)
        self.step(rule, delta)
        if delta < 1 and self.is_starving():
            delta = self.step(ScanRule.STARVING, 1)
        if delta < 1 and self.is_to_renew():
            delta = self.step(ScanRule.TOO_OLD, 1)
        if untainted > self.max_nodes and delta > self.max_nodes - untainted:
            delta = self.step(ScanRule.ABOVE_MAX, self.max_nodes - untainted)
        return delta

    @property
    def node_size(self) -> Resources:
        return self.seen.nodes[0].allocatable if self.seen.nodes else self.memory.node_size

    def is_to_renew(self) -> bool:
        """Whether a node is too old, and the cloud has room for its replacement."""
        if self.rules.fixes.renews_with_room and self.most_nodes <= self.seen.cloud.target_size:
            return False
        return is_too_old(self.rules, self.classes, min_nodes=self.min_nodes, now=self.now)

    def is_starving(self) -> bool:
        """Whether a pending pod is larger than the free cpu or memory of every node."""
        if not self.rules.group.scale_on_starve or len(self.classes.untainted) >= self.max_nodes:
            return False
        bound_too = not self.rules.fixes.bound_pods_do_not_starve
        pending = arithmetic.largest(
            pod.requests for pod in self.seen.pods if pod.is_pending and (bound_too or not pod.node)
        )
        return pending.exceeds(arithmetic.largest(observation.free(self.classes.untainted, self.seen.pods)))

    def waiting(self, begun: ScanDecision) -> ScanDecision:
        """During a scale-up nothing else starts; nodes that may go are still deleted."""
        assert self.memory.lock is not None
        decision = replace(self.ended(begun, ScanRule.LOCKED, self.memory.lock.nodes), locked=True)
        if not self.rules.fixes.reaps_while_locked:
            return decision
        healthy = self.is_healthy()
        forced = self.forced()
        return replace(decision, healthy=healthy, forced=forced, reaped=self.reaped(forced, healthy is not False))

    def raised_to_min(self, begun: ScanDecision) -> ScanDecision:
        """Raises the group to its minimum at once, whatever else is due; nodes in the way are deleted."""
        wanted = self.min_nodes - len(self.classes.untainted)
        decision = self.ended(begun, ScanRule.BELOW_MIN, wanted)
        if self.rules.fixes.reaps_while_growing:
            decision = replace(decision, healthy=self.is_healthy(), forced=self.forced())
        scaled = self.scaled_up(decision, wanted)
        refusal = next(iter(scaled.refusals), "")
        begun_now = scaled.untaint.count + scaled.increase
        return replace(scaled, delta=0 if refusal else begun_now or wanted, error=refusal)

    def record_action(self, begun: ScanDecision, delta: int) -> ScanDecision:
        forced = self.forced()
        healthy = self.is_healthy()
        if healthy is False:
            delta = self.step(ScanRule.UNHEALTHY, 0)
        if delta < 0 and self.is_cooling_down():
            delta = self.step(ScanRule.COOLING_DOWN, 0)
        decision = replace(begun, delta=delta, steps=tuple(self.steps), forced=forced, healthy=healthy)
        if delta > 0:
            return self.scaled_up(decision, delta)
        # On the way down healthy nodes may go; an unhealthy group never gets here.
        reaped = self.reaped(forced, healthy is not False)
        decision = replace(decision, reaped=reaped)
        return self.scaled_down(decision, -delta) if delta < 0 else decision

    def is_healthy(self) -> bool | None:
        if not self.rules.checks_health:
            return None
        return node_health.is_group_healthy(self.rules, self.seen.nodes, now=self.now)

    def is_cooling_down(self) -> bool:
        cool_down = self.rules.scale_down_cool_down_seconds
        return memories.is_within(cool_down, since=self.memory.tainted_at, now=self.now)

    def forced(self) -> Reaping:
        return self.let(reaping.force_tainted_statuses(self.classes.force_tainted, self.pods_by_node), gone=0)

    def reaped(self, forced: Reaping, healthy_may_go: bool, *, coming_back: Iterable[GroupNode] = ()) -> Reaping:
        staying = {node.name for node in coming_back}
        marked = tuple(node for node in self.classes.tainted if node.name not in staying)
        verdicts = reaping.tainted_statuses(
            self.rules, marked, self.pods_by_node, healthy_may_go=healthy_may_go, now=self.now
        )
        return self.let(verdicts, gone=len(forced.nodes))

    def let(self, verdicts: tuple[reaping.TaintedNodeStatus, ...], *, gone: int) -> Reaping:
        fixes, cloud = self.rules.fixes, self.seen.cloud
        target = cloud.target_size - (gone if fixes.counts_deletions else 0)
        return reaping.within_minimum(
            verdicts,
            target_size=target,
            min_size=cloud.min_size,
            clamps=fixes.clamps_deletions,
            spare=self.spare() - gone if fixes.keeps_min_nodes and verdicts else None,
        )

    def spare(self) -> int:
        """How many tainted nodes may go under the group's own minimum.

        As many as the group has above it: replacements are present before these nodes go. If the group is at its
        maximum, so that replacements cannot come, as many useless nodes go first as block them.
        """
        beyond = len(self.seen.nodes) - self.min_nodes
        back = len(untaintable(self.rules, self.classes.tainted, now=self.now))
        to_come = back + self.on_its_way + max(0, self.most_nodes - self.seen.cloud.target_size)
        in_the_way = self.min_nodes - len(self.classes.untainted) - to_come
        return max(beyond, 0) + max(in_the_way, 0)

    @property
    def most_nodes(self) -> int:
        """How many nodes the cloud may be asked for."""
        most = self.seen.cloud.max_size
        return min(most, self.max_nodes) if self.rules.fixes.keeps_max_nodes else most

    @property
    def on_its_way(self) -> int:
        """How many requested nodes are still expected."""
        awaited = self.memory.awaited
        is_late = awaited is not None and awaited.is_late(self.seen.missing, now=self.now)
        return self.seen.missing if self.rules.fixes.counts_ordered and not is_late else 0

    def scaled_up(self, decision: ScanDecision, delta: int) -> ScanDecision:
        """Tainted nodes come back first, the cloud adds the rest."""
        fixes, cloud = self.rules.fixes, self.seen.cloud
        allowed = delta
        if fixes.keeps_max_nodes:
            allowed = min(delta, max(0, self.max_nodes - len(self.classes.untainted)))
        candidates = untaintable(self.rules, self.classes.tainted, now=self.now)
        if fixes.reaps_while_growing:
            if fixes.keeps_max_nodes:
                candidates = candidates[: max(0, self.max_nodes - len(self.classes.untainted))]
            reaped = self.reaped(decision.forced, decision.healthy is not False, coming_back=candidates)
            decision = replace(decision, reaped=reaped)
        untaint = Picks(candidates, min(allowed, len(candidates)))
        target = cloud.target_size - (len(decision.deletions) if fixes.counts_deletions else 0)
        most = self.most_nodes
        most_increase = 0 if decision.breaker.is_open else max(0, most - target)
        decision = replace(decision, untaint=untaint, most_increase=most_increase)
        missing = delta - untaint.count
        if not missing:
            return decision
        coming = min(missing, self.on_its_way)
        if coming == missing:
            if not untaint.count:
                self.step(ScanRule.ON_ITS_WAY, 0)
            return replace(decision, steps=tuple(self.steps))
        more = room(missing - coming, target_size=target, max_size=most)
        increase = min(allowed - untaint.count - coming, more)
        if increase <= 0:
            refusal = (
                "refusing to scaleup up beyond the maximum size of the autoscaling group "
                f"(TargetSize: {target}; MaxNodes: {most}). Taking no action"
            )
            return replace(decision, refusals=(*decision.refusals, refusal))
        breaker = decision.breaker.before_increase(size=self.seen.size, most_failures=self.rules.breaker_failures)
        if breaker.open_until_size is not None:
            refusal = BREAKER_OPEN.format(self.seen.size, breaker.open_until_size)
            refusals = (*decision.refusals, refusal)
            return replace(decision, breaker=breaker, most_increase=0, refusals=refusals)
        return replace(decision, breaker=breaker, increase=increase)

    def scaled_down(self, decision: ScanDecision, wanted: int) -> ScanDecision:
        """The refusals say what keeps each node that is not tainted after all."""
        cloud, untainted = self.seen.cloud, self.classes.untainted
        gone = len(decision.deletions) if self.rules.fixes.counts_deletions else 0
        kept: list[str] = []

        def at_most(count: int, most: int, why: str) -> int:
            if most < count:
                kept.append(STAY.format(count - most, wanted, why))
            return min(count, most)

        above_min = len(untainted) - self.min_nodes
        if above_min < 0:
            refusal = BELOW_OWN_MIN.format(len(untainted), self.min_nodes)
            return replace(decision, refusals=(*decision.refusals, refusal))
        count = at_most(wanted, above_min, f"the group's minimum is {self.min_nodes}")
        deletable = cloud.target_size - gone - cloud.min_size
        if deletable >= 0:  # a target below the cloud's minimum already sets no limit
            count = at_most(count, deletable, f"the cloud's minimum is {cloud.min_size}")
        ordered = classes.fullest_zones_first if self.rules.group.balance_zones else classes.oldest_first
        candidates = tuple(node for node in ordered(untainted) if not self.is_fresh(node))
        count = at_most(count, len(candidates), "the others were untainted a short time ago")
        if self.rules.fixes.taints_what_others_hold:
            # Nodes above the maximum go, whether or not the others can hold their pods.
            excess = max(0, len(untainted) - self.max_nodes)
            held = max(min(count, excess), self.removable_count(candidates, count))
            count = at_most(count, held, f"without them the others would be above {self.fullest_percent} %")
        return replace(decision, taint=Picks(candidates, count), refusals=(*decision.refusals, *kept))

    def is_fresh(self, node: GroupNode) -> bool:
        """Whether it was untainted a short while ago, so that it stays."""
        since = self.memory.untainted_at.get(node.name)
        return memories.is_within(self.rules.untaint_grace_seconds, since=since, now=self.now)

    @property
    def fullest_percent(self) -> int:
        """How full the remaining nodes may get: below scale-up, and never more than full."""
        return min(self.rules.group.scale_up_threshold_percent, 100)

    def removable_count(self, candidates: tuple[GroupNode, ...], count: int) -> int:
        """How many of them may go so that the others can hold every pod of the group without a scale-up.

        That includes pods on nodes that are being removed, because their controllers recreate them elsewhere.
        """
        pods = available(self.seen.pods, {node.name for node in self.seen.nodes}, with_unscheduled=True)
        _, demand = self.demand(pods, self.seen.nodes)
        left = self.capacity.minus(quantity.total([node.allocatable for node in candidates[:count]]))
        while count > 0 and not self.fits(demand, left, len(self.classes.untainted) - count):
            count -= 1
            left = left.plus(candidates[count].allocatable)
        return count

    def fits(self, demand: Resources, capacity: Resources, nodes: int) -> bool:
        if not any(demand):
            return True
        try:
            return arithmetic.utilization(demand, capacity, nodes).percent <= self.fullest_percent
        except Uncomputable:
            return False


def available(pods: tuple[GroupPod, ...], nodes: set[str], *, with_unscheduled: bool) -> tuple[GroupPod, ...]:
    """The pods on these nodes, with or without those on no node."""
    return tuple(pod for pod in pods if pod.node in nodes or (with_unscheduled and not pod.node))


def _dry_tainted(tainted: tuple[str, ...], decision: ScanDecision, here: Container[str]) -> tuple[str, ...]:
    left = [name for name in tainted if name in here]
    left += (node.name for node in decision.health_taints)
    for node in decision.untaint.planned:
        left.remove(node.name)
    return (*left, *(node.name for node in decision.taint.planned))
