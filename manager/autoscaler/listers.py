"""The objects behind the autoscaler's decisions: the manager's Nodes and Pods, and its own informers."""

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from manager.autoscaler.expander import priority
from manager.autoscaler.pod_injection import chunk_sources, request_reading
from manager.autoscaler.pod_injection.chunk_sources import ChunkSources
from manager.autoscaler.scale_down import drain, pods_on_nodes
from manager.autoscaler.scale_down.drain import GangBudget, PodController
from manager.autoscaler.scale_down.pods_on_nodes import Controllers
from manager.autoscaler.scale_up import pending_pods
from manager.autoscaler.snapshot.referenced_objects import (
    REFERENCED_KINDS,
    ReferencedKind,
    ReferencedObjects,
    referenced_objects,
)
from manager.informers import CachedPod, SharedInformers
from manager.node_peaks import NodePeaks
from shared.api.capacitybuffer import CapacityBuffer, ChunkSource, ChunkSourceRef
from shared.api.capacityquota import CapacityQuota
from shared.api.core import (
    ConfigMap,
    DaemonSet,
    Node,
    Pod,
)
from shared.api.provisioningrequest import ProvisioningRequest
from shared.api.resourcequota import ResourceQuota
from shared.api.workloads import Job, PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, Kept
from shared.kube.resources import (
    CAPACITYBUFFERS,
    CAPACITYQUOTAS,
    CONFIGMAPS,
    DAEMONSETS,
    JOBS,
    PODDISRUPTIONBUDGETS,
    PROVISIONINGREQUESTS,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    RESOURCEQUOTAS,
    STATEFULSETS,
    Resource,
)
from shared.kube.watch import WatchScope, WatchTimes
from shared.quantity import Amounts
from shared.telemetry import Loops


@dataclass(frozen=True)
class ClusterObjects:
    """`now` in Unix seconds. `pods` are all pods; those without a node are pending.

    `stable_since` overrides, by node, when its readiness last changed. `expected` is the Mid and Batch capacity that
    the node's next report will add. `priorities` is the text of the priority expander's ConfigMap, None without one.

    `controllers` are None where they are not watched; then every owner counts as present. `peaks` holds the nodes with
    a prediction; it is None where no agent reports. `capacity_quotas` are empty where they are not enforced, as are
    `capacity_buffers` and `provisioning_requests` where they are not planned for; `chunk_sources` has the objects that
    buffers and requests name, or why one was not read, and `resource_quotas` limit the buffers.
    """

    now: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    surroundings: ReferencedObjects = field(default_factory=ReferencedObjects)
    stable_since: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, Amounts] = field(default_factory=dict)
    priorities: str | None = None
    controllers: Controllers | None = None
    budgets: tuple[PodDisruptionBudget, ...] = ()
    peaks: Mapping[str, NodePeaks] | None = None
    capacity_quotas: tuple[CapacityQuota, ...] = ()
    capacity_buffers: tuple[CapacityBuffer, ...] = ()
    chunk_sources: Mapping[ChunkSourceRef, ChunkSource | str] = field(default_factory=dict)
    resource_quotas: tuple[ResourceQuota, ...] = ()
    provisioning_requests: tuple[ProvisioningRequest, ...] = ()


ABSENT_SECONDS = 60.0  # between two checks for a custom kind that the cluster does not know yet

M = TypeVar("M")
_POD_GROUPS = tuple(kind for kind in REFERENCED_KINDS if kind.field == "pod_groups")
Expected = Callable[[Sequence[Node]], Mapping[str, Amounts]]
Peaks = Callable[[Sequence[Node]], Mapping[str, NodePeaks] | None]


@dataclass(frozen=True)
class WatchedKinds:
    """The kinds that the decisions read under the settings: the priority expander's ConfigMap in this namespace (empty:
    not read), the `controllers` and budgets that decide whether pods may be evicted, CapacityQuotas, CapacityBuffers,
    and ProvisioningRequests.
    """

    priorities_namespace: str = ""
    controllers: bool = False
    quotas: bool = False
    buffers: bool = False
    requests: bool = False


