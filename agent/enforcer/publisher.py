"""The agent's side: publishes each second what pods hold, and how much is left to best-effort pods."""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from agent.enforcer import holding, orders, prod_first, status
from agent.enforcer.orders import Orders, PodOrder, Suppress
from agent.enforcer.prod_first import BestEffortCpu, CpuCap
from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.states_informer.informer import LocalNode, StatesInformer
from agent.states_informer.pods import NodePod
from shared.api.nodemetric_spec import ResourceThresholds
from shared.clock import Clock
from shared.metric_families import CounterFamily, GaugeFamily
from shared.quantity import MILLI_PER_CORE

logger = logging.getLogger(__name__)

PUBLISH_SECONDS = 1.0
WINDOW_SECONDS = 5  # of the usage that determines the quota of best-effort pods

_BEST_EFFORT_CPU_CORES = GaugeFamily(
    "headroom_agent_best_effort_cpu_cores", "CPU quota of the best-effort class, in cores."
)
_PROD_FIRST_CPU_CORES = GaugeFamily(
    "headroom_agent_prod_first_cpu_cores",
    "Cap on the CPU of best-effort Mid and Batch pods since Prod waited too long for it, in cores.",
)
_ENFORCER_AGE_SECONDS = GaugeFamily(
    "headroom_agent_enforcer_age_seconds", "Seconds since the enforcer last reported what it wrote."
)
_ENFORCER_PODS = GaugeFamily(
    "headroom_agent_enforcer_pods", "Number of pods that the enforcer keeps within their bounds."
)
_ENFORCER_WRITES = CounterFamily(
    "headroom_agent_enforcer_writes", "Cgroup values that the enforcer changed, by outcome.", ("outcome",)
)
_ENFORCER_REFUSED_ORDERS = CounterFamily(
    "headroom_agent_enforcer_refused_orders", "Files of the agent that the enforcer rejected."
)


class Publisher:
    """Serves one thread. It omits unknown values, so that the enforcer drops their bounds when that lasts."""

    def __init__(
        self,
        directory: Path,
        states: StatesInformer,
        cache: MetricCache,
        clock: Clock,
        *,
        second: Callable[[], int],
        thresholds: Callable[[], ResourceThresholds],
        waited_seconds: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`waited_seconds` is the time since Prod last waited too long for CPU, None unless it is slowed."""
        self._directory = directory
        self._states = states
        self._cache = cache
        self._clock = clock
        self._second = second
        self._thresholds = thresholds
        self._waited_seconds = waited_seconds
        self._known: list[NodePod] = []
        self._orders: tuple[PodOrder, ...] = ()
        self.suppress: Suppress | None = None
        self.cap: CpuCap | None = None

    def publish(self) -> None:
        """Writes the file again. Raises OSError."""
        node, pods = self._states.node(), self._states.pods()
        if not self._states.synced or node is None:
            return
        if pods != self._known:
            self._known, self._orders = pods, holding.pod_orders(pods)
        thresholds = self._thresholds()
        suppress = self._suppress(node, pods, thresholds) if thresholds.enable else None
        if thresholds.enable and suppress is None:
            return
        if suppress is None:
            self.cap = None
        self.suppress = suppress
        at = self._clock.monotonic()
        orders.write(self._directory, Orders(version=orders.VERSION, at=at, pods=self._orders, suppress=suppress))

    def _suppress(self, node: LocalNode, pods: list[NodePod], thresholds: ResourceThresholds) -> Suppress | None:
        """None while the node cannot be read."""
        second = self._second()
        usages = self._cache.usages(Aggregation.AVG, WINDOW_SECONDS, second)
        system = usages.get(series.SYSTEM)
        if system is None or node.capacity.cpu_milli <= 0:
            return None
        capacity = min(node.capacity.cpu_milli, orders.MOST_MILLI)
        reserved = max(0, capacity - node.allocatable.cpu_milli)
        left = holding.best_effort_milli(capacity, reserved, pods, usages, system.cpu_cores, thresholds)
        cpu = holding.best_effort_cpu(capacity, pods, self._orders, usages, thresholds)
        self._move(cpu)
        return Suppress(cpu_milli=prod_first.capped(min(left, capacity), self.cap, cpu), capacity_milli=capacity)

    def _move(self, cpu: BestEffortCpu | None) -> None:
        before, now = self.cap, self._clock.monotonic()
        self.cap = prod_first.next_cap(before, cpu, waited_seconds=self._waited_seconds(), now=now)
        if self.cap is None and before is not None:
            logger.info("best-effort Mid and Batch pods are no longer capped")
        elif self.cap is not None and cpu is not None and (before is None or self.cap.milli != before.milli):
            about = {"cap_milli": self.cap.milli, "used_milli": cpu.used_milli, "held_milli": cpu.held_milli}
            logger.info("best-effort Mid and Batch pods are capped, since Prod waits too long for CPU", extra=about)


class EnforcerCollector(Collector):
    """The orders, and what the enforcer reports of itself, at scrape time."""

    def __init__(self, publisher: Publisher, directory: Path, clock: Clock) -> None:
        self._publisher = publisher
        self._directory = directory
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        left = _BEST_EFFORT_CPU_CORES.scraped()
        if self._publisher.suppress is not None:
            left.add_metric([], self._publisher.suppress.cpu_milli / MILLI_PER_CORE)
        yield left
        cap = _PROD_FIRST_CPU_CORES.scraped()
        if self._publisher.cap is not None:
            cap.add_metric([], self._publisher.cap.milli / MILLI_PER_CORE)
        yield cap
        told = status.read(self._directory)
        if told is None:
            return
        age = _ENFORCER_AGE_SECONDS.scraped()
        age.add_metric([], self._clock.monotonic() - told.at)
        bounded = _ENFORCER_PODS.scraped()
        bounded.add_metric([], told.pods)
        writes = _ENFORCER_WRITES.scraped()
        for outcome in ("written", "restored", "gone", "failed"):
            writes.add_metric([outcome], getattr(told, outcome))
        refused = _ENFORCER_REFUSED_ORDERS.scraped()
        refused.add_metric([], told.refused_orders)
        yield from (age, bounded, writes, refused)

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering reads no file."""
        return []
