"""The context of one iteration: the cluster with its upcoming nodes, the groups' templates and their states."""

import functools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from manager.autoscaler.cloudprovider.contract import Gpus, Group, GroupSpec, InstanceState, Theoretical
from manager.autoscaler.cloudprovider.errors import ProviderError, Unsupported
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.reconciliation import ReconcileRules, Reconciliation
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.disruption.verdicts import ConsolidationDecision
from manager.autoscaler.expander import priority
from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.expander.priority import Priorities
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.pod_injection.buffer_reading import BufferChunks
from manager.autoscaler.pod_injection.request_planning import RequestMemory
from manager.autoscaler.pricing.model import PricingModel
from manager.autoscaler.scale_down.pods_on_nodes import PodReadings
from manager.autoscaler.scale_down.removal_status import DeletionsInProgress
from manager.autoscaler.scale_up import pending_pods
from manager.autoscaler.scale_up.capacity_quotas import CapacityLimits
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import cluster, equivalence_groups, interruptions, templates
from manager.autoscaler.snapshot.cluster import ClusterSnapshot, NodeInfo, NodeState, NodeTemplate, StateRules
from manager.autoscaler.snapshot.interruptions import Interruption
from manager.autoscaler.snapshot.templates import (
    RECLAIMED,
    Daemon,
    LiveNode,
    TemplateCache,
    with_reclaimed,
    without_reclaimed,
)
from shared import durations, quantity
from shared.api import pods
from shared.api.core import Node, NodeSpec, NodeStatus, Pod
from shared.api.meta import ObjectMeta
from shared.cached_property import cached_property
from shared.errors import InvalidInput
from shared.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from shared.quantity import Amounts

OBSERVED = "its mode is observe"
CORRECTED = "its size is being put right first"
UNCONFIRMED = "the cloud does not yet tell the size it was given last"

LENDING_SECONDS = 600.0  # age from which a node offers Mid and Batch, unless no agent reports for it

_NATIVE_OF = {BATCH_CPU: CPU, BATCH_MEMORY: MEMORY}

OfferedBy = Callable[[Node], Amounts]
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


@dataclass(frozen=True)
class LastConsolidation:
    """A search for replacements that found none to begin: it stands for a while, unless `seen` changes."""

    until: float
    seen: object
    decision: ConsolidationDecision


class AutoscalerCache:
    """Caches that outlive an iteration and may be lost: templates of groups, and the last valid priorities and
    CapacityQuotas (by name) and CapacityBuffers (by key), the memory of ProvisioningRequests, the last searches for
    replacements, by price and of nodes that must go, and the pods on nodes as last read.
    """

    def __init__(self, settings: DecisionSettings) -> None:
        self.templates = TemplateCache(
            settings.taints, force_daemons=settings.forces_daemons, ttl_seconds=settings.template_seconds
        )
        self.priorities = Priorities()
        self.capacity_limits: Mapping[str, CapacityLimits] = {}
        self.buffers: Mapping[str, BufferChunks] = {}
        self.requests = RequestMemory()
        self.pods = PodReadings()
        self.consolidation: LastConsolidation | None = None
        self.disruption: LastConsolidation | None = None

    def for_question(self, settings: DecisionSettings) -> "AutoscalerCache":
        """A copy that a plan request under this configuration may change; for any thread."""
        cache = AutoscalerCache(settings)
        cache.priorities, cache.capacity_limits, cache.buffers = self.priorities, self.capacity_limits, self.buffers
        cache.requests, cache.pods = self.requests, self.pods.copy()
        return cache


def stable_since(node: Node) -> float:
    """When the node's readiness last changed, in Unix seconds."""
    ready = next((each for each in node.status.conditions or () if each.type == "Ready"), None)
    turned = durations.instant(ready.last_transition_time) if ready and ready.last_transition_time else 0.0
    return max(turned, node.metadata.created_at)


