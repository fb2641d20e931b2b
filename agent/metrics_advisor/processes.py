"""Pods' usage out of process trees, where no cgroup can be read.

A process belongs to the pod whose uid its environment carries under `POD_UID_VARIABLE`; children inherit it. Whoever
starts a pod's processes sets it. What escapes the count (processes shorter than a tick, those of other users) is not
lost: it stays in the node's system usage, where it weighs on the peak.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.metric_cache.series import Usage
from agent.metrics_advisor import rates
from agent.metrics_advisor.rates import Reading
from shared.api.core import Pod

if TYPE_CHECKING:
    import psutil

POD_UID_VARIABLE = "HEADROOM_POD_UID"

# A process this young may be between fork and exec, where it still shows its parent's environment.
SETTLED_SECONDS = 2.0


class _Member:
    """One process of a pod."""

    def __init__(self, process: "psutil.Process", uid: str) -> None:
        self.process = process
        self.uid = uid
        self.before: Reading | None = None

    def sample(self, cpu_count: int) -> Usage | None:
        """Raises psutil.Error once the process is gone or may not be looked at."""
        with self.process.oneshot():
            times, memory = self.process.cpu_times(), self.process.memory_info()
        now = Reading(times.user + times.system, time.monotonic())
        before, self.before = self.before, now
        cpu_cores = None if before is None else rates.cores(before, now, cpu_count)
        # Shared pages are mostly files, which the kernel can drop.
        return None if cpu_cores is None else Usage(cpu_cores, max(0, memory.rss - memory.shared))


class PodProcesses:
    """Every pod's processes on this machine."""

    def __init__(self) -> None:
        # Imported here: an agent that reads cgroups has no use for it.
        import psutil

        self._psutil = psutil
        self._members: dict[int, _Member] = {}
        self._others: set[int] = set()

    def sample(self, wanted: Sequence[Pod], cpu_count: int) -> dict[str, Usage]:
        """Usage by uid of the pods that have a process seen for a whole tick."""
        self._discover()
        uids = {pod.metadata.uid for pod in wanted}
        totals: defaultdict[str, Usage] = defaultdict(lambda: Usage(0.0, 0.0))
        for pid, member in list(self._members.items()):
            if member.uid not in uids:
                continue
            try:
                usage = member.sample(cpu_count)
            except self._psutil.Error:
                del self._members[pid]
                continue
            if usage is not None:
                totals[member.uid] = totals[member.uid].plus(usage)
        return dict(totals)

    def _discover(self) -> None:
        present = set(self._psutil.pids())
        self._others &= present
        for pid in self._members.keys() - present:
            del self._members[pid]
        for pid in present - self._others - self._members.keys():
            self._classify(pid)

    def _classify(self, pid: int) -> None:
        try:
            process = self._psutil.Process(pid)
            uid = self._pod_uid(process)
            settled = time.time() - process.create_time() > SETTLED_SECONDS
        except self._psutil.Error:
            return  # it has gone meanwhile
        if uid:
            self._members[pid] = _Member(process, uid)
        elif settled:
            self._others.add(pid)

    def _pod_uid(self, process: "psutil.Process") -> str | None:
        try:
            return process.environ().get(POD_UID_VARIABLE)
        except self._psutil.AccessDenied:
            return None
