"""Groups the processes of a pod: in cgroups with kubelet's names, or by an inherited environment variable.

The cgroups are below a parent cgroup of the cluster, so that several clusters can share a machine, and the cgroups of a
dead cluster can be removed together.
"""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroups import Driver, Hierarchy, Layout
from deploy.local.kubelet import limits
from deploy.local.kubelet.process import VARIABLE_CLUSTER, VARIABLE_CONTAINER_ID
from shared.api.core import Container
from shared.names import KubeQoS

logger = logging.getLogger(__name__)

KILL_SECONDS = 5.0
_PAUSE_SECONDS = 0.02
_MEMORY_CONTROLLER, _CPU_CONTROLLER = "memory", "cpu"


class Place(NamedTuple):
    """The position of a container in the cgroup tree."""

    qos: KubeQoS
    pod_uid: str
    container_id: str


class Containment:
    """Tells the processes of a container from all others: here by a variable that they inherit, without limits."""

    description = "process trees"

    def admit(self, place: Place, container: Container, pod_containers: Sequence[Container]) -> list[Path]:
        """Prepares one container; returns the files that admit a process to it. Raises OSError, QuantityError."""
        return []

    def members(self, place: Place) -> list[int]:
        """The container's current processes."""
        return with_environment(lambda its: its.get(VARIABLE_CONTAINER_ID) == place.container_id)

    def oom_kills(self, place: Place) -> int:
        """The number of the container's processes that the kernel has killed for lack of memory."""
        return 0

    def dissolve(self, place: Place) -> None:
        """Removes what `admit` created for the container."""

    def dissolve_pod(self, qos: KubeQoS, pod_uid: str) -> None:
        """Removes what `admit` created for the pod."""

    def close(self) -> None:
        """Removes everything that belongs to the cluster."""


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Sends `number` to those of `pids` that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_all(members: Callable[[], Iterable[int]]) -> bool:
    """Sends SIGKILL until `members()` is empty, however fast they fork; False if some survive `KILL_SECONDS`."""
    deadline = time.monotonic() + KILL_SECONDS
    while pids := list(members()):
        if time.monotonic() > deadline:
            logger.error("processes survive SIGKILL", extra={"pids": pids})
            return False
        signal_all(pids, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)
    return True


class CgroupContainment(Containment):
    """Cgroups below `root`/<controller>/`parent`/kubepods. Raises OSError if they cannot be created or configured."""

    def __init__(self, root: Path, parent: str) -> None:
        hierarchy = cgroups.hierarchy(root)
        if hierarchy is None:
            raise OSError(f"no cpu and memory controllers at {root}")
        self._v2 = hierarchy.v2
        self._layout = Layout(hierarchy, Driver.CGROUPFS, parent)
        self._controls = [self._layout, *_separate_cpu(root, hierarchy, parent)]
        self.description = self._layout.description
        for top in self._tops():
            clear(top)  # an earlier kubelet may have left processes there
            self._make(top / cgroups.KUBEPODS)

    def admit(self, place: Place, container: Container, pod_containers: Sequence[Container]) -> list[Path]:
        pod_limits, own_limits = limits.of_pod(pod_containers), limits.of_container(container)
        for directory in self._directories(place.qos, place.pod_uid, ""):
            self._make(directory)
            self._apply(directory, pod_limits)
        directories = self._directories(*place)
        for directory in directories:
            directory.mkdir(exist_ok=True)
            self._apply(directory, own_limits)
        return [directory / "cgroup.procs" for directory in directories]

    def members(self, place: Place) -> list[int]:
        return sorted({pid for directory in self._directories(*place) for pid in _pids(directory)})

    def oom_kills(self, place: Place) -> int:
        directory = self._layout.container_dir(_MEMORY_CONTROLLER, *place)
        try:
            text = (directory / ("memory.events" if self._v2 else "memory.oom_control")).read_text()
        except OSError:
            return 0
        counts = dict(line.split() for line in text.splitlines())
        return int(counts.get("oom_kill", 0))

    def dissolve(self, place: Place) -> None:
        _remove(self._directories(*place))

    def dissolve_pod(self, qos: KubeQoS, pod_uid: str) -> None:
        _remove(self._directories(qos, pod_uid, ""))

    def close(self) -> None:
        for top in self._tops():
            clear(top)

    def _tops(self) -> set[Path]:
        return {root / layout.parent for layout in self._controls for root in layout.hierarchy.roots.values()}

    def _directories(self, qos: KubeQoS, uid: str, container_id: str) -> list[Path]:
        """Each directory of a container, or, without an id, of its pod."""
        every = ((layout, controller) for layout in self._controls for controller in layout.hierarchy.roots)
        return list(dict.fromkeys(layout.pod_dir(controller, qos, uid) / container_id for layout, controller in every))

    def _make(self, directory: Path) -> None:
        """Creates the directory and its ancestors; on v2, also enables the controllers at each level."""
        if not directory.parent.exists():
            self._make(directory.parent)
        directory.mkdir(exist_ok=True)
        if self._v2:
            for level in (directory.parent, directory):
                (level / "cgroup.subtree_control").write_text("+cpu +memory")

    def _apply(self, directory: Path, wanted: limits.CgroupLimits) -> None:
        for name, value in limits.files(wanted, v2=self._v2).items():
            if (directory / name).exists():  # on v1, each hierarchy has the files of its own controllers
                (directory / name).write_text(value)


def choose(root: Path, parent: str) -> Containment:
    """Returns cgroups where they can be created; otherwise process trees, with a warning in the log."""
    try:
        return CgroupContainment(root, parent)
    except OSError as error:
        logger.warning("cgroups cannot be made, so pods run as plain process trees without limits: %s", error)
        cluster = os.environ.get(VARIABLE_CLUSTER, "")  # matches no process if unset
        # An earlier kubelet of the cluster may have left processes of pods behind.
        kill_all(
            lambda: with_environment(lambda its: VARIABLE_CONTAINER_ID in its and its.get(VARIABLE_CLUSTER) == cluster)
        )
        return Containment()


def clear(top: Path) -> None:
    """Kills all processes below `top` and removes the whole tree."""
    deadline = time.monotonic() + KILL_SECONDS
    while top.exists() and time.monotonic() < deadline:
        for name, _, _ in os.walk(top, topdown=False):
            directory = Path(name)
            signal_all(_pids(directory), signal.SIGKILL)
            with contextlib.suppress(OSError):
                directory.rmdir()
        if top.exists():
            time.sleep(_PAUSE_SECONDS)


def with_environment(wanted: Callable[[Mapping[str, str]], bool]) -> list[int]:
    """The processes whose environment can be read, and is wanted."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if wanted(process.environ()):
                found.append(process.pid)
    return found


def _pids(directory: Path) -> list[int]:
    try:
        return [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _separate_cpu(root: Path, hierarchy: Hierarchy, parent: str) -> list[Layout]:
    """v1's cpu controller where it is mounted separately from cpuacct, which is the one that is measured."""
    cpu = root / "cpu"
    if hierarchy.v2 or not cpu.is_dir() or cpu.samefile(hierarchy.roots[_CPU_CONTROLLER]):
        return []
    return [Layout(Hierarchy(hierarchy.version, {_CPU_CONTROLLER: cpu}), Driver.CGROUPFS, parent)]


def _remove(directories: Iterable[Path]) -> None:
    for directory in directories:
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("cgroup left behind: %s", error)
