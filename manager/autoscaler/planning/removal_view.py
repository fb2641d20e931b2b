"""What every method of removing nodes is given, and what it decides.

A method is a `RemovalMethod` and one line in `removal_planning.METHODS`.
"""

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from manager.autoscaler.cluster_state.actions import Action
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.disruption.replacement_search import NOT_ITS_TURN
from manager.autoscaler.disruption.verdicts import ConsolidationDecision
from manager.autoscaler.planning.cluster_view import ClusterView
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.scale_down import drain, pods_on_nodes
from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    NodeRemovalStatus,
    NodeToRemove,
    ScaleDownDecision,
)
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext, ShrinkingGroup
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import ScaleUpOutcome
from manager.autoscaler.scale_up.options import ScaleUpInput
from manager.autoscaler.scale_up.pending_pods import SCHEDULED
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import cluster, equivalence_groups
from manager.autoscaler.snapshot.cluster import NodeInfo
from manager.autoscaler.utilization.scan import DueScans, PlannedScan
from shared import durations
from shared.api import pods
from shared.api.core import Pod
from shared.cached_property import cached_property
from shared.errors import InvalidInput
from shared.quantity import Resources

OBSERVED = "its group is only observed"
SCANNED = "its group scales by utilization"


@dataclass(frozen=True, eq=False)
class RemovalView:
    """What an iteration knows when it removes nodes.

    `iteration` has the corrections, and the decisions of scale-up with their actions, made from `scale_up`; `waiting`
    has the pods that are to find room on present nodes. `scans` are due (None: none is).
    """

    cluster: ClusterView
    iteration: Iteration
    scale_up: ScaleUpInput
    waiting: ScaleUpInput
    scans: DueScans | None = None

    @property
    def scales_up(self) -> bool:
        """Whether the iteration scales up: it then removes no node."""
        return any(each.outcome is ScaleUpOutcome.GROW and not each.advice for each in self.iteration.decisions)

    @property
    def raises_targets(self) -> bool:
        """Whether it raises any target, also where no pod waits: it then replaces no node."""
        return any(each.increases for each in self.iteration.decisions)

    @cached_property
    def context(self) -> ScaleDownContext:
        """What scale-down judges nodes by; the pods of `waiting` take their places first."""
        view, config, underway = self.cluster, self.cluster.settings, self.cluster.underway
        objects, observed, groups = view.objects, view.cloud.observed, _shrinking_groups(view)
        cutoff = config.pending.expendable_pods_priority_cutoff
        read = view.cache.pods.read(
            # Where nothing may shrink, the pods do not matter.
            (pod for pod in objects.pods if groups and pods_on_nodes.needs_attention(pod, cutoff)),
            objects.surroundings,
            objects.controllers,
        )
        nodes, unread_nodes = _nodes(view)
        scanned = config.scanned_groups
        return ScaleDownContext(
            objects.now,
            nodes,
            (*read.residents, *_nominated(view), *_placed(self.waiting, view.recreatable)),
            config.scale_down,
            groups=groups,
            group_of=observed.group_of_node,
            disruption_budgets=pods_on_nodes.disruption_budgets(objects.budgets),
            gangs=drain.gang_budgets(objects.pods, objects.surroundings.pod_groups),
            memory=underway.memory,
            happened=_with_requests(underway.happened, view, observed.groups),
            happened_in={name: _with_requests(underway.happened_in.get(name), view, (name,)) for name in groups},
            in_progress=underway.in_progress,
            peaks=_peaks(view),
            untold=_untold(view),
            unreadable=read.unreadable,
            unread_nodes=unread_nodes,
            leaving={*underway.on_their_way, *view.deleted_by_cloud, *view.interrupted},
            interruptions=view.interruptions,
            kept={name: SCANNED if name in scanned else OBSERVED for name in observed.groups if name not in groups},
        )


