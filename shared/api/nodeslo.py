"""NodeSLO, of which only the host applications are read: programs of the node that run in cgroups of their own."""

import enum

from shared.api.meta import ObjectMeta, Wire, prepared


class CgroupBase(enum.StrEnum):
    """Below which cgroup the path of a host application stands."""

    ROOT = "CgroupRoot"
    KUBEPODS = "Kubepods"
    BURSTABLE = "KubepodsBurstable"
    BEST_EFFORT = "KubepodsBesteffort"


class CgroupPath(Wire, frozen=True):
    base: CgroupBase = CgroupBase.ROOT
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(Wire, frozen=True):
    """`priority` and `qos` are Koordinator's classes, as they are reported."""

    name: str = ""
    priority: str = ""
    qos: str = ""
    cgroup_path: CgroupPath | None = None


class NodeSLOSpec(Wire, frozen=True):
    host_applications: tuple[HostApplication, ...] | None = None


@prepared
class NodeSLO(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSLOSpec = NodeSLOSpec()
