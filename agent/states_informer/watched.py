"""The node's pods from the API server."""

import threading

from agent.states_informer.kubelet import LOST_SECONDS
from agent.states_informer.pods import NodePod, describe
from agent.states_informer.refusals import Refusals
from shared.api.core import Pod
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, ChangeKind
from shared.kube.resources import PODS
from shared.kube.watch import WatchScope
from shared.telemetry import Loops


class WatchedPods:
    """Follows pods by list and watch; an invalid version leaves the previous one in force.

    While both fail the last state stays, and is eventually not `synced`.
    """

    def __init__(self, client: Client, node_name: str, refusals: Refusals) -> None:
        self._refusals = refusals
        self._lock = threading.Lock()
        self._pods: dict[str, NodePod] = {}
        self._informer = Informer(
            client, PODS, Pod, on_change=self._changed, scope=WatchScope(field_selector=f"spec.nodeName={node_name}")
        )

    def start(self, loops: Loops) -> None:
        loops.start("pods informer", self._informer.run)

    @property
    def synced(self) -> bool:
        return self._informer.age_seconds <= LOST_SECONDS

    def pods(self) -> list[NodePod]:
        with self._lock:
            return list(self._pods.values())

    def _changed(self, change: Change[Pod]) -> None:
        if change.kind is ChangeKind.DELETED:
            with self._lock:
                self._pods.pop(change.key, None)
        elif change.new is not None:
            described = self._refusals.accepted("Pod", change.key, change.new, describe)
            if described is not None:
                with self._lock:
                    self._pods[change.key] = described
