"""What one iteration sees: the cluster with its upcoming nodes, the groups' templates and their states."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from manager.autoscaler.cloudprovider.contract import Gpus, Group, GroupSpec, InstanceState, Theoretical
from manager.autoscaler.cloudprovider.errors import Unsupported
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.group_observation import ReconcileRules
from manager.autoscaler.cluster_state.reconciliation import Reconciliation
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.cluster_state.replacement import Replacement
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.expander import priority
from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.expander.priority import Priorities
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import group_templates
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.group_templates import OfferedBy
from manager.autoscaler.pricing.model import PricingModel
from manager.autoscaler.scale_down.removal_status import DeletionsInProgress
from manager.autoscaler.scale_up import candidates, pending_pods
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import cluster, devices, equivalence_groups, interruptions, templates
from manager.autoscaler.snapshot.cluster import ClusterSnapshot, NodeState, NodeTemplate, StateRules
from manager.autoscaler.snapshot.interruptions import Interruption
from manager.autoscaler.snapshot.templates import Daemon
from shared.api import pods
from shared.api.core import Node, Pod
from shared.cached_property import cached_property
from shared.errors import InvalidInput
from shared.quantity import Amounts

OBSERVED = "its mode is observe"
CORRECTED = "its size is being put right first"
UNCONFIRMED = "the cloud does not report the last requested size yet"


T = TypeVar("T")


class ObservedCloud(Protocol):
    """The reads of a cloud after an observation. `Guard` is one. Every call raises ProviderError."""

    @property
    def observed(self) -> CloudObservation: ...
    def template(self, group: str) -> Node: ...
    def gpus(self) -> Gpus: ...
    def pricing(self) -> PricingModel | None: ...
    def machine_types(self) -> Sequence[str]: ...
    def theoretical(self, spec: GroupSpec) -> Theoretical: ...


@dataclass(frozen=True, eq=False)
class ClusterView:
    """What one iteration sees: the cluster with its upcoming nodes, the cloud, the registry and the settings.

    `settings` includes what this iteration determined: prices, priorities, the GPU label. `chance` breaks ties.
    `interruptions` are the cloud's announcements by node, except for nodes under deletion; the cloud takes
    `interrupted` nodes within minutes. `recreatable` are pods, by "namespace/name", that will move off nodes and wait
    for a place; `placed` pods occupy their requests on a node. `templates` are by group, `template_problems` say why a
    group has none. `current` are the present and the upcoming nodes. `problems` could not be read.
    """

    objects: ClusterObjects
    cloud: ObservedCloud
    settings: DecisionSettings
    cache: AutoscalerCache
    reconciled: Reconciliation
    offered_by: OfferedBy
    underway: DeletionsInProgress
    chance: random.Random
    interruptions: Mapping[str, Interruption]
    interrupted: frozenset[str]
    recreatable: Mapping[str, Pod]
    placed: Sequence[Pod]
    daemons: Sequence[Daemon]
    templates: Mapping[str, NodeTemplate]
    template_problems: Mapping[str, str]
    current: ClusterSnapshot
    problems: Mapping[str, InvalidInput]

    def new_template(self, group: str) -> NodeTemplate:
        """The template of a group created just now. Raises ProviderError and InvalidInput."""
        node = cluster.node_info(self.cloud.template(group), NodeState.READY)
        return self.offering(templates.from_provider(group, node, self.daemons, self.settings.taints))

    def offering(self, template: NodeTemplate) -> NodeTemplate:
        """The template with the Mid and Batch that a new node will offer."""
        return group_templates.offering(template, self.offered_by)

    @property
    def upcoming(self) -> dict[str, int]:
        """The number of upcoming nodes of each group."""
        return _upcoming(self.reconciled)

    @property
    def unknown_upcoming(self) -> dict[str, str]:
        """Groups whose upcoming nodes are unknown, each with the reason."""
        state, requests = self.reconciled.state, self.reconciled.registry.requests
        awaited = {group for group, each in requests.items() if each.deadline >= self.objects.now}
        unjudged = {group: why for group, why in state.refused.items() if group in awaited}
        return unjudged | {
            group: self.template_problems[group] for group in self.upcoming if group not in self.templates
        }

    @property
    def pending_uids(self) -> dict[str, str]:
        """The UIDs of pods that wait for a place, by "namespace/name"."""
        without_node = (pod for pod in self.objects.pods if not pod.spec.node_name)
        return {pod.metadata.key: pod.metadata.uid for pod in (*without_node, *self.recreatable.values())}

    @cached_property
    def machine_types(self) -> Sequence[str]:
        """The machine types of the cloud, none from a cloud that does not name them. Raises ProviderError."""
        return none_if_unsupported(self.cloud.machine_types) or ()

    @cached_property
    def groups_left(self) -> int:
        """The number of groups that may still be created; unmanaged and refused groups count, too."""
        observed = self.cloud.observed
        others = (Group(each, 0, 0, 0) for each in (*observed.unmanaged, *observed.refused))
        return candidates.groups_left(
            (*(each.group for each in observed.groups.values()), *others), self.settings.autoprovisioning
        )

    @cached_property
    def deleted_by_cloud(self) -> frozenset[str]:
        """Nodes whose machines are no longer part of their group's target."""
        return self._with_machines(lambda state: state is InstanceState.DELETING)

    @cached_property
    def kept_by_cloud(self) -> frozenset[str]:
        """Nodes whose machines are part of their group's target."""
        return self._with_machines(lambda state: state is not InstanceState.DELETING)

    def _with_machines(self, wanted: Callable[[InstanceState], bool]) -> frozenset[str]:
        groups = self.cloud.observed.groups.values()
        ids = {each.provider_id for group in groups for each in group.instances if wanted(each.state)}
        return frozenset(node.metadata.name for node in self.objects.nodes if node.spec.provider_id in ids)

    def corrected(self, group: Group) -> Group:
        """The group with its target after the corrections of this iteration."""
        corrections = (action for action in self.reconciled.corrections if action.group == group.id)
        taken = sum(action.from_size - action.to_size for action in corrections)
        return replace(group, target_size=group.target_size - taken)

    def launched_nodes(self, replacing: Replacement) -> dict[str, list[Node]]:
        """The registered nodes of its launches by group, the oldest first."""
        group_of = self.cloud.observed.group_of_node
        found: dict[str, list[Node]] = {}
        for launch in replacing.launches:
            nodes = (node for node in self.objects.nodes if group_of.get(node.metadata.name) == launch.group)
            newer = [node for node in nodes if node.metadata.created_at > launch.newest]
            newer.sort(key=lambda node: (node.metadata.created_at, node.metadata.name))
            found[launch.group] = newer[: launch.nodes]
        return found

    def states(self) -> list[GroupStatus]:
        """All groups; a group that may not grow carries the reason."""
        state = self.reconciled.state
        corrected = {action.group for action in self.reconciled.corrections if action.mode is Mode.ENFORCE}
        found = []
        for group, status in state.groups.items():
            blocked_reason = self.template_problems.get(group, "")
            if status.mode is Mode.OBSERVE:
                blocked_reason = OBSERVED
            elif group in corrected:
                blocked_reason = CORRECTED
            elif status.unconfirmed:
                blocked_reason = UNCONFIRMED
            found.append(replace(status, template=self.templates.get(group), blocked_reason=blocked_reason))
        return found + [GroupStatus(Group(group, 0, 0, 0), blocked_reason=why) for group, why in state.refused.items()]


