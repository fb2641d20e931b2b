"""Simulates several states of one cluster, each planned by the manager's own iteration. It changes nothing.

A plan says which nodes could be removed together, and what would be bought for the pods of others.
"""

import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec.structs import replace as with_fields

from deploy import dumped_cloud
from deploy.dumped_cloud import DumpedCloud
from deploy.savings.recommending import ContainerRecommendation
from deploy.savings.workloads import ContainerRole
from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider.contract import Group, Instance
from manager.autoscaler.cloudprovider.guard import CloudObservation, ObservedGroup
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.expander import ranking
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.cluster_view import ObservedCloud, open_view
from manager.autoscaler.pricing.model import PricingModel
from manager.autoscaler.reporting import answers
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.reporting.node_status import NodeStatusRow
from manager.autoscaler.scale_down.removal_status import NodeStanding, UnremovableReason
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.settings.estimates import HealthLimits
from manager.autoscaler.settings.replacement import ConsolidationRules
from shared import quantity
from shared.api import pods as api_pods
from shared.api.core import Condition, Container, DaemonSet, DaemonSetSpec, Node, Pod, PodTemplate
from shared.api.meta import ObjectMeta

CHANCE = 1
MOST_NODES = 100_000
SEARCH_SECONDS = 30.0
Containers: TypeAlias = tuple[Container, ...]
_COULD_GO = (NodeStanding.GOES, NodeStanding.UNNEEDED)
# A node that stays for one of these reasons can be replaced: all of its pods may move.
_FREE = (UnremovableReason.NO_PLACE, UnremovableReason.NOT_UNDERUTILIZED, UnremovableReason.PEAKS)
_GROWTH = (ActionKind.INCREASE.value, ActionKind.CREATE_GROUP.value)
_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")


@dataclass(frozen=True)
class SimulatedCluster:
    """The objects of a cluster, and its nodes by group; a given `label` alone defines the groups."""

    objects: ClusterObjects
    groups: Mapping[str, Group]
    members: Mapping[str, Sequence[Node]]
    label: str
    pricing: PricingModel

    def with_pods(self, pods: Iterable[Pod]) -> "SimulatedCluster":
        return replace(self, objects=replace(self.objects, pods=tuple(pods)))

    @property
    def templates(self) -> dict[str, Node]:
        """A new node of each group."""
        return {name: nodes[0] for name, nodes in self.members.items()}


@dataclass(frozen=True)
class Removable:
    """Nodes that could be removed together, why the others stay (by reason: nodes, and a sentence), and which of those
    have no unmovable pods.
    """

    nodes: frozenset[str]
    stay: Mapping[str, tuple[tuple[str, ...], str]]
    replaceable: frozenset[str]


@dataclass(frozen=True)
class CheaperMix:
    """New nodes by group in place of the `replaced` ones; `unplaced` pods of these would not fit."""

    added: Mapping[str, int]
    replaced: frozenset[str]
    unplaced: int
    problem: str = ""


def prepare(objects: ClusterObjects, label: str, pricing: PricingModel) -> SimulatedCluster:
    """The cluster with an id for each node, and with DaemonSets inferred from their pods."""
    nodes = tuple(map(dumped_cloud.with_id, objects.nodes))
    daemons = objects.daemon_sets or tuple(_daemon_sets(objects.pods))
    # Pods that are pending now are no part of the savings.
    known = {node.metadata.name for node in nodes}
    placed = tuple(pod for pod in objects.pods if pod.spec.node_name in known and api_pods.is_active(pod))
    # Peaks would keep nodes for lent capacity, which is counted apart.
    made = replace(objects, nodes=nodes, daemon_sets=daemons, pods=placed, peaks=None)
    members = dumped_cloud.nodes_by_group(nodes, label)
    return SimulatedCluster(made, dumped_cloud.groups_of(nodes, label), members, label, pricing)


