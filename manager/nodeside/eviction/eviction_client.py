"""Evicts pods through the API server one by one, at a bounded rate, and respects their disruption budgets."""

import enum
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from manager.nodeside.eviction.metrics import Outcome
from manager.nodeside.eviction.notices import ReclaimNotices
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.reports import EventReporter
from manager.nodeside.workqueue import TokenBucket
from manager.pods import PodRecord
from shared.api.core import Node
from shared.api.nodemetric_spec import ResourceThresholds
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound, TooManyRequests
from shared.kube.events import EventReason

logger = logging.getLogger(__name__)

ATTEMPT_SECONDS = 10.0
# Between two attempts for a pod that its budget protects, and after so many refusals in a row.
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
        """Whether other pods go first in the meantime."""
        return self.times >= MAX_REFUSALS


class EvictionSources(Protocol):
    """The present state of the cluster. `caches.Caches` is one."""

    def node(self, name: str) -> Node | None: ...
    def pods(self, name: str) -> Collection[PodRecord]: ...
    def reports(self) -> Iterable[NodeReport]: ...
    def thresholds(self, name: str) -> ResourceThresholds | None:
        """Those of a node; None if none of its pods may be evicted."""
        ...


class EvictionAnswer(enum.Enum):
    """The result of a request."""

    EVICTED = enum.auto()
    GONE = enum.auto()
    STAYS = enum.auto()


class EvictionClient:
    """For one thread. The leader evicts at most `per_minute` pods."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        reporter: EventReporter,
        *,
        per_minute: float,
        is_leader: Callable[[], bool],
    ) -> None:
        self.clock = clock
        self.per_minute = per_minute
        self.is_leader = is_leader
        self._client = client.single_attempt(ATTEMPT_SECONDS)
        self.notices = ReclaimNotices(self._client, clock, reporter)
        self._reporter = reporter
        self._bucket = TokenBucket(clock, per_second=per_minute / 60, burst=1)
        self._refused: dict[str, _Refusal] = {}

    @property
    def may_evict(self) -> bool:
        """Whether another pod may be evicted by now."""
        return self._bucket.delay_seconds() <= 0

    def passed_over(self) -> set[str]:
        """UIDs of the pods that other pods go before now."""
        now = self.clock.monotonic()
        return {uid for uid, refusal in self._refused.items() if refusal.is_passed_over and now < refusal.until}

    def refused(self) -> set[str]:
        """UIDs of the pods that were refused, and must not be tried again yet."""
        now = self.clock.monotonic()
        return {uid for uid, refusal in self._refused.items() if now < refusal.until}

    def is_refused(self, pod: PodRecord) -> bool:
        """Whether the pod was refused, and must not be tried again yet."""
        refused = self._refused.get(pod.uid)
        return refused is not None and self.clock.monotonic() < refused.until

    def evict(
        self, node: str, pod: PodRecord, event: EventReason, why: str, count: Callable[[Outcome], None]
    ) -> EvictionAnswer:
        """Evicts the pod by its UID; the `event` says `why`."""
        namespace, _, name = pod.key.partition("/")
        about = {"node": node, "pod": pod.key}
        try:
            self._client.evict(namespace, name, uid=pod.uid)
        except (NotFound, Conflict) as error:  # another pod may have its name by now
            logger.info("pod deleted before its eviction: %s", error, extra=about)
            count("gone")
            return EvictionAnswer.GONE
        except TooManyRequests as error:
            if _BUDGET not in error.causes:
                return self._failed(node, pod, error, count)
            refusal = self._refuse(pod, error.retry_after_seconds)
            logger.info(
                "pod not evicted because of its disruption budget, refusal %d: %s", refusal.times, error, extra=about
            )
            count("refused")
            return EvictionAnswer.STAYS
        except HeadroomError as error:
            return self._failed(node, pod, error, count)
        self._bucket.take()
        self._refused.pop(pod.uid, None)
        self.notices.forget(pod)
        count("evicted")
        logger.info("pod evicted: %s", why, extra=about)
        self._reporter.pod_event(pod, *event.say(why=why))
        return EvictionAnswer.EVICTED

    def forget(self) -> None:
        """Forgets pods that have not been tried for a long time, and withdraws notices without a reason."""
        if self.is_leader():
            self.notices.withdraw()
        else:
            self.notices.clear()
        now = self.clock.monotonic()
        for uid in [uid for uid, refusal in self._refused.items() if now > refusal.until + SPARED_SECONDS]:
            del self._refused[uid]

    def _failed(self, node: str, pod: PodRecord, error: Exception, count: Callable[[Outcome], None]) -> EvictionAnswer:
        self._refuse(pod, None)
        logger.warning("pod not evicted: %s", error, extra={"node": node, "pod": pod.key})
        count("failed")
        return EvictionAnswer.STAYS

    def _refuse(self, pod: PodRecord, retry_after_seconds: float | None) -> _Refusal:
        """A pod that could not be evicted keeps its turn for some attempts; then others go, and it is tried again."""
        before = self._refused.get(pod.uid)
        times = 1 if before is None or before.is_passed_over else before.times + 1
        pause = SPARED_SECONDS if times == MAX_REFUSALS else max(RETRY_SECONDS, retry_after_seconds or 0.0)
        self._refused[pod.uid] = refusal = _Refusal(times, self.clock.monotonic() + pause)
        return refusal
