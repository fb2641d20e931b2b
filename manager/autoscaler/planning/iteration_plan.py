"""Plans one iteration: from the observed cluster to the actions, in Cluster Autoscaler's order.

Pure, except for reads through `cloud` and for the `AutoscalerCache`, which outlives an iteration. The manager's loop,
`headroom plan` and the API call the same function; only the loop acts on the result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from manager.autoscaler.cluster_state import cost
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.registry import Registry, with_refusals
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.planning import candidate_groups, removal_planning
from manager.autoscaler.planning.cluster_view import ClusterView
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.planning.removal_view import RemovalView
from manager.autoscaler.pod_injection import buffer_planning, buffer_reading, request_reading, resource_quotas
from manager.autoscaler.pod_injection.request_planning import RequestPlan, RequestPlanner
from manager.autoscaler.pod_injection.request_reading import ReadRequests
from manager.autoscaler.scale_up import (
    candidates,
    capacity_quotas,
    disagreements,
    gangs,
    orchestrator,
    pending_pods,
    salvo,
)
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome, explain_growth
from manager.autoscaler.scale_up.options import ScaleUpInput
from manager.autoscaler.scale_up.pending_pods import PendingPods
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import equivalence_groups
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.utilization.scan import DueScans, PlannedScan
from shared.errors import InvalidInput
from shared.explanation import ScaleExplanation

UNKNOWN_UPCOMING = "upcoming nodes are unknown"
SETTLING = "all pending pods are new: their owners may be making more"
RECOMMENDED = "its mode is recommend"


@dataclass(frozen=True)
class PlannedIteration:
    """A planned iteration on which nothing has acted yet, with the view that the actions need. The `registry` is
    stored before any action.

    `again_seconds` says when the next iteration is due, if not after the scan interval. `abandoned` nodes carry taints
    of a removal that no longer runs; the loop takes the taints off.
    """

    iteration: Iteration
    registry: Registry
    view: ClusterView
    again_seconds: float | None = None
    abandoned: tuple[str, ...] = ()
    scans: tuple[PlannedScan, ...] = ()

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
    view: ClusterView,
    *,
    number: int = 1,
    scans: DueScans | None = None,
    begins: bool = False,
    dry_run: bool = False,
) -> PlannedIteration:
    """Plans one iteration. `scans` of groups that scale by utilization are due (None: none is). `begins`: this is the
    first iteration of a new leader.

    Raises ProviderError.
    """
    objects, cloud = view.objects, view.cloud
    requests, unread = _read_pod_injection(view)
    reconciled, settings = view.reconciled, view.settings
    blocked_reason = _blocked_reason(view)
    waits = _pending_pods(view)
    again = None
    if not blocked_reason and waits.settled_at is not None:
        blocked_reason, again = SETTLING, waits.settled_at - objects.now
    iteration = Iteration(
        number,
        objects.now,
        state=reconciled.state,
        blocked_reason=blocked_reason,
        skipped_pods=waits.skipped_pods,
        invalid_objects={**view.problems, **unread},
        cost=cost.cluster_cost(view.current, cloud.observed.group_of_node, settings.scale_up.pricing, view.templates),
        actions=reconciled.corrections,
        incidents=reconciled.incidents,
        interruptions=view.interruptions,
        dry_run=dry_run,
        leaving=view.underway.leaving,
        cluster=settings.cluster_name,
    )
    unknown = ScaleUpInput(view.current)
    removal_view = RemovalView(view, iteration, unknown, unknown, scans)
    if not blocked_reason:
        removal_view = _scale_up(removal_view, waits, requests)
        iteration = removal_view.iteration
    removal = removal_planning.plan(removal_view, is_blocked=bool(blocked_reason))
    iteration = replace(
        iteration,
        scale_down=removal.scale_down,
        consolidation=removal.consolidation,
        scans=tuple(each.decision for each in removal.scans),
        actions=(*iteration.actions, *removal.actions),
        cost=replace(iteration.cost, estimated_groups=_estimated_groups(iteration.decisions, view)),
        invalid_objects={**iteration.invalid_objects, **removal.problems},
    )
    known_templates = view.cache.templates
    known_templates.forget(known_templates.groups - cloud.observed.groups.keys() - cloud.observed.refused.keys())
    abandoned = removal_planning.abandoned_nodes(view, begins=begins)
    registry = removal.registry
    if not blocked_reason:
        registry = with_refusals(registry, view.cache.scheduler.refusals)
    return PlannedIteration(iteration, registry, view, again, abandoned, removal.scans)


def _pending_pods(view: ClusterView) -> PendingPods:
    objects, settings = view.objects, view.settings
    there = {node.metadata.name for node in objects.nodes}
    return pending_pods.list_pending_pods(
        objects.pods, settings.pending, objects.now, there, objects.surroundings.claims, settles=settings.settles
    )


def _estimated_groups(decisions: Iterable[ScaleUpDecision], view: ClusterView) -> frozenset[str]:
    machines = {group: template.machine for group, template in view.templates.items()}
    machines |= {each.group: each.ranked.option.machine for made in decisions for each in made.considered}
    return cost.estimated_groups(view.settings.scale_up.pricing, machines)


def _read_pod_injection(view: ClusterView) -> tuple[ReadRequests, dict[str, InvalidInput]]:
    """The ProvisioningRequests, and what cannot be read; the CapacityQuotas and CapacityBuffers go to the cache, as the
    last valid ones.
    """
    objects, cache = view.objects, view.cache
    cache.capacity_limits, refused_quotas = capacity_quotas.read_quotas(objects.capacity_quotas, cache.capacity_limits)
    sources = buffer_reading.BufferSources(objects.chunk_sources, objects.pods, objects.surroundings)
    buffers, refused_buffers = buffer_reading.read_buffers(
        objects.capacity_buffers, sources, cache.buffers, on_mid=view.settings.capacity_buffer_on_mid
    )
    cache.buffers, over_quota = resource_quotas.limit_chunks(buffers, objects.resource_quotas)
    requests = request_reading.read_requests(
        objects.provisioning_requests,
        sources,
        objects.now,
        promises=cache.requests.promises,
        templates=cache.requests.templates,
    )
    return requests, {**refused_quotas, **refused_buffers, **over_quota, **requests.refused}


def _scale_up(removal_view: RemovalView, waits: PendingPods, requests: ReadRequests) -> RemovalView:
    """The view with scale-up's decisions and their actions, and with what removal needs to know of them."""
    view, iteration = removal_view.cluster, removal_view.iteration
    objects, observed = view.objects, view.cloud.observed
    classified = equivalence_groups.build_equivalence_groups(
        (*waits.pods, *view.recreatable.values()), objects.surroundings
    )
    registry, now = view.reconciled.registry, objects.now
    memory = replace(view.cache.scheduler, refusals=registry.refused_options).with_answers(waits.pods, now)
    not_helped = disagreements.not_helped(classified.classes, memory, view.templates, objects.pods, now)
    classes = [each for each in classified.classes if each.pods[0] not in not_helped]
    classes = disagreements.believe(classes, memory, view.templates, now)
    read = gangs.pending_gangs(classes, objects.pods, objects.surroundings.pod_groups, view.recreatable)
    classes = [each for each in classes if each.pods[0] not in read.waiting]
    current = replace(_scale_up_input(view, classes), gangs=read.gangs)
    planner = RequestPlanner(requests, view.cache.requests, view.settings.scale_up, objects.now, view.chance)
    scale_up_input = planner.hold(current)
    buffers = tuple(view.cache.buffers.values())
    chunks = buffer_planning.chunk_classes(scale_up_input, buffers)
    problems: Mapping[str, InvalidInput] = {}
    if view.settings.autoprovisioning.node_autoprovisioning:
        without_place = _unschedulable_groups(_with_classes(scale_up_input, [*chunks, *planner.wanted]))
        scale_up_input, problems = _with_creatable(scale_up_input, without_place, view)
    decisions, request_plan, short = _decisions(replace(scale_up_input, buffers=chunks), view, planner)
    view.cache.requests = request_plan.memory
    actions = (
        *iteration.actions,
        *_creations(decisions, view.settings),
        *increase_actions(decisions, view.settings),
    )
    answered = disagreements.AnsweredCluster(
        now,
        objects.nodes,
        objects.pods,
        view.current,
        observed.group_of_node,
        view.templates,
        registry.made_as,
    )
    asked = {each.pods for each in decisions[0].demands}
    judged = [each for each in classes if each.pods in asked]
    view.cache.scheduler, disagreeing = disagreements.judge(memory, judged, decisions[0].demands, answered)
    classes = [each for each in classes if each.pods[0] not in short]
    current = replace(current, classes=classes)
    waiting = _with_classes(replace(current, groups=scale_up_input.groups), [*chunks, *request_plan.reserved])
    decided = replace(
        iteration,
        skipped_pods={**iteration.skipped_pods, **not_helped, **read.waiting, **short},
        disagreements=disagreeing,
        buffers=buffer_planning.buffer_plan(buffers, [each for each in decisions if each.for_buffers]),
        requests=request_plan if requests.is_any else None,
        actions=actions,
        invalid_objects={**iteration.invalid_objects, **problems, **classified.refused, **_failed_expanders(decisions)},
    ).with_decisions(decisions)
    return replace(removal_view, iteration=decided, scale_up=scale_up_input, waiting=waiting)


