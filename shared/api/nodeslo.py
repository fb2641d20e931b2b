"""NodeSLO, of which only the host applications are read: programs of the node that run in cgroups of their own."""

import enum
from collections.abc import Sequence
from pathlib import PurePosixPath

from shared.api.meta import ObjectMeta, Wire, prepared
from shared.errors import InvalidInput
from shared.names import PriorityClass, QoS


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

    @property
    def below_base(self) -> PurePosixPath:
        """Both parts together, relative to the base."""
        return PurePosixPath(self.parent_dir.strip("/"), self.relative_path.strip("/"))


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


def check(applications: Sequence[HostApplication], *, source: str, field: str) -> None:
    """Raises InvalidInput for one that names nothing, leads out of the cgroup tree, or has another one's name."""
    names: set[str] = set()
    for place, application in enumerate(applications):
        _check(application, source, f"{field}[{place}]")
        if application.name in names:
            raise InvalidInput(
                source=source, field=f"{field}[{place}].name", value=application.name, problem="is there twice"
            )
        names.add(application.name)


def _check(application: HostApplication, source: str, field: str) -> None:
    path = application.cgroup_path or CgroupPath()
    checks = (
        ("name", application.name, _is_name(application.name), "expected a name without a slash"),
        ("priority", application.priority, application.priority in tuple(PriorityClass), "is no priority class"),
        ("qos", application.qos, application.qos in tuple(QoS), "is no quality of service"),
        ("cgroupPath.parentDir", path.parent_dir, _stays_below(path.parent_dir), "leads out of its base"),
        ("cgroupPath.relativePath", path.relative_path, _stays_below(path.relative_path), "leads out of its base"),
    )
    for name, value, good, problem in checks:
        if not good:
            raise InvalidInput(source=source, field=f"{field}.{name}", value=value, problem=problem)
    if application.cgroup_path is not None and path.below_base == PurePosixPath():
        raise InvalidInput(
            source=source, field=f"{field}.cgroupPath", value="", problem="would be the whole of its base"
        )


def _is_name(text: str) -> bool:
    return text not in ("", ".") and "/" not in text and _stays_below(text)


def _stays_below(text: str) -> bool:
    return ".." not in PurePosixPath(text).parts and "\0" not in text
