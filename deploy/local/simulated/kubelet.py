"""The kubelet of nodes without machines: its pods count as running at once, and end when they are deleted."""

import logging
import threading
from collections.abc import Callable

from deploy.local.kubelet import status
from deploy.local.kubelet.lifecycle import ContainerRecord
from deploy.local.kubelet.status import Stage
from deploy.local.kubelet.wire import RunnablePod
from shared.api import pods
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client, Patch
from shared.kube.errors import Conflict, NotFound
from shared.kube.informer import Informer
from shared.kube.resources import PODS
from shared.kube.retry import Jitter
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
RETRY_SECONDS = 1.0
HOST_IP = "127.0.0.1"


class SimulatedKubelet:
    """Serves each pod for whose node `serves` returns True."""

    def __init__(self, client: Client, clock: Clock, *, serves: Callable[[str], bool]) -> None:
        self._client = client.single_attempt()
        self._clock = clock
        self._serves = serves
        self._changed = threading.Event()
        self._informer = Informer(
            client, PODS, RunnablePod, on_change=lambda _: self._changed.set(), jitter=Jitter(cap_seconds=2.0)
        )

    def start(self, loops: Loops) -> None:
        loops.start("simulated-pods", self._informer.run)
        loops.start("simulated-kubelet", self.run)

    def run(self, stop: threading.Event) -> None:
        """Looks at all pods when one changes, and now and then: a node can begin to be served, and a write can fail."""
        while not stop.is_set():
            self._changed.wait(LOOK_SECONDS)
            self._changed.clear()
            for pod in self._informer.values():
                if stop.is_set():
                    return
                if self._serves(pod.spec.node_name):
                    self._serve(pod, stop)

    def _serve(self, pod: RunnablePod, stop: threading.Event) -> None:
        meta = pod.metadata
        try:
            if pods.is_terminating(pod):
                self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0)
            elif pod.status.phase in ("", "Pending"):
                patch = {"metadata": {"uid": meta.uid}, "status": running_status(pod, self._clock.now())}
                self._client.patch(PODS, meta.name, patch, meta.namespace, kind=Patch.STRATEGIC, subresource="status")
        except (NotFound, Conflict):
            pass  # deleted or changed; the watch delivers it
        except HeadroomError as error:
            logger.warning("simulated pod not served: %s", error, extra={"pod": meta.key})
            self._clock.wait(stop, RETRY_SECONDS)


def running_status(pod: RunnablePod, now: float) -> status.Json:
    """The status of a pod whose containers have all just started."""
    records = {
        container.name: ContainerRecord(
            container.name, container_id=f"{pod.metadata.uid}-{container.name}", started_at=now
        )
        for container in pod.spec.containers
    }
    stage = Stage(records, since={}, acknowledged_at=now)
    return status.pod_status(pod, stage, host_ip=HOST_IP, now=now)
