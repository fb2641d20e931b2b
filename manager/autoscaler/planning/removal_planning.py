"""Decides which nodes and groups an iteration removes: asks the methods of `METHODS`, one after the other.

Methods that remove without a replacement come before those that replace; among the latter, nodes that must be replaced
come before nodes that are only expensive. Each method sees what those before it have decided.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from manager.autoscaler.cluster_state.actions import LIKELY_TO_GO, NEEDED_AGAIN, Action, ActionKind
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.disruption import disruption_limits
from manager.autoscaler.planning.cluster_view import ClusterView
from manager.autoscaler.planning.removal_view import RemovalCommands, RemovalMethod, RemovalView
from manager.autoscaler.planning.replacement_methods import DueNodeMethod, PriceMethod
from manager.autoscaler.planning.utilization_method import UtilizationMethod
from manager.autoscaler.scale_down import eligibility, planner
from manager.autoscaler.scale_down.removal_status import (
    NodeRemovalStatus,
    NodeStanding,
    NodeToRemove,
    ScaleDownDecision,
    ScaleDownHistory,
    ScaleDownReason,
    ScaleDownRules,
    UnremovableReason,
)
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext
from manager.autoscaler.scale_up import candidates, options
from manager.autoscaler.scale_up.options import TimeLimits
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import equivalence_groups
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED, NodeInfo, NodeState
from manager.autoscaler.snapshot.taints import SoftTaints
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from shared.api import pods
from shared.api.core import Node
from shared.explanation import ScaleExplanation

T = TypeVar("T")

UNNEEDED = "not needed any more"
EMPTY = "created here, and empty"
REPLACED = "it is being replaced by cheaper nodes"
REPLACES = "it is here to replace dearer nodes"
RENEWED = "it is being replaced"
RENEWS = "it is here to replace another node"


class EmptyGroupMethod(RemovalMethod):
    """Deletes the groups that autoprovisioning created, once they are empty and get no nodes."""

    def candidates(self, decided: RemovalCommands) -> RemovalCommands:
        cluster, busy = self.view.cluster, {action.group for action in self.view.iteration.actions}
        observed, state, settings = cluster.cloud.observed, cluster.reconciled.state, cluster.settings
        idle = [
            each.group
            for name, each in observed.groups.items()
            if name not in busy and name in state.groups and state.groups[name].request is None
        ]
        instances = {name: len(each.instances) for name, each in observed.groups.items()}
        deletions = (
            Action(ActionKind.DELETE_GROUP, group, settings.mode_of(group), explanation=ScaleExplanation(EMPTY))
            for group in candidates.unneeded_groups(idle, instances, settings.ownership)
            if settings.mode_of(group) is not Mode.OBSERVE
        )
        return replace(decided, actions=(*decided.actions, *deletions))


class UnneededMethod(RemovalMethod):
    """Removes the nodes that the cluster can do without, empty ones included. It judges every node."""

    def candidates(self, decided: RemovalCommands) -> RemovalCommands:
        if not self.view.cluster.settings.scale_down_enabled or self.view.scales_up:
            return decided
        context = self.view.context
        return replace(decided, scale_down=decide(self.view.cluster, context)).with_problems(context.unread_nodes)


def decide(cluster: ClusterView, context: ScaleDownContext) -> ScaleDownDecision:
    """Scale-down's decision; the nodes of a replacement under way stay out of it."""
    config = cluster.settings
    situation = _beside_replacement(context, cluster)
    limits = disruption_limits.empty_node_limits(situation, config.disruption.limits)
    situation = replace(situation, empty_node_limits=limits)

    def one_pass(over: ScaleDownContext) -> ScaleDownDecision:
        is_late = (
            TimeLimits(config.clock).deadline(config.scale_down_simulation_timeout_seconds)
            if config.clock
            else options.no_deadline
        )
        return planner.decide(over, is_late)

    found = one_pass(situation)
    advised = {group for group in situation.groups if config.mode_of(group) is not Mode.ENFORCE}
    if len(advised) < len(situation.groups) and any(situation.group_of[each] in advised for each in found.unneeded):
        enforced = {name: each for name, each in situation.groups.items() if name not in advised}
        found = _keep_apart(found, one_pass(replace(situation, groups=enforced)), situation.group_of, advised)
    return replace(found, statuses=dict(sorted({**found.statuses, **_of_unread(context)}.items())))


