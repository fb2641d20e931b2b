"""What the manager counts, and what it computes when it is asked (all under `headroom_manager_`)."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from manager.configuration import Configuration
from manager.noderesource import writing
from manager.noderesource.explain import Decision
from shared.api.core import Node
from shared.quantity import MILLI_PER_CORE


class Counters:
    """What has happened since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"headroom_manager_{name}", about, labels, registry=registry)

        self.decisions = counter("decisions", "Nodes decided about")
        self.writes = counter("node_writes", "Node statuses written", "reason")
        self.node_metric_writes = counter("node_metric_writes", "NodeMetrics created, updated and deleted", "verb")
        self.conflicts = counter("node_write_conflicts", "Node writes that met another writer and were decided anew")
        self.failures = counter("failures", "Nodes that could not be brought up to date, and are tried again", "error")


class StateCollector(Collector):
    """Gauges computed at scrape time, so that nothing is kept twice."""

    def __init__(
        self,
        *,
        nodes: Callable[[], Iterable[tuple[Node, Decision | None]]],
        configuration: Callable[[], Configuration],
        pending: Callable[[], tuple[int, int]],
        is_leader: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._nodes = nodes
        self._configuration = configuration
        self._pending = pending
        self._is_leader = is_leader
        self._now = now

    def collect(self) -> Iterator[Metric]:
        looks, writes = self._pending()
        configuration = self._configuration()
        yield _gauge("queue_length", "Nodes waiting to be looked at", looks)
        yield _gauge("pending_writes", "Nodes waiting to be written", writes)
        yield _gauge("leader", "1 while this process may write", self._is_leader())
        yield _gauge(
            "config_last_reload_success", "0 while the newest ConfigMap is refused", configuration.problem is None
        )
        yield _gauge(
            "colocation_enabled", "1 while the configuration in effect enables colocation", configuration.enabled
        )
        yield from self._of_nodes()

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not walk over the cluster."""
        return []

    def _of_nodes(self) -> Iterator[Metric]:
        cpu = _family("node_mid_cpu_cores", "Mid cpu on offer in the Node's status", "node")
        memory = _family("node_mid_memory_bytes", "Mid memory on offer in the Node's status", "node")
        age = _family("node_metric_age_seconds", "Since the last report of the node", "node")
        bounds: Tally[tuple[str, str]] = Tally()
        now = self._now()
        for node, decision in self._nodes():
            name, offer = node.metadata.name, writing.on_offer(node)
            if offer is not None:
                cpu.add_metric([name], offer.cpu_milli / MILLI_PER_CORE)
                memory.add_metric([name], offer.memory_bytes)
            if decision is None:
                continue
            bounds["cpu", decision.explanation.cpu.bound] += 1
            bounds["memory", decision.explanation.memory.bound] += 1
            if decision.observed is not None and decision.observed.update_time is not None:
                age.add_metric([name], now - decision.observed.update_time)
        by_bound = _family("nodes", "Nodes by what bounds their offer", "resource", "bound")
        for (resource, bound), count in sorted(bounds.items()):
            by_bound.add_metric([resource, bound], count)
        yield from (cpu, memory, age, by_bound)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headroom_manager_{name}", about, value=value)


def _family(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headroom_manager_{name}", about, labels=labels)
