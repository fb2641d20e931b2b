"""Replacements in one iteration: takes the one under way further, or begins one.

Nodes that have to go come before nodes that are only dear.
"""

from dataclasses import replace

from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.replacement import DisruptionReason, Replacement, ReplacementPhase
from manager.autoscaler.disruption import due_node_search, due_nodes
from manager.autoscaler.disruption.consolidation_rules import ConsolidationRules
from manager.autoscaler.disruption.disruption_limits import allowance
from manager.autoscaler.disruption.due_node_search import DisruptionInputs
from manager.autoscaler.disruption.due_nodes import DueNode
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.disruption.verdicts import ConsolidationDecision, ConsolidationReason, ReplacementVerdict
from manager.autoscaler.planning import consolidation_planning, replacement_planning
from manager.autoscaler.planning.context import AutoscalingContext, LastConsolidation
from manager.autoscaler.planning.replacement_planning import PlannedReplacement, ReplacementFollower
from manager.autoscaler.scale_down.inputs import ScaleDownContext, ScaleDownInputs
from manager.autoscaler.scale_down.removal_status import ScaleDownDecision
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.options import ScaleUpInput, TimeLimits, no_deadline
from manager.autoscaler.settings.modes import Mode
from shared import durations
from shared.errors import InvalidInput

SWITCHED_OFF = "consolidation is off"
NOT_DUE = "there is no need of it any more"
TAKEN = "the cloud takes a node of it now"


def plan(
    context: AutoscalingContext,
    inputs: ScaleDownInputs,
    scale_down: ScaleDownDecision,
    waiting: ScaleUpInput,
    cost: Cost,
) -> PlannedReplacement:
    """`inputs` and `scale_down` are those of scale-down in this iteration."""
    config, registry = context.settings, context.reconciled.registry
    by_price, rules = config.consolidation, config.disruption
    due = _due(context, inputs, rules)
    if registry.replacing is not None:
        own, known = by_price or ConsolidationRules(), registry.replacing
        unwanted = _unwanted(known, context, due)
        grace = None if known.reason is DisruptionReason.UNDERUTILIZED else rules.grace_seconds
        follower = ReplacementFollower(
            context, inputs, scale_down, own, rules.limits, cost.known_by_node, unwanted, grace
        )
        found = follower.plan(known)
        return replace(found, decision=found.decision and replace(found.decision, verdicts=_waiting(known, due)))
    if by_price is None and not due:
        return PlannedReplacement(scale_down, registry)
    decided = _renewal(context, inputs, scale_down, waiting, due) if due else ConsolidationDecision()
    if by_price is not None and (decided.option is None or decided.advice):
        cheaper = consolidation_planning.find(context, inputs, scale_down, waiting, by_price, cost)
        if decided.verdicts:
            verdicts = dict(sorted({**cheaper.verdicts, **decided.verdicts}.items()))
            cheaper = replace(cheaper, verdicts=verdicts)
        decided = cheaper if decided.option is None else replace(decided, verdicts=cheaper.verdicts)
    return replacement_planning.begin(decided, context, scale_down, by_price or ConsolidationRules())


def _due(context: AutoscalingContext, inputs: ScaleDownInputs, rules: DisruptionRules) -> list[DueNode]:
    observed, nodes = context.cloud.observed, context.objects.nodes
    for condition in due_nodes.unknown_conditions(nodes, rules.all_repairs):
        context.invalid_objects[f"condition {condition}"] = InvalidInput(
            source="--node-repair-conditions", field="type", value=condition, problem="no node has such a condition"
        )
    lifetimes = {
        name: rules.lifetime_of(name, observed.groups[name].options.max_node_lifetime_seconds) for name in inputs.groups
    }
    if not any(rules.of_group(name).is_any_on(seconds) for name, seconds in lifetimes.items()):
        return []
    drifts = {
        each.provider_id: each.drift for name in lifetimes for each in observed.groups[name].instances if each.drift
    }
    drifted = {node.metadata.name: drifts.get(node.spec.provider_id, "") for node in nodes} if drifts else {}
    return due_nodes.find_due(nodes, observed.group_of_node, lifetimes, drifted, rules, context.objects.now)


