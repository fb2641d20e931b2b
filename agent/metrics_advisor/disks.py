"""The file system of the agent's state, and the reads and writes of the machine's disks."""

import os
from pathlib import Path

from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metrics_advisor import formats, rates
from agent.metrics_advisor.cgroup import Readings
from agent.metrics_advisor.files import read_once
from agent.metrics_advisor.rates import Monotonic

MOST_BYTES_PER_SECOND = 1e12  # of one disk; a higher rate is a jump of the counter


class Disks:
    """Sums over whole disks, so that nothing counts twice: no partitions, loops or mappings."""

    def __init__(self, proc_root: Path, sys_root: Path, state_dir: Path | None, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._diskstats = f"{proc_root}/diskstats"
        self._block = sys_root / "block"
        self._state_dir = state_dir
        self._before: dict[str, tuple[int, int]] = {}
        self._before_at = 0.0

    def sample(self, readings: Readings) -> None:
        self._add_space(readings)
        try:
            disks = {path.parent.name for path in self._block.glob("*/device")}
            now = formats.disk_bytes(read_once(self._diskstats), disks)
        except (OSError, ValueError):
            return
        at = self._monotonic()
        known, period = now.keys() & self._before.keys(), at - self._before_at
        for index, metric in enumerate((Metric.DISK_READ, Metric.DISK_WRITE)):
            rated = [
                rates.per_second(self._before[disk][index], now[disk][index], period, MOST_BYTES_PER_SECOND)
                for disk in known
            ]
            sane = [rate for rate in rated if rate is not None]
            if sane:
                readings[SeriesKey(Kind.NODE, "", metric)] = sum(sane)
        self._before, self._before_at = now, at

    def _add_space(self, readings: Readings) -> None:
        if self._state_dir is None:
            return
        try:
            held = os.statvfs(self._state_dir)
        except OSError:
            return
        readings[SeriesKey(Kind.NODE, "", Metric.DISK_SIZE)] = held.f_blocks * held.f_frsize
        readings[SeriesKey(Kind.NODE, "", Metric.DISK_USED)] = (held.f_blocks - held.f_bfree) * held.f_frsize