def rightsize(
    pods: Iterable[Pod], made: Iterable[ContainerRecommendation], owner_of: Mapping[str, tuple[str, str, str]]
) -> list[Pod]:
    """The pods with these requests."""
    wanted: dict[tuple[str, str, str], dict[str, ContainerRecommendation]] = {}
    for each in made:
        if each.changes and each.container.role is not ContainerRole.INIT:
            wanted.setdefault(each.container.key[:3], {})[each.container.key.container] = each
    # Equal pods of a dump share their containers, and keep sharing them, so that the planner compares them quickly.
    known: dict[tuple[int, int], tuple[Containers, Containers]] = {}

    def changed(listed: Containers, of: Mapping[str, ContainerRecommendation]) -> Containers:
        key = id(of), id(listed)
        if key not in known:
            known[key] = listed, _rightsized(listed, of)  # with the original, so that its id stays unique
        return known[key][1]

    found = []
    for pod in pods:
        of = wanted.get(owner_of.get(pod.metadata.key, ("", "", "")))
        if of is not None:
            starting = None if pod.spec.init_containers is None else changed(pod.spec.init_containers, of)
            spec = with_fields(pod.spec, containers=changed(pod.spec.containers, of), init_containers=starting)
            # Amounts that a resize has allocated would count beside the requests.
            status = with_fields(pod.status, container_statuses=None, init_container_statuses=None)
            pod = with_fields(pod, spec=spec, status=status)
        found.append(pod)
    return found


def _rightsized(containers: Containers, wanted: Mapping[str, ContainerRecommendation]) -> Containers:
    def changed(each: Container) -> Container:
        found = wanted.get(each.name)
        if found is None:
            return each
        requests = dict(each.resources.requests or {})
        if found.cpu.request is not None:
            requests["cpu"] = quantity.format_milli(found.cpu.request)
        if found.memory.request is not None:
            requests["memory"] = found.memory.request
        return with_fields(each, resources=with_fields(each.resources, requests=requests))

    return tuple(map(changed, containers))


def find_removable(cluster: SimulatedCluster) -> Removable:
    """Nodes that could be removed together, by the rules of scale-down without its threshold."""
    rows = _judged(cluster)
    stay: dict[str, tuple[list[str], str]] = {}
    for row in rows:
        if row.standing not in _COULD_GO:
            stay.setdefault(row.reason or row.standing, ([], row.detail))[0].append(row.node)
    return Removable(
        frozenset(row.node for row in rows if row.standing in _COULD_GO),
        {reason: (tuple(names), detail) for reason, (names, detail) in stay.items()},
        frozenset(row.node for row in rows if row.standing not in _COULD_GO and row.reason in _FREE),
    )


def find_replacements(cluster: SimulatedCluster) -> list[NodeStatusRow]:
    """The answers of consolidation by price about nodes, by its default policy, without budgets or cool-down."""
    return [row for row in _judged(cluster, consolidates=True) if row.replacement]


def _judged(cluster: SimulatedCluster, *, consolidates: bool = False) -> list[NodeStatusRow]:
    """Every node, as judged by the planner with removals enabled."""
    chosen = _config(cluster, scales_down=True, consolidates=consolidates)
    cloud = dumped_cloud.observe(cluster.objects.nodes, chosen.ownership, cluster.label)
    plan = _plan(cluster, cloud, chosen)
    return [] if plan.scale_down is None else plan.scale_down.nodes


def find_cheaper_mix(cluster: SimulatedCluster, gone: Collection[str], replaceable: Collection[str]) -> CheaperMix:
    """The purchase if all pods of the `gone` or `replaceable` nodes waited for new ones."""
    objects = cluster.objects
    empty = {*gone, *replaceable}
    kept = [node for node in objects.nodes if node.metadata.name not in empty]
    waiting = [_waiting(pod) if pod.spec.node_name in empty else pod for pod in objects.pods]
    waiting = [pod for pod in waiting if pod.spec.node_name or not _comes_with_nodes(pod)]
    left = replace(cluster, objects=replace(objects, nodes=tuple(kept), pods=tuple(waiting)))
    return _bought(left, replaceable)


def find_bought(cluster: SimulatedCluster, asking: Iterable[Pod]) -> CheaperMix:
    """The purchase for these pods of the cluster if they were pending, and all others stayed in place."""
    waiting = {pod.metadata.key: _waiting(pod) for pod in asking}
    return _bought(cluster.with_pods(waiting.get(pod.metadata.key, pod) for pod in cluster.objects.pods))


