"""Scale-down in one iteration: finds the unneeded nodes, once it is clear that nothing scales up."""

import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from manager.autoscaler.cloudprovider.contract import Group, InstanceState
from manager.autoscaler.cluster_state.actions import LIKELY_TO_GO, NEEDED_AGAIN, Action, ActionKind
from manager.autoscaler.cluster_state.replacement import DisruptionReason, Replacement
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.disruption import disruption_limits
from manager.autoscaler.planning.context import AutoscalingContext
from manager.autoscaler.scale_down import planner, pods_on_nodes
from manager.autoscaler.scale_down.budgets import ShrinkingGroup
from manager.autoscaler.scale_down.inputs import ScaleDownInputs
from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    NodeRemovalStatus,
    NodeStanding,
    ScaleDownDecision,
    ScaleDownHistory,
)
from manager.autoscaler.scale_down.rules import ScaleDownRules, UnremovableReason
from manager.autoscaler.scale_up import options, orchestrator
from manager.autoscaler.scale_up.options import ScaleUpInput, TimeLimits
from manager.autoscaler.scale_up.pending_pods import SCHEDULED
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import cluster, equivalence_groups
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED, NodeInfo
from manager.autoscaler.snapshot.taints import SoftTaints
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from shared import durations
from shared.api import pods
from shared.api.core import Node, Pod
from shared.errors import InvalidInput
from shared.explanation import ScaleExplanation
from shared.quantity import Resources

T = TypeVar("T")

UNNEEDED = "not needed any more"

OBSERVED = "its group is only observed"
SCANNED = "nodes leave its group by how full that is"
REPLACED = "it is being replaced by cheaper nodes"
REPLACES = "it is here to replace dearer nodes"
RENEWED = "it is being replaced"
RENEWS = "it is here to replace another node"


def decide(context: AutoscalingContext, inputs: ScaleDownInputs) -> ScaleDownDecision:
    """The decision; the nodes of a replacement under way stay out of it."""
    config = context.settings
    situation = _beside_replacement(inputs, context)
    limits = disruption_limits.empty_node_limits(situation, config.disruption.limits)
    situation = replace(situation, empty_node_limits=limits)

    def one_pass(over: ScaleDownInputs) -> ScaleDownDecision:
        is_late = TimeLimits(config.clock).deadline(config.simulation_seconds) if config.clock else options.no_deadline
        return planner.decide(over, config.scale_down, is_late)

    found = one_pass(situation)
    advised = {group for group in situation.groups if config.mode_of(group) is not Mode.ENFORCE}
    if len(advised) < len(situation.groups) and any(situation.group_of[each] in advised for each in found.unneeded):
        enforced = {name: each for name, each in situation.groups.items() if name not in advised}
        found = _keep_apart(found, one_pass(replace(situation, groups=enforced)), situation.group_of, advised)
    return replace(found, statuses=dict(sorted({**found.statuses, **_of_unread(context)}.items())))


def removal_actions(decision: ScaleDownDecision, context: AutoscalingContext) -> list[Action]:
    """The actions of a decision, per group."""
    groups = context.cloud.observed.groups
    mode_of = context.settings.mode_of
    of_node = context.cloud.observed.group_of_node
    going = _by_group((each.node, each.group) for each in decision.removals)
    made = []
    for name, nodes in going.items():
        group = _corrected(groups[name].group, context)
        size = group.target_size
        made.append(
            Action(
                ActionKind.REMOVE_NODES,
                name,
                mode_of(name),
                size,
                size - len(nodes),
                group.max_size,
                nodes,
                ScaleExplanation(UNNEEDED, bound=UNNEEDED, result=-len(nodes)),
            )
        )
    leaving = {each.node for each in decision.removals}
    marks = decision.soft_taints
    for what, names, reason in (
        (ActionKind.UNTAINT, marks.remove, NEEDED_AGAIN),
        (ActionKind.TAINT, marks.add, LIKELY_TO_GO),
    ):
        by_group = _by_group(
            (each, of_node[each])
            for each in names
            if each not in leaving and mode_of(of_node[each]) is Mode.ENFORCE  # advice on soft taints is useless
        )
        why = ScaleExplanation(reason)
        made += [Action(what, name, mode_of(name), nodes=nodes, explanation=why) for name, nodes in by_group.items()]
    return made


