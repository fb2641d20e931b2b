"""Programs of the node itself that run in cgroups of their own, and what they use."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from agent.metric_cache.series import Kind, Usage
from agent.metrics_advisor.cgroup import COLD_SECONDS, LOOK_AGAIN_SECONDS, Cgroup, Readings, Tracked
from agent.metrics_advisor.cgroups import Hierarchy, Layout
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.pace import Pace
from agent.metrics_advisor.rates import Monotonic
from shared.api.nodeslo import CgroupBase, CgroupPath, HostApplication
from shared.errors import InvalidInput
from shared.names import KubeQoS, PriorityClass, QoS

KEY = "hostApplications"

# Where Koordinator looks for an application that names no path, by quality of service.
_DEFAULT_DIRECTORIES = {
    QoS.LSE: "host-latency-sensitive",
    QoS.LSR: "host-latency-sensitive",
    QoS.LS: "host-latency-sensitive",
    QoS.BE: "host-best-effort",
}
_CLASSES = {
    CgroupBase.KUBEPODS: KubeQoS.GUARANTEED,
    CgroupBase.BURSTABLE: KubeQoS.BURSTABLE,
    CgroupBase.BEST_EFFORT: KubeQoS.BEST_EFFORT,
}


class _FileCgroupPath(CgroupPath, frozen=True, forbid_unknown_fields=True):
    """What a file may say; in an object of the API server a field not known here is another version's."""


class _FileApplication(HostApplication, frozen=True, forbid_unknown_fields=True):
    cgroup_path: _FileCgroupPath | None = None


def load(file: Path) -> tuple[HostApplication, ...]:
    """The host applications of a YAML file, as `spec.hostApplications` of a NodeSLO. Raises InvalidInput."""
    import yaml  # here, as few nodes have such a file

    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise InvalidInput(source="--host-applications", field="file", value=str(file), problem=problem) from error
    if not isinstance(document, dict) or document.keys() != {KEY} or not isinstance(document[KEY], list | None):
        raise InvalidInput(
            source=str(file), field="(document)", value=document, problem=f"expected a mapping with a list {KEY} alone"
        )
    applications: dict[str, HostApplication] = {}
    for number, item in enumerate(document[KEY] or ()):
        field = f"{KEY}[{number}]"
        try:
            application = msgspec.convert(item, _FileApplication)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$")
            field += path.rstrip("`")
            raise InvalidInput(source=str(file), field=field, value=item, problem=problem) from error
        check(application, source=str(file), field=field)
        if application.name in applications:
            raise InvalidInput(
                source=str(file), field=f"{field}.name", value=application.name, problem="is there twice"
            )
        applications[application.name] = application
    return tuple(applications.values())


def check(application: HostApplication, *, source: str, field: str) -> None:
    """Raises InvalidInput for an application that names nothing, or leads out of the cgroup tree."""
    path = application.cgroup_path or CgroupPath()
    checks: Sequence[tuple[str, str, bool, str]] = (
        ("name", application.name, _is_name(application.name), "expected a name without a slash"),
        ("priority", application.priority, application.priority in tuple(PriorityClass), "is no priority class"),
        ("qos", application.qos, application.qos in tuple(QoS), "is no quality of service"),
        ("cgroupPath.parentDir", path.parent_dir, _stays_below(path.parent_dir), "leads out of its base"),
        ("cgroupPath.relativePath", path.relative_path, _stays_below(path.relative_path), "leads out of its base"),
    )
    for name, value, good, problem in checks:
        if not good:
            raise InvalidInput(source=source, field=f"{field}.{name}", value=value, problem=problem)
    if application.cgroup_path is not None and not _joined(path.parent_dir, path.relative_path):
        raise InvalidInput(
            source=source, field=f"{field}.cgroupPath", value="", problem="would be the whole of its base"
        )


def relative_path(application: HostApplication, layout: Layout | None) -> str | None:
    """The application's cgroup below the roots; None while the tree of pods it stands in is not known."""
    path = application.cgroup_path
    if path is None:
        default = _DEFAULT_DIRECTORIES.get(QoS(application.qos), "")
        return _joined(default, application.name)
    if path.base is CgroupBase.ROOT:
        return _joined(path.parent_dir, path.relative_path)
    if layout is None:
        return None
    return _joined(layout.class_path(_CLASSES[path.base]), path.parent_dir, path.relative_path)


class HostApplicationCgroups:
    """The cgroups of all host applications."""

    def __init__(
        self, hierarchy: Hierarchy, layout: Layout | None, descriptors: Descriptors, monotonic: Monotonic
    ) -> None:
        self._hierarchy = hierarchy
        self._layout = layout
        self._descriptors = descriptors
        self._monotonic = monotonic
        self._tracked: dict[HostApplication, Tracked] = {}
        self._cold: dict[HostApplication, Pace] = {}

    def sample(
        self, applications: Sequence[HostApplication], now: float, cpu_count: int, readings: Readings
    ) -> Mapping[str, Usage]:
        """Usage by name; an application whose cgroup is not there is absent, and looked for again."""
        for gone in self._tracked.keys() - set(applications):
            self._tracked.pop(gone).close()
            del self._cold[gone]
        usages = {}
        for application in applications:
            tracked = self._tracked.get(application) or self._track(application)
            usage = tracked.sample(now, cpu_count, readings)
            if self._cold[application].due(now):
                tracked.read_cold(readings)
            if usage is not None:
                usages[application.name] = usage
        return usages

    def close(self) -> None:
        for tracked in self._tracked.values():
            tracked.close()
        self._tracked.clear()
        self._cold.clear()

    def _track(self, application: HostApplication) -> Tracked:
        path = relative_path(application, self._layout)

        def find() -> Cgroup | None:
            if path is None or not self._hierarchy.has(path):
                return None
            return Cgroup(
                Kind.HOST_APPLICATION,
                application.name,
                self._hierarchy.directories(path),
                v2=self._hierarchy.v2,
                descriptors=self._descriptors,
                monotonic=self._monotonic,
            )

        self._cold[application] = Pace(COLD_SECONDS, self._monotonic())
        tracked = self._tracked[application] = Tracked(find, LOOK_AGAIN_SECONDS)
        return tracked


def _is_name(text: str) -> bool:
    return bool(text) and "/" not in text and _stays_below(text)


def _stays_below(text: str) -> bool:
    return ".." not in PurePosixPath(text).parts and "\0" not in text


def _joined(*parts: str) -> str:
    return "/".join(stripped for part in parts if (stripped := part.strip("/")) and stripped != ".")
