"""One tick: read everything, put it together, append it to the metric cache."""

import logging
import threading
from collections.abc import Collection, Mapping

from prometheus_client import CollectorRegistry, Counter

from agent.metric_cache import series
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import NOTHING, Usage
from agent.metrics_advisor.source import Sample, UsageSource
from agent.states_informer.informer import StatesInformer
from shared.clock import Clock
from shared.names import LENDING_CLASSES, PriorityClass

logger = logging.getLogger(__name__)


class MetricsAdvisor:
    """Seconds in the cache are those of the monotonic clock, which no correction of the wall clock moves."""

    def __init__(
        self,
        source: UsageSource,
        states: StatesInformer,
        cache: MetricCache,
        clock: Clock,
        *,
        registry: CollectorRegistry,
    ) -> None:
        self.sampling = threading.Event()  # set by the first sample stored
        self._source = source
        self._states = states
        self._cache = cache
        self._clock = clock
        self._epoch = clock.monotonic()
        self._readable = True
        self._ticks = Counter("headroom_agent_ticks", "Sampling ticks by outcome", ["outcome"], registry=registry)

    @property
    def second(self) -> int:
        """The cache's name for the present second."""
        return int(self._clock.monotonic() - self._epoch)

    @property
    def source(self) -> str:
        """How usage is read."""
        return self._source.description

    def collect(self) -> None:
        """Runs one tick. A source that cannot be read costs this tick and is tried again at the next."""
        synced = self._states.synced  # asked first: a list of pods read before it may lack some
        pods = self._states.pods()
        try:
            sample = self._source.sample([pod.pod for pod in pods if pod.running])
        except (OSError, ValueError) as error:
            self._ticks.labels("failed").inc()
            if self._readable:
                logger.error("usage cannot be read: %s", error, extra={"source": self.source})
            self._readable = False
            return
        self._readable = True
        if sample is None:
            self._ticks.labels("baseline").inc()
            return
        if synced:
            usages = entities(sample, {pod.uid: pod.priority_class for pod in pods})
        else:
            # Without the pods, what they use would pass for the system's.
            usages = {series.NODE: sample.node}
        self._cache.append(self.second, usages)
        self._retain({pod.uid for pod in pods})
        self._ticks.labels("stored").inc()
        self.sampling.set()

    def _retain(self, uids: Collection[str]) -> None:
        self._cache.retain(series.NODE_ENTITIES.union(uids))


def entities(sample: Sample, classes: Mapping[str, PriorityClass]) -> dict[str, Usage]:
    """Every entity's usage in one tick. Pure.

    The system is what the node uses beyond its pods, in the same tick; pods nobody could read are in it. All sums are
    of one instant, so the peak of a sum is not the sum of peaks.
    """
    by_class = dict.fromkeys(PriorityClass, NOTHING)
    everything = NOTHING
    known = {uid: usage for uid, usage in sample.pods.items() if uid in classes}
    for uid, usage in known.items():
        everything = everything.plus(usage)
        by_class[classes[uid]] = by_class[classes[uid]].plus(usage)
    system = sample.node.minus(everything)
    prod_peak = system
    for lender in LENDING_CLASSES:
        prod_peak = prod_peak.plus(by_class[lender])
    return {
        series.NODE: sample.node,
        series.SYSTEM: system,
        series.PROD_PEAK: prod_peak,
        **{series.of_class(priority_class): usage for priority_class, usage in by_class.items()},
        **known,
    }
