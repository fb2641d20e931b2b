"""This machine as a usage source: procfs for the node, cgroups for pods, process trees where there are none."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from agent.metrics_advisor import cgroups
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.host import Host
from agent.metrics_advisor.pod_cgroups import PodCgroups
from agent.metrics_advisor.processes import PodProcesses
from agent.metrics_advisor.source import Sample
from shared.api.core import Pod

logger = logging.getLogger(__name__)

DETECT_SECONDS = 10.0  # between two searches for the kubelet's cgroups
PROCESS_TREES = "process trees"


class LocalSource:
    """A kubelet may make its first cgroup after us, so until one is found the search is repeated."""

    def __init__(self, *, cgroup_root: Path, cgroup_parent: str = "", proc_root: Path = Path("/proc")) -> None:
        self._cgroup_root = cgroup_root
        self._cgroup_parent = cgroup_parent
        self._descriptors = Descriptors()
        self._host = Host(proc_root, self._descriptors)
        self._pods: PodCgroups | PodProcesses | None = None
        self._detect_at = 0.0
        self.description = PROCESS_TREES

    def sample(self, pods: Sequence[Pod]) -> Sample | None:
        """Raises OSError, ValueError when not even procfs can be read."""
        reader = self._reader()
        readings = reader.sample(pods, self._host.cpu_count)
        node = self._host.sample()
        return None if node is None else Sample(node, readings)

    def close(self) -> None:
        self._host.close()
        if isinstance(self._pods, PodCgroups):
            self._pods.close()

    def _reader(self) -> PodCgroups | PodProcesses:
        if isinstance(self._pods, PodCgroups) or time.monotonic() < self._detect_at:
            assert self._pods is not None
            return self._pods
        self._detect_at = time.monotonic() + DETECT_SECONDS
        layout = cgroups.detect(self._cgroup_root, self._cgroup_parent)
        if layout is not None:
            self._pods = PodCgroups(layout, self._descriptors)
            self.description = layout.description
        elif self._pods is None:
            self._pods = PodProcesses()
        else:
            return self._pods
        logger.info("pods are measured through %s", self.description)
        return self._pods