def _waiting(known: Replacement, due: list[DueNode]) -> dict[str, ReplacementVerdict]:
    """The verdicts while a replacement is under way."""
    names, now = {each.name for each in known.removed}, str(known)
    found = {}
    for each in due:
        is_its = each.name in names and each.reason is known.reason
        reason = None if is_its else ConsolidationReason.NOT_ITS_TURN
        detail = now if is_its else "another replacement is under way"
        text = f"{each.reason}, {each.why}; {detail}"
        found[each.name] = ReplacementVerdict(each.name, reason, text, disruption=each.reason)
    return found


def _unwanted(known: Replacement, context: AutoscalingContext, due: list[DueNode]) -> str:
    """Why the replacement under way is not to go on; a node that is drained already goes."""
    names = {each.name for each in known.removed}
    if names & context.interrupted and known.phase is not ReplacementPhase.DRAINING:
        return TAKEN
    if known.reason is DisruptionReason.UNDERUTILIZED:
        return SWITCHED_OFF if context.settings.consolidation is None else ""
    is_due = any(each.name in names for each in due)
    return "" if is_due or known.phase is ReplacementPhase.DRAINING else NOT_DUE


def _renewal(
    context: AutoscalingContext,
    inputs: ScaleDownInputs,
    scale_down: ScaleDownDecision,
    waiting: ScaleUpInput,
    due: list[DueNode],
) -> ConsolidationDecision:
    """A search among the due nodes of groups in enforce mode; where there are none, advice about those in recommend
    mode.
    """
    config, cache, now, rules = context.settings, context.cache, context.objects.now, context.settings.disruption
    enforced = {name: each for name, each in inputs.groups.items() if config.mode_of(name) is Mode.ENFORCE}
    chosen = [each for each in due if each.group in enforced]
    advice = not chosen
    over = inputs if advice else replace(inputs, groups=enforced)
    allowed = {reason: allowance(over, rules.limits, reason) for reason in {each.reason for each in due}}
    blocked = _blocked_reason(context, inputs, scale_down, rules)
    named = tuple((each.name, each.reason) for each in due)
    seen = frozenset(node.name for node in inputs.nodes), named, blocked and blocked[0], tuple(sorted(allowed.items()))
    last = cache.disruption
    if last is not None and last.seen == seen and now < last.until <= now + config.scale_down.recheck_seconds:
        return last.decision
    repaired = [node for node in context.objects.nodes if node.metadata.name in inputs.group_of]
    held = replacement_planning.undisturbed_nodes(context, minds_pods=rules.grace_seconds is None)
    found = due_node_search.search(
        ScaleDownContext(over, config.scale_down),
        DisruptionInputs(
            due if advice else chosen,
            consolidation_planning.launch_targets(waiting, config.scale_up, over),
            held={**_failed(inputs), **held},
            unneeded=[each for each in scale_down.unneeded if inputs.group_of.get(each) in over.groups],
            unhealthy=due_nodes.too_many_unhealthy(repaired, inputs.group_of, rules),
            remaining=orchestrator.headroom(waiting, config.scale_up),
            allowed=allowed,
            blocked=blocked,
            is_forced=rules.grace_seconds is not None,
        ),
        TimeLimits(config.clock).deadline(rules.search_seconds) if config.clock else no_deadline,
    )
    found = replace(found, advice=advice)
    acts = found.option is not None and not advice
    cache.disruption = None if acts else LastConsolidation(now + config.scale_down.recheck_seconds, seen, found)
    return found


def _blocked_reason(
    context: AutoscalingContext, inputs: ScaleDownInputs, scale_down: ScaleDownDecision, rules: DisruptionRules
) -> tuple[ConsolidationReason, str] | None:
    """What delays every replacement."""
    if (delayed := consolidation_planning.waits_for_nodes(context, inputs, scale_down)) is not None:
        return delayed
    ended, now = context.reconciled.registry.replaced_at, context.objects.now
    if isinstance(ended, float) and (left := ended + rules.pause_seconds - now) > 0:
        return (
            ConsolidationReason.COOLDOWN,
            f"another node was replaced just now; it waits {durations.render(round(left))}",
        )
    return None


def _failed(inputs: ScaleDownInputs) -> dict[str, str]:
    """The nodes whose deletion failed a short while ago."""
    return {
        name: f"its deletion failed a short while ago: {each.detail}"
        for name, each in inputs.memory.unremovable.items()
        if each.reason is UnremovableReason.UNEXPECTED and inputs.now < each.until
    }
