"""The Nodes, Pods and Namespaces of the cluster, followed and held once for both sides of the manager."""

import re
from typing import Any

import msgspec

from manager import wire_pods
from manager.pods import PodRecord, record
from shared.api.core import Namespace, Node, NodeStatus, Pod
from shared.api.meta import ObjectMeta
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.object_cache import Kept
from shared.kube.resources import NAMESPACES, NODES, PODS
from shared.telemetry import Loops

# The domains of the node annotations and conditions that the node side reads: Koordinator's and our own.
DOMAINS = re.compile(r"(^|\.)(koordinator\.sh|headroom\.io)/")


class CachedPod(msgspec.Struct, frozen=True, gc=False):
    """One pod: the node side decides by `record`, the autoscaler, where there is one, by `wire`."""

    record: PodRecord
    wire: Pod | None = None


class SharedInformers:
    """The informers of Nodes, Pods and Namespaces. Subscribe to them before `start`.

    With an autoscaler they keep what decides where a pod can run and what machine a Node is; else only what the node
    side reads, which is a fraction of it.
    """

    def __init__(self, client: Client, *, with_autoscaler: bool) -> None:
        self.nodes: Informer[Node] = Informer(client, NODES, Node if with_autoscaler else Kept(Node, slim_node))
        self.pods: Informer[CachedPod] = Informer(client, PODS, Kept(Pod, _whole_pod if with_autoscaler else _slim_pod))
        self.namespaces: Informer[Namespace] = Informer(client, NAMESPACES, Kept(Namespace, slim_namespace))
        self.by_name: dict[str, Informer[Any]] = {"nodes": self.nodes, "pods": self.pods}

    def start(self, loops: Loops) -> None:
        """Watches the cluster until the loops end."""
        for name, informer in {**self.by_name, "namespaces": self.namespaces}.items():
            loops.start(f"informer-{name}", informer.run)


def slim_namespace(namespace: Namespace) -> Namespace:
    """The namespace with its labels, and only the annotations that the node side reads."""
    meta = namespace.metadata
    return Namespace(
        metadata=ObjectMeta(
            name=meta.name,
            resource_version=meta.resource_version,
            labels=meta.labels,
            annotations=_annotations(meta),
        )
    )


def slim_node(node: Node) -> Node:
    """The node without the parts that the node side does not read, which are most of it."""
    meta, spec, status = node.metadata, node.spec, node.status
    conditions = tuple(each for each in status.conditions or () if DOMAINS.search(each.type))
    return Node(
        metadata=ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            labels=meta.labels,
            annotations=_annotations(meta),
        ),
        spec=spec,
        status=NodeStatus(capacity=status.capacity, allocatable=status.allocatable, conditions=conditions or None),
    )


def _annotations(meta: ObjectMeta) -> dict[str, str] | None:
    return {name: text for name, text in (meta.annotations or {}).items() if DOMAINS.search(name)} or None


def _slim_pod(pod: Pod) -> CachedPod:
    return CachedPod(record(pod))


def _whole_pod(pod: Pod) -> CachedPod:
    return CachedPod(record(pod), wire_pods.slim_pod(pod))