@dataclass(frozen=True)
class RemovalCommands:
    """What the methods have decided so far, and the registry to store before any of it is done.

    `scale_down` has a verdict on every node, and the nodes that go now (None: no node was considered). `actions` change
    groups: they launch nodes in place of others, or delete empty groups. `consolidation` is about nodes that others
    replace, and `scans` are about groups that scale by utilization. `problems` could not be read.
    """

    registry: Registry
    scale_down: ScaleDownDecision | None = None
    actions: tuple[Action, ...] = ()
    consolidation: ConsolidationDecision | None = None
    scans: tuple[PlannedScan, ...] = ()
    problems: Mapping[str, InvalidInput] = field(default_factory=dict)

    def with_problems(self, problems: Mapping[str, InvalidInput]) -> "RemovalCommands":
        return replace(self, problems={**self.problems, **problems}) if problems else self

    def with_consolidation(self, then: ConsolidationDecision) -> "RemovalCommands":
        """The same with one more decision about replacements: the verdicts of both, and what the first does that does
        anything, else what the first advises that advises anything.
        """
        first = self.consolidation
        if first is None:
            return replace(self, consolidation=then)
        is_later = not first.acts and (then.acts or first.option is None)
        chosen, other = (then, first) if is_later else (first, then)
        removed = () if chosen.option is None else chosen.option.removed
        verdicts = {**then.verdicts, **first.verdicts, **{name: chosen.verdicts[name] for name in removed}}
        for name in () if other.option is None else set(other.option.removed).difference(removed):
            if (verdict := verdicts[name]).reason is None:
                detail = f"{verdict.detail}; {NOT_ITS_TURN.detail}"
                verdicts[name] = replace(verdict, reason=NOT_ITS_TURN.reason, detail=detail)
        return replace(self, consolidation=replace(chosen, verdicts=dict(sorted(verdicts.items()))))

    def with_removals(
        self, removals: Iterable[NodeToRemove], verdicts: Mapping[str, NodeRemovalStatus]
    ) -> "RemovalCommands":
        """The same with more nodes that go now, and the verdicts on them."""
        if self.scale_down is None or not verdicts:
            return self
        scale_down = replace(
            self.scale_down,
            removals=(*self.scale_down.removals, *removals),
            statuses={**self.scale_down.statuses, **verdicts},
        )
        return replace(self, scale_down=scale_down)


@dataclass(frozen=True, eq=False)
class RemovalMethod(ABC):
    """One reason to remove nodes, for one iteration; `while_blocked`: also for one that decides nothing else."""

    while_blocked: ClassVar[bool] = False

    view: RemovalView

    @abstractmethod
    def candidates(self, decided: RemovalCommands) -> RemovalCommands:
        """What is decided, with the commands of this method added; methods before it come first."""


def _peaks(view: ClusterView) -> dict[str, Resources] | None:
    """The prod peak of each node, system included.

    The requests of Mid pods count beside it, so their usage does not.
    """
    found = view.objects.peaks if view.settings.scale_down_peaks else None
    return None if found is None else {name: each.prod for name, each in found.items()}


def _untold(view: ClusterView) -> frozenset[str]:
    """The pods that came to their nodes after the nodes' last prediction."""
    told = (view.objects.peaks or {}) if view.settings.scale_down_peaks else {}
    return frozenset(
        pod.metadata.key
        for pod in view.objects.pods
        if pod.spec.node_name in told and _placed_at(pod) > told[pod.spec.node_name].reported_at
    )


def _placed_at(pod: Pod) -> float:
    """When the pod got its node, by its condition or else its creation time."""
    for each in pod.status.conditions or ():
        if each.type == SCHEDULED and each.last_transition_time:
            return durations.instant(each.last_transition_time)
    return pod.metadata.created_at


def _shrinking_groups(view: ClusterView) -> dict[str, ShrinkingGroup]:
    config, underway, observed = view.settings, view.underway, view.cloud.observed
    there = view.kept_by_cloud
    going = {node: group for node, group in underway.on_their_way.items() if node in there or node not in underway.gone}
    going |= {node: observed.group_of_node[node] for node in view.interrupted if node in there}
    deleting = Counter(going.values())
    scanned = config.scanned_groups
    return {
        name: ShrinkingGroup(
            view.corrected(status.group),
            config.scale_down.group.overridden_by(status.options),
            deleting[name],
        )
        for name, status in view.reconciled.state.groups.items()
        if status.mode is not Mode.OBSERVE and name not in scanned
    }


def _nodes(view: ClusterView) -> tuple[list[NodeInfo], dict[str, InvalidInput]]:
    """The nodes, and the problems of those that cannot be read."""
    reconciled = view.reconciled
    found, refused = [], {}
    volumes = {node.name: (node.volume_limits, node.attached) for node in view.current.nodes}
    for node in view.objects.nodes:
        name = node.metadata.name
        try:
            limits, attached = volumes.get(name, (None, frozenset()))
            state, readiness = reconciled.node_states[name], reconciled.node_readiness[name]
            found.append(cluster.node_info(node, state, readiness, volume_limits=limits, attached=attached))
        except InvalidInput as problem:
            refused[name] = problem
    return found, refused


def _nominated(view: ClusterView) -> list[PodOnNode]:
    """Pods for which the scheduler preempts others."""
    on = {
        pod.metadata.key: pod.status.nominated_node_name
        for pod in view.objects.pods
        if not pod.spec.node_name and pod.status.nominated_node_name and pods.is_active(pod)
    }
    found = equivalence_groups.build_equivalence_groups(
        (pod for pod in view.objects.pods if pod.metadata.key in on), view.objects.surroundings
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


def _with_requests(happened: CooldownTimestamps | None, view: ClusterView, groups: Iterable[str]) -> CooldownTimestamps:
    """Adds the increases under way: an earlier leader may have requested them."""
    happened = happened or CooldownTimestamps()
    requests = view.reconciled.registry.requests
    moments = [min(requests[group].started_at, view.objects.now) for group in groups if group in requests]
    added = [*moments, *(() if happened.added is None else (happened.added,))]
    return replace(happened, added=max(added)) if added else happened
