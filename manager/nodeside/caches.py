"""The manager's view of the cluster, kept current by informers, and the callbacks for changes."""

import logging
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from manager.nodeside import configuration
from manager.nodeside.configuration import Configuration
from manager.nodeside.noderesource import report
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.tenants import Holders
from manager.pods import NodeRequests, PodLedger, PodRecord, record
from manager.settings import ManagerSettings
from shared.api.core import ConfigMap, Node, NodeStatus, Pod
from shared.api.meta import ObjectMeta
from shared.api.nodemetric import NodeMetric
from shared.kube.client import Client
from shared.kube.informer import Change, ChangeKind, Informer, Kept
from shared.kube.resources import CONFIGMAPS, NODEMETRICS, NODES, PODS
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

# The domains of the relevant node annotations and conditions: Koordinator's and our own.
_DOMAINS = re.compile(r"(^|\.)(koordinator\.sh|headroom\.io)/")


class Caches:
    """Nodes, NodeMetrics, requests per node and the configuration; safe to read from any thread.

    `changed` is called with the names of the nodes to look at again, `configured` with each new configuration and its
    ConfigMap; both from the informers' threads.
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
        self._ledger = PodLedger()
        self.holders = Holders()
        self._complete = False
        self._nodes = Informer(client, NODES, Kept(Node, _slim), on_change=self._node)
        self._metrics = Informer(client, NODEMETRICS, Kept(NodeMetric, report.read), on_change=self._metric)
        self._pods = Informer(client, PODS, Kept(Pod, record), on_change=self._pod)
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
        """Watches the cluster until the loops end."""
        for name, informer in self._informers.items():
            loops.start(f"informer-{name}", informer.run)

    def unsynced(self) -> list[str]:
        """The informers that have not synced yet; while there are any, absence proves nothing."""
        return [name for name, informer in self._informers.items() if not informer.synced.is_set()]

    def unheard_seconds(self) -> float:
        """For how long the API server has been silent; 0 while any watch works."""
        return min(each.age_seconds for each in self._informers.values())

    def names(self) -> set[str]:
        """The names of all Nodes and NodeMetrics."""
        return {*self._nodes.keys(), *self._metrics.keys(), *self._metrics.unread()} - {""}

    def nodes(self) -> list[Node]:
        return self._nodes.values()

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def report(self, name: str) -> NodeReport | None:
        """The report of the node's NodeMetric."""
        return self._metrics.get(name)

    def reports(self) -> list[NodeReport]:
        """The reports of all NodeMetrics."""
        return self._metrics.values()

    def config_map(self) -> ConfigMap | None:
        """The ConfigMap of the configuration."""
        return self._config_maps.get(self._config_map_key)

    def has_unread_metric(self, name: str) -> bool:
        """Whether the node's NodeMetric exists, but cannot be read."""
        return bool(name) and name in self._metrics.unread()

    def pods(self, name: str) -> Collection[PodRecord]:
        """The pods on the node."""
        return self._ledger.on(name)

    def requested(self, name: str) -> NodeRequests:
        """The requests of the node's pods."""
        return self._ledger.requested(name)

    def _node(self, change: Change[Node]) -> None:
        if change.kind is ChangeKind.SYNCED:
            self._all_changed()
        elif not _is_heartbeat(change):
            self._some_changed([change.key])

    def _metric(self, change: Change[NodeReport]) -> None:
        if change.kind is ChangeKind.SYNCED:
            self._all_changed()
        else:
            self._some_changed([change.key])

    def _pod(self, change: Change[PodRecord]) -> None:
        if change.kind is ChangeKind.SYNCED:
            self._all_changed()
        else:
            self.holders.replace(change.old, change.new)
            self._some_changed(self._ledger.replace(change.old, change.new))

    def _config_map(self, change: Change[ConfigMap]) -> None:
        config_map = self._config_maps.get(self._config_map_key)
        previous = self.configuration
        source = f"ConfigMap {self._config_map_key}"
        self.configuration = configuration.after(previous, config_map, source=source)
        self._configured(self.configuration, config_map)
        if change.kind is ChangeKind.SYNCED or self.configuration != previous:
            self._all_changed()

    def _some_changed(self, names: Iterable[str]) -> None:
        # No decision is possible before all informers have synced; then every node is queued.
        if self._complete or not self.unsynced():
            self._complete = True
            self._changed(names)

    def _all_changed(self) -> None:
        self._some_changed(self.names())


def _slim(node: Node) -> Node:
    """The node without the parts that the manager does not read, which are most of it."""
    meta, spec, status = node.metadata, node.spec, node.status
    annotations = {name: text for name, text in (meta.annotations or {}).items() if _DOMAINS.search(name)}
    conditions = tuple(each for each in status.conditions or () if _DOMAINS.search(each.type))
    return Node(
        metadata=ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            labels=meta.labels,
            annotations=annotations or None,
        ),
        spec=spec,
        status=NodeStatus(capacity=status.capacity, allocatable=status.allocatable, conditions=conditions or None),
    )


def _is_heartbeat(change: Change[Node]) -> bool:
    """Whether nothing changed that a decision could depend on."""
    old, new = change.old, change.new
    return (
        old is not None
        and new is not None
        and (old.status.capacity, old.status.allocatable) == (new.status.capacity, new.status.allocatable)
        and (old.metadata.labels, old.metadata.annotations) == (new.metadata.labels, new.metadata.annotations)
    )
