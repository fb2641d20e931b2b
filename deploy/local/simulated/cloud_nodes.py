"""Keeps Nodes without machines alive: those with kwok's annotation."""

import logging
from collections.abc import Callable

from deploy.local.kubelet.node import BEAT_SECONDS
from manager.autoscaler.cloudprovider.simulated.fake_nodes import ANNOTATION_FAKE, FAKE
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube import node_heartbeat
from shared.kube.client import Client, Patch
from shared.kube.errors import NotFound
from shared.kube.informer import Change, Informer
from shared.kube.resources import NODES
from shared.kube.retry import Jitter
from shared.telemetry import Loops

logger = logging.getLogger(__name__)


class CloudNodes:
    """Follows such Nodes; calls `appeared` with each new Node, and `gone` with the name of each deleted one."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        appeared: Callable[[Node], None],
        gone: Callable[[str], None],
    ) -> None:
        self._client = client.single_attempt()
        self._clock = clock
        self._appeared = appeared
        self._gone = gone
        self._informer = Informer(client, NODES, Node, on_change=self._on_node, jitter=Jitter(cap_seconds=2.0))

    def start(self, loops: Loops) -> None:
        loops.start("cloud-nodes", self._informer.run)
        loops.every("cloud-hearts", lambda: BEAT_SECONDS, self.beat)

    def serves(self, name: str) -> bool:
        """Whether such a Node exists."""
        node = self._informer.get(name)
        return node is not None and _is_fake(node)

    def beat(self) -> None:
        """Sends one heartbeat per Node. The cloud sets Ready; a heartbeat only ends the Unknown status."""
        for node in self._informer.values():
            if not _is_fake(node):
                continue
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
        was, node = change.old is not None and _is_fake(change.old), change.new
        if node is not None and _is_fake(node) and not was:
            logger.info("node without a machine", extra={"node": change.key})
            self._appeared(node)
        elif node is None and was:
            self._gone(change.key)


def _is_fake(node: Node) -> bool:
    return node.metadata.annotation(ANNOTATION_FAKE) == FAKE


def _is_unheard_of(node: Node) -> bool:
    """Whether its Lease has expired; kube-controller-manager then sets its conditions to Unknown."""
    return any(each.type == "Ready" and each.status == "Unknown" for each in node.status.conditions or ())