def _scale_up_input(view: ClusterView, classes: Sequence[EquivalenceGroup]) -> ScaleUpInput:
    known, settings = view.templates, view.settings.scale_up
    groups_of = view.cloud.observed.group_of_node.items()
    templates = {node: known[group].node for node, group in groups_of if group in known}
    return ScaleUpInput(
        view.current,
        classes,
        view.states(),
        cluster_nodes=len(view.objects.nodes),
        quotas=tuple(
            each.remaining_quota(view.current.nodes, templates, settings.usage)
            for each in view.cache.capacity_limits.values()
        ),
        expected=view.objects.expected,
        templates_of_nodes=templates,
    )


def _with_creatable(
    scale_up_input: ScaleUpInput, without_place: Sequence[EquivalenceGroup], view: ClusterView
) -> tuple[ScaleUpInput, Mapping[str, InvalidInput]]:
    """The input with the groups that could be created for these pods, and what the settings name in vain."""
    creatable = candidate_groups.states(view, without_place)
    found = replace(
        scale_up_input,
        groups=[*scale_up_input.groups, *creatable],
        new_groups=candidates.creatable_groups(view.groups_left, creatable),
    )
    return found, candidate_groups.problems(view) if without_place else {}


def _with_classes(scale_up_input: ScaleUpInput, more: Sequence[EquivalenceGroup]) -> ScaleUpInput:
    """The input with more among its pods: chunks of buffers, and pods of requests."""
    return replace(scale_up_input, classes=[*scale_up_input.classes, *more]) if more else scale_up_input