def abandoned_nodes(context: AutoscalingContext, *, begins: bool) -> tuple[str, ...]:
    """Nodes of managed groups with a deletion taint whose deletion no process works on any more.

    A new leader (`begins`) takes all these taints off, and later those that are old. Without soft taints, a new leader
    also takes off soft taints. Nodes of groups that scale down by utilization get neither taint, and so keep none from
    before.
    """
    config, group_of = context.settings, context.cloud.observed.group_of_node
    busy = {*context.underway.on_their_way, *deleted_by_cloud(context)}
    modes = {each.cloud_provider_group_name: config.scan_mode_of(each) for each in config.groups}
    ours = {group for group in context.cloud.observed.groups if modes.get(group, config.mode_of(group)) is Mode.ENFORCE}
    softens = config.scales_down and config.scale_down.soft_taints_at_once > 0
    softened = ours - _scanned(config) if softens else frozenset()
    return tuple(
        sorted(
            node.metadata.name
            for node in context.objects.nodes
            if node.metadata.name not in busy
            and (group := group_of.get(node.metadata.name)) in ours
            and _is_abandoned(node, config, context.objects.now, begins=begins, softens=group in softened)
        )
    )


def _is_abandoned(node: Node, config: DecisionSettings, now: float, *, begins: bool, softens: bool) -> bool:
    values = {taint.key: taint.value for taint in node.spec.taints or ()}
    if TAINT_TO_BE_DELETED in values:
        return begins or _is_old(values[TAINT_TO_BE_DELETED], config.scale_down, now)
    return begins and not softens and TAINT_DELETION_CANDIDATE in values


def launched_nodes(replacing: Replacement, context: AutoscalingContext) -> dict[str, list[Node]]:
    """The registered nodes of its launches by group, the oldest first."""
    group_of = context.cloud.observed.group_of_node
    found: dict[str, list[Node]] = {}
    for launch in replacing.launches:
        nodes = (node for node in context.objects.nodes if group_of.get(node.metadata.name) == launch.group)
        newer = [node for node in nodes if node.metadata.created_at > launch.newest]
        newer.sort(key=lambda node: (node.metadata.created_at, node.metadata.name))
        found[launch.group] = newer[: launch.nodes]
    return found


def _beside_replacement(inputs: ScaleDownInputs, context: AutoscalingContext) -> ScaleDownInputs:
    """The inputs with the old nodes of a replacement as leaving: their pods get their new places first."""
    replacing = context.reconciled.registry.replacing
    if replacing is None:
        return inputs
    uids = {node.metadata.name: node.metadata.uid for node in context.objects.nodes}
    old = [each for each in replacing.removed if uids.get(each.name) == each.uid]
    waiting = Counter(each.group for each in old if each.name not in inputs.leaving)
    new = (node.metadata.name for nodes in launched_nodes(replacing, context).values() for node in nodes)
    is_by_price = replacing.reason is DisruptionReason.UNDERUTILIZED
    replaced, replaces = (REPLACED, REPLACES) if is_by_price else (f"{RENEWED}: {replacing.reason}", RENEWS)
    return replace(
        inputs,
        leaving={*inputs.leaving, *(each.name for each in old)},
        groups={name: replace(group, deleting=group.deleting + waiting[name]) for name, group in inputs.groups.items()},
        replacing={**dict.fromkeys(new, replaces), **{each.name: replaced for each in old}},
    )


