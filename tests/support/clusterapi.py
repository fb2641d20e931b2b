"""Cluster API's own core controllers with its own definitions, and an infrastructure provider without machines.

The management cluster is the workload cluster. Webhooks are not registered, so objects say what these would fill in.
"""

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.local import ports
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import NODES, SECRETS, Resource
from tests.apiserver.module_build import BuiltController
from tests.support import certificates, eventually
from tests.support.apiserver import ApiServer
from tests.support.custom_kinds import CRDS
from tests.support.foreign_controller import ForeignController

GROUP, VERSION = "cluster.x-k8s.io", "v1beta2"
INFRASTRUCTURE = f"infrastructure.{GROUP}"
CLUSTERS, MACHINES, DEPLOYMENTS, SETS, POOLS = (
    Resource(GROUP, VERSION, plural, namespaced=True)
    for plural in ("clusters", "machines", "machinedeployments", "machinesets", "machinepools")
)
INFRA_CLUSTERS, INFRA_MACHINES, INFRA_TEMPLATES, CONTROL_PLANES = (
    Resource(INFRASTRUCTURE, VERSION, plural, namespaced=True)
    for plural in ("hrclusters", "hrmachines", "hrmachinetemplates", "hrcontrolplanes")
)
KINDS = (CLUSTERS, MACHINES, DEPLOYMENTS, SETS, POOLS, INFRA_MACHINES, INFRA_TEMPLATES, CONTROL_PLANES)
TEMPLATES = f"{INFRA_TEMPLATES.plural}.{INFRASTRUCTURE}"
MIN, MAX = (f"{GROUP}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
MARK = f"{GROUP}/delete-machine"
CLUSTER = "town"
NODE_LABEL = "test.headroom.io/cluster-api"  # on Nodes that the infrastructure provider makes
SIZE = {"cpu": "4", "memory": "8Gi", "pods": "110"}


class ClusterApi(ForeignController):
    """It runs from the beginning, in one namespace; `stop` and `start` restart it."""

    def __init__(self, server: ApiServer, built: BuiltController, directory: Path) -> None:
        super().__init__("cluster-api", NODE_LABEL, server, built, directory)
        self.namespace = server.add_namespace()
        self.broken = False  # the infrastructure provider makes no machine, and says so
        self._define((*self._core_definitions(), *_infrastructure_definitions()), KINDS)
        certificates.sign_certificates(directory)
        self.start()
        self._add_cluster()
        self._loops.every("infrastructure provider", lambda: 0.3, self._provide)
        self._keep_nodes_alive()

    def start(self) -> None:
        health = ports.free()
        arguments = [
            f"--namespace={self.namespace}",
            f"--health-addr=127.0.0.1:{health}",
            "--diagnostics-address=127.0.0.1:0",
            "--insecure-diagnostics",
            f"--webhook-port={ports.free()}",
            f"--webhook-cert-dir={self._directory}",
            "--webhook-cert-name=server.crt",
            "--webhook-key-name=server.key",
            "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
        ]
        self._launch(arguments, {"POD_NAMESPACE": "default"}, f"{health}/readyz")

    def add_group(
        self, name: str, replicas: int, annotations: dict[str, str], *, said: dict[str, Any] | None = None
    ) -> None:
        """A MachineDeployment, with a template of which the infrastructure provider has `said` this."""
        template = {
            "apiVersion": INFRA_TEMPLATES.api_version,
            "kind": "HrMachineTemplate",
            "metadata": {"name": name},
            "spec": {"template": {"spec": {}}},
        }
        self.client.create(INFRA_TEMPLATES, template, self.namespace)
        if said is not None:
            self.client.patch(INFRA_TEMPLATES, name, {"status": said}, self.namespace, subresource="status")
        labels = {f"{GROUP}/cluster-name": CLUSTER, f"{GROUP}/deployment-name": name}
        machine = {
            "clusterName": CLUSTER,
            "bootstrap": {"dataSecretName": "none"},
            "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "HrMachineTemplate", "name": name},
        }
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        body = {
            "apiVersion": DEPLOYMENTS.api_version,
            "kind": "MachineDeployment",
            "metadata": {
                "name": name,
                "labels": {f"{GROUP}/cluster-name": CLUSTER},
                "annotations": {"machineset.cluster.x-k8s.io/skip-preflight-checks": "All"} | annotations,
            },
            "spec": {
                "clusterName": CLUSTER,
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "rollout": {"strategy": rolling},
                "template": {"metadata": {"labels": labels}, "spec": machine},
            },
        }
        self.client.create(DEPLOYMENTS, body, self.namespace)

    def machines(self) -> list[dict[str, Any]]:
        return self.client.list(MACHINES, self.namespace).items

    def replicas(self, name: str) -> int:
        return int(self.client.get(DEPLOYMENTS, name, self.namespace)["spec"]["replicas"])

    def clear(self) -> None:
        """Takes away all groups, with their machines and nodes."""
        self.broken = False
        for kind in (DEPLOYMENTS, INFRA_TEMPLATES):
            for found in self.client.list(kind, self.namespace).items:
                with contextlib.suppress(NotFound):
                    self.client.delete(kind, found["metadata"]["name"], self.namespace)
        eventually(lambda: not self.machines() and not self.client.list(DEPLOYMENTS, self.namespace).items, 120)
        for node in self.nodes():
            with contextlib.suppress(NotFound):
                self.client.delete(NODES, node.metadata.name)

    def _core_definitions(self) -> Iterator[dict[str, Any]]:
        for body in self._own_definitions():
            body["spec"].pop("conversion", None)  # nothing converts: one version is written here, and read
            yield body

    def _add_cluster(self) -> None:
        """The machines' cluster is this one, and its control plane is somebody else's."""
        labels = {f"{GROUP}/cluster-name": CLUSTER}
        access = yaml.safe_load(self.server.kubeconfig.read_text())
        for each in access["clusters"]:
            if file := each["cluster"].pop("certificate-authority", None):
                data = (self.server.kubeconfig.parent / file).read_bytes()
                each["cluster"]["certificate-authority-data"] = base64.b64encode(data).decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{CLUSTER}-kubeconfig", "labels": labels},
            "type": f"{GROUP}/secret",
            "stringData": {"value": yaml.safe_dump(access)},
        }
        self.client.create(SECRETS, secret, self.namespace)
        refs = {}
        for kind, resource, status in (
            ("HrCluster", INFRA_CLUSTERS, {"initialization": {"provisioned": True}}),
            (
                "HrControlPlane",
                CONTROL_PLANES,
                {"initialization": {"controlPlaneInitialized": True}, "externalManagedControlPlane": True},
            ),
        ):
            body = {
                "apiVersion": resource.api_version,
                "kind": kind,
                "metadata": {"name": CLUSTER, "labels": labels},
                "spec": {},
            }
            self.client.create(resource, body, self.namespace)
            self.client.patch(resource, CLUSTER, {"status": status}, self.namespace, subresource="status")
            refs[kind] = {"apiGroup": INFRASTRUCTURE, "kind": kind, "name": CLUSTER}
        spec = {
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443},
            "infrastructureRef": refs["HrCluster"],
            "controlPlaneRef": refs["HrControlPlane"],
        }
        body = {"apiVersion": CLUSTERS.api_version, "kind": "Cluster", "metadata": {"name": CLUSTER}, "spec": spec}
        self.client.create(CLUSTERS, body, self.namespace)

    def _provide(self) -> None:
        """What an infrastructure provider does for each machine: it makes it, and it becomes a Node."""
        for found in self.client.list(INFRA_MACHINES, self.namespace).items:
            meta, status = found["metadata"], found.get("status", {})
            if "deletionTimestamp" in meta or status:
                continue
            if self.broken:
                says: dict[str, Any] = {"failureReason": "InsufficientResources", "failureMessage": "none left"}
                self.client.patch(INFRA_MACHINES, meta["name"], {"status": says}, self.namespace, subresource="status")
                continue
            provider_id = f"hr:///zone-a/{meta['name']}"
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"node-{meta['name']}", "labels": {NODE_LABEL: ""}},
                "spec": {"providerID": provider_id},
                "status": {"capacity": SIZE, "allocatable": SIZE},
            }
            with contextlib.suppress(AlreadyExists):
                self.client.create(NODES, node)
            with contextlib.suppress(NotFound):
                self.client.patch(INFRA_MACHINES, meta["name"], {"spec": {"providerID": provider_id}}, self.namespace)
                says = {"initialization": {"provisioned": True}}
                self.client.patch(INFRA_MACHINES, meta["name"], {"status": says}, self.namespace, subresource="status")


def _infrastructure_definitions() -> Iterator[dict[str, Any]]:
    for kind, resource in (
        ("HrCluster", INFRA_CLUSTERS),
        ("HrMachine", INFRA_MACHINES),
        ("HrMachineTemplate", INFRA_TEMPLATES),
        ("HrControlPlane", CONTROL_PLANES),
    ):
        yield definition(kind, resource)


def definition(kind: str, resource: Resource, *, scales: bool = False) -> dict[str, Any]:
    """A kind without a schema."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    subresources: dict[str, Any] = {"status": {}}
    if scales:
        subresources["scale"] = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
        "subresources": subresources,
    }
    called = {"plural": resource.plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": resource.group, "scope": "Namespaced", "names": called, "versions": [version]}
    return {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        # Which version has the contract that Cluster API asks infrastructure providers for.
        "metadata": {"name": str(resource), "labels": {f"{GROUP}/{VERSION}": VERSION}},
        "spec": spec,
    }
