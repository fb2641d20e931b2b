"""Pods that hold something of a tier, on a real API server."""

import contextlib
from collections.abc import Collection

from manager.nodeside.noderesource.report import NodeReport
from manager.pods import PodRecord, record
from shared import names
from shared.api.core import Node, Pod
from shared.api.nodemetric_spec import ResourceThresholds
from shared.kube.errors import NotFound
from shared.kube.resources import NODES, PODDISRUPTIONBUDGETS, PODS
from shared.names import Tier
from tests.integration.manager.conftest import Cluster
from tests.support import eventually


class Pods:
    """Pods of Mid or Batch on the node n1, as kubelets run them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.stale: Collection[PodRecord] | None = None  # what a manager knows that has not heard of the last changes
        self.reported: NodeReport | None = None
        self.allowed: ResourceThresholds | None = None

    def node(self, name: str) -> Node:
        return self.cluster.client.get(NODES, name, into=Node)

    def pods(self, name: str) -> Collection[PodRecord]:
        return self.records() if self.stale is None else self.stale

    def reports(self) -> list[NodeReport]:
        return [] if self.reported is None else [self.reported]

    def thresholds(self, name: str) -> ResourceThresholds | None:
        return self.allowed

    def add(
        self,
        name: str,
        *,
        priority: int = 0,
        cpu: int = 500,
        labels: dict[str, str] | None = None,
        tier: Tier = Tier.MID,
    ) -> None:
        """A pod that runs, with the priority label in place of spec.priority, which takes a PriorityClass."""
        of_cpu, of_memory = names.TIER_RESOURCES[tier]
        asked = {of_cpu: str(cpu), of_memory: "1Mi"}
        marks = {names.LABEL_PRIORITY_CLASS: f"koord-{tier}", names.LABEL_PRIORITY: str(priority)}
        meta = {"name": name, "labels": {"app": name, **marks, **(labels or {})}}
        container = {"name": "c", "image": "i", "resources": {"requests": asked, "limits": asked}}
        spec = {"nodeName": "n1", "containers": [container]}
        client, namespace = self.cluster.client, self.cluster.namespace
        client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, namespace)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        client.patch(PODS, name, {"status": status}, namespace, subresource="status")

    def bind(self, name: str, **requests: str) -> None:
        """A pod that its creator binds to n1, and that no kubelet has seen."""
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        spec = {"nodeName": "n1", "containers": [container]}
        self.cluster.client.create(PODS, pod | {"spec": spec}, self.cluster.namespace)

    def guard(self, name: str) -> None:
        """A disruption budget that allows nobody to evict the pod."""
        client, namespace = self.cluster.client, self.cluster.namespace
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        client.create(PODDISRUPTIONBUDGETS, body, namespace)
        eventually(
            lambda: client.get(PODDISRUPTIONBUDGETS, name, namespace).get("status", {}).get("currentHealthy") == 1, 30
        )

    def records(self) -> list[PodRecord]:
        return [record(each) for each in self.cluster.client.list(PODS, self.cluster.namespace, into=Pod).items]

    def reclaim_at(self, name: str) -> str | None:
        """When the pod will be evicted, as it can read itself."""
        found = self.cluster.client.get(PODS, name, self.cluster.namespace, into=Pod)
        return found.metadata.annotation(names.ANNOTATION_RECLAIM_AT)

    def leaving(self) -> set[str]:
        """Those evicted, which terminate for as long as no kubelet ends them."""
        found = self.cluster.client.list(PODS, self.cluster.namespace).items
        return {each["metadata"]["name"] for each in found if each["metadata"].get("deletionTimestamp")}

    def clear(self) -> None:
        for resource in (PODDISRUPTIONBUDGETS, PODS):
            for each in self.cluster.client.list(resource, self.cluster.namespace).items:
                with contextlib.suppress(NotFound):
                    name = each["metadata"]["name"]
                    self.cluster.client.delete(resource, name, self.cluster.namespace, grace_period_seconds=0)
