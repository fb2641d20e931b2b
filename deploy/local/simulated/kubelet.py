"""The kubelet of Nodes without machines, which have kwok's annotation: their pods count as running at once."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from deploy.local.kubelet import status
from deploy.local.kubelet.lifecycle import ContainerRecord
from deploy.local.kubelet.node import ADDRESS, BEAT_SECONDS
from deploy.local.kubelet.status import Stage
from deploy.local.kubelet.wire import RunnablePod
from manager.autoscaler.cloudprovider.simulated.fake_nodes import ANNOTATION_FAKE, FAKE
from shared.api import pods
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube import node_heartbeat
from shared.kube.client import Client, Patch
from shared.kube.errors import Conflict, NotFound
from shared.kube.informer import Informer
from shared.kube.object_cache import Change
from shared.kube.resources import NODES, PODS
from shared.kube.retry import Jitter
from shared.kube.watch import WatchTimes
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
WRITERS = 4  # threads that write statuses of pods
RETRY_SECONDS = 1.0


class SimulatedKubelet:
    """Calls `appeared` with each new Node that it serves, and `gone` with the name of each deleted one."""

    def __init__(
        self, client: Client, clock: Clock, *, appeared: Callable[[Node], None], gone: Callable[[str], None]
    ) -> None:
        self._client = client.single_attempt()
        self._clock = clock
        self._appeared = appeared
        self._gone = gone
        self._changed = threading.Event()
        times = WatchTimes(jitter=Jitter(cap_seconds=2.0))
        self._nodes = Informer(client, NODES, Node, on_change=self._on_node, times=times)
        self._pods = Informer(client, PODS, RunnablePod, on_change=lambda _: self._changed.set(), times=times)

    def start(self, loops: Loops) -> None:
        loops.start("simulated-nodes", self._nodes.run)
        loops.start("simulated-pods", self._pods.run)
        loops.start("simulated-kubelet", self.run)
        loops.every("simulated-hearts", lambda: BEAT_SECONDS, self.beat)

    def serves(self, name: str) -> bool:
        """Whether such a Node exists."""
        return _is_fake(self._nodes.get(name))

    def running_pods(self, name: str) -> int:
        """How many pods run on that Node."""
        return sum(pod.spec.node_name == name and pod.status.phase == "Running" for pod in self._pods.values())

    def run(self, stop: threading.Event) -> None:
        """Looks at all pods when one changes, and now and then: a Node can appear later, and a write can fail."""
        with ThreadPoolExecutor(WRITERS, "simulated-kubelet") as writers:
            while not stop.is_set():
                self._changed.wait(LOOK_SECONDS)
                self._changed.clear()
                due = [pod for pod in self._pods.values() if _is_due(pod) and self.serves(pod.spec.node_name)]
                for _ in writers.map(lambda pod: self._serve(pod, stop), due):
                    pass

    def _serve(self, pod: RunnablePod, stop: threading.Event) -> None:
        meta = pod.metadata
        if stop.is_set():
            return
        try:
            if pods.is_terminating(pod):
                self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0)
            else:
                patch = {"metadata": {"uid": meta.uid}, "status": running_status(pod, self._clock.now())}
                self._client.patch(PODS, meta.name, patch, meta.namespace, kind=Patch.STRATEGIC, subresource="status")
        except (NotFound, Conflict):
            pass  # deleted or changed; the watch delivers it
        except HeadroomError as error:
            logger.warning("simulated pod not served: %s", error, extra={"pod": meta.key})
            self._clock.wait(stop, RETRY_SECONDS)

    def beat(self) -> None:
        """Sends one heartbeat per Node. The cloud sets Ready; a heartbeat only ends the Unknown status."""
        for node in filter(_is_fake, self._nodes.values()):
            meta, now = node.metadata, self._clock.now()
            try:
                node_heartbeat.renew_lease(self._client, meta.name, meta.uid, now)
                if _is_unheard_of(node):
                    patch = {"status": {"conditions": node_heartbeat.conditions(now)}}
                    self._client.patch(NODES, meta.name, patch, kind=Patch.STRATEGIC, subresource="status")
            except NotFound:
                pass  # deleted; the watch delivers the deletion
            except HeadroomError as error:
                logger.warning("heartbeat not written: %s", error, extra={"node": meta.name})

    def _on_node(self, change: Change[Node]) -> None:
        if change.new is not None and _is_fake(change.new) and not _is_fake(change.old):
            logger.info("node without a machine", extra={"node": change.key})
            self._appeared(change.new)
        elif change.new is None and _is_fake(change.old):
            self._gone(change.key)


def _is_due(pod: RunnablePod) -> bool:
    """Whether it is to be started or deleted."""
    return pods.is_terminating(pod) or pod.status.phase in ("", "Pending")


def _is_fake(node: Node | None) -> bool:
    return node is not None and node.metadata.annotation(ANNOTATION_FAKE) == FAKE


def _is_unheard_of(node: Node) -> bool:
    """Whether its Lease has expired; kube-controller-manager then sets its conditions to Unknown."""
    return any(each.type == "Ready" and each.status == "Unknown" for each in node.status.conditions or ())


def running_status(pod: RunnablePod, now: float) -> status.Json:
    """The status of a pod whose containers have all just started."""
    names = [container.name for container in pod.spec.containers]
    ids = {name: f"{pod.metadata.uid}-{name}" for name in names}
    records = {name: ContainerRecord(name, container_id=ids[name], started_at=now) for name in names}
    return status.pod_status(pod, Stage(records, since={}, acknowledged_at=now), host_ip=ADDRESS, now=now)
