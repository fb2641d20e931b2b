"""What kubelets do for Nodes without machines: they say that their node is ready, and go on saying so."""

import contextlib
import time
from collections.abc import Callable, Iterable

from shared.api.core import Node
from shared.kube import node_heartbeat
from shared.kube.client import Client, Patch
from shared.kube.errors import NotFound
from shared.kube.resources import NODES

BEAT_SECONDS = 10.0


class Kubelets:
    """`keep_alive` is to be called all the time."""

    def __init__(self, client: Client, nodes: Callable[[], Iterable[Node]]) -> None:
        self._client = client
        self._nodes = nodes
        self._beaten: dict[str, float] = {}

    def keep_alive(self) -> None:
        now = time.time()
        for node in self._nodes():
            meta = node.metadata
            ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())
            with contextlib.suppress(NotFound):
                if not ready:
                    patch = {"status": {"conditions": node_heartbeat.conditions(now)}}
                    self._client.patch(NODES, meta.name, patch, kind=Patch.STRATEGIC, subresource="status")
                if not ready or now - self._beaten.get(meta.name, 0.0) > BEAT_SECONDS:
                    node_heartbeat.renew_lease(self._client, meta.name, meta.uid, now)
                    self._beaten[meta.name] = now
