"""NodeSLO; only the host applications are read: programs of the node that run in cgroups of their own."""

import enum
import itertools
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from shared.api.meta import ObjectMeta, Wire, prepared
from shared.errors import InvalidInput
from shared.names import PriorityClass, QoS

# Where Koordinator looks for an application without a path, by quality of service.
_DEFAULT_DIRECTORIES = {
    QoS.LSE: "host-latency-sensitive",
    QoS.LSR: "host-latency-sensitive",
    QoS.LS: "host-latency-sensitive",
    QoS.BE: "host-best-effort",
}

_KUBEPODS = "kubepods"
_SLICE = re.compile(rf"(?:[\w.]+-)*{_KUBEPODS}(?:-(burstable|besteffort))?\.slice")
_POD = re.compile(r"(?:[\w.]+-)*pod[0-9a-f]{8}[-_]?[0-9a-f]{4}[-_0-9a-f]*(?:\.slice)?")


class CgroupBase(enum.StrEnum):
    """The cgroup that the path of a host application is relative to."""

    ROOT = "CgroupRoot"
    KUBEPODS = "Kubepods"
    BURSTABLE = "KubepodsBurstable"
    BEST_EFFORT = "KubepodsBesteffort"


_BASES = {
    CgroupBase.ROOT: (),
    CgroupBase.KUBEPODS: (_KUBEPODS,),
    CgroupBase.BURSTABLE: (_KUBEPODS, "burstable"),
    CgroupBase.BEST_EFFORT: (_KUBEPODS, "besteffort"),
}


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

    @property
    def path(self) -> CgroupPath:
        """The path of its cgroup, explicit or default."""
        directory = _DEFAULT_DIRECTORIES.get(QoS(self.qos), "")
        return self.cgroup_path or CgroupPath(parent_dir=directory, relative_path=self.name)


class NodeSLOSpec(Wire, frozen=True):
    host_applications: tuple[HostApplication, ...] | None = None


@prepared
class NodeSLO(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSLOSpec = NodeSLOSpec()


def check(applications: Sequence[HostApplication], *, source: str, field: str) -> None:
    """Raises InvalidInput for an application that has no name, leads out of the cgroup tree, has the name of another
    one, or would be counted twice: with the pods, or with another one.
    """
    names: set[str] = set()
    for place, application in enumerate(applications):
        _check(application, source, f"{field}[{place}]")
        if application.name in names:
            raise InvalidInput(
                source=source, field=f"{field}[{place}].name", value=application.name, problem="is there twice"
            )
        names.add(application.name)
        for other in applications[:place]:
            if overlap(application, other):
                raise InvalidInput(
                    source=source,
                    field=f"{field}[{place}].cgroupPath",
                    value=str(application.path.below_base),
                    problem=f"is, holds or is in the cgroup of {other.name}",
                )


def overlap(one: HostApplication, other: HostApplication) -> bool:
    """Whether the two cgroups are the same or nested, so that usage would count twice."""
    return all(first == second for first, second in zip(_parts(one.path), _parts(other.path), strict=False))


def _parts(path: CgroupPath) -> tuple[str, ...]:
    """The path's parts from the root, in the cgroupfs driver's spelling."""
    words = ((found[1] or _KUBEPODS) if (found := _SLICE.fullmatch(part)) else part for part in path.below_base.parts)
    return (*_BASES[path.base], *words)


def _holds_pods(path: CgroupPath) -> bool:
    """Whether the kubelet puts pods in this cgroup, or it belongs to a pod."""
    inside = tuple(itertools.dropwhile(lambda part: part != _KUBEPODS, _parts(path)))
    return (inside != () and inside in _BASES.values()) or any(map(_POD.fullmatch, inside))


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
    if _holds_pods(application.path):
        value = str(application.path.below_base)
        raise InvalidInput(source=source, field=f"{field}.cgroupPath", value=value, problem="is where pods are")


def _is_name(text: str) -> bool:
    return text not in ("", ".") and "/" not in text and _stays_below(text)


def _stays_below(text: str) -> bool:
    return ".." not in PurePosixPath(text).parts and "\0" not in text
