"""Consolidation in one iteration: finds a replacement to begin, or takes the one under way further.

It comes after scale-down, and only where nothing scales up: what scale-down removes costs nothing to replace.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from manager.autoscaler import scale_down_planning
from manager.autoscaler.cloudprovider.karpenter.claims import ANNOTATION_DO_NOT_DISRUPT
from manager.autoscaler.cluster_state.registry import Registry, with_replacement
from manager.autoscaler.cluster_state.replacement import Launch, ReplacedNode, Replacement, ReplacementPhase
from manager.autoscaler.consolidation import replacing, search
from manager.autoscaler.consolidation.replacing import (
    LaunchNodes,
    LookAgain,
    LookedAgain,
    RemoveNodes,
    ReplacementAbandoned,
    ReplacementChosen,
    ReplacementEnded,
    ReplacementEvent,
    ReplacementInstruction,
    ReplacementOutcome,
    ReplacementSeen,
)
from manager.autoscaler.consolidation.rules import Allowed, ConsolidationRules, allowed_nodes
from manager.autoscaler.consolidation.search import MOST_POD_DISRUPTION, ConsolidationInputs, LaunchTarget
from manager.autoscaler.consolidation.simulation import ReplacementSimulation
from manager.autoscaler.consolidation.verdicts import ConsolidationDecision, ConsolidationReason, ReplacementOption
from manager.autoscaler.context import AutoscalingContext, LastConsolidation
from manager.autoscaler.iteration import Action, ActionKind
from manager.autoscaler.modes import Mode
from manager.autoscaler.pricing import list_prices
from manager.autoscaler.pricing.model import Unpriced
from manager.autoscaler.reconciliation import SETTLING_SECONDS
from manager.autoscaler.scale_down import budgets, pods_on_nodes
from manager.autoscaler.scale_down.budgets import DeletionCounts, NodeBucket
from manager.autoscaler.scale_down.inputs import ScaleDownContext, ScaleDownInputs
from manager.autoscaler.scale_down.pods_on_nodes import DrainPlan
from manager.autoscaler.scale_down.removal_status import (
    NodeRemovalStatus,
    NodeStanding,
    NodeToRemove,
    ScaleDownDecision,
    ScaleDownReason,
)
from manager.autoscaler.scale_up import groups, orchestrator
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings, TimeLimits, no_deadline
from manager.autoscaler.snapshot.cluster import NodeState
from shared import durations
from shared.api import pods
from shared.api.core import Node, Pod
from shared.explanation import first_names
from shared.quantity import Resources

ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
KARPENTER = "karpenter"  # this provider marks all of its machines for Karpenter itself
MOST_NAMES = 3

SWITCHED_OFF = "consolidation is off"
NOT_ENFORCED = "a group of it is not in enforce mode any more"


@dataclass(frozen=True)
class PlannedConsolidation:
    """What an iteration does about replacements. `scale_down` has the old nodes that go now among its removals."""

    scale_down: ScaleDownDecision
    registry: Registry
    launches: tuple[Action, ...] = ()
    decision: ConsolidationDecision | None = None


def plan(
    context: AutoscalingContext,
    inputs: ScaleDownInputs,
    scale_down: ScaleDownDecision,
    waiting: ScaleUpInput,
    prices: Mapping[str, float],
) -> PlannedConsolidation:
    """`inputs` and `scale_down` are those of scale-down in this iteration; `prices` are by node, per hour."""
    rules, registry = context.settings.consolidation, context.reconciled.registry
    if registry.replacing is not None:
        own = rules or ConsolidationRules()
        return _Following(context, inputs, scale_down, own, prices, is_on=rules is not None).plan(registry.replacing)
    if rules is None:
        return PlannedConsolidation(scale_down, registry)
    decision = _search(context, inputs, scale_down, waiting, rules, prices)
    if decision.option is None or decision.advice:
        return PlannedConsolidation(scale_down, registry, decision=decision)
    chosen = _describe_choice(decision.option, context)
    state, instructions = replacing.step(None, ReplacementChosen(chosen), rules)
    launches = tuple(
        _increase(launch, chosen, decision.option, context)
        for instruction in instructions
        if isinstance(instruction, LaunchNodes)
        for launch in instruction.launches
    )
    return PlannedConsolidation(scale_down, with_replacement(registry, state), launches, replace(decision, move=state))


def _search(
    context: AutoscalingContext,
    inputs: ScaleDownInputs,
    scale_down: ScaleDownDecision,
    waiting: ScaleUpInput,
    rules: ConsolidationRules,
    prices: Mapping[str, float],
) -> ConsolidationDecision:
    """A search among the groups in enforce mode; where there are none, advice about those in recommend mode."""
    config, cache, now = context.settings, context.cache, context.objects.now
    enforced = {name: each for name, each in inputs.groups.items() if config.mode_of(name) is Mode.ENFORCE}
    advice = not enforced
    over = replace(inputs, groups=inputs.groups if advice else enforced)
    allowed = _allowed(over, rules)
    blocked = _blocked_reason(context, over, scale_down, rules)
    seen = frozenset(node.name for node in inputs.nodes), blocked and blocked[0], allowed
    last = cache.consolidation
    if last is not None and last.seen == seen and now < last.until <= now + config.scale_down.recheck_seconds:
        return last.decision
    before = {} if last is None else last.decision.verdicts
    untried = {name for name, each in before.items() if each.reason is ConsolidationReason.OUT_OF_TIME}
    found = search.search(
        ScaleDownContext(over, config.scale_down),
        ConsolidationInputs(
            prices=prices,
            targets=_targets(waiting, config.scale_up, over),
            created_at={node.metadata.name: node.metadata.created_at for node in context.objects.nodes},
            disruptions=_disruptions(context.objects.pods),
            held=_undisturbed_nodes(context),
            untried=untried,
            unneeded=[each for each in scale_down.unneeded if inputs.group_of.get(each) in over.groups],
            remaining=orchestrator.headroom(waiting, config.scale_up),
            allowed=allowed,
            blocked=blocked,
        ),
        rules,
        TimeLimits(config.clock).deadline(rules.search_seconds) if config.clock else no_deadline,
    )
    found = replace(found, advice=advice)
    acts = found.option is not None and not advice
    cache.consolidation = None if acts else LastConsolidation(now + config.scale_down.recheck_seconds, seen, found)
    return found


def _targets(waiting: ScaleUpInput, settings: ScaleUpSettings, inputs: ScaleDownInputs) -> list[LaunchTarget]:
    """The existing groups that may grow and have a price."""
    remaining = orchestrator.headroom(waiting, settings)
    found = []
    for state in waiting.groups:
        if not state.exists or state.zero_or_max or state.id not in inputs.groups or settings.pricing is None:
            continue
        if groups.skip_reason(state, remaining, settings.usage, settings.ownership) or state.template is None:
            continue
        try:
            price = settings.pricing.node_price(state.template.machine)
        except Unpriced:
            continue
        found.append(LaunchTarget(state, state.template, price, list_prices.is_spot_machine(state.template.machine)))
    return found


def _blocked_reason(
    context: AutoscalingContext, inputs: ScaleDownInputs, scale_down: ScaleDownDecision, rules: ConsolidationRules
) -> tuple[ConsolidationReason, str] | None:
    """What delays every replacement."""
    now, registry = context.objects.now, context.reconciled.registry
    if context.upcoming or registry.requests:
        return ConsolidationReason.COOLDOWN, "nodes are on their way"
    if scale_down.removals or inputs.in_progress.empty or inputs.in_progress.drained:
        return ConsolidationReason.NOT_ITS_TURN, "scale-down removes nodes now"
    happened = inputs.happened
    ended = registry.replaced_at if isinstance(registry.replaced_at, float) else None
    moments = [each for each in (happened.added, happened.deleted, happened.failed, ended) if each is not None]
    left = max(moments, default=now - rules.cooldown_seconds) + rules.cooldown_seconds - now
    if left > 0:
        return (
            ConsolidationReason.COOLDOWN,
            f"nodes came or went not long ago; it waits {durations.render(round(left))}",
        )
    return None


def _allowed(inputs: ScaleDownInputs, rules: ConsolidationRules) -> Allowed:
    """How many nodes the disruption limits allow to go now."""
    ours = [node for node in inputs.nodes if inputs.group_of.get(node.name, "") in inputs.groups]
    started = [node for node in ours if (node.readiness or node.state) is not NodeState.NOT_STARTED]
    unavailable = sum(node.state is not NodeState.READY or node.name in inputs.leaving for node in started)
    return allowed_nodes(rules.limits, len(started), unavailable, inputs.now)


def _disruptions(listed: Sequence[Pod]) -> dict[str, float]:
    """What the eviction of each pod costs where that is not 1: Karpenter's formula, with its bounds."""
    found = {}
    for pod in listed:
        text = pod.metadata.annotation(ANNOTATION_DELETION_COST) or ""
        cost = int(text) if text.removeprefix("-").isdecimal() and len(text) <= len(str(-(1 << 31))) else 0
        priority = pod.spec.priority or 0
        if cost or priority:
            total = 1.0 + cost / (1 << 27) + priority / (1 << 25)
            found[pod.metadata.key] = min(max(total, -MOST_POD_DISRUPTION), MOST_POD_DISRUPTION)
    return found