def no_reclaimed_capacity(_: Node) -> Amounts:
    return {}


def open_view(
    objects: ClusterObjects,
    cloud: ObservedCloud,
    known: Registry | None,
    settings: DecisionSettings,
    *,
    chance: random.Random,
    cache: AutoscalerCache | None = None,
    offered_by: OfferedBy = no_reclaimed_capacity,
    underway: DeletionsInProgress | None = None,
) -> ClusterView:
    """The view of an iteration: the groups reconciled with the `known` registry, and the settings with the current
    prices, priorities and GPU label. Without a registry, missing nodes of a target count as upcoming. `offered_by`
    gives the Mid and Batch capacity of a new, empty Node.

    Raises ProviderError.
    """
    objects = replace(objects, nodes=devices.with_devices(objects.nodes, objects.surroundings.devices))
    cache, underway = cache or AutoscalerCache(settings), underway or DeletionsInProgress()
    gpus = none_if_unsupported(cloud.gpus) or Gpus()
    reconciled = _reconcile(objects, cloud, known, settings, gpus)
    pricing = settings.pricing(lambda: none_if_unsupported(cloud.pricing))
    priorities, invalid_priorities = _priorities(objects, settings, cache)
    settings = _present_settings(settings, gpus, pricing, priorities)
    announced = _interruptions(objects, cloud.observed, underway)
    interrupted = _interrupted(objects, cloud.observed, reconciled, announced)
    draining = underway.draining | interrupted
    moving = pending_pods.recreatable_pods(objects.pods, draining, settings.pending) if draining else ()
    recreatable = {pod.metadata.key: pod for pod in moving}
    placed = _placed(objects.pods, recreatable, settings)
    daemons, invalid_daemons = templates.read_daemons(objects.daemon_sets, objects.surroundings)
    found = group_templates.read_templates(
        objects, cloud.observed, cloud.template, cache.templates, reconciled, daemons, offered_by
    )
    startup_seconds = settings.start.max_node_startup_time_seconds
    current = _snapshot(objects, cloud.observed, reconciled, found.templates, placed, startup_seconds)
    problems = (invalid_priorities, settings.unpriced(pricing), invalid_daemons, found.invalid, current.refused)
    return ClusterView(
        objects,
        cloud,
        settings,
        cache,
        reconciled,
        offered_by,
        underway,
        chance,
        announced,
        interrupted,
        recreatable,
        placed,
        daemons,
        found.templates,
        found.problems,
        current,
        {about: problem for each in problems for about, problem in each.items()},
    )


