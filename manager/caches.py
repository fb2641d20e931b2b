"""What the manager knows of the cluster, kept current by informers, and who should look when it changes."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from manager import configuration
from manager.configuration import Configuration
from manager.noderesource.requests import RequestSums
from manager.noderesource.situation import Requested
from manager.settings import ManagerSettings
from shared.api.core import ConfigMap, Node, Pod
from shared.api.nodemetric import NodeMetric
from shared.kube.client import Client
from shared.kube.informer import Change, Informer, Kind
from shared.kube.resources import CONFIGMAPS, NODEMETRICS, NODES, PODS
from shared.telemetry import Loops

logger = logging.getLogger(__name__)


class Caches:
    """Nodes, NodeMetrics, requests per node and the configuration; safe to read from any thread.

    `changed` is called with the names of the nodes to look at again, `configured` with each new configuration and
    the ConfigMap it came from; both from the informers' threads.
    """

    def __init__(
        self,
        client: Client,
        settings: ManagerSettings,
        *,
        changed: Callable[[Iterable[str]], None],
        configured: Callable[[Configuration, ConfigMap | None], None],
    ) -> None:
        self.configuration = Configuration()
        self._changed = changed
        self._configured = configured
        self._config_map_key = settings.config_map_key
        self._requests = RequestSums()
        self._nodes = Informer(client, NODES, Node, on_change=self._node)
        self._metrics = Informer(client, NODEMETRICS, NodeMetric, on_change=self._metric)
        self._pods = Informer(client, PODS, Pod, on_change=self._pod)
        self._config_maps = Informer(
            client,
            CONFIGMAPS,
            ConfigMap,
            namespace=settings.config_namespace or settings.namespace,
            field_selector=f"metadata.name={settings.config_name}",
            on_change=self._config_map,
        )
        self._informers: dict[str, Informer[Any]] = {
            "nodes": self._nodes,
            "nodemetrics": self._metrics,
            "pods": self._pods,
            "configmaps": self._config_maps,
        }

    def start(self, loops: Loops) -> None:
        """Follows the cluster until the loops end."""
        for name, informer in self._informers.items():
            loops.start(f"informer-{name}", informer.run)

    def unsynced(self) -> list[str]:
        """What has not been seen in full yet; as long as there is any, absence means nothing."""
        return [name for name, informer in self._informers.items() if not informer.synced.is_set()]

    def names(self) -> set[str]:
        """Every name a Node or a NodeMetric has."""
        named = {node.metadata.name for node in self._nodes.values()}
        return named | {metric.metadata.name for metric in self._metrics.values()}

    def nodes(self) -> list[Node]:
        return self._nodes.values()

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def metric(self, name: str) -> NodeMetric | None:
        return self._metrics.get(name)

    def requested(self, name: str) -> Requested:
        """What the node's pods request."""
        return self._requests.of(name)

    def forget(self, name: str) -> None:
        """Lets go of what was summed up for a node that is gone."""
        self._requests.forget(name)

    def _node(self, change: Change[Node]) -> None:
        if change.kind is Kind.SYNCED:
            self._all_changed()
        elif not _is_heartbeat(change):
            self._changed([change.key])

    def _metric(self, change: Change[NodeMetric]) -> None:
        if change.kind is Kind.SYNCED:
            self._all_changed()
        else:
            self._changed([change.key])

    def _pod(self, change: Change[Pod]) -> None:
        if change.kind is Kind.SYNCED:
            self._all_changed()
        else:
            self._changed(self._requests.apply(change))

    def _config_map(self, change: Change[ConfigMap]) -> None:
        config_map = self._config_maps.get(self._config_map_key)
        previous = self.configuration
        source = f"ConfigMap {self._config_map_key}"
        self.configuration = configuration.after(previous, config_map, source=source)
        self._configured(self.configuration, config_map)
        if change.kind is Kind.SYNCED or self.configuration != previous:
            self._all_changed()

    def _all_changed(self) -> None:
        if not self.unsynced():
            self._changed(self.names())


def _is_heartbeat(change: Change[Node]) -> bool:
    """Whether nothing changed that a decision could depend on."""
    old, new = change.old, change.new
    return (
        old is not None
        and new is not None
        and (old.status.capacity, old.status.allocatable) == (new.status.capacity, new.status.allocatable)
        and (old.metadata.labels, old.metadata.annotations) == (new.metadata.labels, new.metadata.annotations)
    )
