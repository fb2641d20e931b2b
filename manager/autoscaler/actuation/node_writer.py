"""The only writer that changes, drains and deletes nodes, for scale-down and for scans.

Its client is fenced: it sends no write once another process leads. A patch applies to the version that was read, so
that concurrent writes of others survive.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.snapshot.taints import NodePatch
from shared.api.core import Node, Pod
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, LeadershipLost, NotFound
from shared.kube.resources import NODES, PODS

ATTEMPTS = 4  # others write Nodes, too, but not all the time


class NodeVanished(HeadroomError):
    """The Node no longer exists, or another Node has its name."""


class UnreadablePod(HeadroomError):
    """A pod on the node cannot be read. `error` names it, with the problem; `pod` is its key."""

    def __init__(self, node: str, pod: str, error: object) -> None:
        super().__init__(f"{node}: a pod on it cannot be read: {error}")
        self.pod = pod


@dataclass(frozen=True)
class NodeWriter:
    """Every write raises LeadershipLost if another process leads, and the errors of the client or the guard.

    The guard serves one thread at a time: `cloud_lock` is held around each of its calls.
    """

    client: Client
    guard: Guard
    cloud_lock: threading.Lock
    may_write: Callable[[], bool]

    def check_leads(self) -> None:
        """Before a call that is no write to the API server."""
        if not self.may_write():
            raise LeadershipLost

    def node(self, name: str) -> Node:
        """The Node, read from the API server. Raises NodeVanished."""
        try:
            return self.client.get(NODES, name, into=Node)
        except NotFound as error:
            raise NodeVanished(f"Node {name} is does not exist any more") from error

    def pods_on(self, name: str) -> tuple[Pod, ...]:
        """All pods bound to the node, read from the API server. Raises UnreadablePod."""
        found = self.client.list(PODS, into=Pod, field_selector=f"spec.nodeName={name}")
        if found.refused:
            raise UnreadablePod(name, found.refused[0].key, found.refused[0])
        return tuple(found.items)

    def change(self, name: str, patch_of: Callable[[Node], NodePatch | None]) -> None:
        """Writes the patch that `patch_of` returns for the Node; `patch_of` may refuse by an error.

        Raises NodeVanished, and Conflict if others keep writing.
        """
        for attempt in range(1, ATTEMPTS + 1):
            node = self.node(name)
            patch = patch_of(node)
            if patch is None:
                return
            metadata = {**patch.get("metadata", {}), "resourceVersion": node.metadata.resource_version}
            try:
                self.client.patch(NODES, name, {**patch, "metadata": metadata})
            except NotFound as error:
                raise NodeVanished(f"Node {name} is does not exist any more") from error
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                return

    def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> None:
        self.client.evict(namespace, name, uid=uid, grace_period_seconds=grace_seconds)

    def delete_machines(self, group: str, nodes: Sequence[NodeRef], *, below_min: bool = False) -> None:
        """Deletes machines in one cloud call. The caller holds `cloud_lock`. Raises ProviderError."""
        self.check_leads()
        self.guard.delete_nodes(group, nodes, below_min=below_min)

    def delete_node(self, name: str, uid: str) -> None:
        """Deletes the Node object of a machine that no longer exists."""
        self.client.delete(NODES, name, uid=uid)
