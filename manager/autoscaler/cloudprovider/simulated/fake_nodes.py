"""The Nodes of the simulated cloud, in kwok's form, and templates of them."""

from collections.abc import Mapping, Sequence

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.cloudprovider.simulated.config import GroupConfig, SimulatedCloud
from manager.autoscaler.pricing.model import NVIDIA_GPU
from shared import quantity
from shared.api.core import Node, NodeSpec, NodeStatus, Taint
from shared.api.meta import ObjectMeta
from shared.api.storage import ATTACHABLE_PREFIX
from shared.errors import InvalidInput
from shared.kube import node_heartbeat
from shared.kube.client import Client
from shared.kube.resources import CSINODES, NODES
from shared.quantity import format_amounts

LABEL_CLOUD = "headroom.io/simulated-cloud"  # equal on all of them, so that groups can still be similar
CLOUD = "true"

_GROUP = "cluster-autoscaler.kwok.nodegroup/"
ANNOTATION_GROUP = f"{_GROUP}name"
ANNOTATION_MIN, ANNOTATION_MAX = f"{_GROUP}min-count", f"{_GROUP}max-count"
ANNOTATION_DESIRED = f"{_GROUP}desired-count"
ANNOTATION_FAKE, FAKE = "kwok.x-k8s.io/node", "fake"
TAINT = Taint(key="kwok-provider", value="true", effect="NoSchedule")
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")  # until the node is ready

_SCHEME = "kwok:"


def provider_id(name: str) -> str:
    return f"{_SCHEME}{name}"


def is_ours(identity: str) -> bool:
    """Whether it is the provider id of a machine of this cloud."""
    return identity.startswith(_SCHEME)


def node(name: str, group: GroupConfig, cloud: SimulatedCloud) -> Node:
    """A Node with this name, as the group's next one. Raises InvalidInput for invalid labels."""
    capacity = cloud.capacity(group.machine_type)
    if capacity is None:
        raise InvalidInput(
            source=f"group {group.name}", field="machine_type", value=group.machine_type, problem="no such machine type"
        )
    capacity = {**capacity, **group.extra_resources}
    labels = gke.node_labels(name, group.machine_type, group.zone, group.labels)
    gpus = (gke.GPU_TAINT,) if capacity.get(NVIDIA_GPU) else ()
    taints = dict.fromkeys((*group.taints, *gpus, *((TAINT,) if cloud.taint else ())))
    annotations = {
        ANNOTATION_GROUP: group.name,
        ANNOTATION_MIN: str(group.min),
        ANNOTATION_MAX: str(group.max),
        ANNOTATION_FAKE: FAKE,
    }
    return Node(
        metadata=ObjectMeta(name=name, labels={**labels, LABEL_CLOUD: CLOUD}, annotations=annotations),
        spec=NodeSpec(taints=tuple(taints), provider_id=provider_id(name)),
        status=NodeStatus(capacity=format_amounts(capacity), allocatable=format_amounts(gke.allocatable(capacity))),
    )


def registration(template: Node, desired: int, now: float, *, ready: bool) -> dict[str, object]:
    """The complete object to create."""
    annotations = {**(template.metadata.annotations or {}), ANNOTATION_DESIRED: str(desired)}
    taints = (*(template.spec.taints or ()), *(() if ready else (NOT_READY,)))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": template.metadata.name,
            "labels": template.metadata.labels,
            "annotations": annotations,
        },
        "spec": {"providerID": template.spec.provider_id, "taints": taints},
        "status": {
            "capacity": template.status.capacity,
            "allocatable": template.status.allocatable,
            "conditions": node_heartbeat.conditions(now, ready=ready),
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": _node_info(template.metadata.labels or {}),
        },
    }


def csi_node(template: Node, uid: str) -> dict[str, object] | None:
    """The CSINode of a Node with this uid, with the limits of drivers that its resources state; None without any."""
    stated = template.status.allocatable or {}
    limits = {
        name.removeprefix(ATTACHABLE_PREFIX): quantity.whole(amount)
        for name, amount in stated.items()
        if name.startswith(ATTACHABLE_PREFIX)
    }
    if not limits:
        return None
    name = template.metadata.name
    return {
        "apiVersion": CSINODES.api_version,
        "kind": "CSINode",
        "metadata": {
            "name": name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
        },
        "spec": {
            "drivers": [
                {"name": driver, "nodeID": name, "topologyKeys": None, "allocatable": {"count": count}}
                for driver, count in limits.items()
            ]
        },
    }


def listed(client: Client) -> Sequence[Node]:
    """The Nodes of this cloud."""
    return client.list(NODES, into=Node, label_selector=f"{LABEL_CLOUD}={CLOUD}").items


def belongs_to(found: Node) -> str | None:
    """The group of a Node of this cloud; None for any other Node."""
    if found.metadata.annotation(ANNOTATION_FAKE) != FAKE:
        return None
    return found.metadata.annotation(ANNOTATION_GROUP)


def is_ready(found: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in found.status.conditions or ())


def _node_info(labels: Mapping[str, str]) -> dict[str, str]:
    unknown = ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID")
    return {
        **dict.fromkeys(unknown, ""),
        "architecture": labels[gke.LABELS_ARCH[0]],
        "operatingSystem": labels[gke.LABELS_OS[0]],
        "containerRuntimeVersion": "simulated://0.1.0",
        "kubeletVersion": node_heartbeat.KUBELET_VERSION,
    }
