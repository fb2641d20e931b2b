"""Tells pods some time ahead that they will be evicted, so that they can finish what they do.

The time is an annotation of the pod and an Event. A pod that is not about to be evicted any more loses the annotation.
The annotation is written through the pod's status, since the right to change a whole pod would be one to change its
image. If it cannot be written, the Event and the time remain.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from manager.nodeside.reports import EventReporter
from manager.pods import PodRecord
from shared import durations, names
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.events import NORMAL, EventReason
from shared.kube.resources import PODS

logger = logging.getLogger(__name__)

NOTICE_SECONDS = 30.0
LAPSE_SECONDS = 30.0  # without a reason to evict the pod: a report may be late

EVENT = EventReason("ReclaimNotice", NORMAL, "will be evicted at {at} if nothing changes: {why}")


@dataclass(slots=True)
class _Given:
    """A pod with notice: when it may be evicted, and when that was last wanted; both monotonic."""

    pod: PodRecord
    due_at: float
    wanted_at: float


class ReclaimNotices:
    """For one thread, and one term of a leader: another one gives notice anew."""

    def __init__(self, client: Client, clock: Clock, reporter: EventReporter) -> None:
        self._client = client
        self._clock = clock
        self._reporter = reporter
        self._given: dict[str, _Given] = {}

    def is_over(self, node: str, pod: PodRecord, why: str) -> bool:
        """Whether the pod's notice is over; gives it notice if it has none."""
        now, given = self._clock.monotonic(), self._given.get(pod.uid)
        if given is not None:
            given.wanted_at = now
            return now >= given.due_at
        self._given[pod.uid] = _Given(pod, now + NOTICE_SECONDS, now)
        at = durations.timestamp(self._clock.now() + NOTICE_SECONDS)
        self._annotate(pod, at)
        logger.info("pod will be evicted at %s: %s", at, why, extra={"node": node, "pod": pod.key})
        self._reporter.pod_event(pod, *EVENT.say(at=at, why=why))
        return False

    def has(self, pod: PodRecord) -> bool:
        """Whether the pod has notice."""
        return pod.uid in self._given

    def uids(self) -> Collection[str]:
        """UIDs of the pods that have notice."""
        return self._given.keys()

    def withdraw(self) -> None:
        """Withdraws the notice of pods whose eviction is not wanted any more, and forgets those that were evicted."""
        now = self._clock.monotonic()
        for uid in [uid for uid, given in self._given.items() if now - given.wanted_at > LAPSE_SECONDS]:
            given = self._given.pop(uid)
            self._annotate(given.pod, None)

    def forget(self, pod: PodRecord) -> None:
        """The pod was evicted."""
        self._given.pop(pod.uid, None)

    def clear(self) -> None:
        """Forgets all pods and writes nothing: another process leads."""
        self._given.clear()

    def _annotate(self, pod: PodRecord, at: str | None) -> None:
        namespace, _, name = pod.key.partition("/")
        patch = {"metadata": {"uid": pod.uid, "annotations": {names.ANNOTATION_RECLAIM_AT: at}}}
        try:
            self._client.patch(PODS, name, patch, namespace, subresource="status")
        except HeadroomError as error:  # it may be gone, or another pod have its name
            logger.info("annotation %s not written: %s", names.ANNOTATION_RECLAIM_AT, error, extra={"pod": pod.key})
