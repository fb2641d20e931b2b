"""Consolidation by price in one iteration: finds a replacement to begin.

It comes after scale-down, and only where nothing scales up: what scale-down removes costs nothing to replace.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.disruption import consolidation_search
from manager.autoscaler.disruption.candidates import UNKNOWN_PRICE, LaunchTarget, eviction_costs
from manager.autoscaler.disruption.consolidation_rules import ConsolidationRules
from manager.autoscaler.disruption.consolidation_search import ConsolidationInputs
from manager.autoscaler.disruption.disruption_limits import allowance
from manager.autoscaler.disruption.verdicts import ConsolidationDecision, ConsolidationReason
from manager.autoscaler.planning import replacement_planning
from manager.autoscaler.planning.candidate_groups import CandidateGroups
from manager.autoscaler.planning.context import AutoscalingContext, LastConsolidation
from manager.autoscaler.pricing import list_prices
from manager.autoscaler.pricing.model import NotOffered, PricingModel, Unpriced, known_node_price
from manager.autoscaler.scale_down.inputs import ScaleDownContext, ScaleDownInputs
from manager.autoscaler.scale_down.removal_status import ScaleDownDecision
from manager.autoscaler.scale_up import groups, orchestrator
from manager.autoscaler.scale_up.groups import Headroom
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings, TimeLimits, no_deadline
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import equivalence_groups
from manager.autoscaler.snapshot.cluster import NodeTemplate
from shared import durations
from shared.api import pods
from shared.api.core import Pod


def find(
    context: AutoscalingContext,
    inputs: ScaleDownInputs,
    scale_down: ScaleDownDecision,
    waiting: ScaleUpInput,
    rules: ConsolidationRules,
    cost: Cost,
) -> ConsolidationDecision:
    """A search among the groups in enforce mode; where there are none, advice about those in recommend mode. `inputs`
    and `scale_down` are those of scale-down in this iteration. A guess is no price here.
    """
    config, cache, now = context.settings, context.cache, context.objects.now
    enforced = {name: each for name, each in inputs.groups.items() if config.mode_of(name) is Mode.ENFORCE}
    advice = not enforced
    over = replace(inputs, groups=inputs.groups if advice else enforced)
    allowed = allowance(over, rules.limits, DisruptionReason.UNDERUTILIZED)
    blocked = _blocked_reason(context, over, scale_down, rules)
    seen = frozenset(node.name for node in inputs.nodes), blocked and blocked[0], allowed
    last = cache.consolidation
    if last is not None and last.seen == seen and now < last.until <= now + config.scale_down.recheck_seconds:
        return last.decision
    before = {} if last is None else last.decision.verdicts
    is_late = TimeLimits(config.clock).deadline(rules.search_seconds) if config.clock else no_deadline
    remaining = orchestrator.headroom(waiting, config.scale_up)
    prices = cost.known_by_node
    creatable, new_groups = _creatable(context, over, prices, advice=advice)
    targets, unpriced = _priced_targets(
        [*launch_targets(waiting, config.scale_up, over), *_targets(creatable, remaining, config.scale_up)],
        config.scale_up.pricing,
    )
    untried = {name for name, each in before.items() if each.reason is ConsolidationReason.OUT_OF_TIME}
    found = consolidation_search.search(
        ScaleDownContext(over, config.scale_down),
        ConsolidationInputs(
            prices=prices,
            targets=targets,
            unknown=cost.unknown,
            unpriced=unpriced,
            created_at={node.metadata.name: node.metadata.created_at for node in context.objects.nodes},
            disruptions=eviction_costs(context.objects.pods),
            held=replacement_planning.undisturbed_nodes(context),
            untried=untried,
            unneeded=[each for each in scale_down.unneeded if inputs.group_of.get(each) in over.groups],
            remaining=remaining,
            new_groups=new_groups,
            allowed=allowed,
            blocked=blocked,
        ),
        rules,
        is_late,
    )
    found = replace(found, advice=advice)
    acts = found.option is not None and not advice
    cache.consolidation = None if acts else LastConsolidation(now + config.scale_down.recheck_seconds, seen, found)
    return found


def launch_targets(waiting: ScaleUpInput, settings: ScaleUpSettings, inputs: ScaleDownInputs) -> list[LaunchTarget]:
    """The existing groups that may grow."""
    existing = [state for state in waiting.groups if state.exists and state.id in inputs.groups]
    return _targets(existing, orchestrator.headroom(waiting, settings), settings)


def _creatable(
    context: AutoscalingContext, inputs: ScaleDownInputs, prices: Mapping[str, float], *, advice: bool
) -> tuple[list[GroupStatus], int]:
    """The groups that could be created for the pods of all priced nodes, and how many may be."""
    config, created = context.settings, CandidateGroups(context)
    if not config.autoprovisioning.enabled or not created.groups_left:
        return [], 0
    going = {name for name, group in inputs.group_of.items() if group in inputs.groups and name in prices}
    moving = [pod for pod in context.objects.pods if pod.spec.node_name in going and _moves(pod)]
    classes = equivalence_groups.build_equivalence_groups(moving, context.objects.surroundings).classes
    wanted = Mode.RECOMMEND if advice else Mode.ENFORCE
    return [each for each in created.states(classes) if config.mode_of(each.id) is wanted], created.groups_left


def _moves(pod: Pod) -> bool:
    """Whether it needs a place when its node goes."""
    stays = equivalence_groups.is_daemon(pod) or equivalence_groups.is_mirror(pod)
    return pods.is_active(pod) and not stays


def _targets(states: Iterable[GroupStatus], remaining: Headroom, settings: ScaleUpSettings) -> list[LaunchTarget]:
    found = []
    for state in states:
        if state.zero_or_max:
            continue
        if groups.skip_reason(state, remaining, settings.usage, settings.ownership) or state.template is None:
            continue
        price = _price(settings.pricing, state.template)
        found.append(LaunchTarget(state, state.template, price, list_prices.is_spot_machine(state.template.machine)))
    return found


def _priced_targets(
    targets: Iterable[LaunchTarget], pricing: PricingModel | None
) -> tuple[list[LaunchTarget], dict[str, str]]:
    """Those with a price that is no guess, and why each of the other groups has none."""
    found, problems = [], {}
    for each in targets:
        try:
            if pricing is None:
                raise NotOffered("there are no prices")
            found.append(replace(each, price=known_node_price(pricing, each.template.machine)))
        except Unpriced as problem:
            problems[each.id] = str(problem)
    return found, problems


def _price(pricing: PricingModel | None, template: NodeTemplate) -> float:
    if pricing is None:
        return UNKNOWN_PRICE
    try:
        return pricing.node_price(template.machine)
    except Unpriced:
        return UNKNOWN_PRICE


def waits_for_nodes(
    context: AutoscalingContext, inputs: ScaleDownInputs, scale_down: ScaleDownDecision
) -> tuple[ConsolidationReason, str] | None:
    """The nodes that come or go now, which delay every replacement."""
    if context.upcoming or context.reconciled.registry.requests:
        return ConsolidationReason.COOLDOWN, "nodes are on their way"
    if scale_down.removals or inputs.in_progress.empty or inputs.in_progress.drained:
        return ConsolidationReason.NOT_ITS_TURN, "scale-down removes nodes now"
    return None


def _blocked_reason(
    context: AutoscalingContext, inputs: ScaleDownInputs, scale_down: ScaleDownDecision, rules: ConsolidationRules
) -> tuple[ConsolidationReason, str] | None:
    """What delays every replacement for its price."""
    if (delayed := waits_for_nodes(context, inputs, scale_down)) is not None:
        return delayed
    now, registry = context.objects.now, context.reconciled.registry
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
