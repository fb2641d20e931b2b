"""Which nodes kube-scheduler finds feasible for a pod, and which our predicates do.

An HTTP extender is called after all filters of the scheduler, with the names of the nodes that passed. It refuses all,
so that nothing is bound. To pin the pod to one node after the other would not do: it would change which nodes a spread
constraint counts.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manager.autoscaler.estimator import problem
from manager.autoscaler.estimator.packing import Packing, refusals
from manager.autoscaler.snapshot import cluster, devices, equivalence_groups
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.snapshot.referenced_objects import ReferencedKind, ReferencedObjects, referenced_objects
from shared.api import pods as podrules
from shared.api.core import Namespace, Node, Pod
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import DEVICECLASSES, NAMESPACES, NODES, PODS, RESOURCECLAIMS, RESOURCESLICES, Resource
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import ApiServer
from tests.support.http_server import HttpServer, Request
from tests.support.random_clusters import (
    DEVICE_CLASSES,
    FATE,
    FINISHED,
    NAMESPACE_LABELS,
    RUNTIME,
    TERMINATING,
    Json,
    RandomClusters,
)

RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)
PODS_PER_CLUSTER = 50
PATIENCE_SECONDS = 120.0
TRIES = 8  # of a pod about which the answers differ: the scheduler's first may be older than the nodes


class Refusing(HttpServer):
    """An extender that refuses all nodes, and remembers which it was asked about, by pod."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._asked: dict[str, frozenset[str]] = {}

    @property
    def configuration(self) -> dict[str, object]:
        """Of the scheduler that asks it."""
        return {"urlPrefix": self.url, "filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "30s"}

    def answer(self, request: Request) -> tuple[int, bytes]:
        asked = json.loads(request.body)
        names = asked.get("NodeNames") or []
        with self._lock:
            self._asked[asked["Pod"]["metadata"]["name"]] = frozenset(names)
        return 200, json.dumps({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "refused by the test")}).encode()

    def feasible(self, pod: str) -> frozenset[str] | None:
        with self._lock:
            return self._asked.get(pod)


@dataclass
class Count:
    """Of what was compared; `differences` are sentences."""

    pods: int = 0
    nodes: int = 0
    with_a_node: int = 0
    differences: list[str] = field(default_factory=list)


@contextlib.contextmanager
def running(server: ApiServer, directory: Path, seed: int) -> Iterator["Differential"]:
    """With kube-scheduler, which asks the extender."""
    extender = Refusing()
    try:
        with kube_scheduler.running({"extenders": [extender.configuration]}, server.kubeconfig, directory):
            yield Differential(server, extender, seed)
    finally:
        extender.close()


