"""A small cluster that can only grow: one node nobody sizes, a scheduler, a simulated cloud, and the manager."""

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from deploy.local.scheduler.scheduler import Scheduler
from deploy.local.simulated.kubelet import SimulatedKubelet
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.state_store import SimulatedStateStore
from manager.daemon_settings import DaemonSettings
from manager.main import Manager
from shared import names, settings
from shared.api.core import Node, Taint
from shared.clock import SystemClock
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.events import Recorder
from shared.kube.resources import CONFIGMAPS, EVENTS, NAMESPACES, NODES, PODS
from shared.telemetry import Loops
from tests.support import eventually
from tests.support.apiserver import ApiServer

BOUND_SECONDS = 120.0
BASE = {"name": "main", "machine_type": "n1-standard-2", "size": 1}


def own_taints(node: Node) -> list[Taint]:
    """Without what says that the node is not ready: that is taken back bit by bit, the last of it maybe after the
    first pod has come.
    """
    return [taint for taint in node.spec.taints or () if not taint.key.startswith("node.kubernetes.io/")]


class Town:
    """`begin` starts a manager with the flags of a test; everything else is there."""

    def __init__(self, server: ApiServer, directory: Path) -> None:
        self.client: Client = server.client()
        with contextlib.suppress(Exception):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.INSTALL_NAMESPACE}}
            self.client.create(NAMESPACES, body)
        self.namespace = server.add_namespace()
        self._server = server
        self._file = directory / "cloud.yaml"
        self._store = SimulatedStateStore(self.client, names.INSTALL_NAMESPACE)
        self._manager: Manager | None = None
        self._manager_client: Client | None = None
        self._loops = Loops(CollectorRegistry())
        clock = SystemClock()
        kubelet = SimulatedKubelet(self.client, clock, appeared=lambda node: None, gone=lambda name: None)
        kubelet.start(self._loops)
        Scheduler(self.client, Recorder(self.client, "scheduler", "town")).start(self._loops)

    def begin(self, *groups: Mapping[str, Any], **flags: str) -> None:
        """Returns once the node that was there before is."""
        offered = {"groups": [BASE, *groups], "autoprovisioning": {}}
        self._file.write_text(yaml.safe_dump(offered))
        chosen = {
            "namespace": names.INSTALL_NAMESPACE,
            "listen": "127.0.0.1:0",
            "leader_elect": "false",
            "cloud_provider": "simulated",
            "cloud_config": str(self._file),
            "node_autoprovisioning": "true",
            "scan_interval": "100ms",
            **flags,
        }
        flags_given = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
        managers = settings.load(DaemonSettings, program="manager", description="", argv=flags_given, environment={})
        registry = CollectorRegistry()
        self._manager_client = Client(self._server.manager_connection(), "manager", registry=registry)
        self._manager = Manager(managers, self._manager_client, SystemClock(), registry)
        self._manager.start()
        eventually(self._base_nodes, BOUND_SECONDS, 0.1)

    def add_pod(self, name: str, cpu: str = "500m", **spec: Any) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], **spec},
        }
        self.client.create(PODS, body, self.namespace)

    def delete_pod(self, name: str) -> None:
        self.client.delete(PODS, name, self.namespace)

    def running(self, *pods: str) -> dict[str, Node]:
        """The node of each, once all of them run."""

        def look() -> dict[str, str]:
            found = {each["metadata"]["name"]: each for each in self.client.list(PODS, self.namespace).items}
            placed = {
                name: found[name]["spec"]["nodeName"]
                for name in pods
                if found[name].get("status", {}).get("phase") == "Running"
            }
            return placed if len(placed) == len(pods) else {}

        placed = eventually(look, BOUND_SECONDS, 0.1)
        nodes = {node.metadata.name: node for node in self.nodes()}
        return {name: nodes[node] for name, node in placed.items()}

    def nodes(self) -> list[Node]:
        return self.client.list(NODES, into=Node, label_selector=f"{fake_nodes.LABEL_CLOUD}=true").items

    def labels(self, node: Node) -> dict[str, str]:
        """Those of the node that not every machine of this cloud has."""
        (usual,) = self._base_nodes()
        found = node.metadata.labels or {}
        return {key: value for key, value in found.items() if key not in (usual.metadata.labels or {})}

    def _base_nodes(self) -> list[Node]:
        return [each for each in self.nodes() if fake_nodes.belongs_to(each) == BASE["name"]]

    def machine_type(self, node: Node) -> str:
        return (node.metadata.labels or {})["node.kubernetes.io/instance-type"]

    def created_groups(self) -> Collection[str]:
        """Those that auto-provisioning has made and not yet deleted."""
        return [name for name in self._store.read().groups if name.startswith(DEFAULT_PREFIX)]

    def said(self, pod: str, reason: str) -> list[str]:
        """Messages of Events about the pod."""
        events = self.client.list(EVENTS, self.namespace, field_selector=f"involvedObject.name={pod}").items
        return [event["message"] for event in events if event["reason"] == reason]

    def close(self) -> None:
        if self._manager is not None:
            self._manager.close()
        if self._manager_client is not None:
            self._manager_client.close()
        for pod in self.client.list(PODS, self.namespace).items:
            with contextlib.suppress(NotFound):
                self.client.delete(PODS, pod["metadata"]["name"], self.namespace, grace_period_seconds=0)
        self._loops.close()
        for node in self.nodes():
            with contextlib.suppress(NotFound):
                self.client.delete(NODES, node.metadata.name)
        for found in self.client.list(CONFIGMAPS, names.INSTALL_NAMESPACE).items:
            with contextlib.suppress(NotFound):
                self.client.delete(CONFIGMAPS, found["metadata"]["name"], names.INSTALL_NAMESPACE)
