"""Judges each second whether Prod pods wait too long, and keeps what was judged before."""

import logging
from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.reporter import interference
from agent.reporter.interference import JudgedWaits, WaitState
from agent.states_informer.pods import NOTHING, NodePod
from shared import names
from shared.api import nodemetric
from shared.api.nodemetric_spec import ResourceThresholds
from shared.api.pods import must_not_wait
from shared.clock import Clock
from shared.metric_families import CounterFamily, GaugeFamily

logger = logging.getLogger(__name__)

_LONGEST_SECONDS = 10.0  # between two judgements; a longer pause counts as this
_CERTAIN_SECONDS = 60  # of samples without a wait, before waits count as unmeasurable
_NODE_CPU = SeriesKey(Kind.NODE, "", Metric.CPU)
_UNKNOWN = WaitState()

_WAIT_RATIO = GaugeFamily(
    "headroom_agent_prod_wait_ratio",
    "Share of their time that Prod pods waited for a resource, without pods at their own limits.",
    ("resource",),
)
_BASELINE_RATIO = GaugeFamily(
    "headroom_agent_prod_wait_baseline_ratio",
    "95th percentile of the share of their time that Prod pods waited, without Mid and Batch pods on the node.",
    ("resource",),
)
_THROTTLED_PODS = GaugeFamily(
    "headroom_agent_prod_throttled_pods", "Number of Prod pods that their own CPU limits throttled lately."
)
_JUDGED_SECONDS = CounterFamily(
    "headroom_agent_prod_wait_judged_seconds",
    "Time in which it was known whether Prod pods wait too long, in seconds.",
)
_SLOWED_SECONDS = CounterFamily(
    "headroom_agent_prod_slowed_seconds",
    "Time in which Prod pods waited too long beside Mid or Batch pods, in seconds.",
    ("resource",),
)


class ProdWaits:
    """For one thread, but for `waited_seconds`. `last` is the last judgement, None where waits are not measured."""

    def __init__(self, cache: MetricCache, clock: Clock, registry: CollectorRegistry) -> None:
        self.last: JudgedWaits | None = None
        self._cache = cache
        self._clock = clock
        self._waits: dict[str, WaitState] = {}
        self._judged_at = clock.monotonic()
        self._share = _WAIT_RATIO.register(registry)
        self._baseline = _BASELINE_RATIO.register(registry)
        self._throttled = _THROTTLED_PODS.register(registry)
        self._seconds = _JUDGED_SECONDS.register(registry)
        self._slowed = _SLOWED_SECONDS.register(registry)
        for resource in (names.CPU, names.MEMORY):
            self._slowed.labels(resource)  # visible from the start, as 0

    def judge(self, pods: Iterable[NodePod], thresholds: ResourceThresholds) -> JudgedWaits | None:
        """The judgement of this second."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        seconds, self._judged_at = min(monotonic - self._judged_at, _LONGEST_SECONDS), monotonic
        found = interference.measured(self._cache, self._cache.second())
        if found is None:
            self.last = None
            return None
        lends = any(pod.holds_request and pod.held != NOTHING for pod in pods)
        self._throttled.set(found.throttled_pods)
        self._seconds.inc(seconds)
        for resource, seen in found.waits.items():
            before = self._waits.get(resource, _UNKNOWN)
            self._waits[resource] = after = interference.judged(
                before,
                seen.share,
                threshold=thresholds.prod_wait_threshold_percent / 100,
                lends=lends,
                now=now,
                seconds=seconds,
            )
            self._note(resource, before, after, seconds)
        self.last = JudgedWaits(dict(self._waits), found.throttled_pods, found.steal_share, found.io_stall_share)
        return self.last

    def is_measured(self, pods: Iterable[NodePod]) -> bool | None:
        """Whether waits are measured; None if that cannot be known, as without Prod pods that must not wait."""
        if self.last is not None:
            return True
        sampled = self._cache.aggregate_one(_NODE_CPU, Aggregation.COUNT, _CERTAIN_SECONDS) or 0
        is_certain = sampled >= _CERTAIN_SECONDS / 2
        return False if is_certain and any(pod.running and must_not_wait(pod.pod) for pod in pods) else None

    def waited_seconds(self, resource: str) -> float | None:
        """The time since Prod last waited too long for the resource; None unless it is slowed. For any thread.

        Without a baseline it is not known that others are the reason, so then it is None, too.
        """
        known = None if self.last is None else self.last.waits.get(resource)
        if known is None or not known.is_learned or known.since is None or known.last is None:
            return None
        return max(0.0, self._clock.now() - known.last)

    def restore(self, reported: nodemetric.Interference | None) -> None:
        """Takes over from an earlier process what this one has not learned yet."""
        if reported is None:
            return
        try:
            for resource, known in interference.restored(reported).items():
                if not self._waits.get(resource, _UNKNOWN).is_learned:
                    self._waits[resource] = known
        except ValueError as error:
            logger.warning("what an earlier agent reported of Prod's waits is ignored: %s", error)

    def _note(self, resource: str, before: WaitState, after: WaitState, seconds: float) -> None:
        if after.share is not None:
            self._share.labels(resource).set(after.share)
        if after.is_learned:
            self._baseline.labels(resource).set(after.baseline)
        if after.since is not None:
            self._slowed.labels(resource).inc(seconds)
        if (before.since is None) != (after.since is None):
            verb = "wait too long" if after.since is not None else "do not wait too long any more"
            logger.info(
                "Prod pods %s for %s: %.1f %% of their time, %.1f %% without Mid and Batch",
                verb,
                resource,
                100 * (after.share or 0.0),
                100 * after.baseline,
            )
