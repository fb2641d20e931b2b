"""The manager's counters, and gauges computed at scrape time (all under `headroom_manager_`)."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from manager.nodeside.eviction.metrics import ScrapedCollector, family, gauge
from manager.nodeside.fleet import FleetOverview
from manager.nodeside.noderesource import writing
from manager.nodeside.noderesource.explain import HELD, Decision
from manager.nodeside.policy import ClusterPolicy
from shared.api.core import Node
from shared.names import Tier
from shared.quantity import MILLI_PER_CORE


class ManagerCounters:
    """Counters since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"headroom_manager_{name}", about, labels, registry=registry)

        self._decisions = counter("decisions", "Decisions by what bound the tier's cpu", "tier", "bound")
        self._decided: dict[tuple[Tier, str], Counter] = {}
        self.writes = counter("node_writes", "Node statuses written", "reason")
        self.suppressed = counter("node_writes_suppressed", "Looks that found a difference and left it", "reason")
        self.node_metric_writes = counter("node_metric_writes", "NodeMetrics created, updated and deleted", "verb")
        self.zone_writes = counter("zone_writes", "NodeResourceTopologies that got Batch written into their zones")
        self.condition_writes = counter("node_condition_writes", "Conditions written to Nodes")
        self.conflicts = counter("node_write_conflicts", "Node writes that met another writer and were decided anew")
        self.failures = counter("failures", "Nodes that could not be brought up to date, and are tried again", "error")

    def decided(self, decision: Decision) -> None:
        """Counts one decision."""
        for tier, offer in decision.offers.items():
            bound = HELD if offer.is_held_up else offer.explanation.cpu.bound
            key = (tier, bound)
            counted = self._decided.get(key)
            if counted is None:
                counted = self._decided[key] = self._decisions.labels(*key)
            counted.inc()


class StateCollector(ScrapedCollector):
    """The state of the manager, and what its nodes offer."""

    def __init__(
        self,
        *,
        nodes: Callable[[], Iterable[tuple[Node, Decision | None]]],
        policy: Callable[[], ClusterPolicy],
        pending: Callable[[], tuple[int, int]],
        oldest_seconds: Callable[[], tuple[float, float]],
        is_leader: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._nodes = nodes
        self._policy = policy
        self._pending = pending
        self._oldest_seconds = oldest_seconds
        self._is_leader = is_leader
        self._now = now

    def collect(self) -> Iterator[Metric]:
        looks, writes = self._pending()
        look_seconds, write_seconds = self._oldest_seconds()
        policy = self._policy()
        yield gauge("queue_length", "Nodes waiting to be looked at", looks)
        yield gauge("pending_writes", "Nodes waiting to be written", writes)
        yield gauge("queue_oldest_seconds", "How long the next node has waited to be looked at", look_seconds)
        yield gauge("pending_writes_oldest_seconds", "How long the next node has waited to be written", write_seconds)
        yield gauge("leader", "1 while this process may write", self._is_leader())
        yield gauge("config_last_reload_success", "0 while the newest ConfigMap is refused", policy.problem is None)
        yield gauge(
            "config_node_configs_passed_over",
            "Problems of node configs in the ConfigMap in effect, each of which concerns only the nodes of its own",
            len(policy.config.problems),
        )
        yield gauge("colocation_enabled", "1 while the configuration in effect enables colocation", policy.enabled)
        yield from self._of_nodes()

    def _of_nodes(self) -> Iterator[Metric]:
        offered = {
            tier: (
                family(f"node_{tier}_cpu_cores", f"{tier.title()} cpu on offer in the Node's status", "node"),
                family(f"node_{tier}_memory_bytes", f"{tier.title()} memory on offer in the Node's status", "node"),
            )
            for tier in Tier
        }
        age = family("node_metric_age_seconds", "Since the last report of the node", "node")
        bounds: Tally[tuple[str, str, str]] = Tally()
        contradictions = 0
        now = self._now()
        for node, decision in self._nodes():
            name = node.metadata.name
            for tier, (cpu, memory) in offered.items():
                offer = writing.on_offer(node, tier)
                if offer is not None:
                    cpu.add_metric([name], offer.cpu_milli / MILLI_PER_CORE)
                    memory.add_metric([name], offer.memory_bytes)
            if decision is None:
                continue
            for tier, decided in decision.offers.items():
                told = decided.told
                bounds[tier, "cpu", told.cpu.bound] += 1
                bounds[tier, "memory", told.memory.bound] += 1
            contradictions += bool(decision.contradiction)
            report = None if decision.observed is None else decision.observed.report
            if report is not None and report.update_time is not None:
                age.add_metric([name], now - report.update_time)
        by_bound = family("nodes", "Nodes by what bounds their offer", "tier", "resource", "bound")
        for labels, many in sorted(bounds.items()):
            by_bound.add_metric(list(labels), many)
        yield gauge(
            "node_metric_contradictions",
            "Nodes whose NodeMetric says that more can be reclaimed than their pods request, less the peak",
            contradictions,
        )
        for families in offered.values():
            yield from families
        yield from (age, by_bound)


class FleetCollector(ScrapedCollector):
    """How promises are kept over all nodes, and the prior of new nodes."""

    def __init__(self, fleet: FleetOverview) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        def rated(name: str, about: str) -> GaugeMetricFamily:
            return family(f"prediction_{name}", about, "resource", "horizon_seconds")

        outcomes = rated("outcomes", "Promises with a target whose horizon has passed, of 28 days and all nodes")
        violated = rated("violated_ratio", "Share of them in which more was used than was promised")
        target = rated("target_ratio", "Share that policies allow, by outcomes")
        missed = rated("target_missed", "1 while more than that is used, by at least 1000 outcomes")
        for rate in self._fleet.rates:
            labels = [rate.resource, str(rate.horizon_seconds)]
            outcomes.add_metric(labels, rate.outcomes)
            violated.add_metric(labels, rate.violated_percent / 100)
            target.add_metric(labels, rate.target_percent / 100)
            missed.add_metric(labels, rate.is_missed)
        yield from (outcomes, violated, target, missed)
        prior = self._fleet.prior
        yield gauge(
            "prediction_prior_nodes", "Nodes the fleet's prior rests on, 0: built in", prior.nodes if prior else 0
        )
        yield gauge(
            "prediction_refused_nodes",
            "Nodes whose promises are left out, as they cannot be",
            self._fleet.refused_nodes,
        )
