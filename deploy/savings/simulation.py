"""One cluster in several states, each planned by the manager's own round. Nothing is done.

A plan says which nodes could go together, and what would be bought for the pods of others.
"""

import random
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from deploy import dumped_cloud
from deploy.savings.recommending import ContainerRecommendation
from deploy.savings.workloads import ContainerRole
from manager.autoscaler import checked_settings
from manager.autoscaler.cloudprovider.contract import Gpus, Group, GroupSpec, Instance, Theoretical
from manager.autoscaler.cloudprovider.errors import Unsupported
from manager.autoscaler.cloudprovider.guard import CloudObservation, ObservedGroup
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.expander import ranking
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.context import ObservedCloud
from manager.autoscaler.pricing.model import PricingModel
from manager.autoscaler.reporting import answers
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.scale_down.removal_status import NodeStanding
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared import quantity
from shared.api import pods as api_pods
from shared.api.core import Condition, Container, DaemonSet, DaemonSetSpec, Node, Pod, PodTemplate
from shared.api.meta import ObjectMeta

NAME = "savings"
CHANCE = 1
MOST_NODES = 100_000
SEARCH_SECONDS = 30.0
_COULD_GO = (NodeStanding.GOES, NodeStanding.UNNEEDED)
# A node that stays for one of these can be replaced by another one: all of its pods may move.
_FREE = (UnremovableReason.NO_PLACE, UnremovableReason.NOT_UNDERUTILIZED, UnremovableReason.PEAKS)
_GROWTH = (ActionKind.INCREASE.value, ActionKind.CREATE_GROUP.value)
_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")


@dataclass(frozen=True)
class SimulatedCluster:
    """The objects of a cluster, and its groups by the labels of nodes; a `label` alone makes them where it is given."""

    objects: ClusterObjects
    groups: Mapping[str, Group]
    label: str = ""
    pricing: PricingModel | None = None

    def with_pods(self, pods: Iterable[Pod]) -> "SimulatedCluster":
        return replace(self, objects=replace(self.objects, pods=tuple(pods)))


@dataclass(frozen=True)
class Removable:
    """Nodes that could go together, why the others stay (by reason: nodes, and a sentence), and which of those have no
    pod that may not move.
    """

    nodes: frozenset[str]
    stay: Mapping[str, tuple[tuple[str, ...], str]]
    replaceable: frozenset[str]


@dataclass(frozen=True)
class NodeReplacement:
    """Whether consolidation by price replaces a node, or why not, and what that saves a month, or would if known."""

    sentence: str
    saves_per_month: float | None


@dataclass(frozen=True)
class CheaperMix:
    """New nodes by group in place of `replaced` ones; `unplaced` pods of those would find no place on them."""

    added: Mapping[str, int]
    replaced: frozenset[str]
    unplaced: int
    problem: str = ""


def prepare(objects: ClusterObjects, label: str, pricing: PricingModel) -> SimulatedCluster:
    """With an id for each node, and with DaemonSets where only their pods are known."""
    nodes = tuple(_with_id(node) for node in objects.nodes)
    daemons = objects.daemon_sets or tuple(_daemon_sets(objects.pods))
    # Whatever waits now is no part of what is saved.
    placed = tuple(pod for pod in objects.pods if pod.spec.node_name and api_pods.is_active(pod))
    # Peaks would keep nodes for what is lent, which is counted apart.
    made = replace(objects, nodes=nodes, daemon_sets=daemons, pods=placed, peaks=None)
    return SimulatedCluster(made, dumped_cloud.groups_of(nodes, label), label, pricing)


def rightsize(
    pods: Iterable[Pod], made: Iterable[ContainerRecommendation], owner_of: Mapping[str, tuple[str, str, str]]
) -> list[Pod]:
    """The pods as they would be with these requests."""
    wanted: dict[tuple[str, str, str], dict[str, ContainerRecommendation]] = {}
    for each in made:
        if each.changes and each.container.role is not ContainerRole.INIT:
            wanted.setdefault(each.container.key[:3], {})[each.container.key.container] = each
    # Equal pods of a dump share their containers, and go on to: the planner then sees at a glance that they are equal.
    known: dict[tuple[int, int, int], tuple[Pod, Pod]] = {}
    found = []
    for pod in pods:
        of = wanted.get(owner_of.get(pod.metadata.key, ("", "", "")))
        if of is None:
            found.append(pod)
            continue
        shared = (id(of), id(pod.spec.containers), id(pod.spec.init_containers))
        like = known.get(shared)
        found.append(_rightsize(pod, of, None if like is None else like[1]))
        known.setdefault(shared, (pod, found[-1]))
    return found


