"""Pods' usage out of their cgroups."""

import time
from collections.abc import Sequence
from pathlib import Path

from agent.metric_cache.series import Usage
from agent.metrics_advisor import rates
from agent.metrics_advisor.cgroups import Layout
from agent.metrics_advisor.files import Descriptors, HotFile
from agent.metrics_advisor.rates import Reading
from shared.api import pods
from shared.api.core import Pod

# The API's copy of a static pod has a uid of its own; the kubelet names the cgroup by this annotation.
ANNOTATION_STATIC_POD_UID = "kubernetes.io/config.hash"

# What a pod holds that cannot be dropped: no page cache.
_WORKING_MEMORY = (b"inactive_anon", b"active_anon", b"unevictable")
_V1_KEYS = tuple(b"\ntotal_" + name + b" " for name in _WORKING_MEMORY)
_V2_KEYS = tuple(b"\n" + name + b" " for name in _WORKING_MEMORY)


class PodCgroup:
    """One pod's two hot files and its last CPU reading."""

    def __init__(self, cpu_dir: Path, memory_dir: Path, *, v2: bool, descriptors: Descriptors) -> None:
        self._cpu = HotFile(cpu_dir / ("cpu.stat" if v2 else "cpuacct.usage"), descriptors)
        self._memory = HotFile(memory_dir / "memory.stat", descriptors)
        self._cpu_seconds = usage_usec_seconds if v2 else usage_nanoseconds
        self._keys = _V2_KEYS if v2 else _V1_KEYS
        self._before: Reading | None = None

    def sample(self, cpu_count: int) -> Usage | None:
        """None on the first tick and after a counter reset. Raises OSError once the cgroup is gone, ValueError."""
        now = Reading(self._cpu_seconds(self._cpu.read()), time.monotonic())
        memory_bytes = working_memory(self._memory.read(), self._keys)
        before, self._before = self._before, now
        cpu_cores = None if before is None else rates.cores(before, now, cpu_count)
        return None if cpu_cores is None else Usage(cpu_cores, memory_bytes)

    def close(self) -> None:
        self._cpu.close()
        self._memory.close()


class PodCgroups:
    """Every pod's cgroup under one layout."""

    def __init__(self, layout: Layout, descriptors: Descriptors) -> None:
        self._layout = layout
        self._descriptors = descriptors
        self._open: dict[str, PodCgroup] = {}

    def sample(self, wanted: Sequence[Pod], cpu_count: int) -> dict[str, Usage]:
        """Usage by uid; a pod without a (readable) cgroup is absent and is looked for again at the next tick."""
        usages = {}
        for pod in wanted:
            uid = pod.metadata.uid
            cgroup = self._open.get(uid) or self._find(pod)
            try:
                usage = cgroup.sample(cpu_count)
            except (OSError, ValueError):
                self._drop(uid)
                continue
            if usage is not None:
                usages[uid] = usage
        for uid in self._open.keys() - {pod.metadata.uid for pod in wanted}:
            self._drop(uid)
        return usages

    def close(self) -> None:
        for uid in list(self._open):
            self._drop(uid)

    def _find(self, pod: Pod) -> PodCgroup:
        uid = pod.metadata.annotation(ANNOTATION_STATIC_POD_UID) or pod.metadata.uid
        qos = pods.kube_qos(pod)
        cgroup = self._open[pod.metadata.uid] = PodCgroup(
            self._layout.pod_dir("cpu", qos, uid),
            self._layout.pod_dir("memory", qos, uid),
            v2=self._layout.hierarchy.v2,
            descriptors=self._descriptors,
        )
        return cgroup

    def _drop(self, uid: str) -> None:
        self._open.pop(uid).close()


def usage_nanoseconds(usage: bytes) -> float:
    """Seconds of a v1 cpuacct.usage. Raises ValueError."""
    return int(usage) / rates.NANOSECONDS


def usage_usec_seconds(stat: bytes) -> float:
    """Seconds of a v2 cpu.stat. Raises ValueError."""
    _, key, rest = (b"\n" + stat).partition(b"\nusage_usec ")
    if not key:
        raise ValueError("cpu.stat lacks usage_usec")
    return int(rest.split(b"\n", 1)[0]) / 1e6


def working_memory(stat: bytes, keys: Sequence[bytes]) -> int:
    """The sum of `keys` of a memory.stat, in bytes. Raises ValueError when one is missing."""
    stat = b"\n" + stat
    total = 0
    for key in keys:
        start = stat.index(key) + len(key)
        total += int(stat[start : stat.index(b"\n", start)])
    return total
