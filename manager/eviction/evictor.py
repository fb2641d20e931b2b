"""Evicts pods of a tier that has been short for too long: one after the other, those that go first in front.

Nothing is evicted that the cluster could put right back, so not before the Node itself offers no more than there is.
Every eviction is decided on the pods as they are then, asked of the one pod by its uid, and subject to its disruption
budget: a pod that a budget protects is waited for, and after some refusals passed over for a while.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from manager.eviction import shortfall
from manager.eviction.metrics import Counters
from manager.eviction.tracker import Tracked, Tracker
from manager.noderesource import writing
from manager.pods import PodRecord
from manager.reports import Reporter
from manager.workqueue import TokenBucket
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound, TooManyRequests
from shared.kube.events import NORMAL
from shared.names import Tier
from shared.quantity import Resources

logger = logging.getLogger(__name__)

# A process that slept for so long may have missed the end of a shortfall, and of its own lead.
PAUSE_SECONDS = 15.0
ATTEMPT_SECONDS = 10.0
ATTEMPTS_A_ROUND = 5
# Before the watch must have shown that an evicted pod terminates.
LEAVING_SECONDS = 30.0
# Between two attempts at a pod that its budget protects, at first, and once it has been refused so often in a row.
RETRY_SECONDS = 10.0
MAX_REFUSALS = 3
SPARED_SECONDS = 300.0

_BUDGET = "DisruptionBudget"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """How often in a row a pod could not be evicted, and until when (monotonic) it is not tried again."""

    times: int
    until: float

    @property
    def is_passed_over(self) -> bool:
        """Whether others go in the pod's place meanwhile."""
        return self.times >= MAX_REFUSALS


class Evictor:
    """One thread calls `round`. `node` and `pods` are what is known of the cluster now.

    `is_settled` says whether everything known of a node has been decided on.
    """

    def __init__(
        self,
        client: Client,
        tracker: Tracker,
        clock: Clock,
        *,
        per_minute: float,
        node: Callable[[str], Node | None],
        pods: Callable[[str], Collection[PodRecord]],
        is_settled: Callable[[str], bool],
        is_leader: Callable[[], bool],
        reporter: Reporter,
        counters: Counters,
    ) -> None:
        self._client = client.single_attempt(ATTEMPT_SECONDS)
        self._tracker = tracker
        self._clock = clock
        self._bucket = TokenBucket(clock, per_second=per_minute / 60, burst=1)
        self._node = node
        self._pods = pods
        self._is_settled = is_settled
        self._is_leader = is_leader
        self._reporter = reporter
        self._counters = counters
        self._leaving: dict[tuple[str, Tier], tuple[str, float]] = {}
        self._refused: dict[str, _Refusal] = {}
        self._turned_at = clock.monotonic()

    def round(self) -> None:
        """Evicts what may be evicted now, those that have waited longest first."""
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
            if attempts == ATTEMPTS_A_ROUND or self._bucket.delay_seconds() > 0:
                return
            victim = self._victim(tracked)
            if victim is not None and self._is_leader():
                attempts += 1
                self._evict(tracked, victim)

    def _victim(self, tracked: Tracked) -> PodRecord | None:
        """The pod that goes now, with all that is known now; None when none may."""
        node, decision, now = self._node(tracked.node), tracked.decision, self._clock.monotonic()
        if node is None or not self._is_settled(tracked.node):
            return None
        if decision.expires_at is not None and self._clock.now() > decision.expires_at:
            return None
        pods = self._pods(tracked.node)
        if self._is_leaving((tracked.node, tracked.tier), pods, now):
            return None
        passed_over = {uid for uid, refusal in self._refused.items() if refusal.is_passed_over and now < refusal.until}
        found = shortfall.find(decision, pods, spared=passed_over).get(tracked.tier)
        if (
            found is None
            or not found.pods
            or not _is_published(node, tracked.tier, found, decision.offers[tracked.tier].floor)
        ):
            return None
        first = found.pods[0]
        refused = self._refused.get(first.uid)
        return None if refused is not None and now < refused.until else first

    def _evict(self, tracked: Tracked, pod: PodRecord) -> None:
        namespace, _, name = pod.key.partition("/")
        now, about = self._clock.monotonic(), {"node": tracked.node, "pod": pod.key}
        try:
            self._client.evict(namespace, name, uid=pod.uid)
        except (NotFound, Conflict) as error:  # another pod may have its name by now
            logger.info("pod gone before its eviction: %s", error, extra=about)
            return self._counters.evicted(tracked.tier, "gone")
        except TooManyRequests as error:
            if _BUDGET not in error.causes:
                return self._failed(tracked, pod, error)
            refusal = self._refuse(pod, error.retry_after_seconds)
            logger.info("pod stays for its budget, refusal %d: %s", refusal.times, error, extra=about)
            return self._counters.evicted(tracked.tier, "refused")
        except HeadroomError as error:
            return self._failed(tracked, pod, error)
        self._bucket.take()
        self._refused.pop(pod.uid, None)
        self._leaving[tracked.node, tracked.tier] = (pod.uid, now + LEAVING_SECONDS)
        self._counters.evicted(tracked.tier, "evicted")
        lasted = now - tracked.since
        why = f"{tracked.tier} of node {tracked.node} short for {lasted:.0f} s: {tracked.shortfall.reason}"
        logger.info("pod evicted: %s", why, extra=about)
        return self._reporter.pod_event(pod, NORMAL, f"{tracked.tier.capitalize()}ResourceEviction", why)

    def _failed(self, tracked: Tracked, pod: PodRecord, error: Exception) -> None:
        self._refuse(pod, None)
        logger.warning("pod not evicted: %s", error, extra={"node": tracked.node, "pod": pod.key})
        self._counters.evicted(tracked.tier, "failed")

    def _refuse(self, pod: PodRecord, retry_after_seconds: float | None) -> _Refusal:
        """A pod that could not be evicted keeps its turn for some attempts; then others go, and it is tried again."""
        before = self._refused.get(pod.uid)
        times = 1 if before is None or before.is_passed_over else before.times + 1
        pause = SPARED_SECONDS if times == MAX_REFUSALS else max(RETRY_SECONDS, retry_after_seconds or 0.0)
        self._refused[pod.uid] = refusal = _Refusal(times, self._clock.monotonic() + pause)
        return refusal

    def _is_leaving(self, key: tuple[str, Tier], pods: Collection[PodRecord], now: float) -> bool:
        """Whether the pod evicted last is not known to terminate yet: nobody else goes before that."""
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
        """Lets go of what is known of pods and nodes that need no eviction any more."""
        now = self._clock.monotonic()
        for key in self._leaving.keys() - overdue:
            del self._leaving[key]
        for uid in [uid for uid, refusal in self._refused.items() if now > refusal.until + SPARED_SECONDS]:
            del self._refused[uid]


def _is_published(node: Node, tier: Tier, found: shortfall.Shortfall, floor: Resources) -> bool:
    """Whether the Node offers no more of what is missing than there is, or pods held when that was decided, but for
    what is too little to be written.
    """
    offered = writing.on_offer(node, tier)
    if offered is None or found.there_is is None:
        return offered is None
    return all(
        published - ceiling <= writing.SAFETY_TOLERANCE * published
        for published, ceiling, missing in zip(offered, found.there_is.most(floor), found.missing, strict=True)
        if missing > 0
    )
