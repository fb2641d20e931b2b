"""One cgroup's files: a pod's, a container's.

The costs decide what is read when (750 real cgroups): CPU time or a memory charge 2 us, memory.stat 10 us, a pressure
file 9 us including the open. CPU is read at every tick for all cgroups. Memory comes from memory.stat, because no other
file distinguishes anonymous pages from page cache. For pods, the basis of predictions, it is read
at once when the cgroup's charge has moved, and every `MEMORY_SECONDS` in any case; for containers only the latter. The
last value holds in between. Pressure is read for a container only if its pod has any: a stalled task counts in every
cgroup above it.
"""

import errno
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self, TypeAlias

from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metrics_advisor import formats, rates
from agent.metrics_advisor.cgroups import Directories
from agent.metrics_advisor.files import Descriptors, HotFile, read_small
from agent.metrics_advisor.pace import Pace
from agent.metrics_advisor.rates import Monotonic

MEMORY_SECONDS = 15.0  # memory of containers, and page cache of all
COLD_SECONDS = 30.0  # throttling, pressure
LOOK_AGAIN_SECONDS = 5.0  # for a missing cgroup

PSI_METRICS = {  # some and full, by resource
    "cpu": (Metric.PSI_CPU_SOME, Metric.PSI_CPU_FULL),
    "memory": (Metric.PSI_MEMORY_SOME, Metric.PSI_MEMORY_FULL),
    "io": (Metric.PSI_IO_SOME, Metric.PSI_IO_FULL),
}

_CPU_STAT_BYTES = 448  # it has about 300; Python takes twice as long to allocate buffers of more than half a KB
_NUMBER_BYTES = 32
_PRESSURE_BYTES = 256
_NOT_KEPT = {errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP}  # this kernel, or this tree, does not keep the file

# Memory that cannot be dropped, and page cache: recently used pages of files, and those the kernel would drop first.
_WORKING, _HOT, _COLD = ("inactive_anon", "active_anon", "unevictable"), ("active_file",), ("inactive_file",)

Readings: TypeAlias = dict[SeriesKey, float]
Pressures: TypeAlias = Mapping[str, tuple[float, float | None]]  # some and full, by resource


class MemoryLines(NamedTuple):
    """The lines of memory.stat that make up each policy's memory; v1's "total_" lines include the cgroups below."""

    working: tuple[bytes, ...]
    hot_pages: tuple[bytes, ...]
    cold_pages: tuple[bytes, ...]

    @classmethod
    def of(cls, *, v2: bool) -> Self:
        prefix = "\n" if v2 else "\ntotal_"
        return cls(*(tuple(f"{prefix}{name} ".encode() for name in names) for names in (_WORKING, _HOT, _COLD)))


_V1_LINES, _V2_LINES = MemoryLines.of(v2=False), MemoryLines.of(v2=True)


class WaitCounters(NamedTuple):
    """How long tasks of a v2 cgroup ran and waited, in microseconds, and how often they met limits of their own."""

    used_usec: int
    throttled: int
    cpu_waited_usec: int
    memory_waited_usec: int
    limited: int