def _controllers(client: Client) -> dict[str, Informer[PodController]]:
    return {
        "replicationcontrollers": Informer(
            client, REPLICATIONCONTROLLERS, Kept(ReplicationController, pods_on_nodes.replication_controller)
        ),
        "replicasets": Informer(client, REPLICASETS, Kept(ReplicaSet, pods_on_nodes.replica_set)),
        "statefulsets": Informer(client, STATEFULSETS, Kept(StatefulSet, pods_on_nodes.stateful_set)),
        "jobs": Informer(client, JOBS, Kept(Job, pods_on_nodes.job)),
    }


class Listers:
    """Safe to read from any thread, once everything is synced.

    Nodes, Pods and Namespaces are those of the manager, which starts their informers; `start` starts the others.
    `expected` returns the capacity that these nodes' next reports will add, `peaks` their predicted peaks; `pending` is
    called when a pod has turned unschedulable.
    """

    def __init__(
        self,
        client: Client,
        shared: SharedInformers,
        watched: WatchedKinds,
        *,
        expected: Expected,
        peaks: Peaks,
        pending: Callable[[], None],
    ) -> None:
        self._expected = expected
        self._peaks = peaks
        self._pending = pending
        self._nodes = shared.nodes
        self._pods = shared.pods
        self._pods.subscribe(self._pod)
        self._daemon_sets = Informer(client, DAEMONSETS, DaemonSet)
        self._namespaces = shared.namespaces
        self._own: dict[str, Informer[Any]] = {"daemonsets": self._daemon_sets}
        self._referenced: dict[str, list[Informer[Any]]] = {}
        for kind in REFERENCED_KINDS:
            absent_seconds = ABSENT_SECONDS if kind.optional else None
            times = WatchTimes(absent_seconds=absent_seconds, absence_level=logging.INFO)
            followed = {each.full_name: Informer[Any](client, each, kind.into, times=times) for each in kind.resources}
            self._referenced[kind.field] = list(followed.values())
            self._own |= followed
        self._priorities: Informer[ConfigMap] | None = None
        self._priorities_key = f"{watched.priorities_namespace}/{priority.CONFIG_MAP}"
        if watched.priorities_namespace:
            name = f"metadata.name={priority.CONFIG_MAP}"
            self._priorities = Informer(
                client,
                CONFIGMAPS,
                ConfigMap,
                scope=WatchScope(namespace=watched.priorities_namespace, field_selector=name),
            )
            self._own["configmaps"] = self._priorities
        self._sources = ChunkSources(client)
        custom = WatchTimes(absent_seconds=ABSENT_SECONDS)

        def follow(resource: Resource, into: type[M], times: WatchTimes, *, wanted: bool) -> Informer[M] | None:
            if not wanted:
                return None
            found = self._own[resource.plural] = Informer(client, resource, into, times=times)
            return found

        self._quotas = follow(CAPACITYQUOTAS, CapacityQuota, custom, wanted=watched.quotas)
        self._buffers = follow(CAPACITYBUFFERS, CapacityBuffer, custom, wanted=watched.buffers)
        self._resource_quotas = follow(RESOURCEQUOTAS, ResourceQuota, WatchTimes(), wanted=watched.buffers)
        self._requests = follow(PROVISIONINGREQUESTS, ProvisioningRequest, custom, wanted=watched.requests)
        self._budgets = follow(PODDISRUPTIONBUDGETS, PodDisruptionBudget, WatchTimes(), wanted=watched.controllers)
        of_controllers = _controllers(client) if watched.controllers else {}
        self._controllers = list(of_controllers.values())
        self._own |= of_controllers
        self._informers = {**shared.by_name, "namespaces": shared.namespaces, **self._own}

    def start(self, loops: Loops) -> None:
        """Watches the other kinds until the loops end."""
        for name, informer in self._own.items():
            loops.start(f"autoscaler-informer-{name}", informer.run)

    def unsynced(self) -> list[str]:
        """The informers that have not synced; until all have, there are no objects to read."""
        return [name for name, informer in self._informers.items() if not informer.synced.is_set()]

    def stale(self) -> list[str]:
        """The informers whose watch is interrupted, so that their objects may have changed unseen."""
        return [name for name, informer in self._informers.items() if not informer.current.is_set()]

    def unread_nodes(self) -> list[str]:
        """Nodes that exist but cannot be read, so that their machines are unknown."""
        return self._nodes.unread()

    def provider_ids(self) -> frozenset[str]:
        """The provider ids of the present Nodes."""
        return frozenset(node.spec.provider_id for node in self._nodes.values())

    def objects(self, now: float) -> ClusterObjects:
        """All objects, as last seen."""
        missing = self.unsynced()
        assert not missing, f"not seen in full: {', '.join(missing)}"
        nodes = tuple(self._nodes.values())
        buffers = () if self._buffers is None else tuple(self._buffers.values())
        requests = () if self._requests is None else tuple(self._requests.values())
        return ClusterObjects(
            now,
            nodes=nodes,
            pods=tuple(each.wire for each in self._pods.values() if each.wire is not None),
            daemon_sets=tuple(self._daemon_sets.values()),
            surroundings=referenced_objects(
                {each.metadata.name: each.metadata.labels or {} for each in self._namespaces.values()},
                self._of_kind,
            ),
            expected=self._expected(nodes),
            priorities=self._prioritised(),
            controllers=self.controllers(),
            budgets=self.budgets(),
            peaks=self._peaks(nodes),
            capacity_quotas=() if self._quotas is None else tuple(self._quotas.values()),
            capacity_buffers=buffers,
            chunk_sources=self._sources.read([*chunk_sources.named(buffers), *request_reading.named(requests)]),
            resource_quotas=() if self._resource_quotas is None else tuple(self._resource_quotas.values()),
            provisioning_requests=requests,
        )

    def _of_kind(self, kind: ReferencedKind) -> list[Any] | None:
        """None while the cluster knows no version of the kind."""
        followed = [each for each in self._referenced[kind.field] if not each.is_absent]
        return [each for informer in followed for each in informer.values()] if followed else None

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def pods_on(self, nodes: Container[str]) -> dict[str, list[Pod]]:
        """The pods of these nodes, by node."""
        found: dict[str, list[Pod]] = {}
        for pod in self._pods.values():
            if pod.record.node in nodes and pod.wire is not None:
                found.setdefault(pod.record.node, []).append(pod.wire)
        return found

    def controllers(self) -> Controllers | None:
        """The controllers of pods, if they are watched."""
        if not self._controllers:
            return None
        followed = (each for informer in self._controllers for each in informer.values())
        daemon_sets = map(pods_on_nodes.daemon_set, self._daemon_sets.values())
        return {each.key: each for each in (*followed, *daemon_sets)}

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        return () if self._budgets is None else tuple(self._budgets.values())

    def gang_budgets(self) -> list[GangBudget]:
        """The evictions that each gang allows now."""
        known = {kind.key(each): each for kind in _POD_GROUPS for each in self._of_kind(kind) or ()}
        return drain.gang_budgets((each.wire for each in self._pods.values() if each.wire is not None), known)

    def _prioritised(self) -> str | None:
        found = None if self._priorities is None else self._priorities.get(self._priorities_key)
        return None if found is None else (found.data or {}).get(priority.KEY)

    def _pod(self, change: Change[CachedPod]) -> None:
        if _waits(change.new) and not _waits(change.old):
            self._pending()


def _waits(pod: CachedPod | None) -> bool:
    wire = None if pod is None or pod.record.node else pod.wire
    return wire is not None and pending_pods.found_unschedulable(wire)