@dataclass(frozen=True, eq=False)
class AutoscalingContext:
    """The inputs of scale-up and scale-down in one iteration: the cluster with upcoming nodes, and the groups.

    `settings` includes what this iteration determined: prices, priorities, the GPU label. `chance` breaks ties.
    """

    objects: ClusterObjects
    cloud: ObservedCloud
    settings: DecisionSettings
    cache: AutoscalerCache
    reconciled: Reconciliation
    offered_by: OfferedBy
    underway: DeletionsInProgress
    chance: random.Random
    invalid_objects: dict[str, InvalidInput] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # why a group has no template

    @cached_property
    def daemons(self) -> tuple[Daemon, ...]:
        found, refused = templates.read_daemons(self.objects.daemon_sets, self.objects.surroundings)
        self.invalid_objects.update(refused)
        return found

    @cached_property
    def interruptions(self) -> dict[str, Interruption]:
        """The cloud's announcements for nodes of groups, by node, except those under deletion."""
        others = self.cloud.observed.group_of_node.keys() - self.underway.on_their_way.keys()
        return {
            node.metadata.name: found
            for node in self.objects.nodes
            if node.metadata.name in others and (found := interruptions.read_interruption(node)) is not None
        }

    @cached_property
    def interrupted(self) -> frozenset[str]:
        """The nodes that the cloud takes within minutes, of groups that are more than observed.

        A cloud that deletes a machine without lowering the target replaces it itself.
        """
        observed, groups = self.cloud.observed, self.reconciled.state.groups
        replaced = {
            each.provider_id
            for name, status in groups.items()
            if status.missing
            for each in observed.groups[name].instances
            if each.state is InstanceState.DELETING
        }
        return frozenset(
            node.metadata.name
            for node in self.objects.nodes
            if (announced := self.interruptions.get(node.metadata.name)) is not None
            and announced.is_imminent
            and node.spec.provider_id not in replaced
            and (status := groups.get(observed.group_of_node.get(node.metadata.name, ""))) is not None
            and status.mode is not Mode.OBSERVE
        )

    @cached_property
    def recreatable(self) -> dict[str, Pod]:
        """Pods that will be moved off nodes under deletion or taken by the cloud, by "namespace/name": they wait for a
        place.
        """
        draining = self.underway.draining | self.interrupted
        found = pending_pods.recreatable_pods(self.objects.pods, draining, self.settings.pending) if draining else ()
        return {pod.metadata.key: pod for pod in found}

    @cached_property
    def placed(self) -> tuple[Pod, ...]:
        """Pods that occupy their requests on a node, nominated ones included, without those about to move."""
        cutoff = self.settings.pending.expendable_below
        return tuple(
            pod
            for pod in self.objects.pods
            if (pod.spec.node_name or pod.status.nominated_node_name)
            and pods.is_active(pod)
            and not equivalence_groups.is_expendable(pod, cutoff)
            and pod.metadata.key not in self.recreatable
        )

    @cached_property
    def templates(self) -> dict[str, NodeTemplate]:
        """The templates of all groups that have one, by group id."""
        observed = self.cloud.observed
        on_node: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self.objects.pods:
            if pod.spec.node_name in observed.group_of_node:
                on_node[pod.spec.node_name].append(pod)
        live: defaultdict[str, list[LiveNode]] = defaultdict(list)
        for node in self.objects.nodes:
            name = node.metadata.name
            if name in observed.group_of_node:
                since = self.objects.stable_since.get(name)
                live[observed.group_of_node[name]].append(
                    LiveNode(
                        node,
                        self.reconciled.node_states[name],
                        tuple(on_node[name]),
                        stable_since(node) if since is None else since,
                    )
                )
        found = {}
        for group in sorted(self.reconciled.state.groups):
            provided = functools.partial(self._provided, group)
            try:
                template = self.cache.templates.of_group(group, live[group], provided, self.daemons, self.objects.now)
            except InvalidInput as refused:
                self.invalid_objects[f"template of {group}"] = refused
                self.problems[group] = str(refused)
                continue
            if template is not None:
                self.problems.pop(group, None)  # templates come from nodes and the cache, too
                lends = self._lends(live[group])
                found[group] = self.offering(template) if lends else without_reclaimed(template)
        return found

    def _lends(self, live: Sequence[LiveNode]) -> bool:
        """Whether a new node will offer Mid and Batch.

        False if nodes of the group are old enough to do so, and do not.
        """
        ready = [each.node for each in live if each.state is NodeState.READY]
        old = [each for each in ready if self.objects.now - each.metadata.created_at > LENDING_SECONDS]
        offers = [
            {**(each.status.allocatable or {}), **self.objects.expected.get(each.metadata.name, {})} for each in old
        ]
        return not old or any(RECLAIMED & each.keys() for each in offers)

    def new_template(self, group: str) -> NodeTemplate:
        """The template of a group created just now. Raises ProviderError and InvalidInput."""
        node = cluster.node_info(self.cloud.template(group), NodeState.READY)
        return self.offering(templates.from_provider(group, node, self.daemons, self.settings.taints))

    def offering(self, template: NodeTemplate) -> NodeTemplate:
        """The template with the Mid and Batch that a new node will offer, in place of what a present node offers.

        Pods that come with the node reduce Batch by their requests, so that no node is bought for Batch that it will
        not have.
        """
        template = without_reclaimed(template)
        taken = template.overhead
        offered = {
            name: max(0, amount - taken.get(_NATIVE_OF.get(name, ""), 0))
            for name, amount in self.offered_by(_as_node(template.node)).items()
        }
        return with_reclaimed(template, offered) if offered else template

    @cached_property
    def upcoming(self) -> dict[str, int]:
        """The number of upcoming nodes of each group."""
        return {group: each.upcoming for group, each in self.reconciled.state.groups.items() if each.upcoming}

    @property
    def unknown_upcoming(self) -> dict[str, str]:
        """Groups whose upcoming nodes are unknown, each with the reason."""
        state, requests = self.reconciled.state, self.reconciled.registry.requests
        awaited = {group for group, each in requests.items() if each.deadline >= self.objects.now}
        unjudged = {group: why for group, why in state.refused.items() if group in awaited}
        return unjudged | {group: self.problems[group] for group in self.upcoming if group not in self.templates}

    @property
    def pending_uids(self) -> dict[str, str]:
        """The UIDs of pods that wait for a place, by "namespace/name"."""
        without_node = (pod for pod in self.objects.pods if not pod.spec.node_name)
        return {pod.metadata.key: pod.metadata.uid for pod in (*without_node, *self.recreatable.values())}

    @cached_property
    def current(self) -> ClusterSnapshot:
        """The present and the upcoming nodes."""
        upcoming = {group: count for group, count in self.upcoming.items() if group in self.templates}
        found = cluster.take_snapshot(
            self._nodes(upcoming),
            self.placed,
            surroundings=self.objects.surroundings,
            upcoming=[(self.templates[group], count) for group, count in upcoming.items()],
        )
        self.invalid_objects.update(found.refused)
        return found

    def _nodes(self, upcoming: Mapping[str, int]) -> list[tuple[Node, NodeState]]:
        """The present nodes with their states.

        A node that has not started and is not among `upcoming` is unready: limits count it.
        """
        stood_for = Counter(upcoming)
        found = []
        for node in self.objects.nodes:
            name = node.metadata.name
            state, group = self.reconciled.node_states[name], self.cloud.observed.group_of_node.get(name, "")
            if state is NodeState.NOT_STARTED:
                stood_for[group] -= 1
                state = state if stood_for[group] >= 0 else NodeState.UNREADY
            found.append((node, state))
        return found

    def states(self) -> list[GroupStatus]:
        """All groups; a group that may not grow carries the reason."""
        state = self.reconciled.state
        corrected = {action.group for action in self.reconciled.corrections if action.mode is Mode.ENFORCE}
        found = []
        for group, status in state.groups.items():
            blocked_reason = self.problems.get(group, "")
            if status.mode is Mode.OBSERVE:
                blocked_reason = OBSERVED
            elif group in corrected:
                blocked_reason = CORRECTED
            elif status.unconfirmed:
                blocked_reason = UNCONFIRMED
            found.append(replace(status, template=self.templates.get(group), blocked_reason=blocked_reason))
        return found + [GroupStatus(Group(group, 0, 0, 0), blocked_reason=why) for group, why in state.refused.items()]

    def _provided(self, group: str) -> Node | None:
        try:
            return self.cloud.template(group)
        except ProviderError as error:
            self.problems[group] = str(error)
            return None


