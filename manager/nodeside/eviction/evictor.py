"""Evicts pods of a tier with a long shortfall, one by one in eviction order, with notice.

All pods that are to be evicted get notice some time before the shortfall has lasted long enough. No pod is evicted that
the scheduler could place again at once, so none before the Node itself offers no more than there is. Every eviction is
decided on the present pods, requested by the pod's UID, and subject to its disruption budget: the evictor waits for a
protected pod, and after some refusals passes it over for a while.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from manager.nodeside.eviction import shortfall
from manager.nodeside.eviction.eviction_client import EvictionAnswer, EvictionClient, EvictionSources
from manager.nodeside.eviction.metrics import EvictionCounters
from manager.nodeside.eviction.notices import NOTICE_SECONDS
from manager.nodeside.eviction.tracker import TrackedShortfall, Tracker
from manager.nodeside.noderesource import holdings, writing
from manager.pods import PodRecord
from shared.api.core import Node
from shared.kube.events import NORMAL, EventReason
from shared.names import Tier
from shared.quantity import Resources

logger = logging.getLogger(__name__)

EVENTS = {tier: EventReason(f"{tier.capitalize()}ResourceEviction", NORMAL, "{why}") for tier in Tier}

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
            logger.warning("no decision for %.0f s, so the waiting time of every shortfall starts again", now - before)
            self._tracker.restart()
        self._relieve()
        self._counters.passes.inc()

    def _relieve(self) -> None:
        soon, overdue = self._tracker.overdue(NOTICE_SECONDS), self._tracker.overdue()
        self._forget({(each.node, each.tier) for each in soon})
        attempts = 0
        for tracked in soon:
            if attempts >= ATTEMPTS_A_ROUND or not self._evictions.is_leader():
                return
            victims = self._victims(tracked)
            attempts += self._give_notice(tracked, victims, ATTEMPTS_A_ROUND - attempts)
            first = self._first(tracked, victims)
            if first is not None and tracked in overdue and self._evictions.may_evict:
                attempts += 1
                self._evict(tracked, first)

    def _give_notice(self, tracked: TrackedShortfall, victims: Iterable[PodRecord], most: int) -> int:
        """Gives notice to at most `most` of the pods, and returns to how many."""
        new = [pod for pod in victims if not self._evictions.notices.has(pod)][:most]
        for pod in new:
            self._evictions.notices.is_over(tracked.node, pod, self._why(tracked))
        return len(new)

    def _first(self, tracked: TrackedShortfall, victims: Iterable[PodRecord]) -> PodRecord | None:
        """The next pod to evict; None while none may be."""
        notices = self._evictions.notices
        over = [pod for pod in victims if notices.has(pod) and notices.is_over(tracked.node, pod, self._why(tracked))]
        return None if not over or self._evictions.is_refused(over[0]) else over[0]

    def _victims(self, tracked: TrackedShortfall) -> Sequence[PodRecord]:
        """The pods to evict in order, by present knowledge."""
        node, decision = self._cluster.node(tracked.node), tracked.decision
        if node is None or not self._is_settled(tracked.node):
            return ()
        if decision.expires_at is not None and self._clock.now() > decision.expires_at:
            return ()
        pods = self._cluster.pods(tracked.node)
        if self._is_leaving((tracked.node, tracked.tier), pods):
            return ()
        found = shortfall.find(decision, pods, spared=self._evictions.passed_over()).get(tracked.tier)
        if (
            found is None
            or not found.pods
            or not _is_published(node, tracked.tier, found, decision.offers[tracked.tier].floor)
        ):
            return ()
        return found.pods

    def _why(self, tracked: TrackedShortfall) -> str:
        lasted = self._clock.monotonic() - tracked.since
        return f"{tracked.tier} of node {tracked.node} short for {lasted:.0f} s: {tracked.shortfall.reason}"

    def _evict(self, tracked: TrackedShortfall, pod: PodRecord) -> None:
        event, why = EVENTS[tracked.tier], self._why(tracked)
        answer = self._evictions.evict(
            tracked.node, pod, event, why, lambda outcome: self._counters.count(outcome, tracked.tier)
        )
        if answer is EvictionAnswer.EVICTED:
            self._leaving[tracked.node, tracked.tier] = (pod.uid, self._clock.monotonic() + LEAVING_SECONDS)

    def _is_leaving(self, key: tuple[str, Tier], pods: Collection[PodRecord]) -> bool:
        """Whether the last evicted pod is not yet known to terminate: no other pod goes before that."""
        uid, until = self._leaving.get(key, ("", 0.0))
        if not uid:
            return False
        stays = any(
            pod.uid == uid and pod.dispensability is not None and not pod.dispensability.terminating for pod in pods
        )
        if stays and self._clock.monotonic() < until:
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
    offered = holdings.on_offer(node, tier)
    if offered is None or found.there_is is None:
        return offered is None
    return all(
        published - ceiling <= writing.SAFETY_TOLERANCE * published
        for published, ceiling, missing in zip(offered, found.there_is.most(floor), found.missing, strict=True)
        if missing > 0
    )
