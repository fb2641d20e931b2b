"""The NUMA zones of nodes, in clusters with NodeResourceTopologies."""

import logging
import threading
from collections.abc import Callable, Iterable

from manager.nodeside.noderesource import topology
from manager.nodeside.noderesource.topology import Topology
from shared.api.topology import NodeResourceTopology
from shared.kube import kinds
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, Kept
from shared.kube.resources import NODERESOURCETOPOLOGIES
from shared.kube.watch import WatchTimes

logger = logging.getLogger(__name__)


class Topologies:
    """The topologies by node name; the manager does not wait for them.

    `changed` is called with nodes to look at again.
    """

    def __init__(self, client: Client, *, changed: Callable[[Iterable[str]], None]) -> None:
        self._client = client
        self._changed = changed
        self._informer = Informer(
            client,
            NODERESOURCETOPOLOGIES,
            Kept(NodeResourceTopology, _read),
            on_change=self._on_change,
            times=WatchTimes(jitter=kinds.SLOWLY),
        )

    def run(self, stop: threading.Event) -> None:
        """Watches them once their kind exists."""
        if kinds.wait_for(self._client, NODERESOURCETOPOLOGIES, stop, field_selector="metadata.name=none"):
            self._informer.run(stop)

    def topology_of(self, node: str) -> Topology | None:
        return self._informer.get(node)

    def _on_change(self, change: Change[Topology]) -> None:
        old, new = change.old, change.new
        if change.key and (old is None or new is None or old.zones != new.zones):
            self._changed([change.key])


def _read(wire: NodeResourceTopology) -> Topology:
    """Read, and its problem logged, once per version."""
    found = topology.read(wire)
    if found.problem is not None:
        logger.error("zones get no Batch: %s", found.problem, extra={"node": found.name})
    return found