def open_context(
    objects: ClusterObjects,
    cloud: ObservedCloud,
    known: Registry | None,
    settings: DecisionSettings,
    *,
    chance: random.Random,
    cache: AutoscalerCache,
    offered_by: OfferedBy,
    underway: DeletionsInProgress,
) -> AutoscalingContext:
    """The context of an iteration: the groups reconciled with the `known` registry, and the settings with the current
    prices, priorities and GPU label. Without a registry, missing nodes of a target count as upcoming.

        Raises ProviderError.
    """
    gpus = none_if_unsupported(cloud.gpus) or Gpus()
    rules = ReconcileRules(
        modes=settings.mode_of,
        node_states=StateRules(
            objects.now,
            settings.start.startup_seconds,
            settings.taints.startup,
            templates.STARTUP_TAINT_PREFIXES,
            gpus.label,
            GPU_RESOURCES,
        ),
        health=settings.health,
        backoff=settings.backoff,
        max_node_provision_seconds=settings.start.provision_seconds,
        force_delete_unregistered=settings.deletes_below_min,
    )
    if known is None:
        known = reconciliation.initial_registry(cloud.observed, objects.nodes, rules, objects.now)
    reconciled = reconciliation.reconcile(cloud.observed, objects.nodes, known, rules, objects.now)
    pricing = settings.pricing(lambda: none_if_unsupported(cloud.pricing))
    priorities, invalid_priorities = _priorities(objects, settings, cache)
    estimates = replace(settings.scale_up.estimates, gpu_label=gpus.label)
    found_out = replace(
        settings,
        scale_up=replace(settings.scale_up, pricing=pricing, priorities=priorities, estimates=estimates),
        scale_down=replace(settings.scale_down, gpu_label=gpus.label),
    )
    context = AutoscalingContext(objects, cloud, found_out, cache, reconciled, offered_by, underway, chance)
    context.invalid_objects.update({**invalid_priorities, **settings.unpriced(pricing)})
    return context


