"""Runs the pods of one node: follows the API server, runs processes, and reports the status."""

import functools
import logging
import threading
from pathlib import Path

from deploy.local.kubelet.runner import KubeletHost, PodRunner
from deploy.local.kubelet.status import Json
from deploy.local.kubelet.wire import RunnablePod
from shared.api import pods
from shared.errors import HeadroomError
from shared.kube.client import Client, Patch
from shared.kube.errors import Conflict, NotFound
from shared.kube.events import ObjectRef, Recorder
from shared.kube.informer import Informer
from shared.kube.resources import PODS
from shared.kube.retry import Jitter
from shared.kube.watch import WatchScope, WatchTimes
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.25  # between two checks of the processes
WRITE_PAUSE_SECONDS = 1.0  # after a failed write
REQUEST_SECONDS = 5.0
SHUTDOWN_GRACE_SECONDS = 2.0


class Kubelet:
    """Runs the pods bound to `node_name`, all in one loop."""

    def __init__(self, client: Client, recorder: Recorder, machine: KubeletHost, node_name: str) -> None:
        self._client = client.single_attempt(REQUEST_SECONDS)
        self._recorder = recorder
        self._machine = machine
        self._changed = threading.Event()
        self._informer = Informer(
            client,
            PODS,
            RunnablePod,
            on_change=lambda _: self._changed.set(),
            scope=WatchScope(field_selector=f"spec.nodeName={node_name}"),
            times=WatchTimes(jitter=Jitter(cap_seconds=2.0)),
        )
        self._pods: dict[str, RunnablePod] = {}  # pods with a runner, by uid, as last seen
        self._runners: dict[str, PodRunner] = {}
        self._written: dict[str, Json] = {}
        self._write_at = 0.0

    def start(self, loops: Loops) -> None:
        """Runs until the loops are closed; call `shut_down` afterwards."""
        loops.start("kubelet-pods", self._informer.run)
        loops.start("kubelet", self.run)

    def run(self, stop: threading.Event) -> None:
        """Checks every pod when one changes, and several times a second."""
        while not stop.is_set():
            if self._informer.synced.is_set():
                self._changed.clear()
                self.look()
            self._changed.wait(LOOK_SECONDS)

    def look(self) -> None:
        """Checks all pods once."""
        now = self._client.clock.now()
        wanted = {pod.metadata.uid: pod for pod in self._informer.values()}
        for uid, pod in wanted.items():
            self._meet(uid, pod, now)
        for uid, pod in list(self._pods.items()):
            if uid not in wanted:  # its object no longer exists, as after a forced deletion
                if self._runners[uid].terminate(pod.grace_seconds, now):
                    self._forget(uid)
            elif pods.is_terminating(wanted[uid]):
                self._delete(uid, wanted[uid], now)
            else:
                self._report(uid, wanted[uid], self._runners[uid].sync(wanted[uid], now), now)

    def log_file(self, namespace: str, pod: str, container: str) -> Path | None:
        """The container's log file, if this kubelet has the pod."""
        found = self._informer.get(f"{namespace}/{pod}")
        if found is None or container not in (each.name for each in found.spec.containers):
            return None
        return self._machine.log_file(found.metadata.uid, container)

    def shut_down(self) -> None:
        """Ends all processes of all pods, and removes their cgroups."""
        clock = self._client.clock
        ending = list(self._runners.values())
        while ending := [runner for runner in ending if not runner.terminate(SHUTDOWN_GRACE_SECONDS, clock.now())]:
            clock.wait(threading.Event(), 0.05)
        self._machine.containment.close()

    def _meet(self, uid: str, pod: RunnablePod, now: float) -> None:
        if uid in self._runners:
            self._pods[uid] = pod
        elif pods.is_active(pod):
            reference = ObjectRef("v1", "Pod", pod.metadata.name, pod.metadata.namespace, uid)
            say = functools.partial(self._recorder.event, reference)
            self._pods[uid] = pod
            self._runners[uid] = PodRunner(pod, self._machine, say, now)

    def _delete(self, uid: str, pod: RunnablePod, now: float) -> None:
        """Deletes gracefully: ends the processes, reports the result, and only then removes the object."""
        runner = self._runners[uid]
        gone = runner.terminate(pod.grace_seconds, now)
        reported = self._report(uid, pod, runner.sync(pod, now), now)
        if gone and reported and now >= self._write_at:
            try:
                self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=uid, grace_period_seconds=0)
            except (NotFound, Conflict):
                pass  # already deleted, or another pod has the same name by now
            except HeadroomError as error:
                self._pause("pod not deleted", pod, error, now)
                return
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._runners.pop(uid).forget()
        self._pods.pop(uid)
        self._written.pop(uid, None)

    def _report(self, uid: str, pod: RunnablePod, status: Json, now: float) -> bool:
        """Writes the status if it changed; False if the write failed."""
        if self._written.get(uid) == status:
            return True
        if now < self._write_at:
            return False
        patch = {"metadata": {"uid": uid}, "status": status}
        try:
            self._client.patch(
                PODS, pod.metadata.name, patch, pod.metadata.namespace, kind=Patch.STRATEGIC, subresource="status"
            )
        except (NotFound, Conflict):
            pass  # the watch delivers the current state
        except HeadroomError as error:
            self._pause("pod status not written", pod, error, now)
            return False
        self._written[uid] = status
        return True

    def _pause(self, what: str, pod: RunnablePod, error: HeadroomError, now: float) -> None:
        logger.warning("%s: %s", what, error, extra={"pod": pod.metadata.key})
        self._write_at = now + WRITE_PAUSE_SECONDS