def scale_down_inputs(context: AutoscalingContext, waiting: ScaleUpInput) -> ScaleDownInputs:
    """The inputs of a pass of scale-down, with the pods that `waiting` places on present nodes."""
    objects, config, underway = context.objects, context.settings, context.underway
    cutoff = config.pending.expendable_below
    observed = context.cloud.observed
    groups = _groups(context)
    read = context.cache.pods.read(
        # Where nothing may shrink, the pods do not matter.
        (pod for pod in objects.pods if groups and pods_on_nodes.needs_attention(pod, cutoff)),
        objects.surroundings,
        objects.controllers,
    )
    return ScaleDownInputs(
        objects.now,
        _nodes(context),
        (*read.residents, *_nominated(context), *_placed(waiting, context.recreatable)),
        groups=groups,
        group_of=observed.group_of_node,
        disruption_budgets=pods_on_nodes.disruption_budgets(objects.budgets),
        memory=underway.memory,
        happened=_with_requests(underway.happened, context, observed.groups),
        happened_in={name: _with_requests(underway.happened_in.get(name), context, (name,)) for name in groups},
        in_progress=underway.in_progress,
        peaks=_peaks(context),
        untold=_untold(context),
        unreadable=read.unreadable,
        leaving={*underway.on_their_way, *deleted_by_cloud(context), *context.interrupted},
        interruptions=context.interruptions,
        kept={
            name: SCANNED if name in _scanned(config) else OBSERVED for name in observed.groups if name not in groups
        },
    )


def _peaks(context: AutoscalingContext) -> dict[str, Resources] | None:
    """The prod peak of each node, system included.

    The requests of Mid pods count beside it, so their usage does not.
    """
    found = context.objects.peaks if context.settings.minds_peaks else None
    return None if found is None else {name: each.prod for name, each in found.items()}


def _untold(context: AutoscalingContext) -> frozenset[str]:
    """The pods that came to their nodes after the nodes' last prediction."""
    told = (context.objects.peaks or {}) if context.settings.minds_peaks else {}
    return frozenset(
        pod.metadata.key
        for pod in context.objects.pods
        if pod.spec.node_name in told and _placed_at(pod) > told[pod.spec.node_name].reported_at
    )


def _placed_at(pod: Pod) -> float:
    """When the pod got its node, by its condition or else its creation time."""
    for each in pod.status.conditions or ():
        if each.type == SCHEDULED and each.last_transition_time:
            return durations.instant(each.last_transition_time)
    return pod.metadata.created_at


def _groups(context: AutoscalingContext) -> dict[str, ShrinkingGroup]:
    config, underway, observed = context.settings, context.underway, context.cloud.observed
    there = _kept_by_cloud(context)
    going = {node: group for node, group in underway.on_their_way.items() if node in there or node not in underway.gone}
    going |= {node: observed.group_of_node[node] for node in context.interrupted if node in there}
    deleting = Counter(going.values())
    scanned = _scanned(config)
    return {
        name: ShrinkingGroup(
            _corrected(status.group, context),
            config.scale_down.group.overridden_by(status.options),
            deleting[name],
        )
        for name, status in context.reconciled.state.groups.items()
        if status.mode is not Mode.OBSERVE and name not in scanned
    }


def _scanned(config: DecisionSettings) -> frozenset[str]:
    """Groups whose nodes leave by utilization; only one component removes nodes from a group."""
    return frozenset(each.cloud_provider_group_name for each in config.groups if each.is_scanned)


def _corrected(group: Group, context: AutoscalingContext) -> Group:
    """The group with its target after the corrections of this iteration."""
    taken = sum(
        action.from_size - action.to_size for action in context.reconciled.corrections if action.group == group.id
    )
    return replace(group, target_size=group.target_size - taken)


def _nodes(context: AutoscalingContext) -> list[NodeInfo]:
    reconciled = context.reconciled
    found = []
    for node in context.objects.nodes:
        name = node.metadata.name
        try:
            found.append(cluster.node_info(node, reconciled.node_states[name], reconciled.node_readiness[name]))
        except InvalidInput as problem:
            context.invalid_objects[name] = problem
    return found


def _of_unread(context: AutoscalingContext) -> dict[str, NodeRemovalStatus]:
    """The verdicts on nodes that cannot be read."""
    invalid_objects, group_of = context.invalid_objects, context.cloud.observed.group_of_node
    return {
        name: NodeRemovalStatus(
            name,
            group_of.get(name, ""),
            NodeStanding.NEEDED,
            ScaleExplanation(str(invalid_objects[name]), bound=UnremovableReason.UNEXPECTED),
        )
        for name in (node.metadata.name for node in context.objects.nodes)
        if name in invalid_objects
    }