def _rightsize(pod: Pod, wanted: Mapping[str, ContainerRecommendation], like: Pod | None) -> Pod:
    """With the containers of the pod that is `like` this one, where there is one."""

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

    if like is not None:
        containers, starting = like.spec.containers, like.spec.init_containers
    else:
        containers = tuple(map(changed, pod.spec.containers))
        starting = None if pod.spec.init_containers is None else tuple(map(changed, pod.spec.init_containers))
    spec = with_fields(pod.spec, containers=containers, init_containers=starting)
    # What a resize has given the containers would count beside what they ask for.
    status = with_fields(pod.status, container_statuses=None, init_container_statuses=None)
    return with_fields(pod, spec=spec, status=status)


def find_removable(cluster: SimulatedCluster) -> Removable:
    """Nodes that could go together, by the rules of scale-down but its threshold: however full they are."""
    plan = _plan(cluster, _cloud_of(cluster), scales_down=True)
    rows = [] if plan.scale_down is None else plan.scale_down.nodes
    stay: dict[str, tuple[list[str], str]] = {}
    free = set()
    for row in rows:
        if row.standing in _COULD_GO:
            continue
        reason = row.reason or row.standing
        stay.setdefault(reason, ([], row.detail))[0].append(row.node)
        if row.reason in _FREE:
            free.add(row.node)
    return Removable(
        frozenset(row.node for row in rows if row.standing in _COULD_GO),
        {reason: (tuple(names), detail) for reason, (names, detail) in stay.items()},
        frozenset(free),
    )


def find_replacements(cluster: SimulatedCluster) -> dict[str, NodeReplacement]:
    """By node, what consolidation by price says of it by its default policy, without budgets or cool-down."""
    plan = _plan(cluster, _cloud_of(cluster), scales_down=True, consolidates=True)
    rows = [] if plan.scale_down is None else plan.scale_down.nodes
    return {
        row.node: NodeReplacement(row.replacement, row.replacement_saves_per_month) for row in rows if row.replacement
    }


def find_cheaper_mix(cluster: SimulatedCluster, gone: Collection[str], replaceable: Collection[str]) -> CheaperMix:
    """What would be bought if all pods of the nodes that are `gone` or `replaceable` waited for new ones."""
    objects = cluster.objects
    empty = {*gone, *replaceable}
    kept = [node for node in objects.nodes if node.metadata.name not in empty]
    waiting = [_waiting(pod) if pod.spec.node_name in empty else pod for pod in objects.pods]
    waiting = [pod for pod in waiting if pod.spec.node_name or not _comes_with_nodes(pod)]
    members = _members(objects.nodes, cluster)
    cloud = _RebuiltCloud(_observed(kept, members, cluster.groups), {name: nodes[0] for name, nodes in members.items()})
    left = replace(cluster, objects=replace(objects, nodes=tuple(kept), pods=tuple(waiting)))
    return _bought(left, cloud, replaceable)


def find_bought(cluster: SimulatedCluster, asking: Iterable[Pod]) -> CheaperMix:
    """What would be bought for these pods of the cluster if they waited, and all others stayed where they are."""
    objects = cluster.objects
    waiting = {pod.metadata.key: _waiting(pod) for pod in asking}
    members = _members(objects.nodes, cluster)
    observed = _observed(objects.nodes, members, cluster.groups)
    cloud = _RebuiltCloud(observed, {name: nodes[0] for name, nodes in members.items()})
    return _bought(cluster.with_pods(waiting.get(pod.metadata.key, pod) for pod in objects.pods), cloud)


def _bought(cluster: SimulatedCluster, cloud: ObservedCloud, replaced: Collection[str] = ()) -> CheaperMix:
    plan = _plan(cluster, cloud, scales_down=False)
    added: dict[str, int] = {}
    for each in plan.decisions:
        if each.what in _GROWTH:
            added[each.group] = added.get(each.group, 0) + each.to_size - each.from_size
    return CheaperMix(added, frozenset(replaced), sum(row.count for row in plan.unplaced), plan.held)


def group_of(cluster: SimulatedCluster) -> dict[str, str]:
    """The group of each node; empty where none is known."""
    observed = dumped_cloud.observe(cluster.objects.nodes, _config(cluster, scales_down=False).ownership, cluster.label)
    return dict(observed.observed.group_of_node)


def template_of(cluster: SimulatedCluster) -> dict[str, Node]:
    """A node of each group."""
    return {name: nodes[0] for name, nodes in _members(cluster.objects.nodes, cluster).items()}


