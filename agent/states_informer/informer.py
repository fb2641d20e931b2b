"""Follows this node's pods, its Node and its NodeMetric; only invalid objects are refused.

An object that fits the wire types can still have an invalid value ("cpu: lots"). Then its previous version, if any,
stays in force, and the refusal is logged and counted.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry

from agent.states_informer.kubelet import KubeletAccess, KubeletPods
from agent.states_informer.pods import NodePod
from agent.states_informer.refusals import Refusals
from agent.states_informer.watched import WatchedPods
from shared.api.core import Node
from shared.api.meta import ObjectMeta, Wire
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, ChangeKind
from shared.kube.resources import NODEMETRICS, NODES
from shared.kube.watch import WatchScope
from shared.quantity import Resources
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

NOTHING = Resources()


class NodeMetricObject(Wire, frozen=True):
    """A NodeMetric; each user of the spec validates its own part."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, object] | None = None


@dataclass(frozen=True)
class LocalNode:
    """The part of the Node that the agent needs."""

    allocatable: Resources
    capacity: Resources = NOTHING


class Pods(Protocol):
    """A source of the node's pods."""

    @property
    def synced(self) -> bool:
        """Whether the pods are complete, and at most a few minutes old."""
        ...

    def pods(self) -> list[NodePod]: ...

    def start(self, loops: Loops) -> None: ...


class StatesInformer:
    """Answers are the last known state, from any thread. `on_spec` gets every NodeMetric spec, None after a deletion.

    Pods come from the `kubelet` if given, else from the API server. `on_annotations` gets the annotations of the Node.
    """

    def __init__(
        self,
        client: Client,
        node_name: str,
        *,
        registry: CollectorRegistry,
        on_spec: Callable[[dict[str, object] | None], None],
        kubelet: KubeletAccess | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        on_annotations: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        self._on_spec = on_spec
        self._on_annotations = on_annotations
        self._lock = threading.Lock()
        self._node: LocalNode | None = None
        self._has_node_metric = False
        self._refusals = Refusals(registry)
        self._pods: Pods = (
            WatchedPods(client, node_name, self._refusals)
            if kubelet is None
            else KubeletPods(kubelet, node_name, self._refusals, registry=registry, monotonic=monotonic)
        )
        own = f"metadata.name={node_name}"
        self._node_informer = Informer(
            client, NODES, Node, on_change=self._node_changed, scope=WatchScope(field_selector=own)
        )
        self._metric_informer = Informer(
            client, NODEMETRICS, NodeMetricObject, on_change=self._metric_changed, scope=WatchScope(field_selector=own)
        )

    def start(self, loops: Loops) -> None:
        self._pods.start(loops)
        loops.start("node informer", self._node_informer.run)
        loops.start("nodemetric informer", self._metric_informer.run)

    @property
    def synced(self) -> bool:
        """Whether pods and Node are complete; sampling does not need the NodeMetric kind."""
        return self._pods.synced and self._node_informer.synced.is_set()

    @property
    def has_node_metric(self) -> bool:
        """Whether the NodeMetric exists, and `on_spec` has its spec."""
        return self._has_node_metric

    def pods(self) -> list[NodePod]:
        return self._pods.pods()

    def node(self) -> LocalNode | None:
        with self._lock:
            return self._node

    def _node_changed(self, change: Change[Node]) -> None:
        if change.kind is ChangeKind.DELETED:
            self._set_node(None)
        elif change.new is not None:
            self._on_annotations(change.new.metadata.annotations or {})
            state = self._refusals.accepted("Node", change.key, change.new, node_state)
            if state is not None:
                self._set_node(state)

    def _set_node(self, state: LocalNode | None) -> None:
        with self._lock:
            self._node = state

    def _metric_changed(self, change: Change[NodeMetricObject]) -> None:
        if change.kind is ChangeKind.DELETED:
            self._has_node_metric = False
            self._on_spec(None)
        elif change.new is not None and (change.old is None or change.old.spec != change.new.spec):
            self._on_spec(change.new.spec or {})
            self._has_node_metric = True


def node_state(node: Node) -> LocalNode:
    """Raises QuantityError."""
    return LocalNode(allocatable=node.allocatable, capacity=node.capacity)