def _present_settings(
    settings: DecisionSettings, gpus: Gpus, pricing: PricingModel | None, priorities: Priorities
) -> DecisionSettings:
    """The settings with what cloud and cluster say now."""
    estimates = replace(settings.scale_up.estimates, gpu_label=gpus.label)
    return replace(
        settings,
        scale_up=replace(settings.scale_up, pricing=pricing, priorities=priorities, estimates=estimates),
        scale_down=replace(settings.scale_down, gpu_label=gpus.label),
    )


def _reconcile(
    objects: ClusterObjects, cloud: ObservedCloud, known: Registry | None, settings: DecisionSettings, gpus: Gpus
) -> Reconciliation:
    rules = ReconcileRules(
        modes=settings.mode_of,
        own_modes=settings.own_mode_of,
        node_states=StateRules(
            objects.now,
            settings.start.max_node_startup_time_seconds,
            frozenset(settings.taints.startup_taint),
            templates.STARTUP_TAINT_PREFIXES,
            gpus.label,
            GPU_RESOURCES,
        ),
        health=settings.health,
        backoff=settings.backoff,
        max_node_provision_time_seconds=settings.start.max_node_provision_time_seconds,
        force_delete_unregistered_nodes=settings.force_delete_unregistered_nodes,
    )
    if known is None:
        known = reconciliation.initial_registry(cloud.observed, objects.nodes, rules, objects.now)
    return reconciliation.reconcile(cloud.observed, objects.nodes, known, rules, objects.now)


def _interruptions(
    objects: ClusterObjects, observed: CloudObservation, underway: DeletionsInProgress
) -> dict[str, Interruption]:
    others = observed.group_of_node.keys() - underway.on_their_way.keys()
    return {
        node.metadata.name: found
        for node in objects.nodes
        if node.metadata.name in others and (found := interruptions.read_interruption(node)) is not None
    }