def _priorities(
    objects: ClusterObjects, settings: DecisionSettings, cache: AutoscalerCache
) -> tuple[Priorities, dict[str, InvalidInput]]:
    """The priorities of the expander: empty without a ConfigMap, the last valid ones if it cannot be read."""
    if not settings.uses_priorities:
        return Priorities(), {}
    try:
        cache.priorities = priority.parse(objects.priorities, source=priority.SOURCE)
    except InvalidInput as refused:
        if not (objects.priorities or "").strip():
            cache.priorities = Priorities()
        return cache.priorities, {priority.SOURCE: refused}
    return cache.priorities, {}


def none_if_unsupported(ask: Callable[[], T]) -> T | None:
    """None if the cloud does not support the call."""
    try:
        return ask()
    except Unsupported:
        return None


def no_reclaimed_capacity(_: Node) -> Amounts:
    return {}


def _as_node(facts: NodeInfo) -> Node:
    """The node in wire form, as `offered_by` reads it."""

    def quantities(amounts: Amounts) -> dict[str, str | int | float]:
        return {name: quantity.format_milli(amount) if name == CPU else str(amount) for name, amount in amounts.items()}

    return Node(
        metadata=ObjectMeta(name=facts.name, labels=dict(facts.labels), annotations=dict(facts.annotations)),
        spec=NodeSpec(taints=facts.taints),
        status=NodeStatus(capacity=quantities(facts.capacity), allocatable=quantities(facts.allocatable)),
    )
