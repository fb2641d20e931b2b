"""Cgroups of a node and what is in them, by one set of names for v1 and v2."""

from collections.abc import Callable
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NONE = -1
_UNLIMITED_BYTES = 1 << 60  # v1 shows no limit as a number beyond all memory


class Cgroup:
    """One cgroup, whose files are read by a command that runs on the node."""

    def __init__(self, inside: Callable[..., str], path: tuple[str, ...], *, v2: bool, systemd: bool) -> None:
        """`path` is that of the driver cgroupfs, below kubepods."""
        self._inside, self._path, self._v2, self._systemd = inside, path, v2, systemd

    def container(self, container_id: str) -> "Cgroup":
        """A container of this pod, by the id of its status."""
        return Cgroup(self._inside, (*self._path, container_id.rpartition("/")[2]), v2=self._v2, systemd=self._systemd)

    def file(self, controller: str, name: str) -> Path:
        """Of a controller of v1, or of v2 whatever the controller."""
        return ROOT.joinpath(*(() if self._v2 else (controller,)), *self._below(), name)

    def _below(self) -> tuple[str, ...]:
        if not self._systemd:
            return ("kubepods", *self._path)
        parts, prefix = ["kubepods.slice"], "kubepods"
        for part in self._path:
            if len(part) == 64:  # a container
                return (*parts, f"cri-containerd-{part}.scope")
            prefix += f"-{part.replace('-', '_')}"
            parts.append(f"{prefix}.slice")
        return tuple(parts)

    def _read(self, controller: str, name: str) -> str:
        return self._inside("cat", self.file(controller, name)).strip()

    def _lines(self, controller: str, name: str) -> dict[str, int]:
        pairs = (line.split() for line in self._read(controller, name).splitlines())
        return {key: int(value) for key, value in pairs}

    @property
    def cpu_quota(self) -> tuple[int, int]:
        """And its period, in microseconds; NONE for no quota."""
        if self._v2:
            quota, period = self._read("cpu", "cpu.max").split()
            return (NONE if quota == "max" else int(quota)), int(period)
        return int(self._read("cpu", "cpu.cfs_quota_us")), int(self._read("cpu", "cpu.cfs_period_us"))

    @property
    def cpu_weight(self) -> int:
        return int(self._read("cpu", "cpu.weight" if self._v2 else "cpu.shares"))

    def weight_of(self, milli: int) -> int:
        """What Kubernetes makes of so many milli-cores."""
        shares = max(2, milli * 1024 // 1000)
        return 1 + (shares - 2) * 9999 // 262142 if self._v2 else shares

    @property
    def cpu_seconds(self) -> float:
        """Used so far."""
        if self._v2:
            return self._lines("cpu", "cpu.stat")["usage_usec"] / 1e6
        return int(self._read("cpuacct", "cpuacct.usage")) / 1e9

    @property
    def throttled_periods(self) -> int:
        return self._lines("cpu", "cpu.stat")["nr_throttled"]

    @property
    def memory_limit(self) -> int:
        """In bytes; NONE for no limit."""
        text = self._read("memory", "memory.max" if self._v2 else "memory.limit_in_bytes")
        return NONE if text == "max" or int(text) >= _UNLIMITED_BYTES else int(text)

    @property
    def memory_used(self) -> int:
        """In bytes, with the page cache."""
        return int(self._read("memory", "memory.current" if self._v2 else "memory.usage_in_bytes"))

    @property
    def memory_resident(self) -> int:
        """In bytes, without the page cache."""
        return self._lines("memory", "memory.stat")["anon" if self._v2 else "total_rss"]

    @property
    def processes(self) -> list[int]:
        """Of the cgroup itself, as the node counts; none where it is gone."""
        found = self._inside("sh", "-c", f"cat '{self.file('cpu', 'cgroup.procs')}' 2>/dev/null || true")
        return [int(pid) for pid in found.split()]
