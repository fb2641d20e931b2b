"""The node's own usage out of procfs."""

import os
import time
from pathlib import Path

from agent.metric_cache.series import Usage
from agent.metrics_advisor import rates
from agent.metrics_advisor.files import Descriptors, HotFile
from agent.metrics_advisor.rates import Reading

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_MIN_FIELDS = 8  # "cpu", user, nice, system, idle, iowait, irq, softirq


class Host:
    """Cores and bytes in use on the whole machine, pods and everything else."""

    def __init__(self, proc_root: Path, descriptors: Descriptors) -> None:
        self._stat = HotFile(proc_root / "stat", descriptors)
        self._meminfo = HotFile(proc_root / "meminfo", descriptors)
        self._before: Reading | None = None

    @property
    def cpu_count(self) -> int:
        """CPUs at work now; a virtual machine may be given more at any time."""
        return os.cpu_count() or 1

    def sample(self) -> Usage | None:
        """None on the first tick, and when the counters make no sense. Raises OSError, ValueError."""
        now = Reading(busy_seconds(self._stat.read()), time.monotonic())
        memory_bytes = used_bytes(self._meminfo.read())
        before, self._before = self._before, now
        if before is None:
            return None
        cpu_cores = rates.cores(before, now, self.cpu_count)
        return None if cpu_cores is None else Usage(cpu_cores, memory_bytes)

    def close(self) -> None:
        self._stat.close()
        self._meminfo.close()


def busy_seconds(stat: bytes) -> float:
    """CPU time spent at work since boot: user, nice, system, irq and softirq of /proc/stat. Raises ValueError.

    Waiting for disks, time stolen by the hypervisor and guests (already in user) are not the node's usage.
    """
    fields = stat.split(b"\n", 1)[0].split()
    if len(fields) < _MIN_FIELDS or fields[0] != b"cpu":
        raise ValueError(f"/proc/stat does not begin with the sum of all CPUs: {fields[:_MIN_FIELDS]!r}")
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[1:_MIN_FIELDS])
    return (user + nice + system + irq + softirq) * _TICK_SECONDS


def used_bytes(meminfo: bytes) -> int:
    """What could not be had without swapping: MemTotal - MemAvailable of /proc/meminfo. Raises ValueError."""
    found = {}
    for line in meminfo.split(b"\n", 4)[:4]:
        name, _, value = line.partition(b":")
        found[name] = value
    try:
        total, available = (int(found[name].split()[0]) for name in (b"MemTotal", b"MemAvailable"))
    except (KeyError, IndexError) as error:
        raise ValueError("/proc/meminfo lacks MemTotal or MemAvailable") from error
    return (total - available) * 1024
