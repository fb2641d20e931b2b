"""Pods' usage from process trees, where no cgroup is readable.

A process belongs to the pod and the container in its /proc/PID/cgroup, which every user may read. Otherwise (the node
may itself run in a pod of another cluster) it belongs to the pod whose uid is in its environment under
`POD_UID_VARIABLE`; children inherit both. Uncounted usage (processes shorter than a tick, memory counters of other
users) is not lost: it stays in the node's system usage, which is part of the peak.
"""

import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agent.metric_cache.series import NOTHING, Usage
from agent.metrics_advisor import rates
from agent.metrics_advisor.files import read_once
from agent.metrics_advisor.pod_cgroups import MeasuredPods, container_key, containers_of, name_of
from agent.metrics_advisor.rates import CounterReading
from shared.api.core import Pod

if TYPE_CHECKING:
    import psutil

POD_UID_VARIABLE = "HEADROOM_POD_UID"

# A younger process may be between fork and exec, where it still shows its parent's environment and cgroup.
SETTLED_SECONDS = 2.0

# "kubepods-burstable-pod1a2b_3c4d.slice" or "burstable/pod1a2b-3c4d", and the last name below it.
_POD_CGROUP = re.compile(rb"pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?(?:/([^\n]*))?\n")
_CONTAINER_ID = re.compile(rb"[0-9a-f]{64}")


class Owner(NamedTuple):
    """The owner of a process; `container_id` is empty if only the pod is known."""

    uid: str
    container_id: str = ""


def owner_of(cgroup: bytes) -> Owner | None:
    """The pod and container in a /proc/PID/cgroup, None for a process of the node's own."""
    found = _POD_CGROUP.search(cgroup)
    if found is None:
        return None
    container = _CONTAINER_ID.search(found[2] or b"")
    return Owner(_plain(found[1].decode()), container[0].decode() if container else "")


def _plain(uid: str) -> str:
    """A uid without its separators, which the systemd driver changes and a static pod's uid lacks."""
    return uid.replace("-", "").replace("_", "")


class _Member:
    """One process of a pod."""

    def __init__(self, process: "psutil.Process", owner: Owner) -> None:
        self.process = process
        self.owner = owner
        self.before: CounterReading | None = None

    def sample(self, cpu_count: int) -> Usage | None:
        """Raises psutil.Error once the process has ended or is not accessible."""
        with self.process.oneshot():
            times, memory = self.process.cpu_times(), self.process.memory_info()
        now = CounterReading(times.user + times.system, time.monotonic())
        before, self.before = self.before, now
        cpu_cores = None if before is None else rates.cores(before, now, cpu_count)
        # Shared pages mostly belong to files, which the kernel can drop.
        return None if cpu_cores is None else Usage(cpu_cores, max(0, memory.rss - memory.shared))


class PodProcesses:
    """Every pod's processes on this machine."""

    def __init__(self, proc_root: Path = Path("/proc")) -> None:
        # Imported here: an agent that reads cgroups does not need it.
        import psutil

        self._psutil = psutil
        psutil.PROCFS_PATH = str(proc_root)
        self._proc = proc_root
        self._members: dict[int, _Member] = {}
        self._others: dict[int, float] = {}  # by pid: when it was first seen

    def sample(self, wanted: Sequence[Pod], cpu_count: int) -> MeasuredPods:
        """Usage of the pods and containers that have a process observed for a whole tick."""
        uids = {_plain(pod.metadata.uid): pod.metadata.uid for pod in wanted}
        containers: dict[tuple[str, str], str] = {}
        for pod in wanted:
            uid = pod.metadata.uid
            for name in name_of(pod).uids:
                uids.setdefault(_plain(name), uid)  # an annotation cannot take a pod's own processes from it
            for one in containers_of(pod):
                containers[uid, one.container_id.rpartition("://")[2]] = container_key(uid, one.name)
        self._discover(uids.keys())
        by_pod: defaultdict[str, Usage] = defaultdict(lambda: NOTHING)
        by_container: defaultdict[str, Usage] = defaultdict(lambda: NOTHING)
        for pid, member in list(self._members.items()):
            wanted_uid = uids.get(member.owner.uid)
            if wanted_uid is None:
                continue
            try:
                usage = member.sample(cpu_count)
            except self._psutil.Error:
                del self._members[pid]
                continue
            if usage is None:
                continue
            by_pod[wanted_uid] = by_pod[wanted_uid].plus(usage)
            entity = containers.get((wanted_uid, member.owner.container_id))
            if entity is not None:
                by_container[entity] = by_container[entity].plus(usage)
        return MeasuredPods(
            {uid: _bounded(usage, cpu_count) for uid, usage in by_pod.items()},
            {entity: _bounded(usage, cpu_count) for entity, usage in by_container.items()},
        )

    def _discover(self, uids: Collection[str]) -> None:
        present = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        for pid, member in list(self._members.items()):
            # False also for another process that reuses the number.
            if pid not in present or not member.process.is_running():
                del self._members[pid]
        for pid in self._others.keys() - present:
            del self._others[pid]
        now = time.monotonic()
        for pid in present - self._members.keys():
            if now - self._others.setdefault(pid, now) <= SETTLED_SECONDS:
                self._classify(pid, uids)

    def _classify(self, pid: int, uids: Collection[str]) -> None:
        try:
            process = self._psutil.Process(pid)
            owner = self._owner(process, uids)
        except self._psutil.Error:
            return  # the process has ended meanwhile
        if owner is not None:
            self._members[pid] = _Member(process, owner)
            self._others.pop(pid, None)

    def _owner(self, process: "psutil.Process", uids: Collection[str]) -> Owner | None:
        try:
            owner = owner_of(read_once(f"{self._proc}/{process.pid}/cgroup"))
        except OSError:
            owner = None
        if owner is not None and owner.uid in uids:
            return owner
        try:
            uid = process.environ().get(POD_UID_VARIABLE)
        except self._psutil.AccessDenied:
            return owner
        return Owner(_plain(uid)) if uid else owner


def _bounded(usage: Usage, cpu_count: int) -> Usage:
    """Counters of several processes, read one after the other, may add up to slightly more than the machine has."""
    return Usage(min(usage.cpu_cores, float(cpu_count)), usage.memory_bytes)
