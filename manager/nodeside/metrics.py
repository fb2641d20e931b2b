"""The manager's counters, and gauges computed at scrape time (all under `headroom_manager_`)."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from manager.nodeside.eviction.metrics import ScrapedCollector
from manager.nodeside.fleet import FleetOverview
from manager.nodeside.noderesource import holdings
from manager.nodeside.noderesource.explain import HELD, Decision
from manager.nodeside.policy import ClusterPolicy
from shared.api.core import Node
from shared.metric_families import CounterFamily, GaugeFamily
from shared.names import Tier
from shared.quantity import MILLI_PER_CORE

_DECISIONS = CounterFamily(
    "headroom_manager_decisions", "Decisions, by the bound of the tier's cpu.", ("tier", "bound")
)
_NODE_WRITES = CounterFamily("headroom_manager_node_writes", "Node statuses written.", ("reason",))
_NODE_WRITES_SUPPRESSED = CounterFamily(
    "headroom_manager_node_writes_suppressed", "Differences from the Node that were not written yet.", ("reason",)
)
_NODE_METRIC_WRITES = CounterFamily(
    "headroom_manager_node_metric_writes", "NodeMetrics created, updated and deleted.", ("verb",)
)
_NODE_CONDITION_WRITES = CounterFamily("headroom_manager_node_condition_writes", "Conditions written to Nodes.")
_NODE_WRITE_CONFLICTS = CounterFamily(
    "headroom_manager_node_write_conflicts",
    "Writes of Nodes that conflicted with another writer and were decided again.",
)
_FAILURES = CounterFamily("headroom_manager_failures", "Failed updates of Nodes, which are retried.", ("error",))
_QUEUE_LENGTH = GaugeFamily("headroom_manager_queue_length", "Number of Nodes that wait to be processed.")
_PENDING_WRITES = GaugeFamily("headroom_manager_pending_writes", "Number of Nodes that wait to be written.")
_QUEUE_OLDEST_SECONDS = GaugeFamily(
    "headroom_manager_queue_oldest_seconds", "Seconds that the next Node has waited to be processed."
)
_PENDING_WRITES_OLDEST_SECONDS = GaugeFamily(
    "headroom_manager_pending_writes_oldest_seconds", "Seconds that the next Node has waited to be written."
)
_LEADER = GaugeFamily("headroom_manager_leader", "1 while this process leads and may write.")
_CONFIG_LAST_RELOAD_SUCCESS = GaugeFamily(
    "headroom_manager_config_last_reload_success",
    "0 while the newest ConfigMap is invalid and its last valid version applies.",
)
_CONFIG_NODE_CONFIGS_PASSED_OVER = GaugeFamily(
    "headroom_manager_config_node_configs_passed_over",
    "Invalid node configs in the ConfigMap in effect. Each affects only its own nodes.",
)
_COLOCATION_ENABLED = GaugeFamily(
    "headroom_manager_colocation_enabled", "1 while the configuration in effect enables colocation."
)
_NODE_METRIC_AGE_SECONDS = GaugeFamily(
    "headroom_manager_node_metric_age_seconds", "Seconds since the last report of the node.", ("node",)
)
_NODES = GaugeFamily("headroom_manager_nodes", "Nodes, by the bound of their offer.", ("tier", "resource", "bound"))
_NODE_METRIC_CONTRADICTIONS = GaugeFamily(
    "headroom_manager_node_metric_contradictions",
    "Nodes whose NodeMetric reports more reclaimable capacity than requests minus the peak.",
)
_PREDICTION_OUTCOMES = GaugeFamily(
    "headroom_manager_prediction_outcomes",
    "Promises with a target in the last 28 days whose horizon has passed, over all nodes.",
    ("resource", "horizon_seconds"),
)
_PREDICTION_VIOLATED_RATIO = GaugeFamily(
    "headroom_manager_prediction_violated_ratio",
    "Share of the promises with a target in the last 28 days that usage exceeded, over all nodes.",
    ("resource", "horizon_seconds"),
)
_PREDICTION_TARGET_RATIO = GaugeFamily(
    "headroom_manager_prediction_target_ratio",
    "Share of broken promises that the policies allow, weighted by outcomes.",
    ("resource", "horizon_seconds"),
)
_PREDICTION_TARGET_MISSED = GaugeFamily(
    "headroom_manager_prediction_target_missed",
    "1 while promises are broken more often than the target, over at least 1000 outcomes.",
    ("resource", "horizon_seconds"),
)
_PREDICTION_PRIOR_NODES = GaugeFamily(
    "headroom_manager_prediction_prior_nodes",
    "Nodes whose outcomes make up the fleet's prior; 0: the built-in prior is used.",
)
_PREDICTION_REFUSED_NODES = GaugeFamily(
    "headroom_manager_prediction_refused_nodes", "Nodes whose promises are impossible and are left out."
)

_CPU_ON_OFFER = {
    tier: GaugeFamily(
        f"headroom_manager_node_{tier}_cpu_cores",
        f"CPU on offer to {tier.title()} in the Node's status, in cores.",
        ("node",),
    )
    for tier in Tier
}
_MEMORY_ON_OFFER = {
    tier: GaugeFamily(
        f"headroom_manager_node_{tier}_memory_bytes",
        f"Memory on offer to {tier.title()} in the Node's status, in bytes.",
        ("node",),
    )
    for tier in Tier
}


class ManagerCounters:
    """Counters since the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = _DECISIONS.register(registry)
        self._decided: dict[tuple[Tier, str], Counter] = {}
        self.writes = _NODE_WRITES.register(registry)
        self.suppressed = _NODE_WRITES_SUPPRESSED.register(registry)
        self.node_metric_writes = _NODE_METRIC_WRITES.register(registry)
        self.condition_writes = _NODE_CONDITION_WRITES.register(registry)
        self.conflicts = _NODE_WRITE_CONFLICTS.register(registry)
        self.failures = _FAILURES.register(registry)

    def decided(self, decision: Decision) -> None:
        """Counts one decision."""
        for tier, offer in decision.offers.items():
            bound = HELD if offer.is_held_up else offer.told.cpu.bound
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
        yield _QUEUE_LENGTH.scraped(looks)
        yield _PENDING_WRITES.scraped(writes)
        yield _QUEUE_OLDEST_SECONDS.scraped(look_seconds)
        yield _PENDING_WRITES_OLDEST_SECONDS.scraped(write_seconds)
        yield _LEADER.scraped(self._is_leader())
        yield _CONFIG_LAST_RELOAD_SUCCESS.scraped(policy.problem is None)
        yield _CONFIG_NODE_CONFIGS_PASSED_OVER.scraped(len(policy.config.problems))
        yield _COLOCATION_ENABLED.scraped(policy.enabled)
        yield from self._of_nodes()

    def _of_nodes(self) -> Iterator[Metric]:
        offered = {tier: (_CPU_ON_OFFER[tier].scraped(), _MEMORY_ON_OFFER[tier].scraped()) for tier in Tier}
        age = _NODE_METRIC_AGE_SECONDS.scraped()
        bounds: Tally[tuple[str, str, str]] = Tally()
        contradictions = 0
        now = self._now()
        for node, decision in self._nodes():
            name = node.metadata.name
            for tier, (cpu, memory) in offered.items():
                offer = holdings.on_offer(node, tier)
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
        by_bound = _NODES.scraped()
        for labels, many in sorted(bounds.items()):
            by_bound.add_metric(list(labels), many)
        yield _NODE_METRIC_CONTRADICTIONS.scraped(contradictions)
        for families in offered.values():
            yield from families
        yield from (age, by_bound)


class FleetCollector(ScrapedCollector):
    """How promises are kept over all nodes, and the prior of new nodes."""

    def __init__(self, fleet: FleetOverview) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        outcomes = _PREDICTION_OUTCOMES.scraped()
        violated = _PREDICTION_VIOLATED_RATIO.scraped()
        target = _PREDICTION_TARGET_RATIO.scraped()
        missed = _PREDICTION_TARGET_MISSED.scraped()
        for rate in self._fleet.rates:
            labels = [rate.resource, str(rate.horizon_seconds)]
            outcomes.add_metric(labels, rate.outcomes)
            violated.add_metric(labels, rate.violated_percent / 100)
            target.add_metric(labels, rate.target_percent / 100)
            missed.add_metric(labels, rate.is_missed)
        yield from (outcomes, violated, target, missed)
        prior = self._fleet.prior
        yield _PREDICTION_PRIOR_NODES.scraped(prior.nodes if prior else 0)
        yield _PREDICTION_REFUSED_NODES.scraped(self._fleet.refused_nodes)