def _undisturbed_nodes(context: AutoscalingContext) -> dict[str, str]:
    """The nodes that are not to be disturbed, by their own annotation or by that of a pod on them."""
    found = {}
    for pod in context.objects.pods:
        if pod.spec.node_name and pod.metadata.annotation(ANNOTATION_DO_NOT_DISRUPT) == "true" and pods.is_active(pod):
            found[pod.spec.node_name] = f"pod {pod.metadata.key} has the annotation {ANNOTATION_DO_NOT_DISRUPT}"
    if context.settings.provider != KARPENTER:
        for node in context.objects.nodes:
            if node.metadata.annotation(ANNOTATION_DO_NOT_DISRUPT) == "true":
                found[node.metadata.name] = f"its annotation {ANNOTATION_DO_NOT_DISRUPT} is true"
    return found


def _describe_choice(option: ReplacementOption, context: AutoscalingContext) -> Replacement:
    now, observed, start = context.objects.now, context.cloud.observed, context.settings.start
    uids = {node.metadata.name: node.metadata.uid for node in context.objects.nodes}
    newest: dict[str, float] = {}
    for node in context.objects.nodes:
        group = observed.group_of_node.get(node.metadata.name, "")
        newest[group] = max(newest.get(group, 0.0), node.metadata.created_at)
    seconds = 0.0
    for name in option.added:
        own = observed.groups[name].options
        provision, startup = own.max_node_provision_seconds, own.max_node_startup_seconds
        provision = start.provision_seconds if provision is None else provision
        seconds = max(seconds, provision + (start.startup_seconds if startup is None else startup))
    return Replacement(
        tuple(ReplacedNode(each, uids[each], observed.group_of_node[each]) for each in option.removed),
        tuple(
            Launch(name, observed.groups[name].group.target_size, count, newest.get(name, 0.0))
            for name, count in sorted(option.added.items())
        ),
        option.saving,
        now,
        now + seconds,
    )


