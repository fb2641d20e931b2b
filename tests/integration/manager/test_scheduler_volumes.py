"""Our predicates beside kube-scheduler's filters, node by node, for pods with volumes."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from manager.autoscaler.snapshot.referenced_objects import ReferencedKind, ReferencedObjects, referenced_objects
from shared.api.core import Node, PersistentVolume, Pod
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import (
    CSIDRIVERS,
    CSINODES,
    CSISTORAGECAPACITIES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    STORAGECLASSES,
    VOLUMEATTACHMENTS,
    Resource,
)
from tests.integration.manager.conftest import Cluster
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import ApiServer
from tests.support.scheduler_differential import Refusing, feasible_nodes

pytestmark = pytest.mark.real_only("kube-scheduler needs more of an API server than the embedded one has")

PATIENCE_SECONDS = 120.0
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
EBS, LOCAL, ROOMY = "ebs.csi.aws.com", "local.example.com", "roomy.example.com"
WAITS = {"volumeBindingMode": "WaitForFirstConsumer"}
IN_B = {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-b"]}]}]}
CLASSES: dict[str, dict[str, Any]] = {
    "anywhere": {"provisioner": EBS, **WAITS},
    "zonal": {"provisioner": EBS, **WAITS, **IN_B},
    "existing": {"provisioner": "kubernetes.io/no-provisioner", **WAITS},
    "roomy": {"provisioner": ROOMY, **WAITS},
    "at-once": {"provisioner": EBS, "volumeBindingMode": "Immediate"},
}
# By pod, its claims, of which the names say what they are, and the nodes that kube-scheduler leaves.
EVERY = {"vol-a1", "vol-a2", "vol-b1", "vol-b2"}
CASES: dict[str, tuple[list[str], set[str]]] = {
    "plain": ([], EVERY),
    "bound": (["disk-1"], EVERY - {"vol-a1"}),
    "there-already": (["disk-0"], EVERY),
    "two-volumes": (["disk-1", "disk-2"], {"vol-b1", "vol-b2"}),
    "not-bound-yet": (["anywhere-0"], EVERY - {"vol-a1"}),
    "bound-and-not": (["disk-1", "anywhere-1"], {"vol-b1", "vol-b2"}),
    "allowed-topologies": (["zonal-0"], {"vol-b1", "vol-b2"}),
    "local-volume": (["existing-small"], {"vol-a2"}),
    "no-such-volume": (["existing-big"], set()),
    "storage-capacity": (["roomy-small"], {"vol-a1", "vol-a2"}),
    "no-capacity": (["roomy-big"], set()),
    "immediate": (["at-once-0"], set()),
}


class Storage:
    """What a test makes in the cluster, gone at its end."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self._made: list[tuple[Resource, str]] = []

    def make(self, resource: Resource, kind: str, name: str, **fields: Any) -> None:
        namespace = self.namespace if resource.namespaced else None
        given = {"apiVersion": resource.api_version, "kind": kind, **fields}
        given["metadata"] = {"name": name, **fields.get("metadata", {})}
        self.client.create(resource, given, namespace)
        self._made.append((resource, name))

    def node(self, name: str, zone: str) -> None:
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        self.make(NODES, "Node", name, metadata={"labels": {ZONE: zone, HOSTNAME: name}}, status=status)
        self.client.patch(NODES, name, {"spec": {"taints": None}})  # without that of new nodes

    def volume(self, name: str, size: str = "10Gi", **spec: Any) -> None:
        given = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **spec}
        self.make(PERSISTENTVOLUMES, "PersistentVolume", name, spec=given)

    def disk(self, name: str) -> None:
        """A claim that is bound to a volume of the same name."""
        reference: dict[str, Any] = {"claimRef": {"namespace": self.namespace, "name": name}}
        source: dict[str, Any] = {"csi": {"driver": EBS, "volumeHandle": f"vol-{name}"}}
        self.volume(name, storageClassName="anywhere", **source, **reference)
        self.claim(name, "anywhere", volume=name)  # after it, or it counts as lost

    def claim(self, name: str, storage_class: str, size: str = "1Gi", volume: str = "") -> None:
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **({"volumeName": volume} if volume else {}),
        }
        self.make(PERSISTENTVOLUMECLAIMS, "PersistentVolumeClaim", name, spec=spec)

    def pod(self, name: str, claims: list[str], on: str = "") -> None:
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
        spec: dict[str, Any] = {"containers": [container], "volumes": volumes}
        self.make(PODS, "Pod", name, spec={**spec, **({"nodeName": on} if on else {})})

    def surroundings(self) -> ReferencedObjects:
        def listed(kind: ReferencedKind) -> list[Any]:
            found: list[Any] = []
            for resource in kind.resources:
                with contextlib.suppress(NotFound):
                    found += self.client.list(resource, into=kind.into).items
            return found

        return referenced_objects({}, listed)

    def clear(self) -> None:
        for resource, name in reversed(self._made):
            namespace = self.namespace if resource.namespaced else None
            with contextlib.suppress(NotFound):
                self.client.delete(resource, name, namespace, grace_period_seconds=0)
                # No controller takes the protection off.
                self.client.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)