def deleted_by_cloud(context: AutoscalingContext) -> frozenset[str]:
    """Nodes whose machines are no longer part of their group's target."""
    return _with_machines(context, lambda state: state is InstanceState.DELETING)


def _kept_by_cloud(context: AutoscalingContext) -> frozenset[str]:
    """Nodes whose machines are part of their group's target."""
    return _with_machines(context, lambda state: state is not InstanceState.DELETING)


def _with_machines(context: AutoscalingContext, wanted: Callable[[InstanceState], bool]) -> frozenset[str]:
    groups = context.cloud.observed.groups.values()
    ids = {each.provider_id for group in groups for each in group.instances if wanted(each.state)}
    return frozenset(node.metadata.name for node in context.objects.nodes if node.spec.provider_id in ids)


def _nominated(context: AutoscalingContext) -> list[PodOnNode]:
    """Pods for which the scheduler preempts others."""
    on = {
        pod.metadata.key: pod.status.nominated_node_name
        for pod in context.objects.pods
        if not pod.spec.node_name and pod.status.nominated_node_name and pods.is_active(pod)
    }
    found = equivalence_groups.build_equivalence_groups(
        (pod for pod in context.objects.pods if pod.metadata.key in on), context.objects.surroundings
    )
    return [PodOnNode(key, on[key], each.facts) for each in found.classes for key in each.pods]


def _placed(waiting: ScaleUpInput, recreatable: Container[str]) -> list[PodOnNode]:
    """Pending pods on the nodes that have room for them, without those that a pass itself moves off nodes under
    deletion.
    """
    if not waiting.classes:
        return []
    settled = orchestrator.filter_out_schedulable(waiting).left
    nodes, ordered = settled.problem.snapshot.nodes, settled.problem.classes
    left = [iter(each.pods) for each in ordered]
    return [
        PodOnNode(key, nodes[row].name, ordered[placement.position].facts)
        for placement in settled.placements
        for row, count in zip(placement.nodes.tolist(), placement.counts.tolist(), strict=True)
        for key in itertools.islice(left[placement.position], count)
        if key not in recreatable
    ]


def _with_requests(
    happened: CooldownTimestamps | None, context: AutoscalingContext, groups: Iterable[str]
) -> CooldownTimestamps:
    """Adds the increases under way: an earlier leader may have requested them."""
    happened = happened or CooldownTimestamps()
    requests = context.reconciled.registry.requests
    moments = [min(requests[group].started_at, context.objects.now) for group in groups if group in requests]
    added = [*moments, *(() if happened.added is None else (happened.added,))]
    return replace(happened, added=max(added)) if added else happened


def _is_old(value: str, rules: ScaleDownRules, now: float) -> bool:
    return not value.isdecimal() or abs(now - int(value)) > rules.deletion_seconds


def _by_group(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for node, group in pairs:
        found.setdefault(group, []).append(node)
    return {group: tuple(nodes) for group, nodes in found.items()}


def _keep_apart(
    found: ScaleDownDecision, done: ScaleDownDecision, group_of: Mapping[str, str], advised: set[str]
) -> ScaleDownDecision:
    """Keeps nodes of recommend groups in place: `done` is the decision for the other groups without them."""

    def is_advised(node: str) -> bool:
        return group_of.get(node, "") in advised

    return ScaleDownDecision(
        statuses={name: found.statuses[name] if is_advised(name) else each for name, each in done.statuses.items()},
        removals=(*done.removals, *(each for each in found.removals if is_advised(each.node))),
        going=done.going,
        simulated=(*done.simulated, *(each for each in found.simulated if is_advised(each.node))),
        soft_taints=SoftTaints(
            (*done.soft_taints.add, *filter(is_advised, found.soft_taints.add)),
            (*done.soft_taints.remove, *filter(is_advised, found.soft_taints.remove)),
        ),
        memory=ScaleDownHistory(
            {**_only(found.memory.unneeded_since, is_advised), **done.memory.unneeded_since},
            {**_only(found.memory.unremovable, is_advised), **done.memory.unremovable},
        ),
        cooldown=done.cooldown,
    )


def _only(by_node: Mapping[str, T], wanted: Callable[[str], bool]) -> dict[str, T]:
    return {node: each for node, each in by_node.items() if wanted(node)}