class Cgroup:
    """One cgroup's files. Reads raise OSError once the cgroup is removed, ValueError for malformed content.

    The caller decides when to read: at every tick `cpu` and `charge` (None for a container), memory when its charge has
    moved or when `policies` are due.
    """

    __slots__ = (
        "_directories",
        "_entity",
        "_kind",
        "_limited",
        "_memory",
        "_pressure",
        "_throttled",
        "_v2",
        "charge",
        "cpu",
        "policies",
    )

    def __init__(
        self,
        kind: Kind,
        entity: str,
        directories: Directories,
        *,
        v2: bool,
        descriptors: Descriptors,
        monotonic: Monotonic,
    ) -> None:
        self._kind = kind
        self._entity = entity
        self._directories = directories
        self._v2 = v2
        cpu, cpu_bytes = ("cpu.stat", _CPU_STAT_BYTES) if v2 else ("cpuacct.usage", _NUMBER_BYTES)
        self.cpu = HotFile(f"{directories.cpu}/{cpu}", descriptors, cpu_bytes)
        charge = f"{directories.memory}/{'memory.current' if v2 else 'memory.usage_in_bytes'}"
        self.charge = None if kind is Kind.CONTAINER else HotFile(charge, descriptors, _NUMBER_BYTES)
        self._memory = HotFile(f"{directories.memory}/memory.stat", descriptors)
        self.policies = Pace(MEMORY_SECONDS, monotonic())
        self._throttled: tuple[int, int] | None = None
        self._pressure = True
        self._limited: tuple[int, int] | None = None  # the wait for memory at which it was read, and the number

    def read_memory(self, readings: Readings, *, policies: bool) -> int:
        """Bytes without page cache; the ones with it go to `readings` if `policies` are due."""
        stat = self._memory.read()
        lines = _V2_LINES if self._v2 else _V1_LINES
        memory_bytes = formats.sum_of(stat, lines.working)
        if policies:
            with_hot_pages = memory_bytes + formats.sum_of(stat, lines.hot_pages)
            with_all_pages = with_hot_pages + formats.sum_of(stat, lines.cold_pages)
            readings[SeriesKey(self._kind, self._entity, Metric.MEMORY_WITH_HOT_PAGE_CACHE)] = with_hot_pages
            readings[SeriesKey(self._kind, self._entity, Metric.MEMORY_WITH_PAGE_CACHE)] = with_all_pages
        return memory_bytes

    def close(self) -> None:
        self.cpu.close()
        self._memory.close()
        if self.charge is not None:
            self.charge.close()

    def read_cold(self, readings: Readings, above: Pressures | None = None) -> Pressures:
        """Adds throttling and pressure to `readings`, and returns the pressure; `above` is the parent cgroup's."""
        self._read_throttling(readings)
        pressures = self._read_pressure(above)
        for resource, ratios in pressures.items():
            add_pressure(readings, self._kind, self._entity, resource, ratios)
        return pressures

    def wait_counters(self) -> WaitCounters | None:
        """None where the kernel does not keep pressure by cgroup, and for malformed files."""
        try:
            stat = self.cpu.read()
            used_usec, throttled = formats.usage_usec(stat), formats.counter_or_zero(stat, b"nr_throttled")
            cpu, memory = (
                formats.waited_usec(read_small(f"{self._directories.pressure}/{name}.pressure", _PRESSURE_BYTES))
                for name in ("cpu", "memory")
            )
            if self._limited is None or self._limited[0] != memory:
                events = read_small(f"{self._directories.memory}/memory.events", _PRESSURE_BYTES)
                self._limited = memory, sum(formats.counter_or_zero(events, name) for name in (b"high", b"max"))
        except (OSError, ValueError):
            return None
        return WaitCounters(used_usec, throttled, cpu, memory, self._limited[1])

    def _read_throttling(self, readings: Readings) -> None:
        before, self._throttled = self._throttled, None
        try:
            path = f"{self._directories.throttling}/cpu.stat"
            stat = self.cpu.read() if self._v2 else read_small(path, _CPU_STAT_BYTES)
            self._throttled = formats.throttling(stat)
        except (OSError, ValueError):
            return  # this cgroup cannot have a limit
        ratio = None if before is None else rates.share(before, self._throttled)
        if ratio is not None:
            readings[SeriesKey(self._kind, self._entity, Metric.CPU_THROTTLED)] = ratio

    def _read_pressure(self, above: Pressures | None) -> Pressures:
        found: dict[str, tuple[float, float | None]] = {}
        if not self._pressure:
            return found
        try:
            for resource in PSI_METRICS if above is None else above:
                if above is not None and above[resource][0] == 0:
                    found[resource] = above[resource]
                else:
                    path = f"{self._directories.pressure}/{resource}.pressure"
                    found[resource] = formats.pressure(read_small(path, _PRESSURE_BYTES))
        except ValueError:
            self._pressure = False
        except OSError as error:
            self._pressure = error.errno not in _NOT_KEPT  # other errors may be transient
        return found


def add_pressure(
    readings: Readings, kind: Kind, entity: str, resource: str, ratios: tuple[float, float | None]
) -> None:
    """Adds the content of a pressure file: some and full."""
    for metric, ratio in zip(PSI_METRICS[resource], ratios, strict=True):
        if ratio is not None:
            readings[SeriesKey(kind, entity, metric)] = ratio


class TrackedCgroup:
    """A cgroup that is looked for until it exists, and again after its removal."""

    __slots__ = ("_find", "_look_at", "_retry_seconds", "cgroup")

    def __init__(self, find: Callable[[], Cgroup | None], retry_seconds: float = 0.0) -> None:
        self._find = find
        self._retry_seconds = retry_seconds
        self._look_at = 0.0
        self.cgroup: Cgroup | None = None

    def look(self, now: float) -> bool:
        """Whether the cgroup exists, after a look for it if one is needed and due."""
        if self.cgroup is None and now >= self._look_at:
            self._look_at = now + self._retry_seconds
            self.cgroup = self._find()
        return self.cgroup is not None

    def read_cold(self, readings: Readings, above: Pressures | None = None) -> Pressures:
        """See `Cgroup.read_cold`; nothing while the cgroup does not exist."""
        return {} if self.cgroup is None else self.cgroup.read_cold(readings, above)

    def close(self) -> None:
        if self.cgroup is not None:
            self.cgroup.close()
            self.cgroup = None