@pytest.fixture
def storage(server: ApiServer, cluster: Cluster) -> Iterator[Storage]:
    made = Storage(server.client(), server.add_namespace())
    yield made
    made.clear()


def furnish(storage: Storage) -> None:
    """Four nodes in two zones: those in zone-a attach one disk each, and vol-a1 has one."""
    for name in sorted(EVERY):
        storage.node(name, f"zone-{name[4]}")
        driver: dict[str, Any] = {"name": EBS, "nodeID": name, "topologyKeys": [ZONE]}
        if name[4] == "a":
            driver["allocatable"] = {"count": 1}
        storage.make(CSINODES, "CSINode", name, spec={"drivers": [driver]})
    for name, fields in CLASSES.items():
        storage.make(STORAGECLASSES, "StorageClass", name, **fields)
    storage.make(CSIDRIVERS, "CSIDriver", ROOMY, spec={"storageCapacity": True})
    topology = {"nodeTopology": {"matchLabels": {ZONE: "zone-a"}}}
    capacity = {"storageClassName": "roomy", "capacity": "5Gi"}
    storage.make(CSISTORAGECAPACITIES, "CSIStorageCapacity", "in-a", **topology, **capacity)
    for number in range(3):
        storage.disk(f"disk-{number}")
    terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["vol-a2"]}]}]
    affinity: dict[str, Any] = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    storage.volume("on-a2", "2Gi", storageClassName="existing", local={"path": "/disk"}, **affinity)
    for name in ("anywhere-0", "anywhere-1", "zonal-0", "existing-small", "roomy-small", "at-once-0"):
        storage.claim(name, name.rpartition("-")[0])
    for name in ("existing-big", "roomy-big"):
        storage.claim(name, name.partition("-")[0], "8Gi")
    storage.pod("there", ["disk-0"], on="vol-a1")
    attached = {"attacher": EBS, "nodeName": "vol-a1", "source": {"persistentVolumeName": "disk-0"}}
    storage.make(VOLUMEATTACHMENTS, "VolumeAttachment", "of-there", spec=attached)


def test_the_predicates_find_the_nodes_that_kube_scheduler_finds_for_volumes(
    server: ApiServer, storage: Storage, tmp_path: Path
) -> None:
    furnish(storage)
    eventually(lambda: phases(storage) == {"Bound", "Available"}, PATIENCE_SECONDS)
    extender = Refusing()
    try:
        with kube_scheduler.running({"extenders": [extender.configuration]}, server.kubeconfig, tmp_path):
            for name, (claims, expected) in CASES.items():
                storage.pod(name, claims)
                # Its first answer may be older than the volumes.
                eventually(partial(leaves, storage, extender, name, expected), PATIENCE_SECONDS)
                assert ours(storage, name) == expected, f"the predicates, for {name}"
    finally:
        extender.close()


def phases(storage: Storage) -> set[str]:
    """Those that the controller of the volumes has brought them to."""
    return {each.status.phase for each in storage.client.list(PERSISTENTVOLUMES, into=PersistentVolume).items}


def leaves(storage: Storage, extender: Refusing, name: str, nodes: set[str]) -> bool:
    """Whether the scheduler has judged the pod, and these nodes are left for it; it does not ask about none."""
    pod = storage.client.get(PODS, name, storage.namespace, into=Pod)
    is_judged = any(each.reason == "Unschedulable" for each in pod.status.conditions or ())
    return is_judged and EVERY & (extender.feasible(name) or frozenset()) == nodes


def ours(storage: Storage, name: str) -> set[str]:
    pods = storage.client.list(PODS, storage.namespace, into=Pod).items
    (pod,) = [each for each in pods if each.metadata.name == name]
    nodes = [each for each in storage.client.list(NODES, into=Node).items if each.metadata.name in EVERY]
    placed = [each for each in pods if each.spec.node_name]
    found = feasible_nodes(pod, nodes, placed, storage.surroundings())
    return {node for node, reasons in found.items() if not reasons}
