"""The node side's view of the cluster, kept current by informers, and the callbacks for changes."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from manager import informers
from manager.informers import CachedPod, SharedInformers
from manager.nodeside.assumed import AssumedPods
from manager.nodeside.noderesource import report
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.policy import ClusterPolicy, next_policy
from manager.nodeside.tenants import Holders
from manager.pods import NodeRequests, PodLedger, PodRecord
from manager.settings import ManagerSettings
from shared.api.core import ConfigMap, Node
from shared.api.nodemetric import NodeMetric
from shared.api.nodemetric_spec import ResourceThresholds
from shared.kube.client import Client
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, ChangeKind, Kept
from shared.kube.resources import CONFIGMAPS, NODEMETRICS
from shared.kube.watch import WatchScope
from shared.telemetry import Loops


class Caches:
    """Nodes, NodeMetrics, requests per node and the policy; safe to read from any thread.

    `changed` is called with the names of the nodes to look at again, `configured` with each new policy and its
    ConfigMap; both from the informers' threads.
    """

    def __init__(
        self,
        client: Client,
        shared: SharedInformers,
        settings: ManagerSettings,
        *,
        changed: Callable[[Iterable[str]], None],
        configured: Callable[[ClusterPolicy, ConfigMap | None], None],
    ) -> None:
        self.policy = ClusterPolicy()
        self._changed = changed
        self._configured = configured
        self._config_map_key = settings.config_map_key
        self._ledger = PodLedger()
        self.holders = Holders()
        self.assumed = AssumedPods(client.clock)
        self._complete = False
        self._nodes = shared.nodes
        self._nodes.subscribe(self._node)
        shared.pods.subscribe(self._pod)
        self._metrics = Informer(client, NODEMETRICS, Kept(NodeMetric, report.read), on_change=self._metric)
        self._config_maps = Informer(
            client,
            CONFIGMAPS,
            ConfigMap,
            on_change=self._config_map,
            scope=WatchScope(
                namespace=settings.config_namespace or settings.namespace,
                field_selector=f"metadata.name={settings.config_name}",
            ),
        )
        self._own: dict[str, Informer[Any]] = {"nodemetrics": self._metrics, "configmaps": self._config_maps}
        self._informers = shared.by_name | self._own

    def start(self, loops: Loops) -> None:
        """Watches what the node side alone reads, until the loops end."""
        for name, informer in self._own.items():
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
        return self._metrics.get(name)

    def reports(self) -> list[NodeReport]:
        return self._metrics.values()

    def config_map(self) -> ConfigMap | None:
        return self._config_maps.get(self._config_map_key)

    def has_unread_metric(self, name: str) -> bool:
        """Whether the node's NodeMetric exists, but cannot be read."""
        return bool(name) and name in self._metrics.unread()

    def pods(self, name: str) -> Collection[PodRecord]:
        return self._ledger.pods_on(name)

    def thresholds(self, name: str) -> ResourceThresholds | None:
        """The thresholds by which pods of the node may be evicted; None unless the node lends under a policy in
        effect.
        """
        node, policy = self.node(name), self.policy
        strategy = None if node is None or not policy.settled else policy.strategy(node)
        return None if node is None or strategy is None or not strategy.enabled else policy.thresholds_of(node)

    def requested(self, name: str) -> NodeRequests:
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

    def _pod(self, change: Change[CachedPod]) -> None:
        if change.kind is ChangeKind.SYNCED:
            self._all_changed()
        else:
            old, new = (None if each is None else each.record for each in (change.old, change.new))
            self.holders.replace(old, new)
            touched = self._ledger.replace(old, new)
            self.assumed.observe(old, new)  # only now, so that the pod counts all the time
            self._some_changed(touched)

    def _config_map(self, change: Change[ConfigMap]) -> None:
        config_map = self._config_maps.get(self._config_map_key)
        previous = self.policy
        source = f"ConfigMap {self._config_map_key}"
        self.policy = next_policy(previous, config_map, source=source)
        self._configured(self.policy, config_map)
        if change.kind is ChangeKind.SYNCED or self.policy != previous:
            self._all_changed()

    def _some_changed(self, names: Iterable[str]) -> None:
        # No decision is possible before all informers have synced; then every node is queued.
        if self._complete or not self.unsynced():
            self._complete = True
            self._changed(names)

    def _all_changed(self) -> None:
        self._some_changed(self.names())


def _is_heartbeat(change: Change[Node]) -> bool:
    """Whether nothing changed that a decision could depend on."""
    old, new = change.old, change.new
    return (
        old is not None
        and new is not None
        and (old.status.capacity, old.status.allocatable) == (new.status.capacity, new.status.allocatable)
        and old.metadata.labels == new.metadata.labels
        and _annotations(old) == _annotations(new)
    )


def _annotations(node: Node) -> dict[str, str]:
    """The relevant ones; an autoscaler reads others."""
    return {name: text for name, text in (node.metadata.annotations or {}).items() if informers.DOMAINS.search(name)}
