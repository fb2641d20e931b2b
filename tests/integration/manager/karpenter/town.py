"""A cluster whose nodes are bought by real Karpenter, with a scheduler, and a manager to be begun by a test."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from prometheus_client import CollectorRegistry

from deploy.local.scheduler.scheduler import Scheduler
from manager.autoscaler.cloudprovider.karpenter import registry
from manager.autoscaler.cloudprovider.karpenter.claims import NodeClaim
from manager.autoscaler.cloudprovider.karpenter.registry import KarpenterRegistry
from manager.main import Manager
from shared import names
from shared.api.core import ConfigMap, Node, Pod, Taint
from shared.kube.errors import NotFound
from shared.kube.events import Recorder
from shared.kube.resources import CONFIGMAPS, EVENTS, NODECLAIMS, NODES, PODS, REPLICASETS
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster, StartManager
from tests.support import eventually
from tests.support.karpenter import NODE_CLASS, Karpenter, catalogue

BOUND_SECONDS = 120.0
REPLICATED = "shop"


def own_taints(node: Node) -> list[Taint]:
    """Without what Kubernetes and Karpenter say of a node that is about to be ready."""
    passing = ("node.kubernetes.io/", "karpenter.sh/")
    return [taint for taint in node.spec.taints or () if not taint.key.startswith(passing)]


class KarpenterTown:
    """`begin` starts a manager with the settings of a test; everything else is there."""

    def __init__(
        self, karpenter: Karpenter, cluster: Cluster, namespace: str, file: Path, start_manager: StartManager
    ) -> None:
        self.karpenter = karpenter
        self.cluster = cluster
        self.client = cluster.client
        self.namespace = namespace
        self.file = file
        self._start_manager = start_manager
        self._managers: list[Manager] = []
        self._loops = Loops(CollectorRegistry())
        Scheduler(self.client, Recorder(self.client, "scheduler", "town")).start(self._loops)

    def offer(self, *groups: Mapping[str, Any], **more: Any) -> None:
        """What the file says, from the next refresh on."""
        text = {"node_class": NODE_CLASS, "machine_types": catalogue(), "groups": list(groups)}
        whole = self.file.with_suffix(".new")
        whole.write_text(yaml.safe_dump({**text, "autoprovisioning": {}, **more}))
        whole.replace(self.file)

    def begin(self, *nodes: str, **settings: Any) -> Manager:
        chosen = {
            "cloud_provider": "karpenter",
            "cloud_config": str(self.file),
            "nodes": nodes,
            "node_autoprovisioning": True,
            "expander": "price",
            "scan_interval_seconds": 0.3,
        }
        self._managers.append(self._start_manager(**{**chosen, **settings}))
        return self._managers[-1]

    def add_pod(self, name: str, cpu: str = "500m", **spec: Any) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        whole = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}
        self.client.create(PODS, body, self.namespace)

    def replicate(self, count: int, cpu: str) -> None:
        """Pods of a ReplicaSet, which are made again when they are gone."""
        labels = {"app": REPLICATED}
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        template = {"metadata": {"labels": labels}, "spec": spec}
        whole = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": REPLICATED}, "spec": whole}
        self.client.create(REPLICASETS, body, self.namespace)

    def replicas(self, count: int) -> dict[str, str]:
        """The node of each pod of the ReplicaSet, once all of them have one."""

        def look() -> dict[str, str]:
            there = self.client.list(PODS, self.namespace, into=Pod, label_selector=f"app={REPLICATED}").items
            found = {each.metadata.name: each.spec.node_name for each in there if each.spec.node_name}
            return found if len(found) == len(there) == count else {}

        return eventually(look, BOUND_SECONDS)

    def delete_pod(self, name: str) -> None:
        self.client.delete(PODS, name, self.namespace, grace_period_seconds=0)

    def bound(self, *pods: str) -> dict[str, Node]:
        """The node of each, once all of them have one."""

        def look() -> dict[str, str]:
            found = {each["metadata"]["name"]: each["spec"] for each in self.client.list(PODS, self.namespace).items}
            placed = {name: found[name]["nodeName"] for name in pods if found[name].get("nodeName")}
            return placed if len(placed) == len(pods) else {}

        placed = eventually(look, BOUND_SECONDS, 0.1)
        return {name: self.client.get(NODES, node, into=Node) for name, node in placed.items()}

    def claims(self) -> list[NodeClaim]:
        return self.client.list(NODECLAIMS, into=NodeClaim).items

    def kept(self) -> KarpenterRegistry:
        try:
            found = self.client.get(CONFIGMAPS, registry.CONFIG_MAP, names.INSTALL_NAMESPACE, into=ConfigMap)
        except NotFound:
            return KarpenterRegistry()
        return msgspec.json.decode((found.data or {})[registry.KEY], type=KarpenterRegistry)

    def said(self, pod: str, reason: str) -> list[str]:
        """Messages of Events about the pod."""
        events = self.client.list(EVENTS, self.namespace, field_selector=f"involvedObject.name={pod}").items
        return [event["message"] for event in events if event["reason"] == reason]

    def close(self) -> None:
        for manager in self._managers:
            manager.close()
        with contextlib.suppress(NotFound):
            self.client.delete(REPLICASETS, REPLICATED, self.namespace)
        for pod in self.client.list(PODS, self.namespace).items:
            with contextlib.suppress(NotFound):
                self.client.delete(PODS, pod["metadata"]["name"], self.namespace, grace_period_seconds=0)
        self._loops.close()