def _increase(launch: Launch, chosen: Replacement, option: ReplacementOption, context: AutoscalingContext) -> Action:
    names = tuple(each.name for each in chosen.removed)
    return Action(
        ActionKind.INCREASE,
        launch.group,
        context.settings.mode_of(launch.group),
        launch.from_size,
        launch.from_size + launch.nodes,
        context.cloud.observed.groups[launch.group].group.max_size,
        names,
        f"replaces {first_names(names, MOST_NAMES)}, which saves {option.saves_per_month:.4g}/month",
    )


@dataclass(frozen=True)
class _Following:
    """Takes a replacement under way further."""

    context: AutoscalingContext
    inputs: ScaleDownInputs
    scale_down: ScaleDownDecision
    rules: ConsolidationRules
    prices: Mapping[str, float]
    is_on: bool

    def plan(self, known: Replacement) -> PlannedConsolidation:
        registry = self.context.reconciled.registry
        state: Replacement | None = known
        removals: list[NodeToRemove] = []
        ended, is_done = "", False
        queue: list[ReplacementInstruction] = []
        state, instructions = replacing.step(known, self._event(known), self.rules)
        queue += instructions
        while queue:
            instruction = queue.pop(0)
            match instruction:
                case LookAgain():
                    assert state is not None
                    looked, drains = self._look(state, instruction.nodes)
                    state, more = replacing.step(state, looked, self.rules)
                    queue += more
                case RemoveNodes():
                    removals += [self._removal(name, drains[name]) for name in instruction.nodes]
                case ReplacementEnded():
                    ended, is_done = str(instruction), instruction.outcome is ReplacementOutcome.DONE
                    registry = msgspec.structs.replace(registry, replaced_at=self.context.objects.now)
                case LaunchNodes():
                    pass
        decision = ConsolidationDecision(move=state, ended=ended, is_done=is_done)
        scale_down = self._add_removals(removals, known)
        return PlannedConsolidation(scale_down, with_replacement(registry, state), decision=decision)

    def _event(self, known: Replacement) -> ReplacementEvent:
        context = self.context
        if not self.is_on:
            return ReplacementAbandoned(SWITCHED_OFF)
        if any(
            name not in self.inputs.groups or context.settings.mode_of(name) is not Mode.ENFORCE
            for name in known.groups
        ):
            return ReplacementAbandoned(NOT_ENFORCED)
        launched = scale_down_planning.launched_nodes(known, context)
        return ReplacementSeen(
            context.objects.now,
            frozenset(node.metadata.uid for node in context.objects.nodes),
            frozenset(self.inputs.leaving),
            {
                name: tuple(each.metadata.name for each in nodes if self._is_ready(each))
                for name, nodes in launched.items()
            },
            self._failures(known, launched),
        )

    def _is_ready(self, node: Node) -> bool:
        return self.context.reconciled.node_states[node.metadata.name] is NodeState.READY

    def _failures(self, known: Replacement, launched: Mapping[str, Sequence[Node]]) -> dict[str, str]:
        """Why no further nodes come to a group: it has failed since, or nothing asks for nodes any more."""
        registry, now = self.context.reconciled.registry, self.context.objects.now
        found = {}
        for launch in known.launches:
            if len(launched[launch.group]) >= launch.nodes:
                continue
            backoff = registry.backoffs.get(launch.group)
            if backoff is not None and backoff.failed_at >= known.started_at:
                found[launch.group] = f"group {launch.group} failed: {backoff.reason}"
            elif launch.group not in registry.requests and now - known.started_at > SETTLING_SECONDS:
                found[launch.group] = f"no more nodes of group {launch.group} are on their way"
        return found

    def _look(self, state: Replacement, waiting: Sequence[ReplacedNode]) -> tuple[LookedAgain, Mapping[str, DrainPlan]]:
        """Whether these old nodes can go, all of them, on what is there now; and which of them may begin."""
        now, names = self.context.objects.now, [each.name for each in waiting]
        drains = self._drains(state, names)
        if isinstance(drains, str):
            return LookedAgain(now, refusal=drains), {}
        removing = DeletionCounts(
            self.inputs.in_progress.empty + sum(not each.is_drained for each in self.scale_down.removals),
            self.inputs.in_progress.drained + sum(each.is_drained for each in self.scale_down.removals),
        )
        allowed = _allowed(self.inputs, self.rules)
        cropped = budgets.crop(
            [NodeBucket("", tuple(name for name in names if not drains[name].evicted))],
            [NodeBucket("", tuple(name for name in names if drains[name].evicted))],
            {},
            removing,
            self.context.settings.scale_down.parallelism,
        )
        may = [name for bucket in (*cropped.empty, *cropped.drained) for name in bucket.nodes][: allowed.nodes]
        if not may and not allowed.nodes and not any(each.name in self.inputs.leaving for each in state.removed):
            return LookedAgain(now, refusal=f"the disruption limit {allowed.limit!r} allows no node now"), {}
        return LookedAgain(now, tuple(may)), drains

    def _drains(self, state: Replacement, names: Sequence[str]) -> dict[str, DrainPlan] | str:
        """What happens to the pods of these nodes; or why they cannot go together."""
        inputs, held = self.inputs, _undisturbed_nodes(self.context)
        for name in names:
            failed = inputs.memory.unremovable.get(name)
            if name in held:
                return f"{name}: {held[name]}"
            if failed is not None and inputs.now < failed.until:
                return f"{name} could not go a short while ago: {failed.detail}"
        new = [
            node.metadata.name
            for nodes in scale_down_planning.launched_nodes(state, self.context).values()
            for node in nodes
        ]
        if state.phase is not ReplacementPhase.DRAINING:
            unpriced = [name for name in (*names, *new) if name not in self.prices]
            if unpriced:
                return f"{unpriced[0]} has no price any more"
            if sum(self.prices[each] for each in new) >= sum(self.prices[each] for each in names):
                return "the new nodes cost no less than those that would go now"
        over = ScaleDownContext(replace(inputs, peaks=self._peaks(new)), self.context.settings.scale_down)
        gone = [each for each in self.scale_down.unneeded if each not in names]
        simulation = ReplacementSimulation(over, gone)
        drains = simulation.drains(names, ())
        if isinstance(drains, tuple):
            return drains[1]
        placed = simulation.place(names)
        return drains if placed.stuck is None else placed.stuck.detail

    def _peaks(self, new: Sequence[str]) -> Mapping[str, Resources] | None:
        """The predicted peaks; that of a new node without a report is what its pods request."""
        peaks = self.inputs.peaks
        if peaks is None:
            return None
        on_node = pods_on_nodes.pods_by_node(self.inputs.residents)
        young = {
            name: pods_on_nodes.requested(
                each.facts.requests for each in on_node.get(name, ()) if each.drain_info is not None
            )
            for name in new
            if name not in peaks
        }
        return {**peaks, **young}

    def _removal(self, name: str, drain: DrainPlan) -> NodeToRemove:
        status = self.scale_down.statuses.get(name)
        return NodeToRemove(
            name,
            self.inputs.group_of[name],
            ScaleDownReason.UNDERUTILIZED if drain.evicted else ScaleDownReason.EMPTY,
            (status and status.utilization) or 0.0,
            tuple(each.key for each in drain.evicted),
        )

    def _add_removals(self, removals: Sequence[NodeToRemove], known: Replacement) -> ScaleDownDecision:
        """Scale-down's decision with these removals."""
        made = Counter(each.group for each in known.launches for _ in range(each.nodes))
        by = ", ".join(f"{count} of {group}" for group, count in sorted(made.items()))
        statuses = {
            each.node: NodeRemovalStatus(
                each.node, each.group, NodeStanding.GOES, None, f"it is replaced by {by}", each.utilization
            )
            for each in removals
        }
        decision = self.scale_down
        return replace(
            decision,
            removals=(*decision.removals, *removals),
            statuses={**decision.statuses, **statuses},
        )