def _bought(cluster: SimulatedCluster, replaced: Collection[str] = ()) -> CheaperMix:
    """The planner's purchase if every group may have any number of nodes like its present ones."""
    there = {node.metadata.name for node in cluster.objects.nodes}
    groups: dict[str, ObservedGroup] = {}
    of_node: dict[str, str] = {}
    for name, nodes in cluster.members.items():
        kept = [node for node in nodes if node.metadata.name in there]
        group = replace(cluster.groups[name], min_size=0, max_size=MOST_NODES, target_size=len(kept))
        groups[name] = ObservedGroup(group, tuple(Instance(node.spec.provider_id) for node in kept))
        of_node |= {node.metadata.name: name for node in kept}
    cloud = DumpedCloud(CloudObservation(groups, group_of_node=of_node), templates=cluster.templates)
    plan = _plan(cluster, cloud, _config(cluster, scales_down=False))
    added: Counter[str] = Counter()
    for each in plan.decisions:
        if each.what in _GROWTH:
            added[each.group] += each.to_size - each.from_size
    return CheaperMix(added, frozenset(replaced), sum(row.count for row in plan.unplaced), plan.blocked_reason)


def _plan(cluster: SimulatedCluster, cloud: ObservedCloud, chosen: DecisionSettings) -> Plan:
    view = open_view(cluster.objects, cloud, None, chosen, chance=random.Random(CHANCE))
    return answers.plan(iteration_plan.plan(view, dry_run=True).iteration)


def _config(cluster: SimulatedCluster, *, scales_down: bool, consolidates: bool = False) -> DecisionSettings:
    settings = AutoscalerSettings(
        nodes=tuple(f"{group.min_size}:{MOST_NODES}:{group.id}" for group in cluster.groups.values()),
        expander_preset=ranking.LEAST_COST.name,
        scale_down_enabled=scales_down,
        scale_down_utilization_threshold=1.0,
        scale_down_gpu_utilization_threshold=1.0,
        scale_down_simulation_timeout_seconds=3600.0,
        consolidation="price" if consolidates else "off",
        consolidation_rules=ConsolidationRules(
            consolidation_min_node_age_seconds=0.0, consolidation_cooldown_seconds=0.0
        ),
        disruption_budgets=("100%",),
        max_nodes_per_scaleup=MOST_NODES,
        max_nodegroup_binpacking_duration_seconds=3600.0,
        max_binpacking_time_seconds=3600.0,
        salvo_scale_up=True,
        salvo_scale_up_time_budget_seconds=3600.0,
        health=HealthLimits(max_total_unready_percentage=100.0),
    )
    found = decision_settings.load(settings, time.monotonic)
    return replace(found, settles=False, prices=cluster.pricing, replacement_search_seconds=SEARCH_SECONDS)


def _waiting(pod: Pod) -> Pod:
    """The same pod before it had a node."""
    status = with_fields(pod.status, phase="Pending", conditions=(_UNSCHEDULABLE,))
    return with_fields(pod, spec=with_fields(pod.spec, node_name=""), status=status)


def _comes_with_nodes(pod: Pod) -> bool:
    return any(
        owner.controller and owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references or ()
    )


def _daemon_sets(pods: Iterable[Pod]) -> Iterable[DaemonSet]:
    """DaemonSets inferred from pods on nodes: like their newest pods, without what binds each to its node."""
    found: dict[str, DaemonSet] = {}
    for pod in pods:
        for owner in pod.metadata.owner_references or ():
            if owner.kind == "DaemonSet" and owner.controller:
                key = f"{pod.metadata.namespace}/{owner.name}"
                spec = with_fields(pod.spec, node_name="", affinity=None)
                meta = ObjectMeta(name=owner.name, namespace=pod.metadata.namespace, uid=owner.uid)
                template = PodTemplate(metadata=ObjectMeta(labels=pod.metadata.labels), spec=spec)
                found[key] = DaemonSet(metadata=meta, spec=DaemonSetSpec(template=template))
    return found.values()