def _members(nodes: Sequence[Node], cluster: SimulatedCluster) -> dict[str, list[Node]]:
    of_node = group_of(cluster)
    found: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        if group := of_node.get(node.metadata.name):
            found.setdefault(group, []).append(node)
    return found


def _observed(
    kept: Sequence[Node], members: Mapping[str, Sequence[Node]], groups: Mapping[str, Group]
) -> CloudObservation:
    there = {node.metadata.name for node in kept}
    found: dict[str, ObservedGroup] = {}
    of_node: dict[str, str] = {}
    for name, nodes in members.items():
        instances = tuple(Instance(node.spec.provider_id) for node in nodes if node.metadata.name in there)
        group = replace(groups[name], min_size=0, max_size=MOST_NODES, target_size=len(instances))
        found[name] = ObservedGroup(group, instances)
        of_node |= {node.metadata.name: name for node in nodes if node.metadata.name in there}
    return CloudObservation(found, group_of_node=of_node)


@dataclass(frozen=True)
class _RebuiltCloud:
    """The cluster's groups, of which new nodes are as one that is there now; see `context.ObservedCloud`."""

    observed: CloudObservation
    nodes: Mapping[str, Node]

    def template(self, group: str) -> Node:
        return self.nodes[group]

    def gpus(self) -> Gpus:
        return Gpus()

    def pricing(self) -> PricingModel | None:
        return None

    def machine_types(self) -> Sequence[str]:
        raise Unsupported(NAME, "", "only the cluster's own groups are known")

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        raise Unsupported(NAME, "", "only the cluster's own groups are known")


def _cloud_of(cluster: SimulatedCluster) -> ObservedCloud:
    return dumped_cloud.observe(cluster.objects.nodes, _config(cluster, scales_down=True).ownership, cluster.label)


def _plan(cluster: SimulatedCluster, cloud: ObservedCloud, *, scales_down: bool, consolidates: bool = False) -> Plan:
    planned = iteration_plan.plan(
        cluster.objects,
        cloud,
        None,
        _config(cluster, scales_down=scales_down, consolidates=consolidates),
        chance=random.Random(CHANCE),
        dry_run=True,
    )
    return answers.plan(planned.iteration)


def _config(cluster: SimulatedCluster, *, scales_down: bool, consolidates: bool = False) -> DecisionSettings:
    settings = AutoscalerSettings(
        nodes=tuple(f"{group.min_size}:{MOST_NODES}:{group.id}" for group in cluster.groups.values()),
        expander_preset=ranking.LEAST_COST.name,
        scale_down_enabled=scales_down,
        scale_down_utilization_threshold=1.0,
        scale_down_gpu_utilization_threshold=1.0,
        scale_down_simulation_timeout_seconds=3600.0,
        consolidation="price" if consolidates else "off",
        consolidation_min_node_age_seconds=0.0,
        consolidation_cooldown_seconds=0.0,
        disruption_budgets=("100%",),
        max_nodes_per_scaleup=MOST_NODES,
        max_nodegroup_binpacking_duration_seconds=3600.0,
        max_binpacking_time_seconds=3600.0,
        salvo_scale_up=True,
        salvo_scale_up_time_budget_seconds=3600.0,
        max_total_unready_percentage=100.0,
    )
    found = checked_settings.load(settings, time.monotonic)
    pending = replace(found.pending, settling_seconds=0.0, gpu_settling_seconds=0.0)
    rules = None if found.consolidation is None else replace(found.consolidation, search_seconds=SEARCH_SECONDS)
    pricing = cluster.pricing if cluster.pricing is not None else found.prices
    return replace(found, pending=pending, prices=pricing, consolidation=rules)


def _waiting(pod: Pod) -> Pod:
    """The same pod before it had a node."""
    status = with_fields(pod.status, phase="Pending", conditions=(_UNSCHEDULABLE,))
    return with_fields(pod, spec=with_fields(pod.spec, node_name=""), status=status)


def _comes_with_nodes(pod: Pod) -> bool:
    return any(
        owner.controller and owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references or ()
    )


def _daemon_sets(pods: Iterable[Pod]) -> Iterable[DaemonSet]:
    """Of what owns pods on nodes: as their newest pods are, without what binds each to its node."""
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


def _with_id(node: Node) -> Node:
    """Nodes are told apart by the ids of their machines, which some clusters have none of."""
    if node.spec.provider_id:
        return node
    return with_fields(node, spec=with_fields(node.spec, provider_id=f"node:{node.metadata.name}"))
