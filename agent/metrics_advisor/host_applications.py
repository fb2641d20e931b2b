"""Programs of the node itself that run in cgroups of their own, and their usage."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from agent.metric_cache.series import Kind, Usage
from agent.metrics_advisor.cgroup import COLD_SECONDS, LOOK_AGAIN_SECONDS, Cgroup, Readings, TrackedCgroup
from agent.metrics_advisor.cgroups import Hierarchy, Layout
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.pace import Pace
from agent.metrics_advisor.rates import Monotonic
from agent.metrics_advisor.sweep import Sweep
from agent.metrics_advisor.usages import Names
from shared.api.nodeslo import CgroupBase, HostApplication
from shared.names import KubeQoS

_CLASSES = {
    CgroupBase.KUBEPODS: KubeQoS.GUARANTEED,
    CgroupBase.BURSTABLE: KubeQoS.BURSTABLE,
    CgroupBase.BEST_EFFORT: KubeQoS.BEST_EFFORT,
}


def relative_path(application: HostApplication, layout: Layout | None) -> str | None:
    """The application's cgroup below the roots; None while the pods' tree that contains it is unknown.

    Also None if it contains that tree, because pods would count twice.
    """
    path = application.path
    if path.base is CgroupBase.ROOT:
        holds_pods = layout is not None and PurePosixPath(layout.class_path(KubeQoS.GUARANTEED)).is_relative_to(
            path.below_base
        )
        return None if holds_pods else str(path.below_base)
    if layout is None:
        return None
    return str(PurePosixPath(layout.class_path(_CLASSES[path.base]), path.below_base))


class HostApplicationCgroups:
    """The cgroups of all host applications."""

    def __init__(
        self, hierarchy: Hierarchy, layout: Layout | None, descriptors: Descriptors, monotonic: Monotonic
    ) -> None:
        self._hierarchy = hierarchy
        self._layout = layout
        self._descriptors = descriptors
        self._monotonic = monotonic
        self._tracked: dict[HostApplication, tuple[TrackedCgroup, Pace]] = {}
        self._sweep = Sweep(v2=hierarchy.v2, monotonic=monotonic)
        self._follow(())

    def sample(
        self, applications: Sequence[HostApplication], now: float, cpu_count: int, readings: Readings
    ) -> Mapping[str, Usage]:
        """Usage by name; an application without a cgroup is absent, and looked for again."""
        if tuple(applications) != tuple(self._tracked):
            self._follow(applications)
        usages = self._names.of(self._sweep.sample(now, cpu_count, readings))
        for tracked, cold in self._tracked.values():
            if cold.due(now):
                tracked.read_cold(readings)
        return usages

    def close(self) -> None:
        self._follow(())

    def _follow(self, applications: Sequence[HostApplication]) -> None:
        self._tracked = {one: self._tracked.get(one) or self._track(one) for one in applications}
        self._names = Names(one.name for one in self._tracked)
        self._sweep.follow(tracked for tracked, _ in self._tracked.values())

    def _track(self, application: HostApplication) -> tuple[TrackedCgroup, Pace]:
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

        return TrackedCgroup(find, LOOK_AGAIN_SECONDS), Pace(COLD_SECONDS, self._monotonic())
