"""The location of a pod's cgroup, for every layout in use.

Hierarchies are v1 (a mount per controller), v2 (one mount) or hybrid (v1 controllers beside a v2 tree without any).
Below them, names follow the systemd driver ("kubepods-burstable-pod1_2.slice") or the cgroupfs driver
("burstable/pod1-2"); all of it may stand under a parent, whose name the systemd driver repeats in every slice.
Containers below their pod carry the runtime's name ("cri-containerd-ID.scope", "crio-ID") or their id alone.
"""

import enum
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shared.names import KubeQoS

KUBEPODS = "kubepods"

# The locations of a kubelet's tree unless an administrator nests it: at the top, or where kubelets in containers (kind,
# minikube) put it. A tree anywhere else counts as this node's only if it holds one of the node's pods.
KNOWN_PARENTS = ("", "kubelet", "kubelet.slice")
SEARCH_DEPTH = 4  # system.slice/docker-ID.scope/kubelet.slice, and one level in reserve
SEARCH_DIRECTORIES = 1024

_V1_CONTROLLERS = {"cpu": ("cpuacct", "cpu,cpuacct", "cpu"), "memory": ("memory",)}
_V1_THROTTLING = ("cpu", "cpu,cpuacct")
_QOS_NAMES = {KubeQoS.BURSTABLE: "burstable", KubeQoS.BEST_EFFORT: "besteffort"}
_SCOPES = {"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}
_CRIO = "cri-o"
_SLICE = re.compile(rf"([\w.]+-)*{KUBEPODS}\.slice")
# Of a uid or an id from outside; it cannot lead up or out of the tree
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")


class Version(enum.StrEnum):
    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"


class Driver(enum.StrEnum):
    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class Directories(NamedTuple):
    """The directories of one cgroup's files. `throttling` is None where cpu.stat is among the other cpu files (v2)."""

    cpu: str
    memory: str
    throttling: str | None
    pressure: str


@dataclass(frozen=True)
class Hierarchy:
    """The mounted cgroup tree: the root directory of each controller this product reads ("cpu", "memory").

    `throttling` is v1's cpu controller, which may be mounted apart from cpuacct.
    """

    version: Version
    roots: dict[str, Path]
    throttling: Path | None = None
    pressure: Path | None = None

    @property
    def v2(self) -> bool:
        """Whether files and units are those of v2; a hybrid tree's controllers are v1."""
        return self.version is Version.V2

    def directories(self, path: str) -> Directories:
        """The directories of the cgroup at `path` below the roots."""
        cpu, memory = self.roots["cpu"], self.roots["memory"]
        return Directories(
            cpu=f"{cpu}/{path}",
            memory=f"{memory}/{path}",
            throttling=None if self.throttling is None else f"{self.throttling}/{path}",
            pressure=f"{self.pressure or cpu}/{path}",
        )

    def has(self, path: str) -> bool:
        """Whether a cgroup exists at `path`."""
        return os.path.isdir(f"{self.roots['cpu']}/{path}")


@dataclass(frozen=True)
class Layout:
    """One kubelet's naming of cgroups. `kubepods` is the tree's top as the driver names it, without ".slice"."""

    hierarchy: Hierarchy
    driver: Driver
    parent: str = ""
    kubepods: str = KUBEPODS

    @property
    def description(self) -> str:
        return f"cgroup {self.hierarchy.version} {self.driver}"

    def class_path(self, qos: KubeQoS) -> str:
        """The cgroup of a quality-of-service class, below the roots; guaranteed pods have no class cgroup."""
        level = _QOS_NAMES.get(qos)
        if self.driver is Driver.CGROUPFS:
            names = [self.kubepods, *([level] if level else [])]
        else:
            names = [f"{self.kubepods}.slice", *([f"{self.kubepods}-{level}.slice"] if level else [])]
        return "/".join([self.parent, *names] if self.parent else names)

    def pod_path(self, qos: KubeQoS, uid: str) -> str:
        """The pod's cgroup, below the roots."""
        top = self.class_path(qos)
        if self.driver is Driver.CGROUPFS:
            return f"{top}/pod{uid}"
        name = top.rpartition("/")[2].removesuffix(".slice")
        return f"{top}/{name}-pod{uid.replace('-', '_')}.slice"

    def pod_dir(self, controller: str, qos: KubeQoS, uid: str) -> Path:
        """The pod's directory under `controller` ("cpu" or "memory")."""
        return self.hierarchy.roots[controller] / self.pod_path(qos, uid)

    def container_dir(self, controller: str, qos: KubeQoS, uid: str, container_id: str) -> Path:
        """The container's directory; `container_id` as in a pod's status, "containerd://0123..."."""
        return self.pod_dir(controller, qos, uid) / self._container_name(container_id)

    def find_pod(self, qos: KubeQoS, uids: Iterable[str]) -> str | None:
        """The path of the first of `uids` that has a cgroup."""
        for uid in uids:
            if _NAME.fullmatch(uid) and self.hierarchy.has(path := self.pod_path(qos, uid)):
                return path
        return None

    def find_container(self, pod_path: str, container_id: str) -> str | None:
        """The path of a container's cgroup: the runtime's known location, else any cgroup that carries its id."""
        bare = container_id.rpartition("://")[2]
        if not _NAME.fullmatch(bare):
            return None
        path = f"{pod_path}/{self._container_name(container_id)}"
        if self.hierarchy.has(path):
            return path
        try:
            names = os.listdir(f"{self.hierarchy.roots['cpu']}/{pod_path}")
        except OSError:
            return None
        found = (f"{pod_path}/{name}" for name in sorted(names) if bare in name)
        return next(filter(self.hierarchy.has, found), None)

    def _container_name(self, container_id: str) -> str:
        runtime, _, bare = container_id.rpartition("://")
        if self.driver is Driver.SYSTEMD:
            return f"{_SCOPES.get(runtime, _SCOPES['containerd'])}-{bare}.scope"
        return f"{_SCOPES[_CRIO]}-{bare}" if runtime == _CRIO else bare


def hierarchy(root: Path) -> Hierarchy | None:
    """The hierarchy mounted at `root`; None unless both cpu and memory are readable there."""
    try:
        controllers = (root / "cgroup.controllers").read_text().split()
    except OSError:
        return _v1_hierarchy(root)
    if "memory" not in controllers:
        return None
    return Hierarchy(Version.V2, dict.fromkeys(_V1_CONTROLLERS, root), pressure=root)


def _v1_hierarchy(root: Path) -> Hierarchy | None:
    roots = {controller: _first_mounted(root, names) for controller, names in _V1_CONTROLLERS.items()}
    found = {controller: path for controller, path in roots.items() if path is not None}
    if len(found) < len(roots):
        return None
    unified = root / "unified"
    hybrid = (unified / "cgroup.controllers").exists()
    return Hierarchy(
        Version.HYBRID if hybrid else Version.V1,
        found,
        throttling=_first_mounted(root, _V1_THROTTLING),
        # systemd repeats its slices there; a v1 kernel with pressure per cgroup has it beside the CPU time
        pressure=unified if hybrid else found["cpu"],
    )


def _first_mounted(root: Path, names: Sequence[str]) -> Path | None:
    return next((root / name for name in names if (root / name / "cgroup.procs").exists()), None)


class PodName(NamedTuple):
    """The parts of a pod's cgroup name."""

    qos: KubeQoS
    uids: tuple[str, ...]


def detect(root: Path, parent: str = "", pods: Iterable[PodName] = ()) -> Layout | None:
    """The layout of the kubelet on this machine, None while there is no kubepods tree to detect it from.

    `parent` is the path of the kubepods tree's parent. If it is empty, the search covers the usual places and then any
    tree in which one of `pods` has its cgroup.
    """
    mounted = hierarchy(root)
    if mounted is None:
        return None
    if parent:
        return next(_layouts(mounted, parent.strip("/")), None)
    usual = [layout for known in KNOWN_PARENTS for layout in _layouts(mounted, known)]
    names = tuple(pods)
    for layout in usual:
        if _holds(layout, names):
            return layout
    if names:
        for layout in _nested(mounted):
            if _holds(layout, names):
                return layout
    return next(iter(usual), None)


def _layouts(mounted: Hierarchy, parent: str) -> Iterator[Layout]:
    top = mounted.roots["cpu"] / parent
    if (top / KUBEPODS).is_dir():
        yield Layout(mounted, Driver.CGROUPFS, parent)
    for slice_dir in sorted(top.glob(f"*{KUBEPODS}.slice")):
        if _SLICE.fullmatch(slice_dir.name):
            yield Layout(mounted, Driver.SYSTEMD, parent, slice_dir.name.removesuffix(".slice"))


def _holds(layout: Layout, pods: Iterable[PodName]) -> bool:
    return any(layout.find_pod(pod.qos, pod.uids) for pod in pods)


def _nested(mounted: Hierarchy) -> Iterator[Layout]:
    """Every kubepods tree within `SEARCH_DEPTH`, the uppermost first."""
    top = mounted.roots["cpu"]
    level, seen = [""], 0
    for _ in range(SEARCH_DEPTH):
        below: list[str] = []
        for parent in level:
            seen += 1
            if seen > SEARCH_DIRECTORIES:
                return
            try:
                with os.scandir(top / parent) as entries:
                    names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            except OSError:
                continue
            if parent and any(name == KUBEPODS or _SLICE.fullmatch(name) for name in names):
                yield from _layouts(mounted, parent)
            below += [
                f"{parent}/{name}" if parent else name
                for name in names
                if name != KUBEPODS and not _SLICE.fullmatch(name)
            ]
        level = below
