"""Evicts pods of a tier with a long shortfall, one by one in eviction order.

It evicts nothing that the scheduler could place again at once, so not before the Node itself offers no more than there
is. Every eviction is decided on the present pods, requested by the pod's UID, and subject to its disruption budget: it
waits for a protected pod, and after some refusals passes it over for a while.
"""

import logging
from collections.abc import Callable, Collection

from manager.nodeside.eviction import shortfall
from manager.nodeside.eviction.eviction_client import EvictionAnswer, EvictionClient, EvictionSources
from manager.nodeside.eviction.metrics import EvictionCounters
from manager.nodeside.eviction.tracker import TrackedShortfall, Tracker
from manager.nodeside.noderesource import writing
from manager.pods import PodRecord
from shared.api.core import Node
from shared.names import Tier
from shared.quantity import Resources

logger = logging.getLogger(__name__)

# A process that slept for so long may have missed the end of a shortfall, and of its leadership.
PAUSE_SECONDS = 15.0
ATTEMPTS_A_ROUND = 5
# Time limit for the watch to show that an evicted pod terminates.
LEAVING_SECONDS = 30.0


class Evictor:
    """One thread calls `run_once`. `is_settled` says whether everything known about a node has been decided on."""

    def __init__(
        self,
        evictions: EvictionClient,
        tracker: Tracker,
        cluster: EvictionSources,
        is_settled: Callable[[str], bool],
        counters: EvictionCounters,
    ) -> None:
        self._evictions = evictions
        self._tracker = tracker
        self._clock = clock = evictions.clock
        self._cluster = cluster
        self._is_settled = is_settled
        self._counters = counters
        self._leaving: dict[tuple[str, Tier], tuple[str, float]] = {}
        self._turned_at = clock.monotonic()

    def run_once(self) -> None:
        """Evicts the pods that may be evicted now, longest shortfall first."""
        now, before = self._clock.monotonic(), self._turned_at
        self._turned_at = now
        if now - before > PAUSE_SECONDS:
            logger.warning("asleep for %.0f s, so the times of all shortfalls begin anew", now - before)
            self._tracker.restart()
        self._relieve()
        self._counters.rounds.inc()

    def _relieve(self) -> None:
        overdue = self._tracker.overdue()
        self._forget({(each.node, each.tier) for each in overdue})
        attempts = 0
        for tracked in overdue:
            if attempts == ATTEMPTS_A_ROUND or not self._evictions.may_evict:
                return
            victim = self._victim(tracked)
            if victim is not None and self._evictions.is_leader():
                attempts += 1
                self._evict(tracked, victim)

    def _victim(self, tracked: TrackedShortfall) -> PodRecord | None:
        """The next pod to evict, by present knowledge; None if there is none."""
        node, decision, now = self._cluster.node(tracked.node), tracked.decision, self._clock.monotonic()
        if node is None or not self._is_settled(tracked.node):
            return None
        if decision.expires_at is not None and self._clock.now() > decision.expires_at:
            return None
        pods = self._cluster.pods(tracked.node)
        if self._is_leaving((tracked.node, tracked.tier), pods, now):
            return None
        found = shortfall.find(decision, pods, spared=self._evictions.passed_over()).get(tracked.tier)
        if (
            found is None
            or not found.pods
            or not _is_published(node, tracked.tier, found, decision.offers[tracked.tier].floor)
        ):
            return None
        first = found.pods[0]
        return None if self._evictions.is_refused(first) else first

    def _evict(self, tracked: TrackedShortfall, pod: PodRecord) -> None:
        now = self._clock.monotonic()
        lasted = now - tracked.since
        why = f"{tracked.tier} of node {tracked.node} short for {lasted:.0f} s: {tracked.shortfall.reason}"
        reason = f"{tracked.tier.capitalize()}ResourceEviction"
        answer = self._evictions.evict(
            tracked.node, pod, reason, why, lambda outcome: self._counters.count(outcome, tracked.tier)
        )
        if answer is EvictionAnswer.EVICTED:
            self._leaving[tracked.node, tracked.tier] = (pod.uid, now + LEAVING_SECONDS)

    def _is_leaving(self, key: tuple[str, Tier], pods: Collection[PodRecord], now: float) -> bool:
        """Whether the last evicted pod is not yet known to terminate: no other pod goes before that."""
        uid, until = self._leaving.get(key, ("", 0.0))
        if not uid:
            return False
        stays = any(
            pod.uid == uid and pod.dispensability is not None and not pod.dispensability.terminating for pod in pods
        )
        if stays and now < until:
            return True
        del self._leaving[key]
        return False

    def _forget(self, overdue: Collection[tuple[str, Tier]]) -> None:
        """Forgets pods and nodes that need no eviction any more."""
        for key in self._leaving.keys() - overdue:
            del self._leaving[key]
        self._evictions.forget()


def _is_published(node: Node, tier: Tier, found: shortfall.Shortfall, floor: Resources) -> bool:
    """Whether the Node offers no more of what is missing than there is, or than pods held at the decision, apart from
    differences too small to be written.
    """
    offered = writing.on_offer(node, tier)
    if offered is None or found.there_is is None:
        return offered is None
    return all(
        published - ceiling <= writing.SAFETY_TOLERANCE * published
        for published, ceiling, missing in zip(offered, found.there_is.most(floor), found.missing, strict=True)
        if missing > 0
    )
