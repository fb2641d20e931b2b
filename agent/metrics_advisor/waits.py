"""How long Prod pods waited for CPU and memory through no fault of their own, from the pressure files of cgroup v2.

A task that its own quota throttles counts as waiting, and the throttled time cannot be subtracted, because it is a sum
over CPUs. So a window in which a pod was throttled says nothing about CPU, and one in which the pod met its own memory
limit says nothing about memory. A best-effort pod requests nothing, and may wait.

    share = time waited / (time waited + CPU time used), summed over the pods whose windows say something

Thus idle pods do not dilute the share. Less than `LEAST_CORES` of both together counts as that much, so that the noise
of an idle node is not a share of it. A file that is frozen shows no waiting; one that goes back starts over.

Reading one pod takes three files and 20 us. Pods take turns, at most `MOST_A_TICK` a second: measured, 0.06 % of a core
for 250 pods, and as much for 2,000. The pressure of class cgroups would save that on a quiet node only: Mid and Prod
pods share them, so on a busy node it says nothing about Prod.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metrics_advisor.cgroup import Readings, TrackedCgroup, WaitCounters
from agent.metrics_advisor.rates import MIN_PERIOD_SECONDS, Floats

WINDOW_SECONDS = 5  # of each pod, and longer where more than WINDOW_SECONDS x MOST_A_TICK pods take turns
MOST_A_TICK = 25
LEAST_CORES = 0.1

_USEC_PER_SECOND = 1e6
_PLAUSIBLE_WAIT = 1.25  # seconds a second; pressure counts a second once, whatever number of tasks waits


class WaitWindow(NamedTuple):
    """One pod between two readings, per second; NaN is unknown, or says nothing."""

    used_by_waiters: float  # cores, where the wait for CPU is known
    cpu_waited: float
    used_by_stalled: float  # cores, where the wait for memory is known
    memory_waited: float
    throttled: float  # 1 or 0


_UNKNOWN = WaitWindow(*[math.nan] * 5)


class _Pod:
    """One pod's last reading."""

    __slots__ = ("before", "tracked")

    def __init__(self, tracked: TrackedCgroup) -> None:
        self.tracked = tracked
        self.before: tuple[float, WaitCounters] | None = None

    def read(self, now: float) -> WaitWindow:
        """The window up to `now`."""
        cgroup = self.tracked.cgroup
        counters = None if cgroup is None else cgroup.wait_counters()
        before, self.before = self.before, None if counters is None else (now, counters)
        return _UNKNOWN if before is None or counters is None else window(*before, now, counters)


class Waits:
    """The Prod pods of a node."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        self._windows = np.empty((0, len(_UNKNOWN)))  # the last one of each pod
        self._next = 0

    def follow(self, tracked: Mapping[str, TrackedCgroup]) -> None:
        """Follows these from now on, by UID; what is known of the others is dropped."""
        known = {uid: (pod, row) for (uid, pod), row in zip(self._pods.items(), self._windows, strict=True)}
        rows = []
        self._pods = {}
        for uid, one in tracked.items():
            pod, row = known.get(uid, (_Pod(one), np.array(_UNKNOWN)))
            self._pods[uid] = pod
            rows.append(row)
        self._windows = np.array(rows).reshape(-1, len(_UNKNOWN))

    def sample(self, now: float, readings: Readings) -> None:
        """Reads the pods whose turn it is, and adds the shares of the node; without a known window it adds none."""
        pods = list(self._pods.values())
        if not pods:
            return
        turns = min(MOST_A_TICK, math.ceil(len(pods) / WINDOW_SECONDS))
        for turn in range(self._next, self._next + turns):
            place = turn % len(pods)
            self._windows[place] = pods[place].read(now)
        self._next = (self._next + turns) % len(pods)
        add_shares(self._windows, readings)


def window(began: float, before: WaitCounters, now: float, counters: WaitCounters) -> WaitWindow:
    """The window between two readings. Pure."""
    seconds = now - began
    used, throttled, cpu, memory, limited = (new - old for old, new in zip(before, counters, strict=True))
    if seconds < MIN_PERIOD_SECONDS or min(used, throttled, cpu, memory, limited) < 0:
        return _UNKNOWN
    cores, cpu_waited, memory_waited = (usec / _USEC_PER_SECOND / seconds for usec in (used, cpu, memory))
    if max(cpu_waited, memory_waited) > _PLAUSIBLE_WAIT:
        return _UNKNOWN
    return WaitWindow(
        used_by_waiters=math.nan if throttled else cores,
        cpu_waited=math.nan if throttled else min(1.0, cpu_waited),
        used_by_stalled=math.nan if limited else cores,
        memory_waited=math.nan if limited else min(1.0, memory_waited),
        throttled=float(throttled > 0),
    )


def add_shares(windows: Floats, readings: Readings) -> None:
    """Adds the shares of the node to `readings`, and how many pods were throttled; a row for each `WaitWindow`."""
    known = ~np.isnan(windows)
    if not known[:, -1].any():
        return
    sums = np.nansum(windows, axis=0)
    for column, metric in ((0, Metric.PROD_CPU_WAIT), (2, Metric.PROD_MEMORY_WAIT)):
        if known[:, column].any():
            used, waited = sums[column], sums[column + 1]
            readings[SeriesKey(Kind.NODE, "", metric)] = float(waited / max(LEAST_CORES, waited + used))
    readings[SeriesKey(Kind.NODE, "", Metric.PROD_THROTTLED_PODS)] = float(sums[-1])
