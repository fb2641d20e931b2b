"""Where the kubelet puts a pod's cgroup, for every layout in use.

Hierarchies are v1 (a mount per controller), v2 (one mount) or hybrid (v1 controllers beside a v2 tree without any).
Below them, names follow the systemd driver ("kubepods-burstable-pod1_2.slice") or the cgroupfs driver
("burstable/pod1-2"); all of it may stand under a parent, whose name the systemd driver repeats in every slice.
"""

import enum
import re
from dataclasses import dataclass
from pathlib import Path

from shared.names import KubeQoS

KUBEPODS = "kubepods"

# Where kubelets in containers (kind, minikube) nest their tree; looked at when no parent is set.
KNOWN_PARENTS = ("", "kubelet", "kubelet.slice")

_V1_CONTROLLERS = {"cpu": ("cpuacct", "cpu,cpuacct", "cpu"), "memory": ("memory",)}
_QOS_NAMES = {KubeQoS.BURSTABLE: "burstable", KubeQoS.BEST_EFFORT: "besteffort"}
_SCOPES = {"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}


class Version(enum.StrEnum):
    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"


class Driver(enum.StrEnum):
    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


@dataclass(frozen=True)
class Hierarchy:
    """The mounted cgroup tree: the root directory of each controller this product reads ("cpu", "memory")."""

    version: Version
    roots: dict[str, Path]

    @property
    def v2(self) -> bool:
        """Whether files and their units are those of v2; a hybrid tree's controllers are v1."""
        return self.version is Version.V2


@dataclass(frozen=True)
class Layout:
    """One kubelet's way of naming cgroups. `kubepods` is the tree's top as the driver names it, without ".slice"."""

    hierarchy: Hierarchy
    driver: Driver
    parent: str = ""
    kubepods: str = KUBEPODS

    @property
    def description(self) -> str:
        return f"cgroup {self.hierarchy.version} {self.driver}"

    def pod_dir(self, controller: str, qos: KubeQoS, uid: str) -> Path:
        """The pod's directory under `controller` ("cpu" or "memory")."""
        top = self.hierarchy.roots[controller] / self.parent
        level = _QOS_NAMES.get(qos)
        if self.driver is Driver.CGROUPFS:
            return top.joinpath(self.kubepods, *([level] if level else []), f"pod{uid}")
        names = [self.kubepods, *([f"{self.kubepods}-{level}"] if level else [])]
        names.append(f"{names[-1]}-pod{uid.replace('-', '_')}")
        return top.joinpath(*(f"{name}.slice" for name in names))

    def container_dir(self, controller: str, qos: KubeQoS, uid: str, container_id: str) -> Path:
        """The container's directory; `container_id` as in a pod's status, "containerd://0123..."."""
        runtime, _, bare = container_id.rpartition("://")
        scope = f"{_SCOPES.get(runtime, _SCOPES['containerd'])}-{bare}.scope"
        return self.pod_dir(controller, qos, uid) / (bare if self.driver is Driver.CGROUPFS else scope)


def hierarchy(root: Path) -> Hierarchy | None:
    """What is mounted at `root`; None when cpu and memory cannot both be read there."""
    try:
        controllers = (root / "cgroup.controllers").read_text().split()
    except OSError:
        return _v1_hierarchy(root)
    return Hierarchy(Version.V2, dict.fromkeys(_V1_CONTROLLERS, root)) if "memory" in controllers else None


def _v1_hierarchy(root: Path) -> Hierarchy | None:
    roots = {
        controller: next((root / name for name in names if (root / name / "cgroup.procs").exists()), None)
        for controller, names in _V1_CONTROLLERS.items()
    }
    found = {controller: path for controller, path in roots.items() if path is not None}
    if len(found) < len(roots):
        return None
    hybrid = (root / "unified" / "cgroup.controllers").exists()
    return Hierarchy(Version.HYBRID if hybrid else Version.V1, found)


def detect(root: Path, parent: str = "") -> Layout | None:
    """The layout of the kubelet on this machine, None while there is no kubepods tree to tell it from.

    `parent` is the path below which kubepods stands; an empty one means the places where it usually does.
    """
    mounted = hierarchy(root)
    if mounted is None:
        return None
    for candidate in (parent.strip("/"),) if parent else KNOWN_PARENTS:
        top = mounted.roots["cpu"] / candidate
        if (top / KUBEPODS).is_dir():
            return Layout(mounted, Driver.CGROUPFS, candidate)
        for slice_dir in sorted(top.glob(f"*{KUBEPODS}.slice")):
            if re.fullmatch(rf"([\w.]+-)*{KUBEPODS}\.slice", slice_dir.name):
                return Layout(mounted, Driver.SYSTEMD, candidate, slice_dir.name.removesuffix(".slice"))
    return None
