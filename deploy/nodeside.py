"""The node side of a manager that has just started, from plain objects in place of its informers."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from manager.nodeside.noderesource import explain, prod_first, report
from manager.nodeside.noderesource.explain import Decision, Known
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.policy import ClusterPolicy, next_policy
from manager.pods import NodeRequests, PodLedger, PodRecord, record
from shared import names
from shared.api.colocation import NodeStrategy
from shared.api.core import ConfigMap, Node, Pod
from shared.api.nodemetric import NodeMetric
from shared.cached_property import cached_property


@dataclass(frozen=True)
class ConfigKey:
    """Which ConfigMap the manager reads."""

    namespace: str = names.INSTALL_NAMESPACE
    name: str = names.CONFIG_MAP


class NodeSide:
    """The node side at `now`, in Unix seconds."""

    def __init__(
        self,
        nodes: Iterable[Node],
        metrics: Iterable[NodeMetric],
        pods: Iterable[Pod],
        config_map: ConfigMap | None,
        now: float,
    ) -> None:
        self._nodes = {each.metadata.name: each for each in nodes}
        self._metrics = {each.metadata.name: each for each in metrics}
        self._pods = pods
        self._config_map = config_map
        self._now = now

    @cached_property
    def policy(self) -> ClusterPolicy:
        """The policy. Raises InvalidInput for an unreadable ConfigMap."""
        key = names.CONFIG_MAP if self._config_map is None else self._config_map.metadata.key
        current = next_policy(ClusterPolicy(), self._config_map, source=f"ConfigMap {key}")
        if current.problem is not None:
            raise current.problem
        return current

    @cached_property
    def _ledger(self) -> PodLedger:
        ledger = PodLedger()
        for pod in self._pods:
            ledger.replace(None, record(pod))
        return ledger

    def report(self, name: str) -> NodeReport | None:
        metric = self._metrics.get(name)
        return None if metric is None else report.read(metric)

    def pods(self, name: str) -> Collection[PodRecord]:
        return self._ledger.pods_on(name)

    def requested(self, name: str) -> NodeRequests:
        return self._ledger.requested(name)

    def strategy(self, node: Node) -> NodeStrategy:
        strategy = self.policy.strategy(node)
        assert strategy is not None, "a configuration without a problem has a strategy for every node"
        return strategy

    def decision(self, name: str) -> Decision:
        """The offers of an existing node."""
        node = self._nodes[name]
        known, reported = Known.from_pods(node, self.requested(name), self.pods(name)), self.report(name)
        if reported is not None:
            lessons = prod_first.lessons(reported.prod_waits, self.policy.thresholds_of(node))
            known = msgspec.structs.replace(known, lessons=lessons)
        return explain.decide(node, reported, known, self.strategy(node), self._now)
