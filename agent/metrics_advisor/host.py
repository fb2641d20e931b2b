"""The node's own usage from procfs, and other values of the machine as a whole."""

import os
import time
from pathlib import Path

from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metrics_advisor import formats, rates
from agent.metrics_advisor.cgroup import PSI_METRICS, Readings, add_pressure
from agent.metrics_advisor.files import Descriptors, HotFile, read_once
from agent.metrics_advisor.pace import Pace
from agent.metrics_advisor.rates import CounterReading, Monotonic

NODE_SECONDS = 5.0  # load, pressure, page cache, disks, NUMA nodes

_STAT_BYTES = 1 << 17  # enough for the lines of more than a thousand CPUs


class Host:
    """Cores and bytes in use on the whole machine, pods and everything else."""

    def __init__(self, proc_root: Path, descriptors: Descriptors, monotonic: Monotonic = time.monotonic) -> None:
        self._proc = proc_root
        self._monotonic = monotonic
        self._stat = HotFile(f"{proc_root}/stat", descriptors, _STAT_BYTES)
        self._meminfo = HotFile(f"{proc_root}/meminfo", descriptors)
        self._before: CounterReading | None = None
        self._stolen_seconds = 0.0
        self._cold = Pace(NODE_SECONDS, monotonic())
        self.cpu_count = os.cpu_count() or 1  # online at the last tick; a virtual machine's may change at any time

    def sample(self, now: float, readings: Readings) -> Usage | None:
        """None on the first tick, and for implausible counters; `readings` gets the other values due at `now`.

        Raises OSError, ValueError.
        """
        stat = self._stat.read()
        reading = CounterReading(formats.busy_seconds(stat), self._monotonic())
        self.cpu_count = max(1, stat.count(b"\ncpu"))
        meminfo = self._meminfo.read()
        memory_bytes = formats.used_bytes(meminfo)
        before, self._before = self._before, reading
        stolen_before, self._stolen_seconds = self._stolen_seconds, formats.stolen_seconds(stat)
        if self._cold.due(now):
            self._read_cold(meminfo, readings)
        if before is None:
            return None
        stolen = rates.cores(
            before._replace(cpu_seconds=stolen_before),
            reading._replace(cpu_seconds=self._stolen_seconds),
            self.cpu_count,
        )
        if stolen is not None:
            readings[SeriesKey(Kind.NODE, "", Metric.CPU_STEAL)] = stolen / self.cpu_count
        cpu_cores = rates.cores(before, reading, self.cpu_count)
        return None if cpu_cores is None else Usage(cpu_cores, memory_bytes)

    def close(self) -> None:
        self._stat.close()
        self._meminfo.close()

    def _read_cold(self, meminfo: bytes, readings: Readings) -> None:
        """Any of these may be permanently missing: an old kernel, a container's own procfs."""
        for metric, policy in (
            (Metric.MEMORY_WITH_PAGE_CACHE, formats.used_bytes_with_page_cache),
            (Metric.MEMORY_WITH_HOT_PAGE_CACHE, formats.used_bytes_with_hot_page_cache),
        ):
            try:
                readings[SeriesKey(Kind.NODE, "", metric)] = policy(meminfo)
            except ValueError:
                continue
        try:
            loads = formats.load(read_once(f"{self._proc}/loadavg"))
            for metric, value in zip((Metric.LOAD_1M, Metric.LOAD_5M, Metric.LOAD_15M), loads, strict=True):
                readings[SeriesKey(Kind.NODE, "", metric)] = value
        except (OSError, ValueError):
            pass
        for resource in PSI_METRICS:
            try:
                ratios = formats.pressure(read_once(f"{self._proc}/pressure/{resource}"))
            except (OSError, ValueError):
                continue
            add_pressure(readings, Kind.NODE, "", resource, ratios)
