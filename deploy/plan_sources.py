"""The inputs of a plan, from a live cluster or from kubectl's output.

Handwritten objects may be short: a pod without a node is pending, and a node without conditions is ready.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace as with_fields

from deploy import dumps, missing_kinds
from deploy.dumps import Dump
from deploy.nodeside import ConfigKey, NodeSide
from manager.autoscaler.cluster_state import registry_store
from manager.autoscaler.cluster_state.registry import Registry, decode_registry
from manager.autoscaler.expander import priority
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.pod_injection import buffer_reading, chunk_sources, request_reading
from manager.autoscaler.scale_down import pods_on_nodes
from manager.autoscaler.scale_down.drain import PodController
from manager.autoscaler.scale_down.pods_on_nodes import Controllers
from manager.autoscaler.snapshot.referenced_objects import REFERENCED_KINDS, ReferencedKind, referenced_objects
from shared import names
from shared.api.capacitybuffer import CapacityBuffer, ChunkSource, ChunkSourceRef
from shared.api.capacityquota import CapacityQuota
from shared.api.core import (
    Condition,
    ConfigMap,
    DaemonSet,
    Namespace,
    Node,
    Pod,
)
from shared.api.meta import prepared
from shared.api.nodemetric import NodeMetric
from shared.api.provisioningrequest import ProvisioningRequest
from shared.api.resourcequota import ResourceQuota
from shared.api.workloads import Job, PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet
from shared.errors import InvalidInput
from shared.kube import config
from shared.kube.client import Client
from shared.kube.configmap_store import ConfigMapStore
from shared.kube.errors import Forbidden, NotFound
from shared.kube.resources import (
    CAPACITYBUFFERS,
    CAPACITYQUOTAS,
    CONFIGMAPS,
    DAEMONSETS,
    JOBS,
    NAMESPACES,
    NODEMETRICS,
    NODES,
    PODDISRUPTIONBUDGETS,
    PODS,
    PROVISIONINGREQUESTS,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    RESOURCEQUOTAS,
    STATEFULSETS,
    Resource,
)

S = TypeVar("S", bound=msgspec.Struct)
PlacedT = TypeVar("PlacedT", Pod, CapacityBuffer, ProvisioningRequest)


@prepared
class PodTemplateSource(ChunkSource, frozen=True):
    """A PodTemplate, for the CapacityBuffers and ProvisioningRequests that name it."""


@prepared
class DeploymentSource(ChunkSource, frozen=True):
    """A Deployment, for the CapacityBuffers that name it."""


_RESOURCES: Mapping[type[msgspec.Struct], Resource] = {
    Node: NODES,
    Pod: PODS,
    DaemonSet: DAEMONSETS,
    Namespace: NAMESPACES,
    ConfigMap: CONFIGMAPS,
    NodeMetric: NODEMETRICS,
    ReplicationController: REPLICATIONCONTROLLERS,
    ReplicaSet: REPLICASETS,
    StatefulSet: STATEFULSETS,
    Job: JOBS,
    PodDisruptionBudget: PODDISRUPTIONBUDGETS,
    CapacityQuota: CAPACITYQUOTAS,
    CapacityBuffer: CAPACITYBUFFERS,
    ProvisioningRequest: PROVISIONINGREQUESTS,
    ResourceQuota: RESOURCEQUOTAS,
}
_KINDS: dict[str, type[msgspec.Struct]] = {
    kind.__name__: kind
    for kind in (*_RESOURCES, *(each.into for each in REFERENCED_KINDS))
    if kind is not ResourceQuota  # counts for buffers alone
}
_OF_BUFFERS: dict[str, type[msgspec.Struct]] = {
    "PodTemplate": PodTemplateSource,
    "Deployment": DeploymentSource,
    "ResourceQuota": ResourceQuota,
}
WHAT_TO_DUMP = "kubectl get nodes,pods -A -o json"
_READY = Condition(type="Ready", status="True")
_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")


@dataclass
class Seen:
    """The inputs of a plan.

    Without a `node_side` the nodes' offers stay as they are. `client` belongs to a live cluster named `cluster`;
    `notes` says what was ignored. `registry` is None without records. Without `tells_of_pods` it is unknown what nodes
    hold. `dump` is set for files. `metrics` may be present without a ConfigMap.
    """

    source: str
    objects: ClusterObjects
    registry: Registry | None = None
    node_side: NodeSide | None = None
    client: Client | None = None
    notes: list[str] = field(default_factory=list)
    tells_of_pods: bool = True
    cluster: str = ""
    dump: Dump | None = None
    metrics: Sequence[NodeMetric] = ()


def from_files(
    files: Sequence[Path],
    namespace: str,
    config_key: ConfigKey,
    *,
    pod_type: type[Pod] = Pod,
    also: Mapping[str, type[msgspec.Struct]] = MappingProxyType({}),
    minds_buffers: bool = False,
    minds_requests: bool = False,
) -> Seen:
    """What the files hold; `namespace` is the manager's.

    Pods become `pod_type`, and other kinds, by name, the types in `also`. The pods of CapacityBuffers and
    ProvisioningRequests are only read if these count. Raises InvalidInput.
    """
    maps = {priority.CONFIG_MAP, names.REGISTRY_CONFIG_MAP, names.FORMER_REGISTRY_CONFIG_MAP, config_key.name}
    kinds = {**_KINDS, **(_OF_BUFFERS if minds_buffers or minds_requests else {}), **also, "Pod": pod_type}
    dump = dumps.read(files, kinds, lambda kind, head: kind != "ConfigMap" or head.metadata.name in maps)
    priorities = dump.config_map(namespace, priority.CONFIG_MAP)
    policy = dump.config_map(config_key.namespace, config_key.name)
    now = dump.now or time.time()
    nodes, pods = [_as_if_ready(node) for node in dump.of(Node)], [_as_if_judged(pod) for pod in dump.of(pod_type)]
    if not nodes and not pods:
        problem = f"there is no Node and no Pod in it: {WHAT_TO_DUMP} prints what is needed"
        raise InvalidInput(source="-f", field="file", value=dump.source, problem=problem)
    notes = [f"{file} has nothing to plan with, no pod and no node" for file in dump.unused]
    places = ((names.REGISTRY_CONFIG_MAP, registry_store.KEY), registry_store.FORMER)
    registries = ((dump.config_map(namespace, name), key) for name, key in places)
    text = next(((kept.data or {}).get(key) for kept, key in registries if kept is not None), None)
    # A kind without an object may not have been dumped.
    objects = _objects(dump.of, lambda kind: dump.of(kind.into) or None, now, nodes, pods)
    notes += missing_kinds.notes(pods, objects.surroundings, dump.source)
    return Seen(
        dump.source,
        replace(
            objects,
            priorities=None if priorities is None else (priorities.data or {}).get(priority.KEY),
            controllers=_named_too(pods, objects.controllers or {}),
            capacity_quotas=tuple(dump.of(CapacityQuota)),
            capacity_buffers=tuple(map(_placed, dump.of(CapacityBuffer))),
            chunk_sources=_chunk_sources(dump),
            resource_quotas=tuple(dump.of(ResourceQuota)),
            provisioning_requests=tuple(map(_placed, dump.of(ProvisioningRequest))),
        ),
        registry=_registry(text, f"ConfigMap {namespace}/{names.REGISTRY_CONFIG_MAP}", now, notes),
        node_side=_node_side(nodes, dump.of(NodeMetric), pods, policy, now),
        notes=notes,
        tells_of_pods=bool(pods),
        dump=dump,
        metrics=dump.of(NodeMetric),
    )


def from_cluster(
    kubeconfig: str,
    namespace: str,
    config_key: ConfigKey,
    *,
    minds_quotas: bool = False,
    minds_buffers: bool = False,
    minds_requests: bool = False,
    context: str = "",
    pod_type: type[Pod] = Pod,
) -> Seen:
    """What the API server knows now; `namespace` is the manager's.

    CapacityQuotas, CapacityBuffers and ProvisioningRequests are only read if they count.
    """
    connection = config.discover(kubeconfig or None, context or None)
    client = Client(connection, "headroom-plan").single_attempt()
    kept = registry_store.config_map_store(client, namespace)
    text, _ = kept.read()
    now, notes = time.time(), list[str]()
    quotas = _list_custom(client, CapacityQuota, notes) if minds_quotas else ()
    buffers = _list_custom(client, CapacityBuffer, notes) if minds_buffers else ()
    requests = _list_custom(client, ProvisioningRequest, notes) if minds_requests else ()
    templates = [*chunk_sources.named(buffers), *request_reading.named(requests)]
    nodes, pods = client.list(NODES, into=Node).items, client.list(PODS, into=pod_type).items

    def listed(kind: type[S]) -> list[S]:
        return client.list(_RESOURCES[kind], into=kind).items

    def referenced(kind: ReferencedKind) -> list[Any] | None:
        return _list_referenced(client, kind, notes)

    metrics, config_map = list[NodeMetric](), None
    with contextlib.suppress(NotFound):  # the node side of the product is not installed
        metrics = client.list(NODEMETRICS, into=NodeMetric).items
        config_map = client.get(CONFIGMAPS, config_key.name, config_key.namespace, into=ConfigMap)
    return Seen(
        connection.server.rpartition("@")[2],
        replace(
            _objects(listed, referenced, now, nodes, pods),
            priorities=ConfigMapStore(client, namespace, priority.CONFIG_MAP, priority.KEY).read()[0],
            capacity_quotas=quotas,
            capacity_buffers=buffers,
            chunk_sources=chunk_sources.read_all(client, templates),
            resource_quotas=tuple(listed(ResourceQuota)) if buffers else (),
            provisioning_requests=requests,
        ),
        registry=_registry(text, kept.source, now, notes),
        node_side=_node_side(nodes, metrics, pods, config_map, now),
        client=client,
        notes=notes,
        cluster=connection.cluster_name or connection.server,
        metrics=metrics,
    )


class _Lister(Protocol):
    def __call__(self, kind: type[S], /) -> list[S]: ...


def _objects(
    listed: _Lister,
    referenced: Callable[[ReferencedKind], Iterable[Any] | None],
    now: float,
    nodes: Sequence[Node],
    pods: Sequence[Pod],
) -> ClusterObjects:
    """The objects that both ways read alike."""
    daemon_sets = listed(DaemonSet)
    controllers = (
        *map(pods_on_nodes.daemon_set, daemon_sets),
        *map(pods_on_nodes.replication_controller, listed(ReplicationController)),
        *map(pods_on_nodes.replica_set, listed(ReplicaSet)),
        *map(pods_on_nodes.stateful_set, listed(StatefulSet)),
        *map(pods_on_nodes.job, listed(Job)),
    )
    namespaces = {each.metadata.name: each.metadata.labels or {} for each in listed(Namespace)}
    return ClusterObjects(
        now,
        tuple(nodes),
        tuple(pods),
        tuple(daemon_sets),
        referenced_objects(namespaces, referenced),
        controllers={each.key: each for each in controllers},
        budgets=tuple(listed(PodDisruptionBudget)),
    )


def _list_custom(client: Client, into: type[S], notes: list[str]) -> tuple[S, ...]:
    try:
        return tuple(client.list(_RESOURCES[into], into=into).items)
    except NotFound:
        notes.append(f"the cluster does not know {into.__name__}s, so none counts")
        return ()


def _list_referenced(client: Client, kind: ReferencedKind, notes: list[str]) -> list[Any] | None:
    """None if the user may not read the kind, and can do without."""
    found: list[Any] = []
    for resource in kind.resources:
        try:
            found += client.list(resource, into=kind.into).items
        except NotFound:
            if not kind.optional:
                raise
        except Forbidden:
            if not kind.optional:
                raise
            notes.append(f"{resource} may not be read, so decisions ignore them")
            return None
    return found


def _placed(each: PlacedT) -> PlacedT:
    """The object in the default namespace if it names none."""
    if each.metadata.namespace:
        return each
    return with_fields(each, metadata=with_fields(each.metadata, namespace=dumps.DEFAULT_NAMESPACE))


def _chunk_sources(dump: Dump) -> dict[ChunkSourceRef, ChunkSource | str]:
    """The pods of buffers and requests as far as files show them: of the workloads, only Deployments are read from
    files.
    """
    kinds = (("", buffer_reading.POD_TEMPLATE, PodTemplateSource), ("apps", "Deployment", DeploymentSource))
    return {
        ChunkSourceRef(group, kind, each.metadata.namespace or dumps.DEFAULT_NAMESPACE, each.metadata.name): each
        for group, kind, struct in kinds
        for each in dump.of(struct)
    }


def _registry(text: str | None, source: str, now: float, notes: list[str]) -> Registry | None:
    """The registry as the manager reads it: unreadable records are ignored."""
    try:
        return None if text is None else decode_registry(text, source, now)
    except InvalidInput as error:
        notes.append(f"the registry cannot be read and is ignored: {error}")
        return None


def _node_side(
    nodes: Sequence[Node],
    metrics: Sequence[NodeMetric],
    pods: Sequence[Pod],
    config_map: ConfigMap | None,
    now: float,
) -> NodeSide | None:
    """None if reports or policy are missing: an offer must not look withdrawn because a file leaves it out."""
    return NodeSide(nodes, metrics, pods, config_map, now) if metrics and config_map is not None else None


def _named_too(pods: Iterable[Pod], known: Controllers) -> Controllers:
    """With the controllers that pods name, for kinds missing from the files: these kinds were not dumped."""
    kinds = {each.kind for each in known.values()}
    owners = {(pod.metadata.namespace, owner) for pod in pods for owner in pod.metadata.owner_references or ()}
    named = (
        PodController(owner.kind, owner.name, namespace=namespace)
        for namespace, owner in owners
        if owner.kind not in kinds
    )
    return {**{each.key: each for each in named}, **known}


def _as_if_ready(node: Node) -> Node:
    """A node without conditions is handwritten, and counts as ready."""
    if node.status.conditions:
        return node
    return with_fields(node, status=with_fields(node.status, conditions=(_READY,)))


def _as_if_judged(pod: Pod) -> Pod:
    """A pod without a node and without a status is pending; without a namespace it is in the default one."""
    pod = _placed(pod)
    if pod.spec.node_name or any(each.type == _UNSCHEDULABLE.type for each in pod.status.conditions or ()):
        return pod
    conditions = (*(pod.status.conditions or ()), _UNSCHEDULABLE)
    return with_fields(pod, status=with_fields(pod.status, conditions=conditions))
