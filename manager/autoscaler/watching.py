"""What of the cluster decisions are made from, kept current by informers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from manager.autoscaler import waiting
from manager.autoscaler.expander import priority
from manager.autoscaler.podfacts import Surroundings
from manager.autoscaler.world import World
from shared.api.core import (
    ConfigMap,
    DaemonSet,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodStatus,
)
from shared.kube.client import Client
from shared.kube.informer import Change, Informer, Kept
from shared.kube.resources import (
    CONFIGMAPS,
    DAEMONSETS,
    NAMESPACES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
)
from shared.quantity import Amounts
from shared.telemetry import Loops

Expected = Callable[[Sequence[Node]], Mapping[str, Amounts]]


class Watching:
    """Safe to read from any thread, once everything is synced.

    `expected` says what these nodes will put on offer beside what they do, `pending` is called when a pod has turned
    unschedulable. The priority expander's ConfigMap is only followed with `reads_priorities`.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        expected: Expected,
        pending: Callable[[], None],
        reads_priorities: bool = False,
    ) -> None:
        self._expected = expected
        self._pending = pending
        self._nodes = Informer(client, NODES, Node)
        self._pods = Informer(client, PODS, Kept(Pod, _slim), on_change=self._pod)
        self._daemon_sets = Informer(client, DAEMONSETS, DaemonSet)
        self._namespaces = Informer(client, NAMESPACES, Namespace)
        self._claims = Informer(client, PERSISTENTVOLUMECLAIMS, PersistentVolumeClaim)
        self._volumes = Informer(client, PERSISTENTVOLUMES, PersistentVolume)
        self._informers: dict[str, Informer[Any]] = {
            "nodes": self._nodes,
            "pods": self._pods,
            "daemonsets": self._daemon_sets,
            "namespaces": self._namespaces,
            "persistentvolumeclaims": self._claims,
            "persistentvolumes": self._volumes,
        }
        self._priorities: Informer[ConfigMap] | None = None
        self._priorities_key = f"{namespace}/{priority.CONFIG_MAP}"
        if reads_priorities:
            name = f"metadata.name={priority.CONFIG_MAP}"
            self._priorities = Informer(client, CONFIGMAPS, ConfigMap, namespace=namespace, field_selector=name)
            self._informers["configmaps"] = self._priorities

    def start(self, loops: Loops) -> None:
        """Follows the cluster until the loops end."""
        for name, informer in self._informers.items():
            loops.start(f"autoscaler-informer-{name}", informer.run)

    def unsynced(self) -> list[str]:
        """What has not been seen in full yet; as long as there is any, there is no world."""
        return [name for name, informer in self._informers.items() if not informer.synced.is_set()]

    def stale(self) -> list[str]:
        """What is not being followed at the moment, so that it may have changed unseen."""
        return [name for name, informer in self._informers.items() if not informer.current.is_set()]

    def unread_nodes(self) -> list[str]:
        """Nodes that are there and cannot be read, so that nobody knows which machines they are."""
        return self._nodes.unread()

    def provider_ids(self) -> frozenset[str]:
        """Of the Nodes there are now."""
        return frozenset(node.spec.provider_id for node in self._nodes.values())

    def world(self, now: float) -> World:
        """Everything, as it was last seen."""
        missing = self.unsynced()
        assert not missing, f"not seen in full: {', '.join(missing)}"
        nodes = tuple(self._nodes.values())
        return World(
            now,
            nodes=nodes,
            pods=tuple(self._pods.values()),
            daemon_sets=tuple(self._daemon_sets.values()),
            surroundings=Surroundings(
                namespaces={each.metadata.name: each.metadata.labels or {} for each in self._namespaces.values()},
                claims={each.metadata.key: each for each in self._claims.values()},
                volumes={each.metadata.name: each for each in self._volumes.values()},
            ),
            expected=self._expected(nodes),
            priorities=self._prioritised(),
        )

    def _prioritised(self) -> str | None:
        found = None if self._priorities is None else self._priorities.get(self._priorities_key)
        return None if found is None else (found.data or {}).get(priority.KEY)

    def _pod(self, change: Change[Pod]) -> None:
        new, old = change.new, change.old
        if new is not None and _waits(new) and not (old is not None and _waits(old)):
            self._pending()


def _waits(pod: Pod) -> bool:
    return not pod.spec.node_name and waiting.found_unschedulable(pod)


def _slim(pod: Pod) -> Pod:
    """The pod without what of its status nobody reads here."""
    status = pod.status
    scheduled = tuple(each for each in status.conditions or () if each.type == waiting.SCHEDULED)
    kept = PodStatus(phase=status.phase, nominated_node_name=status.nominated_node_name, conditions=scheduled or None)
    return replace(pod, status=kept)
