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
CLUSTERS, CLASSES, MACHINES, DEPLOYMENTS, SETS, POOLS = (
    Resource(GROUP, VERSION, plural, namespaced=True)
    for plural in ("clusters", "clusterclasses", "machines", "machinedeployments", "machinesets", "machinepools")
)
INFRA_CLUSTERS, INFRA_MACHINES, INFRA_TEMPLATES, CONTROL_PLANES = (
    Resource(INFRASTRUCTURE, VERSION, plural, namespaced=True)
    for plural in ("hrclusters", "hrmachines", "hrmachinetemplates", "hrcontrolplanes")
)
# What a ClusterClass refers to besides.
CLASS_TEMPLATES = {
    kind: Resource(INFRASTRUCTURE, VERSION, f"{kind.lower()}s", namespaced=True)
    for kind in ("HrClusterTemplate", "HrControlPlaneTemplate", "HrConfigTemplate")
}
KINDS = (CLUSTERS, CLASSES, MACHINES, DEPLOYMENTS, SETS, POOLS, INFRA_MACHINES, INFRA_TEMPLATES, CONTROL_PLANES)
TEMPLATES = f"{INFRA_TEMPLATES.plural}.{INFRASTRUCTURE}"
MIN, MAX = (f"{GROUP}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
MARK = f"{GROUP}/delete-machine"
CLUSTER = "town"
NODE_LABEL = "test.headroom.io/cluster-api"  # on Nodes that the infrastructure provider makes
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
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
            "--feature-gates=ClusterTopology=true",
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
                "rollout": {"strategy": ROLLING},
                "template": {"metadata": {"labels": labels}, "spec": machine},
            },
        }
        self.client.create(DEPLOYMENTS, body, self.namespace)

    def add_managed_cluster(self, name: str) -> None:
        """A Cluster of a ClusterClass with a class `worker`, whose machines are of the size that a variable says."""
        worker = f"{name}-worker"
        empty: dict[str, Any] = {"template": {"spec": {}}}
        for kind, resource in CLASS_TEMPLATES.items():
            self._add(resource, kind, name, empty)
        self._add(INFRA_TEMPLATES, "HrMachineTemplate", worker, empty)
        self._add(CLASSES, "ClusterClass", name, _cluster_class(name, worker))
        topology = {"classRef": {"name": name}, "version": "v1.36.3", "variables": [{"name": "size", "value": "small"}]}
        self._add(CLUSTERS, "Cluster", name, {"topology": topology})

    def remove_managed_cluster(self, name: str) -> None:
        self.client.delete(CLUSTERS, name, self.namespace)
        eventually(lambda: [each["metadata"]["name"] for each in self._listed(CLUSTERS)] == [CLUSTER], 120)
        for resource in (CLASSES, *CLASS_TEMPLATES.values()):
            with contextlib.suppress(NotFound):  # the class owns its templates, so they may be gone with it
                self.client.delete(resource, name, self.namespace)

    def machines(self) -> list[dict[str, Any]]:
        return self._listed(MACHINES)

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
        self._provide_managed()
        for found in self._listed(INFRA_MACHINES):
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

    def _provide_managed(self) -> None:
        """What providers do for a Cluster of a ClusterClass, and Cluster API's webhook for its MachineDeployments."""
        for resource, more in ((INFRA_CLUSTERS, "provisioned"), (CONTROL_PLANES, "controlPlaneInitialized")):
            for found in self._listed(resource):
                if "status" not in found:
                    says = {"initialization": {more: True}, "version": found["spec"].get("version")}
                    with contextlib.suppress(NotFound):
                        name = found["metadata"]["name"]
                        self.client.patch(resource, name, {"status": says}, self.namespace, subresource="status")
        for found in self._listed(DEPLOYMENTS):
            if "replicas" not in found["spec"]:
                least = int(found["metadata"]["annotations"].get(MIN, "1"))
                with contextlib.suppress(NotFound):
                    patch = {"spec": {"replicas": least}}
                    self.client.patch(DEPLOYMENTS, found["metadata"]["name"], patch, self.namespace)

    def _add(self, resource: Resource, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.client.create(resource, body, self.namespace)

    def _listed(self, resource: Resource) -> list[dict[str, Any]]:
        return self.client.list(resource, self.namespace).items


def _cluster_class(name: str, worker: str) -> dict[str, Any]:
    def template(kind: str, called: str = name) -> dict[str, Any]:
        return {"templateRef": {"apiVersion": INFRA_TEMPLATES.api_version, "kind": kind, "name": called}}

    patched = {
        "selector": {
            "apiVersion": INFRA_TEMPLATES.api_version,
            "kind": "HrMachineTemplate",
            "matchResources": {"machineDeploymentClass": {"names": ["worker"]}},
        },
        "jsonPatches": [{"op": "add", "path": "/spec/template/spec/size", "valueFrom": {"variable": "size"}}],
    }
    workers = {
        "class": "worker",
        "bootstrap": template("HrConfigTemplate"),
        "infrastructure": template("HrMachineTemplate", worker),
        "rollout": {"strategy": ROLLING},
    }
    return {
        "infrastructure": template("HrClusterTemplate"),
        "controlPlane": template("HrControlPlaneTemplate"),
        "workers": {"machineDeployments": [workers]},
        "variables": [{"name": "size", "required": False, "schema": {"openAPIV3Schema": {"type": "string"}}}],
        "patches": [{"name": "size", "definitions": [patched]}],
    }


def _infrastructure_definitions() -> Iterator[dict[str, Any]]:
    for kind, resource in (
        ("HrCluster", INFRA_CLUSTERS),
        ("HrMachine", INFRA_MACHINES),
        ("HrMachineTemplate", INFRA_TEMPLATES),
        ("HrControlPlane", CONTROL_PLANES),
        *CLASS_TEMPLATES.items(),
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
