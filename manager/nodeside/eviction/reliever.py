"""Evicts Mid and Batch pods from nodes under pressure, one by one, as `relief` plans, with notice if memory allows.

A report's age counts from when this process first saw it, so that neither an agent's clock nor a late list makes an old
report look new. One node gets a share of the rate of all evictions, so that an agent that reports what is not so does
no more harm than that, and keeps no other node from relief.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from manager.nodeside.eviction import relief
from manager.nodeside.eviction.eviction_client import EvictionAnswer, EvictionClient, EvictionSources
from manager.nodeside.eviction.metrics import PressureCounters
from manager.nodeside.eviction.relief import Eviction, Last, Relief
from manager.nodeside.noderesource.report import NodeReport
from shared import durations
from shared.kube.events import NORMAL, EventReason

logger = logging.getLogger(__name__)

ATTEMPTS_A_ROUND = 5
# Time limit for the watch to show that an evicted pod terminates.
LEAVING_SECONDS = 30.0

# Of the rate of all evictions, for one node.
NODE_SHARE = 1 / 3
MINUTE_SECONDS = 60.0

EVENT = EventReason("PressureEviction", NORMAL, "{why}")


@dataclass(frozen=True, slots=True)
class Pressed:
    """A node under pressure, since when (Unix seconds), and the present plan for it."""

    node: str
    since: float
    relief: Relief

    @property
    def began(self) -> str:
        return durations.timestamp(self.since)


@dataclass(frozen=True, slots=True)
class _Seen:
    """When (monotonic) this report was first seen, and since when (Unix seconds) there is pressure."""

    updated: str
    at: float
    since: float


class Reliever:
    """One thread calls `run_once`; all threads may read `pressure_on` and `all`."""

    def __init__(
        self,
        evictions: EvictionClient,
        cluster: EvictionSources,
        may_act: Callable[[], bool],
        counters: PressureCounters,
    ) -> None:
        self._evictions = evictions
        self._clock = evictions.clock
        self._cluster = cluster
        self._may_act = may_act
        self._counters = counters
        self._seen: dict[str, _Seen] = {}
        self._last: dict[str, dict[str, Last]] = {}  # by node and resource
        self._leaving: dict[str, float] = {}  # by UID of the pod, until when (monotonic)
        self._pressed: dict[str, Pressed] = {}
        self._most = max(1, int(evictions.per_minute * NODE_SHARE))  # a minute, of one node
        self._evicted: dict[str, list[float]] = {}  # by node, when (monotonic) in the last minute

    def pressure_on(self, node: str) -> Pressed | None:
        """The present plan for the node; None while it is not under pressure."""
        return self._pressed.get(node)

    def all(self) -> list[Pressed]:
        """All nodes under pressure."""
        return list(self._pressed.values())

    def run_once(self) -> None:
        """Looks at all nodes, and evicts the pods that may be evicted now; the oldest pressure comes first."""
        reports = {report.name: report for report in self._cluster.reports() if report.pressure is not None}
        now = self._clock.monotonic()
        self._forget(reports, now)
        attempts = 0
        for name in sorted(reports, key=lambda name: self._note(reports[name]).since):
            pressed = self._plan_relief(reports[name])
            if pressed is None:
                continue
            for eviction in pressed.relief.evictions:
                spent = len(self._evicted.get(name, ())) >= self._most
                if spent or attempts == ATTEMPTS_A_ROUND or not self._evictions.may_evict or not self._may_act():
                    break
                notices = self._evictions.notices
                has_notice = notices.has(eviction.pod)
                goes = eviction.at_once or notices.is_over(name, eviction.pod, eviction.why)
                attempts += goes or not has_notice
                if goes:
                    self._evict(reports[name], eviction)

    def _plan_relief(self, report: NodeReport) -> Pressed | None:
        """Plans for one node, and records the plan for readers."""
        name, known = report.name, self._seen[report.name]
        thresholds = self._cluster.thresholds(name)
        if thresholds is None or not thresholds.evicts:
            self._pressed.pop(name, None)
            return None
        if self._clock.monotonic() - known.at > relief.STALE_SECONDS:
            found = Relief((), (), "the last report of pressure is too old")
        else:
            spared = self._evictions.refused()  # pressure waits for no budget: other pods go at once
            pods = [pod for pod in self._cluster.pods(name) if pod.uid not in self._leaving]
            last = self._last.get(name)
            noticed = self._evictions.notices.uids()
            found = relief.plan(report, pods, thresholds, self._clock.now(), last=last, spared=spared, noticed=noticed)
            if found.evictions and len(self._evicted.get(name, ())) >= self._most:
                enough = f"{found.reason}; no more than {self._most} pods of a node are evicted within a minute"
                found = Relief((), found.needs, enough)
        before = self._pressed.get(name)
        if before is None or before.relief.reason != found.reason:
            logger.info("node under pressure: %s", found.reason, extra={"node": name})
        self._pressed[name] = pressed = Pressed(name, known.since, found)
        return pressed

    def _evict(self, report: NodeReport, eviction: Eviction) -> None:
        pod, resource = eviction.pod, eviction.resource
        tier = pod.held_tier
        answer = self._evictions.evict(
            report.name, pod, EVENT, eviction.why, lambda outcome: self._counters.count(outcome, tier, resource)
        )
        if answer is not EvictionAnswer.EVICTED:
            return
        self._leaving[pod.uid] = self._clock.monotonic() + LEAVING_SECONDS
        self._evicted.setdefault(report.name, []).append(self._clock.monotonic())
        last = Last(self._clock.now(), report.updated or "")
        self._last.setdefault(report.name, {})[resource] = last

    def _note(self, report: NodeReport) -> _Seen:
        before, updated = self._seen.get(report.name), report.updated or ""
        if before is None or before.updated != updated:
            since = self._clock.now() if before is None else before.since
            self._seen[report.name] = before = _Seen(updated, self._clock.monotonic(), since)
        return before

    def _forget(self, pressed: Collection[str], now: float) -> None:
        """Forgets nodes and pods without pressure."""
        for name in self._seen.keys() - pressed:
            del self._seen[name]
            self._pressed.pop(name, None)
        longest = max(relief.COOL_DOWN_SECONDS.values())
        for name in [name for name, last in self._last.items() if name not in pressed]:
            if all(self._clock.now() - each.at > longest for each in self._last[name].values()):
                del self._last[name]
        recent = {name: [at for at in times if now - at < MINUTE_SECONDS] for name, times in self._evicted.items()}
        self._evicted = {name: times for name, times in recent.items() if times}
        for uid in [uid for uid, until in self._leaving.items() if now > until]:
            del self._leaving[uid]
        self._evictions.forget()