class Differential:
    """Clusters from one seed, and how the answers about them compare."""

    def __init__(self, server: ApiServer, extender: Refusing, seed: int) -> None:
        self._client: Client = server.client()
        self._extender = extender
        for resource, item in ((RUNTIME_CLASSES, RUNTIME), *((DEVICECLASSES, each) for each in DEVICE_CLASSES)):
            with contextlib.suppress(AlreadyExists):
                self._client.create(resource, item)
        namespaces = tuple(server.add_namespace() for _ in NAMESPACE_LABELS)
        for name, labels in zip(namespaces, NAMESPACE_LABELS, strict=True):
            self._client.patch(NAMESPACES, name, {"metadata": {"labels": labels}})
        self._draw = RandomClusters(seed, namespaces)

    def compare(self, pods: int) -> Count:
        """Asks about `pods` pods or somewhat more, each with all nodes of its cluster."""
        count = Count()
        while count.pods < pods:
            self._compare_cluster(count)
        return count

    def _compare_cluster(self, count: Count) -> None:
        nodes = self._draw.nodes()
        placed = self._draw.placed(nodes)
        slices = self._draw.slices(nodes)
        allocated = self._draw.allocated(slices, placed)
        asked = [self._draw.pod() for _ in range(PODS_PER_CLUSTER)]
        try:
            self._furnish(nodes, placed, slices, allocated)
            for pod in asked:
                if (claim := self._draw.claims.pop(pod["metadata"]["name"], None)) is not None:
                    self._client.create(RESOURCECLAIMS, claim, claim["metadata"]["namespace"])
            left = self._ask(asked, count, final=False)
            for number in range(1, TRIES):
                time.sleep(0.2 * number)  # the scheduler's caches settle; there is no sign of it to wait for
                again = [_renamed(pod, number) for pod in left]
                left = self._ask(again, count, final=number == TRIES - 1)
                if not left:
                    break
        finally:
            self._clear()
        count.pods += len(asked)
        count.nodes += len(asked) * len(nodes)

    def _furnish(
        self, nodes: Sequence[Json], placed: Sequence[Json], slices: Sequence[Json], allocated: Sequence[Json]
    ) -> None:
        for node in nodes:
            name, taints = node["metadata"]["name"], node["spec"]["taints"]
            self._client.create(NODES, node)
            self._client.patch(NODES, name, {"spec": {"taints": taints or None}})  # without that of new nodes
        for each in slices:
            self._client.create(RESOURCESLICES, each)
        for claim in allocated:
            meta = claim["metadata"]
            self._client.create(RESOURCECLAIMS, claim, meta["namespace"])
        for pod in placed:
            meta = pod["metadata"]
            self._client.create(PODS, pod, meta["namespace"])
            if meta["labels"].get(FATE) == TERMINATING:  # no kubelet lets it go
                self._client.delete(PODS, meta["name"], meta["namespace"])
            elif meta["labels"].get(FATE) == FINISHED:
                finished = {"status": {"phase": "Succeeded"}}
                self._client.patch(PODS, meta["name"], finished, meta["namespace"], subresource="status")

        uids = {pod.metadata.key: pod.metadata.uid for pod in self._client.list(PODS, into=Pod).items}
        for claim in allocated:
            meta = claim["metadata"]
            pod_uid = uids[f"{meta['namespace']}/{meta['name']}"]
            consumer = {"resource": "pods", "name": meta["name"], "uid": pod_uid}
            status: Json = {"status": {**claim["status"], "reservedFor": [consumer]}}
            self._client.patch(RESOURCECLAIMS, meta["name"], status, meta["namespace"], subresource="status")

    def _ask(self, asked: Sequence[Json], count: Count, *, final: bool) -> list[Json]:
        """Compares the answers about these pods; returns those about which they differ, if these are not `final`."""
        for pod in asked:
            self._client.create(PODS, pod, pod["metadata"]["namespace"])
        names = {pod["metadata"]["name"] for pod in asked}
        eventually(lambda: names <= self._answered(), PATIENCE_SECONDS)
        nodes = self._client.list(NODES, into=Node).items
        pods = self._client.list(PODS, into=Pod).items
        pending = {pod.metadata.name: pod for pod in pods if not pod.spec.node_name}
        placed = [pod for pod in pods if pod.spec.node_name and podrules.is_active(pod)]
        surroundings = self._surroundings()
        left = []
        for pod in asked:
            name = pod["metadata"]["name"]
            theirs = self._extender.feasible(name) or frozenset()
            ours = feasible_nodes(pending[name], nodes, placed, surroundings)
            differing = {each for each in ours if (each in theirs) != (not ours[each])}
            if not differing or final:
                count.with_a_node += bool(theirs)
            if differing:
                left.append(pod)
            if differing and final:
                message = _message(pending[name])
                told = {each: ours[each] or ["fits"] for each in sorted(differing)}
                count.differences.append(f"{told}; the scheduler: {sorted(theirs)}, {message}; pod {json.dumps(pod)}")
        for pod in asked:
            self._client.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace_period_seconds=0)
        return left

    def _answered(self) -> set[str]:
        """The pods that the scheduler has judged."""
        pods = self._client.list(PODS, into=Pod, field_selector="spec.nodeName=").items
        return {pod.metadata.name for pod in pods if _message(pod)}

    def _surroundings(self) -> ReferencedObjects:
        namespaces = self._client.list(NAMESPACES, into=Namespace).items
        labels = {each.metadata.name: each.metadata.labels or {} for each in namespaces}
        return referenced_objects(labels, self._listed)

    def _listed(self, kind: ReferencedKind) -> list[Any] | None:
        found: list[Any] = []
        for resource in kind.resources:
            with contextlib.suppress(NotFound):
                found += self._client.list(resource, into=kind.into).items
        return found

    def _clear(self) -> None:
        for pod in self._client.list(PODS, into=Pod).items:
            with contextlib.suppress(NotFound):
                self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, grace_period_seconds=0)
        for resource in (RESOURCECLAIMS, RESOURCESLICES, NODES):
            for item in self._client.list(resource).items:
                with contextlib.suppress(NotFound):
                    self._client.delete(resource, item["metadata"]["name"], item["metadata"].get("namespace"))


def feasible_nodes(
    pod: Pod, nodes: Iterable[Node], placed: Iterable[Pod], surroundings: ReferencedObjects
) -> Mapping[str, list[str]]:
    """By node, why our predicates refuse the pod there; nothing where it fits."""
    nodes = devices.with_devices(nodes, surroundings.devices)
    snapshot = cluster.take_snapshot([(node, NodeState.READY) for node in nodes], placed, surroundings=surroundings)
    found = equivalence_groups.build_equivalence_groups([pod], surroundings)
    if found.refused:
        return {node.name: [str(problem) for problem in found.refused.values()] for node in snapshot.nodes}
    packing = Packing(problem.packing_problem(snapshot, found.classes))
    reasons: dict[str, list[str]] = {}
    for row, node in enumerate(snapshot.nodes):
        fits = packing.fill_one(0, row, 1)
        packing.take_back(0)
        reasons[node.name] = [] if fits else refusals(packing, 0, row) or ["the node takes no pods"]
    return reasons


def _message(pod: Pod) -> str:
    return next((each.message for each in pod.status.conditions or () if each.reason == "Unschedulable"), "")


def _renamed(pod: Json, number: int) -> Json:
    name = f"{pod['metadata']['name'].partition('-')[0]}-{number}"
    metadata: dict[str, Any] = {**pod["metadata"], "name": name}
    return {**pod, "metadata": metadata}
