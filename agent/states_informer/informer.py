"""Follows this node's pods, its Node and its NodeMetric; what cannot be understood is refused alone.

An object the wire types accept can still say something meaningless ("cpu: lots"). Then the version before it, if
there is one, stays in force, and the refusal is logged and counted.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter

from agent.states_informer.pods import NodePod, describe
from shared import names
from shared.api.core import Node, Pod
from shared.api.meta import ObjectMeta, Wire
from shared.kube.client import Client
from shared.kube.informer import Change, Informer, Kind
from shared.kube.resources import NODEMETRICS, NODES, PODS
from shared.quantity import Resources
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

T = TypeVar("T")
M = TypeVar("M")


class NodeMetricObject(Wire, frozen=True):
    """A NodeMetric whose spec is judged part by part by those it concerns."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, object] | None = None


@dataclass(frozen=True)
class NodeState:
    """What the agent needs to know of its Node."""

    allocatable: Resources
    simulated: bool


class StatesInformer:
    """Answers are the last known state, from any thread. `on_spec` hears of every NodeMetric spec, None when gone."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        *,
        registry: CollectorRegistry,
        on_spec: Callable[[dict[str, object] | None], None],
    ) -> None:
        self._node_name = node_name
        self._on_spec = on_spec
        self._lock = threading.Lock()
        self._pods: dict[str, NodePod] = {}
        self._node: NodeState | None = None
        self._refused = Counter(
            "headroom_agent_refused_objects",
            "Versions of objects that mean nothing and were left out",
            ["kind"],
            registry=registry,
        )
        own = f"metadata.name={node_name}"
        self._pod_informer = Informer(
            client, PODS, Pod, on_change=self._pod_changed, field_selector=f"spec.nodeName={node_name}"
        )
        self._node_informer = Informer(client, NODES, Node, on_change=self._node_changed, field_selector=own)
        self._metric_informer = Informer(
            client, NODEMETRICS, NodeMetricObject, on_change=self._metric_changed, field_selector=own
        )

    def start(self, loops: Loops) -> None:
        loops.start("pods informer", self._pod_informer.run)
        loops.start("node informer", self._node_informer.run)
        loops.start("nodemetric informer", self._metric_informer.run)

    @property
    def synced(self) -> bool:
        """Whether pods and Node are complete; a missing NodeMetric kind keeps nobody from sampling."""
        return self._pod_informer.synced.is_set() and self._node_informer.synced.is_set()

    @property
    def has_node_metric(self) -> bool:
        return self._metric_informer.get(self._node_name) is not None

    def pods(self) -> list[NodePod]:
        with self._lock:
            return list(self._pods.values())

    def node(self) -> NodeState | None:
        with self._lock:
            return self._node

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.kind is Kind.SYNCED:
            return
        described = self._accepted("Pod", change.key, change.new, describe)
        with self._lock:
            if change.kind is Kind.DELETED:
                self._pods.pop(change.key, None)
            elif described is not None:
                self._pods[change.key] = described

    def _node_changed(self, change: Change[Node]) -> None:
        if change.kind is Kind.SYNCED:
            return
        state = self._accepted("Node", change.key, change.new, node_state)
        with self._lock:
            if change.kind is Kind.DELETED or state is not None:
                self._node = state

    def _metric_changed(self, change: Change[NodeMetricObject]) -> None:
        if change.kind is Kind.DELETED:
            self._on_spec(None)
        elif change.new is not None and (change.old is None or change.old.spec != change.new.spec):
            self._on_spec(change.new.spec or {})

    def _accepted(self, kind: str, key: str, new: T | None, meaning: Callable[[T], M]) -> M | None:
        if new is None:
            return None
        try:
            return meaning(new)
        except ValueError as error:
            self._refused.labels(kind).inc()
            logger.error("object refused: %s", error, extra={"kind": kind, "key": key})
            return None


def node_state(node: Node) -> NodeState:
    """Raises QuantityError. Allocatable is what it was before amplification, where an annotation says so."""
    return NodeState(
        allocatable=_raw_allocatable(node) or node.allocatable,
        simulated=node.metadata.label(names.LABEL_SIMULATED) == "true",
    )


def _raw_allocatable(node: Node) -> Resources | None:
    annotation = node.metadata.annotation(names.ANNOTATION_RAW_ALLOCATABLE)
    if annotation is None:
        return None
    try:
        return Resources.parse(msgspec.json.decode(annotation, type=dict[str, str | int | float]))
    except ValueError as error:  # msgspec's errors are ValueErrors too
        logger.warning("annotation ignored: %s", error, extra={"annotation": names.ANNOTATION_RAW_ALLOCATABLE})
        return None