def _beside_replacement(context: ScaleDownContext, cluster: ClusterView) -> ScaleDownContext:
    """The context with the old nodes of a replacement as leaving: their pods get their new places first."""
    replacing = cluster.reconciled.registry.replacing
    if replacing is None:
        return context
    uids = {node.metadata.name: node.metadata.uid for node in cluster.objects.nodes}
    old = [each for each in replacing.removed if uids.get(each.name) == each.uid]
    waiting = Counter(each.group for each in old if each.name not in context.leaving)
    new = (node.metadata.name for nodes in cluster.launched_nodes(replacing).values() for node in nodes)
    groups = {name: replace(group, deleting=group.deleting + waiting[name]) for name, group in context.groups.items()}
    is_by_price = replacing.reason is DisruptionReason.UNDERUTILIZED
    replaced, replaces = (REPLACED, REPLACES) if is_by_price else (f"{RENEWED}: {replacing.reason}", RENEWS)
    return replace(
        context,
        leaving={*context.leaving, *(each.name for each in old)},
        groups=groups,
        replacing={**dict.fromkeys(new, replaces), **{each.name: replaced for each in old}},
    )


def _of_unread(context: ScaleDownContext) -> dict[str, NodeRemovalStatus]:
    """The verdicts on nodes that cannot be read."""
    return {
        name: NodeRemovalStatus(
            name,
            context.group_of.get(name, ""),
            NodeStanding.NEEDED,
            ScaleExplanation(str(problem), bound=UnremovableReason.UNEXPECTED),
        )
        for name, problem in context.unread_nodes.items()
    }


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


class InterruptedMethod(RemovalMethod):
    """Removes nodes that the cloud takes within minutes from their groups, once another component has drained them, as
    far as the minimum of their group permits.

    Their pods have counted as pending since the announcement. A cloud that takes a machine keeps the target, and would
    launch another machine in its place, besides the one launched for the pods.
    """

    def candidates(self, decided: RemovalCommands) -> RemovalCommands:
        cluster, scale_down = self.view.cluster, decided.scale_down
        if scale_down is None or not cluster.interrupted:
            return decided
        context = self.view.context
        kept = cluster.interrupted - cluster.deleted_by_cloud
        taken = sorted(name for name in kept if context.group_of[name] in context.groups)
        if not taken:
            return decided
        spare = Counter(context.group_of[name] for name in taken)  # already count as deleted
        spare.subtract(each.group for each in scale_down.removals)
        for name in spare:
            group = context.groups[name]
            spare[name] += group.group.settled_size - group.deleting - group.group.min_size
        occupied = _occupied_nodes(cluster)
        added = {}
        for node in context.nodes:
            group_id = context.group_of.get(node.name, "")
            if (
                node.name in taken
                and node.state is NodeState.INTERRUPTED
                and node.name not in occupied
                and spare[group_id] > 0
                and _may_leave(cluster, context, node)
            ):
                spare[group_id] -= 1
                detail = f"the cloud deletes it, and it is empty: {cluster.interruptions[node.name]}"
                why = ScaleExplanation(detail, result=-1)
                added[node.name] = NodeRemovalStatus(node.name, group_id, NodeStanding.GOES, why)
        removals = [NodeToRemove(each.node, each.group, ScaleDownReason.EMPTY, 0.0) for each in added.values()]
        return decided.with_removals(removals, added)