def _interrupted(
    objects: ClusterObjects,
    observed: CloudObservation,
    reconciled: Reconciliation,
    announced: Mapping[str, Interruption],
) -> frozenset[str]:
    """The nodes that the cloud takes within minutes, of groups that are more than observed.

    A cloud that deletes a machine without lowering the target replaces it itself.
    """
    groups = reconciled.state.groups
    replaced = {
        each.provider_id
        for name, status in groups.items()
        if status.missing
        for each in observed.groups[name].instances
        if each.state is InstanceState.DELETING
    }
    return frozenset(
        node.metadata.name
        for node in objects.nodes
        if (found := announced.get(node.metadata.name)) is not None
        and found.is_imminent
        and node.spec.provider_id not in replaced
        and (status := groups.get(observed.group_of_node.get(node.metadata.name, ""))) is not None
        and status.mode is not Mode.OBSERVE
    )


def _placed(given: Sequence[Pod], recreatable: Mapping[str, Pod], settings: DecisionSettings) -> tuple[Pod, ...]:
    """Pods that occupy their requests on a node, nominated ones included, without those about to move."""
    cutoff = settings.pending.expendable_pods_priority_cutoff
    return tuple(
        pod
        for pod in given
        if (pod.spec.node_name or pod.status.nominated_node_name)
        and pods.is_active(pod)
        and not equivalence_groups.is_expendable(pod, cutoff)
        and pod.metadata.key not in recreatable
    )


def _upcoming(reconciled: Reconciliation) -> dict[str, int]:
    return {group: each.upcoming for group, each in reconciled.state.groups.items() if each.upcoming}


def _snapshot(
    objects: ClusterObjects,
    observed: CloudObservation,
    reconciled: Reconciliation,
    known: Mapping[str, NodeTemplate],
    placed: Sequence[Pod],
    startup_seconds: float,
) -> ClusterSnapshot:
    """The present and the upcoming nodes.

    A node that has not started and is not among the upcoming ones is unready: limits count it. A node that lacks the
    devices of its group counts as having them, and as upcoming while it is young. If they do not come, the scheduler
    refuses it, and its answer counts.
    """
    upcoming = {group: count for group, count in _upcoming(reconciled).items() if group in known}
    stood_for = Counter(upcoming)
    nodes = []
    for node in objects.nodes:
        name = node.metadata.name
        state, group = reconciled.node_states[name], observed.group_of_node.get(name, "")
        if state is NodeState.NOT_STARTED:
            stood_for[group] -= 1
            state = state if stood_for[group] >= 0 else NodeState.UNREADY
        elif state is NodeState.READY and group in known:
            expected = devices.with_expected_devices(node, known[group].node.allocatable, objects.surroundings.devices)
            if expected is not None:
                is_young = objects.now - node.metadata.created_at < startup_seconds
                node, state = expected, NodeState.UPCOMING if is_young else state
        nodes.append((node, state))
    return cluster.take_snapshot(
        nodes,
        placed,
        surroundings=objects.surroundings,
        upcoming=[(known[group], count) for group, count in upcoming.items()],
        starting_since=objects.now - startup_seconds,
    )


def _priorities(
    objects: ClusterObjects, settings: DecisionSettings, cache: AutoscalerCache
) -> tuple[Priorities, dict[str, InvalidInput]]:
    """The priorities of the expander: empty without a ConfigMap, the last valid ones if it cannot be read."""
    if not settings.uses_priorities:
        return Priorities(), {}
    reading = cache.priorities = priority.read(objects.priorities, cache.priorities)
    return reading.priorities, {priority.SOURCE: reading.problem} if reading.problem is not None else {}


def none_if_unsupported(ask: Callable[[], T]) -> T | None:
    """None if the cloud does not support the call."""
    try:
        return ask()
    except Unsupported:
        return None
