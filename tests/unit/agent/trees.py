"""Cgroup trees as kubelets and container runtimes leave them, made of plain files."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from agent.metrics_advisor.cgroups import Driver, Version

UID = "1a2b3c4d-0000-1111-2222-333344445555"
ID = "0123456789abcdef" * 4
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# What a pod directory and a container's are called below "kubepods", by driver; {qos} is "burstable" or "".
_SCOPES = {"containerd": "cri-containerd-{}.scope", "cri-o": "crio-{}.scope", "docker": "docker-{}.scope"}
_PLAIN = {"containerd": "{}", "cri-o": "crio-{}", "docker": "{}"}


@dataclass(frozen=True)
class Counters:
    """What one cgroup has used so far."""

    cpu_seconds: float = 0.0
    anon_bytes: int = 0
    active_file_bytes: int = 0
    inactive_file_bytes: int = 0
    periods: int = 0
    throttled: int = 0
    pressure_percent: float = 0.0
    numa_pages: tuple[int, ...] = (0,)
    charged_bytes: int = 0  # if not the sum of the above
    cpu_waited_seconds: float = 0.0
    memory_waited_seconds: float = 0.0
    memory_limited: int = 0  # how often the cgroup met its own limit


class Tree:
    """One machine's cgroup mount below `root`; `parent` is where its kubepods is nested."""

    def __init__(self, root: Path, version: Version, driver: Driver, parent: str = "", runtime: str = "containerd"):
        self.root = root
        self.version = version
        self.driver = driver
        self.parent = parent
        self.runtime = runtime
        self.v2 = version is Version.V2
        if self.v2:
            root.mkdir(parents=True, exist_ok=True)
            (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
            self.cpu = self.memory = self.throttling = self.pressure = root
        else:
            self.cpu, self.memory, self.throttling = (root / name for name in ("cpuacct", "memory", "cpu"))
            self.pressure = root / "unified" if version is Version.HYBRID else self.cpu
            for top in (self.cpu, self.memory, self.throttling):
                top.mkdir(parents=True)
                (top / "cgroup.procs").touch()
            if version is Version.HYBRID:
                self.pressure.mkdir()
                (self.pressure / "cgroup.controllers").write_text("\n")

    def class_path(self, qos: str = "burstable") -> str:
        if self.driver is Driver.CGROUPFS:
            return "/".join(filter(None, (self.parent, "kubepods", qos)))
        slices = [part.removesuffix(".slice") for part in self.parent.split("/") if part.endswith(".slice")]
        top = "-".join([*(slices[-1:] if self.parent.endswith(".slice") else []), "kubepods"])
        return "/".join(filter(None, (self.parent, f"{top}.slice", f"{top}-{qos}.slice" if qos else "")))

    def pod_path(self, uid: str = UID, qos: str = "burstable") -> str:
        above = self.class_path(qos)
        if self.driver is Driver.CGROUPFS:
            return f"{above}/pod{uid}"
        return f"{above}/{above.rpartition('/')[2].removesuffix('.slice')}-pod{uid.replace('-', '_')}.slice"

    def container_path(self, container_id: str = ID, uid: str = UID, qos: str = "burstable") -> str:
        names = _PLAIN if self.driver is Driver.CGROUPFS else _SCOPES
        return f"{self.pod_path(uid, qos)}/{names[self.runtime].format(container_id)}"

    def write(self, path: str, now: Counters) -> None:
        """The files of the cgroup at `path` as the kernel would show them, made in place."""
        usec = round(now.cpu_seconds * 1e6)
        throttling = f"nr_periods {now.periods}\nnr_throttled {now.throttled}\n"
        memory = {
            "inactive_anon": now.anon_bytes // 4,
            "active_anon": now.anon_bytes - now.anon_bytes // 4,
            "inactive_file": now.inactive_file_bytes,
            "active_file": now.active_file_bytes,
            "unevictable": 0,
        }
        lines = "".join(f"{name} {value}\n" for name, value in memory.items())
        charge = "memory.current" if self.v2 else "memory.usage_in_bytes"
        self._put(self.memory, path, charge, f"{now.charged_bytes or sum(memory.values())}\n")
        if self.v2:
            self._put(
                self.cpu, path, "cpu.stat", f"usage_usec {usec}\nuser_usec {usec}\n{throttling}throttled_usec 0\n"
            )
            self._put(self.memory, path, "memory.events", f"low 0\nhigh 0\nmax {now.memory_limited}\noom 0\n")
            self._put(self.memory, path, "memory.stat", f"anon {now.anon_bytes}\nfile 7\n{lines}slab 9\n")
            pages = "".join(f" N{node}={count * PAGE_BYTES}" for node, count in enumerate(now.numa_pages))
            nothing = "".join(f" N{node}=0" for node in range(len(now.numa_pages)))
            numa = f"anon{pages}\nfile N0=4096\ninactive_anon{nothing}\nactive_anon{pages}\nunevictable{nothing}\n"
        else:
            self._put(self.cpu, path, "cpuacct.usage", f"{usec * 1000}\n")
            self._put(self.throttling, path, "cpu.stat", f"{throttling}throttled_time 0\n")
            total = "".join(f"total_{name} {value}\n" for name, value in memory.items())
            self._put(self.memory, path, "memory.stat", f"cache 7\ninactive_anon 1\n{total}")
            pages = "".join(f" N{node}={count}" for node, count in enumerate(now.numa_pages))
            numa = (
                "total=1 N0=1\nanon=0 N0=0\n"
                f"hierarchical_anon={sum(now.numa_pages)}{pages}\nhierarchical_unevictable=0 N0=0\n"
            )
        self._put(self.memory, path, "memory.numa_stat", numa)
        waited = {"cpu": now.cpu_waited_seconds, "memory": now.memory_waited_seconds, "io": 0.0}
        for resource, seconds in waited.items():
            averages = f"avg10={now.pressure_percent:.2f} avg60=0.00 avg300=0.00 total={round(seconds * 1e6)}"
            self._put(self.pressure, path, f"{resource}.pressure", f"some {averages}\nfull {averages}\n")

    def remove(self, path: str) -> None:
        for top in {self.cpu, self.memory, self.throttling, self.pressure}:
            for file in (top / path).rglob("*.*"):
                if file.is_file():
                    file.write_text("")  # a cgroup's files cannot be read any more by who has them open
            shutil.rmtree(top / path)

    @staticmethod
    def _put(top: Path, path: str, name: str, text: str) -> None:
        file = top / path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def procfs(root: Path, *, cpus: int = 4, busy_ticks: int = 0, used_kib: int = 1000) -> None:
    """A /proc of a machine with `cpus` CPUs, each `busy_ticks` at work."""
    root.mkdir(parents=True, exist_ok=True)
    total = f"cpu  {busy_ticks * cpus} 0 0 5 5 0 0 0 0 0\n"
    each = "".join(f"cpu{number} {busy_ticks} 0 0 5 5 0 0 0 0 0\n" for number in range(cpus))
    (root / "stat").write_text(f"{total}{each}intr 1 2 3\n")
    (root / "meminfo").write_text(
        f"MemTotal: 1000000 kB\nMemFree: {900_000 - used_kib} kB\nMemAvailable: {1_000_000 - used_kib} kB\n"
        "Buffers: 5 kB\nInactive(file): 60000 kB\nHugePages_Total: 0\n"
    )
    (root / "loadavg").write_text("0.50 1.25 2.00 1/100 4242\n")
    (root / "diskstats").write_text(
        " 254 0 vda 10 0 2048 1 20 0 4096 1 0 1 1\n 254 1 vda1 10 0 2048 1 20 0 4096 1 0 1 1\n"
        "   7 0 loop0 10 0 2048 1 20 0 4096 1 0 1 1\n"
    )
    pressure = root / "pressure"
    pressure.mkdir(exist_ok=True)
    for resource in ("cpu", "memory", "io"):
        (pressure / resource).write_text(
            "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=2.00 avg60=0.00 avg300=0.00 total=1\n"
        )


def sysfs(root: Path, cpu_lists: tuple[str, ...]) -> None:
    """A /sys of one real disk and as many NUMA nodes as `cpu_lists` has."""
    (root / "block/vda/device").mkdir(parents=True)
    (root / "block/loop0").mkdir()
    for number, cpus in enumerate(cpu_lists):
        node = root / f"devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{cpus}\n")
        (node / "meminfo").write_text(
            f"Node {number} MemTotal: 1000 kB\nNode {number} MemFree: 100 kB\nNode {number} Active(file): 10 kB\n"
            f"Node {number} Inactive(file): 20 kB\nNode {number} SReclaimable: 30 kB\n"
        )
