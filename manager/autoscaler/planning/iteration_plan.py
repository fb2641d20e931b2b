"""Plans one iteration: from the observed cluster to the actions, in Cluster Autoscaler's order.

Pure, except for reads through `cloud` and for the `AutoscalerCache`, which outlives an iteration. The manager's loop,
`headroom plan` and the API call the same function; only the loop acts on the result.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from manager.autoscaler.cluster_state import cost
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import disruption_planning, interruption_planning, scale_down_planning
from manager.autoscaler.planning.candidate_groups import CandidateGroups
from manager.autoscaler.planning.context import (
    AutoscalerCache,
    AutoscalingContext,
    ObservedCloud,
    OfferedBy,
    no_reclaimed_capacity,
    open_context,
)
from manager.autoscaler.pod_injection import buffer_planning, buffer_reading, request_reading, resource_quotas
from manager.autoscaler.pod_injection.request_planning import RequestPlan, RequestPlanner
from manager.autoscaler.pod_injection.request_reading import ReadRequests
from manager.autoscaler.scale_down.removal_status import DeletionsInProgress
from manager.autoscaler.scale_up import candidates, capacity_quotas, orchestrator, pending_pods, salvo
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome, explain_growth
from manager.autoscaler.scale_up.options import ScaleUpInput
from manager.autoscaler.scale_up.pending_pods import PendingPods
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import equivalence_groups
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.errors import InvalidInput
from shared.explanation import ScaleExplanation

UNKNOWN_UPCOMING = "upcoming nodes are unknown"
NO_READY_NODE = "no node is ready, and --scale-up-from-zero is off"
SETTLING = "all pending pods are new: their owners may be making more"
RECOMMENDED = "its mode is recommend"
EMPTY = "created here, and empty"


@dataclass(frozen=True)
class PlannedIteration:
    """A planned iteration on which nothing has acted yet, with the context that the actions need. The `registry` is
    stored before any action.

    `again_seconds` says when the next iteration is due, if not after the scan interval. `abandoned` nodes carry taints
    of a removal that no longer runs; the loop takes the taints off.
    """

    iteration: Iteration
    registry: Registry
    context: AutoscalingContext
    again_seconds: float | None = None
    abandoned: tuple[str, ...] = ()

    @property
    def decisions(self) -> tuple[ScaleUpDecision, ...]:
        return self.iteration.decisions

    def with_problems(self, problems: Mapping[str, InvalidInput]) -> "PlannedIteration":
        """The same with more problems to report, by what they are about."""
        if not problems:
            return self
        invalid_objects = {**self.iteration.invalid_objects, **problems}
        return replace(self, iteration=replace(self.iteration, invalid_objects=invalid_objects))


def plan(
    objects: ClusterObjects,
    cloud: ObservedCloud,
    known: Registry | None,
    settings: DecisionSettings,
    *,
    number: int = 1,
    chance: random.Random,
    cache: AutoscalerCache | None = None,
    offered_by: OfferedBy | None = None,
    underway: DeletionsInProgress | None = None,
    begins: bool = False,
    dry_run: bool = False,
) -> PlannedIteration:
    """Plans one iteration. Without a `known` registry, missing nodes of a target count as upcoming. `offered_by`
    gives the Mid and Batch capacity of a new, empty Node. `begins`: this is the first iteration of a new leader.

    Raises ProviderError.
    """
    context = open_context(
        objects,
        cloud,
        known,
        settings,
        chance=chance,
        cache=cache or AutoscalerCache(settings),
        offered_by=offered_by or no_reclaimed_capacity,
        underway=underway or DeletionsInProgress(),
    )
    requests = _read_pod_injection(context)
    reconciled, settings = context.reconciled, context.settings
    blocked_reason = _blocked_reason(context)
    there = {node.metadata.name for node in objects.nodes}
    waits = pending_pods.list_pending_pods(
        objects.pods, settings.pending, objects.now, there, objects.surroundings.claims
    )
    again = None
    if not blocked_reason and waits.settled_at is not None:
        blocked_reason, again = SETTLING, waits.settled_at - objects.now
    iteration = Iteration(
        number,
        objects.now,
        state=reconciled.state,
        blocked_reason=blocked_reason,
        skipped_pods=waits.skipped_pods,
        cost=cost.cluster_cost(
            context.current, cloud.observed.group_of_node, settings.scale_up.pricing, context.templates
        ),
        actions=reconciled.corrections,
        incidents=reconciled.incidents,
        interruptions=context.interruptions,
        dry_run=dry_run,
        leaving=context.underway.leaving,
        cluster=settings.cluster_name,
    )
    registry = reconciled.registry
    if not blocked_reason:
        iteration, registry = _decide(iteration, waits, requests, context)
    iteration = replace(iteration, invalid_objects=dict(context.invalid_objects))
    known_templates = context.cache.templates
    known_templates.forget(known_templates.groups - cloud.observed.groups.keys() - cloud.observed.refused.keys())
    abandoned = scale_down_planning.abandoned_nodes(context, begins=begins)
    return PlannedIteration(iteration, registry, context, again, abandoned)


def _read_pod_injection(context: AutoscalingContext) -> ReadRequests:
    """The ProvisioningRequests; the CapacityQuotas and CapacityBuffers go to the cache, as the last valid ones."""
    objects, cache, invalid_objects = context.objects, context.cache, context.invalid_objects
    cache.capacity_limits, refused_quotas = capacity_quotas.read_quotas(objects.capacity_quotas, cache.capacity_limits)
    sources = buffer_reading.BufferSources(objects.chunk_sources, objects.pods, objects.surroundings)
    buffers, refused_buffers = buffer_reading.read_buffers(
        objects.capacity_buffers, sources, cache.buffers, on_mid=context.settings.buffers_on_mid
    )
    cache.buffers, over_quota = resource_quotas.limit_chunks(buffers, objects.resource_quotas)
    requests = request_reading.read_requests(
        objects.provisioning_requests,
        sources,
        objects.now,
        promises=cache.requests.promises,
        templates=cache.requests.templates,
    )
    for refused in (refused_quotas, refused_buffers, over_quota, requests.refused):
        invalid_objects.update(refused)
    return requests


def _decide(
    iteration: Iteration, waits: PendingPods, requests: ReadRequests, context: AutoscalingContext
) -> tuple[Iteration, Registry]:
    """The iteration with its decisions and their actions, and the registry to store. An iteration that scales up
    removes no node.
    """
    registry = context.reconciled.registry
    objects, observed = context.objects, context.cloud.observed
    classified = equivalence_groups.build_equivalence_groups(
        (*waits.pods, *context.recreatable.values()), objects.surroundings
    )
    groups_of = observed.group_of_node
    templates = {node: context.templates[group].node for node, group in groups_of.items() if group in context.templates}
    current = ScaleUpInput(
        context.current,
        classified.classes,
        context.states(),
        cluster_nodes=len(objects.nodes),
        quotas=tuple(
            each.remaining_quota(context.current.nodes, templates, context.settings.scale_up.usage)
            for each in context.cache.capacity_limits.values()
        ),
        expected=objects.expected,
        templates_of_nodes=templates,
    )
    planner = RequestPlanner(requests, context.cache.requests, context.settings.scale_up, objects.now, context.chance)
    scale_up_input = planner.hold(current)
    buffers = tuple(context.cache.buffers.values())
    chunks = buffer_planning.chunk_classes(scale_up_input, buffers)
    if context.settings.autoprovisioning.enabled:
        created = CandidateGroups(context)
        creatable = created.states(_unschedulable_groups(_with_classes(scale_up_input, [*chunks, *planner.wanted])))
        scale_up_input = replace(
            scale_up_input,
            groups=[*scale_up_input.groups, *creatable],
            new_groups=candidates.creatable_groups(created.groups_left, creatable),
        )
    decisions, request_plan = _decisions(replace(scale_up_input, buffers=chunks), context, planner)
    context.cache.requests = request_plan.memory
    actions = [
        *iteration.actions,
        *_creations(decisions, context.settings),
        *increase_actions(decisions, context.settings),
    ]
    actions += _deletions(context, {action.group for action in actions})
    scale_down = None
    if context.settings.scales_down and not any(_is_growth(decision) for decision in decisions):
        waiting = _with_classes(replace(current, groups=scale_up_input.groups), [*chunks, *request_plan.held])
        inputs = scale_down_planning.scale_down_inputs(context, waiting)
        scale_down = scale_down_planning.decide(context, inputs)
        scale_down = interruption_planning.with_emptied(context, inputs, scale_down)
        if not any(decision.increases for decision in decisions):
            replacing = disruption_planning.plan(context, inputs, scale_down, scale_up_input, iteration.cost)
            scale_down, registry = replacing.scale_down, replacing.registry
            actions += replacing.launches
            iteration = replace(iteration, consolidation=replacing.decision)
        actions += scale_down_planning.removal_actions(scale_down, context)
    decided = replace(
        iteration,
        scale_down=scale_down,
        buffers=buffer_planning.buffer_plan(buffers, [each for each in decisions if each.for_buffers]),
        requests=request_plan if requests.is_any else None,
        actions=tuple(actions),
    )
    context.invalid_objects.update({**classified.refused, **_failed_expanders(decisions)})
    return decided.with_decisions(decisions), registry


def _with_classes(scale_up_input: ScaleUpInput, more: Sequence[EquivalenceGroup]) -> ScaleUpInput:
    """The input with more among its pods: chunks of buffers, and pods of requests."""
    return replace(scale_up_input, classes=[*scale_up_input.classes, *more]) if more else scale_up_input


def _failed_expanders(decisions: Iterable[ScaleUpDecision]) -> dict[str, InvalidInput]:
    return {
        f"expander {step.expander}": InvalidInput(
            source="--expander", field="expander", value=step.expander, problem=f"{step.problem}; all options stay in"
        )
        for decision in decisions
        for step in decision.steps
        if step.problem
    }


def _is_growth(decision: ScaleUpDecision) -> bool:
    return decision.outcome is ScaleUpOutcome.GROW and not decision.advice


def _decisions(
    scale_up_input: ScaleUpInput, context: AutoscalingContext, requests: RequestPlanner
) -> tuple[list[ScaleUpDecision], RequestPlan]:
    """The decisions, and what came of the requests.

    If they would grow groups in recommend mode, they are advice, and the decisions without these groups follow.
    """
    mode_of = context.settings.mode_of
    planner = requests.copy()
    decisions = _salvo(scale_up_input, context, planner)
    grown = [group for decision in decisions if decision.outcome is ScaleUpOutcome.GROW for group in decision.nodes]
    if all(mode_of(group) is Mode.ENFORCE for group in grown):
        return decisions, planner.finish()
    if all(mode_of(state.id) is not Mode.ENFORCE for state in scale_up_input.groups):
        return [replace(decision, advice=True) for decision in decisions], planner.finish(is_advice=True)
    enforced = [
        replace(state, blocked_reason=state.blocked_reason or RECOMMENDED)
        if mode_of(state.id) is Mode.RECOMMEND
        else state
        for state in scale_up_input.groups
    ]
    done = _salvo(replace(scale_up_input, groups=enforced), context, requests)
    every = [
        *(replace(decision, advice=True) for decision in decisions),
        *(decision for decision in done if decision.outcome is ScaleUpOutcome.GROW or decision.increases),
    ]
    return every, requests.finish()


def _salvo(
    scale_up_input: ScaleUpInput, context: AutoscalingContext, requests: RequestPlanner
) -> list[ScaleUpDecision]:
    """The decision, followed in a salvo by further ones; then the decisions about requests, and last the one about
    buffers.
    """
    settings, buffers = context.settings, scale_up_input.buffers
    decisions = salvo.decide(
        scale_up_input, settings.scale_up, context.chance, seconds=settings.salvo_seconds, clock=settings.clock
    )
    if not (buffers or requests.waits):
        return decisions
    pods_wait = any(left.awaiting for left in decisions[-1].left)
    after = replace(salvo.apply_decisions(scale_up_input, decisions), classes=(), buffers=())
    after = requests.buy(after, pods_wait=pods_wait)
    decisions += requests.decisions
    if buffers:
        after = replace(after, classes=buffers)
        decisions.append(buffer_planning.decide(after, settings.scale_up, context.chance, pods_wait=pods_wait))
        if requests.has_checks:
            after = salvo.apply_decision(after, decisions[-1])
    requests.check(after)
    return decisions


def _unschedulable_groups(scale_up_input: ScaleUpInput) -> list[EquivalenceGroup]:
    """The pods that fit no node of the cluster, now or within a reporting interval."""
    left = orchestrator.filter_out_schedulable(scale_up_input).left
    return [
        each._replace(pods=each.pods[len(each.pods) - count :])
        for each, count in zip(left.problem.classes, left.pending.tolist(), strict=True)
        if count
    ]


def increase_actions(decisions: Iterable[ScaleUpDecision], settings: DecisionSettings) -> list[Action]:
    """The actions that raise targets; one per group over all decisions, and one of advice."""
    known = list(decisions)
    return [
        Action(
            ActionKind.INCREASE,
            each.group,
            Mode.RECOMMEND if advice else settings.mode_of(each.group),
            each.from_size,
            each.to_size,
            each.max_size,
            explanation=why,
        )
        for advice in (True, False)
        for each, why in _merge_increases(decision for decision in known if decision.advice is advice)
    ]


def _merge_increases(decisions: Iterable[ScaleUpDecision]) -> list[tuple[Increase, ScaleExplanation]]:
    """The increases of each group merged into one, with its explanation."""
    found: dict[str, tuple[Increase, ScaleExplanation]] = {}
    for decision in decisions:
        for each in decision.increases:
            explained = explain_growth(decision, each.group, each.nodes, each.max_size)
            if each.group in found:
                first, why = found[each.group]
                found[each.group] = replace(first, to_size=each.to_size), why.joined(explained)
            else:
                found[each.group] = each, explained
    return list(found.values())


def _creations(decisions: Iterable[ScaleUpDecision], settings: DecisionSettings) -> list[Action]:
    return [
        Action(
            ActionKind.CREATE_GROUP,
            each.group,
            Mode.RECOMMEND if decision.advice else settings.mode_of(each.group),
            to_size=each.nodes,
            max_size=each.max_size,
            explanation=explain_growth(decision, each.group, each.nodes, each.max_size),
        )
        for decision in decisions
        for each in decision.creations
    ]


def _deletions(context: AutoscalingContext, busy: set[str]) -> list[Action]:
    """Deletes autoprovisioned groups that are empty and get no nodes now."""
    observed, state = context.cloud.observed, context.reconciled.state
    idle = [
        each.group
        for name, each in observed.groups.items()
        if name not in busy and name in state.groups and state.groups[name].request is None
    ]
    instances = {name: len(each.instances) for name, each in observed.groups.items()}
    modes = context.settings.mode_of
    return [
        Action(ActionKind.DELETE_GROUP, group, modes(group), explanation=ScaleExplanation(EMPTY))
        for group in candidates.unneeded_groups(idle, instances, context.settings.ownership)
        if modes(group) is not Mode.OBSERVE
    ]


def _blocked_reason(context: AutoscalingContext) -> str:
    reconciled = context.reconciled
    if reconciled.blocked_reason:
        return reconciled.blocked_reason
    ready = any(state in (NodeState.READY, NodeState.INTERRUPTED) for state in reconciled.node_states.values())
    if not ready and not context.settings.scales_from_zero:
        return NO_READY_NODE
    unknown_upcoming = context.unknown_upcoming
    return f"{UNKNOWN_UPCOMING}: {'; '.join(unknown_upcoming.values())}" if unknown_upcoming else ""
