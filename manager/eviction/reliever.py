"""Evicts pods of Mid and Batch from nodes under pressure, as `relief` plans it, one after the other.

A report counts from when this process first saw it, so that neither an agent's clock nor a list read late makes an old
one new.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from manager.eviction import relief
from manager.eviction.asking import Asker, EvictionAnswer
from manager.eviction.metrics import PressureCounters
from manager.eviction.relief import Eviction, Last, Relief
from manager.noderesource.report import NodeReport
from manager.pods import PodRecord
from shared import durations
from shared.api.nodemetric import ResourceThresholds
from shared.clock import Clock

logger = logging.getLogger(__name__)

ATTEMPTS_A_ROUND = 5
# Before the watch must have shown that an evicted pod terminates.
LEAVING_SECONDS = 30.0

EVENT = "PressureEviction"


@dataclass(frozen=True, slots=True)
class Pressed:
    """A node under pressure, since when (Unix seconds), and what is done about it now."""

    node: str
    since: float
    relief: Relief

    @property
    def began(self) -> str:
        return durations.timestamp(self.since)


@dataclass(frozen=True, slots=True)
class _Seen:
    """When (monotonic) the report of that time was first seen, and since when (Unix seconds) there is pressure."""

    updated: str
    at: float
    since: float


class Reliever:
    """One thread calls `round`; all may read `of` and `all`. `thresholds` are a node's, None where none may be evicted.

    `reports` and `pods` are what is known of the cluster now.
    """

    def __init__(
        self,
        asker: Asker,
        clock: Clock,
        *,
        reports: Callable[[], Iterable[NodeReport]],
        pods: Callable[[str], Collection[PodRecord]],
        thresholds: Callable[[str], ResourceThresholds | None],
        may_act: Callable[[], bool],
        counters: PressureCounters,
    ) -> None:
        self._asker = asker
        self._clock = clock
        self._reports = reports
        self._pods = pods
        self._thresholds = thresholds
        self._may_act = may_act
        self._counters = counters
        self._seen: dict[str, _Seen] = {}
        self._last: dict[str, dict[str, Last]] = {}  # by node and resource
        self._leaving: dict[str, float] = {}  # by uid of the pod, until when (monotonic)
        self._pressed: dict[str, Pressed] = {}

    def of(self, node: str) -> Pressed | None:
        """What is done about the node; None while it is not under pressure."""
        return self._pressed.get(node)

    def all(self) -> list[Pressed]:
        """All nodes under pressure."""
        return list(self._pressed.values())

    def round(self) -> None:
        """Looks at all nodes, and evicts what may be evicted now; nodes of the oldest pressure come first."""
        reports = {report.name: report for report in self._reports() if report.pressure is not None}
        now = self._clock.monotonic()
        self._forget(reports, now)
        attempts = 0
        for name in sorted(reports, key=lambda name: self._note(reports[name]).since):
            pressed = self._look(reports[name])
            if pressed is None:
                continue
            for eviction in pressed.relief.evictions:
                if attempts == ATTEMPTS_A_ROUND or not self._asker.may_ask or not self._may_act():
                    break
                attempts += 1
                self._evict(reports[name], eviction)

    def _look(self, report: NodeReport) -> Pressed | None:
        """What is to be done about the node, which is noted for those who ask."""
        name, known = report.name, self._seen[report.name]
        thresholds = self._thresholds(name)
        if thresholds is None or not thresholds.evicts:
            self._pressed.pop(name, None)
            return None
        if self._clock.monotonic() - known.at > relief.STALE_SECONDS:
            found = Relief((), (), "the last report of pressure is too old to say anything of now")
        else:
            spared = self._asker.waiting()  # pressure waits for no budget: others go at once
            pods = [pod for pod in self._pods(name) if pod.uid not in self._leaving]
            last = self._last.get(name)
            found = relief.plan(report, pods, thresholds, self._clock.now(), last=last, spared=spared)
        before = self._pressed.get(name)
        if before is None or before.relief.reason != found.reason:
            logger.info("node under pressure: %s", found.reason, extra={"node": name})
        self._pressed[name] = pressed = Pressed(name, known.since, found)
        return pressed

    def _evict(self, report: NodeReport, eviction: Eviction) -> None:
        pod, resource = eviction.pod, eviction.resource
        tier = pod.held_tier
        answer = self._asker.evict(
            report.name, pod, EVENT, eviction.why, lambda outcome: self._counters.evicted(resource, tier, outcome)
        )
        if answer is not EvictionAnswer.EVICTED:
            return
        self._leaving[pod.uid] = self._clock.monotonic() + LEAVING_SECONDS
        last = Last(self._clock.now(), report.updated or "")
        self._last.setdefault(report.name, {})[resource] = last

    def _note(self, report: NodeReport) -> _Seen:
        before, updated = self._seen.get(report.name), report.updated or ""
        if before is None or before.updated != updated:
            since = self._clock.now() if before is None else before.since
            self._seen[report.name] = before = _Seen(updated, self._clock.monotonic(), since)
        return before

    def _forget(self, pressed: Collection[str], now: float) -> None:
        """Lets go of what is known of nodes and pods that are past it."""
        for name in self._seen.keys() - pressed:
            del self._seen[name]
            self._pressed.pop(name, None)
        longest = max(relief.COOL_DOWN_SECONDS.values())
        for name in [name for name, last in self._last.items() if name not in pressed]:
            if all(self._clock.now() - each.at > longest for each in self._last[name].values()):
                del self._last[name]
        for uid in [uid for uid, until in self._leaving.items() if now > until]:
            del self._leaving[uid]
        self._asker.forget()