def _occupied_nodes(cluster: ClusterView) -> frozenset[str]:
    """The nodes with pods other than their own, including pods that still terminate."""
    return frozenset(
        pod.spec.node_name
        for pod in cluster.objects.pods
        if pod.spec.node_name and pods.is_active(pod) and not equivalence_groups.is_of_node(pod)
    )


def _may_leave(cluster: ClusterView, context: ScaleDownContext, node: NodeInfo) -> bool:
    group = context.group_of[node.name]
    failed = context.memory.unremovable.get(node.name)
    return (
        cluster.settings.mode_of(group) is Mode.ENFORCE
        and not context.groups[group].rules.zero_or_max_node_scaling
        and node.annotations.get(eligibility.ANNOTATION_DISABLED) != "true"
        and not (failed is not None and failed.reason is UnremovableReason.UNEXPECTED and context.now < failed.until)
    )


METHODS: tuple[type[RemovalMethod], ...] = (
    UtilizationMethod,
    EmptyGroupMethod,
    UnneededMethod,
    InterruptedMethod,
    DueNodeMethod,
    PriceMethod,
)


def plan(view: RemovalView, *, is_blocked: bool = False) -> RemovalCommands:
    """What all methods decide, and the actions that remove the nodes; in a blocked iteration, what few may decide."""
    decided = RemovalCommands(view.cluster.reconciled.registry)
    for method in METHODS:
        if method.while_blocked or not is_blocked:
            decided = method(view).candidates(decided)
    if decided.scale_down is None:
        return decided
    return replace(decided, actions=(*decided.actions, *_removal_actions(decided.scale_down, view.cluster)))


def _removal_actions(decision: ScaleDownDecision, cluster: ClusterView) -> list[Action]:
    """The actions of a decision, per group."""
    groups = cluster.cloud.observed.groups
    mode_of = cluster.settings.mode_of
    of_node = cluster.cloud.observed.group_of_node
    going = _by_group((each.node, each.group) for each in decision.removals)
    made = []
    for name, nodes in going.items():
        group = cluster.corrected(groups[name].group)
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


def abandoned_nodes(cluster: ClusterView, *, begins: bool) -> tuple[str, ...]:
    """Nodes of managed groups with a deletion taint whose deletion no process works on any more.

    A new leader (`begins`) takes all these taints off, and later those that are old. Without soft taints, a new leader
    also takes off soft taints. Nodes of groups that scale down by utilization get neither taint, and so keep none from
    before.
    """
    config, group_of = cluster.settings, cluster.cloud.observed.group_of_node
    busy = {*cluster.underway.on_their_way, *cluster.deleted_by_cloud}
    ours = {group for group in cluster.cloud.observed.groups if config.own_mode_of(group) is Mode.ENFORCE}
    softens = config.scale_down_enabled and config.scale_down.removal.max_bulk_soft_taint_count > 0
    softened = ours - config.scanned_groups if softens else frozenset()
    return tuple(
        sorted(
            node.metadata.name
            for node in cluster.objects.nodes
            if node.metadata.name not in busy
            and (group := group_of.get(node.metadata.name)) in ours
            and _is_abandoned(node, config, cluster.objects.now, begins=begins, softens=group in softened)
        )
    )


def _is_abandoned(node: Node, config: DecisionSettings, now: float, *, begins: bool, softens: bool) -> bool:
    values = {taint.key: taint.value for taint in node.spec.taints or ()}
    if TAINT_TO_BE_DELETED in values:
        return begins or _is_old(values[TAINT_TO_BE_DELETED], config.scale_down, now)
    return begins and not softens and TAINT_DELETION_CANDIDATE in values


def _is_old(value: str, rules: ScaleDownRules, now: float) -> bool:
    return not value.isdecimal() or abs(now - int(value)) > rules.deletion_seconds


def _by_group(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for node, group in pairs:
        found.setdefault(group, []).append(node)
    return {group: tuple(nodes) for group, nodes in found.items()}