def _failed_expanders(decisions: Iterable[ScaleUpDecision]) -> dict[str, InvalidInput]:
    return {
        f"expander {step.expander}": InvalidInput(
            source="--expander", field="expander", value=step.expander, problem=f"{step.problem}; all options remain"
        )
        for decision in decisions
        for step in decision.steps
        if step.problem
    }


def _decisions(
    scale_up_input: ScaleUpInput, view: ClusterView, requests: RequestPlanner
) -> tuple[list[ScaleUpDecision], RequestPlan, Mapping[str, str]]:
    """The decisions, what came of the requests, and why pods of gangs wait.

    If they would grow groups in recommend mode, they are advice, and the decisions without these groups follow.
    """
    mode_of = view.settings.mode_of
    planner = requests.copy()
    decisions, short = _salvo(scale_up_input, view, planner)
    grown = [group for decision in decisions if decision.outcome is ScaleUpOutcome.GROW for group in decision.nodes]
    if all(mode_of(group) is Mode.ENFORCE for group in grown):
        return decisions, planner.finish(), short
    if all(mode_of(state.id) is not Mode.ENFORCE for state in scale_up_input.groups):
        return [replace(decision, advice=True) for decision in decisions], planner.finish(is_advice=True), short
    enforced = [
        replace(state, blocked_reason=state.blocked_reason or RECOMMENDED)
        if mode_of(state.id) is Mode.RECOMMEND
        else state
        for state in scale_up_input.groups
    ]
    done, _ = _salvo(replace(scale_up_input, groups=enforced), view, requests)
    every = [
        *(replace(decision, advice=True) for decision in decisions),
        *(decision for decision in done if decision.outcome is ScaleUpOutcome.GROW or decision.increases),
    ]
    return every, requests.finish(), short


def _salvo(
    scale_up_input: ScaleUpInput, view: ClusterView, requests: RequestPlanner
) -> tuple[list[ScaleUpDecision], Mapping[str, str]]:
    """The decision, followed in a salvo by further ones; then the decisions about requests, and last the one about
    buffers. Also why pods of gangs wait.
    """
    settings, buffers = view.settings, scale_up_input.buffers
    decisions, scale_up_input, short = gangs.decide(
        scale_up_input, settings.scale_up, view.chance, seconds=settings.salvo_seconds, clock=settings.clock
    )
    if not (buffers or requests.waits):
        return decisions, short
    last = decisions[-1]
    is_refused = last.chosen is not None and last.outcome is not ScaleUpOutcome.GROW  # all-or-nothing, by a limit
    pods_wait = is_refused or any(left.awaiting for left in last.left)
    after = replace(salvo.apply_decisions(scale_up_input, decisions), classes=(), buffers=())
    after = requests.buy(after, pods_wait=pods_wait)
    decisions += requests.decisions
    if buffers:
        after = replace(after, classes=buffers)
        decisions.append(buffer_planning.decide(after, settings.scale_up, view.chance, pods_wait=pods_wait))
        if requests.has_checks:
            after = salvo.apply_decision(after, decisions[-1])
    requests.check(after)
    return decisions, short


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


def _blocked_reason(view: ClusterView) -> str:
    reconciled = view.reconciled
    if reconciled.blocked_reason:
        return reconciled.blocked_reason
    unknown_upcoming = view.unknown_upcoming
    return f"{UNKNOWN_UPCOMING}: {'; '.join(unknown_upcoming.values())}" if unknown_upcoming else ""
