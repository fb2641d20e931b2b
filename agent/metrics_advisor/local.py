"""This machine as a usage source: procfs for the node, cgroups for pods, or else process trees."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroup import Readings
from agent.metrics_advisor.cgroups import Layout
from agent.metrics_advisor.disks import Disks
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.host import NODE_SECONDS, Host
from agent.metrics_advisor.numa import NumaNodes
from agent.metrics_advisor.pace import Pace
from agent.metrics_advisor.pod_cgroups import PodCgroups, name_of
from agent.metrics_advisor.processes import PodProcesses
from agent.metrics_advisor.rates import Monotonic
from agent.metrics_advisor.source import Sample
from shared.api.core import Pod

logger = logging.getLogger(__name__)

DETECT_SECONDS = 10.0  # between two searches for the kubelet's cgroups
PROCESS_TREES = "process trees"


class LocalSource:
    """A kubelet may create its first cgroup after our start, or change its naming, so the search is repeated.

    It runs every `DETECT_SECONDS` while no pod has a readable cgroup; meanwhile pods are measured by their processes.
    """

    def __init__(
        self,
        *,
        cgroup_root: Path,
        cgroup_parent: str = "",
        proc_root: Path = Path("/proc"),
        sys_root: Path = Path("/sys"),
        state_dir: Path | None = None,
        monotonic: Monotonic = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._cgroup_root = cgroup_root
        self._cgroup_parent = cgroup_parent
        self._proc_root = proc_root
        self._descriptors = Descriptors()
        self._host = Host(proc_root, self._descriptors, monotonic)
        self._numa = NumaNodes(proc_root, sys_root, monotonic)
        self._disks = Disks(proc_root, sys_root, state_dir, monotonic)
        self._numa_pace, self._disk_pace = (Pace(NODE_SECONDS, monotonic()) for _ in range(2))
        self._layout: Layout | None = None
        self._pods: PodCgroups | PodProcesses | None = None
        self._detect_at = 0.0
        self.description = PROCESS_TREES

    def sample(self, pods: Sequence[Pod]) -> Sample | None:
        """Raises OSError, ValueError when even procfs is unreadable."""
        now = self._monotonic()
        readings: Readings = {}
        reader = self._reader(pods, now)
        cpu_count = self._host.cpu_count
        if isinstance(reader, PodCgroups):
            measured = reader.sample(pods, now, cpu_count, readings)
        else:
            measured = reader.sample(pods, cpu_count)
        node = self._host.sample(now, readings)
        if self._numa_pace.due(now):
            self._numa.sample(reader.numa_bytes() if isinstance(reader, PodCgroups) else {}, readings)
        if self._disk_pace.due(now):
            self._disks.sample(readings)
        if node is None:
            return None
        return Sample(node, measured.pods, measured.containers, readings)

    def close(self) -> None:
        self._host.close()
        self._close_cgroups()

    def _close_cgroups(self) -> None:
        if isinstance(self._pods, PodCgroups):
            self._pods.close()

    def _reader(self, pods: Sequence[Pod], now: float) -> PodCgroups | PodProcesses:
        if isinstance(self._pods, PodCgroups) and (self._pods.found or not pods):
            self._detect_at = now + DETECT_SECONDS
            return self._pods
        if self._pods is not None and now < self._detect_at:
            return self._pods
        self._detect_at = now + DETECT_SECONDS
        layout = cgroups.detect(self._cgroup_root, self._cgroup_parent, map(name_of, pods))
        # A layout stays in use until it has failed for this long.
        good = layout is not None and (layout != self._layout or (bool(pods) and self._reads(layout, pods, now)))
        if self._pods is not None and layout == self._layout and good == isinstance(self._pods, PodCgroups):
            return self._pods
        self._close_cgroups()
        self._layout = layout
        if layout is not None and good:
            self._pods, self.description = self._cgroups(layout), layout.description
        else:
            self._pods, self.description = PodProcesses(self._proc_root), PROCESS_TREES
        logger.info("pods are measured through %s", self.description)
        return self._pods

    def _cgroups(self, layout: Layout) -> PodCgroups:
        return PodCgroups(layout, self._descriptors, self._monotonic, only_numa_node=self._numa.only)

    def _reads(self, layout: Layout, pods: Sequence[Pod], now: float) -> bool:
        """Whether the cgroup of any pod exists and is readable."""
        trial = self._cgroups(layout)
        trial.sample(pods, now, self._host.cpu_count, {})
        found = trial.found
        trial.close()
        return found
