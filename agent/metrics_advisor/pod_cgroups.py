"""Pods' and containers' usage out of their cgroups."""

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.metric_cache.series import Kind, Usage
from agent.metrics_advisor import formats
from agent.metrics_advisor.cgroup import COLD_SECONDS, LOOK_AGAIN_SECONDS, Cgroup, Readings, Tracked
from agent.metrics_advisor.cgroups import Layout, PodName
from agent.metrics_advisor.files import Descriptors, read_small
from agent.metrics_advisor.pace import Pace
from agent.metrics_advisor.rates import Monotonic
from shared.api import pods
from shared.api.core import ContainerStatus, Pod

# The API's copy of a static pod has a uid of its own; the kubelet names the cgroup by this annotation.
ANNOTATION_STATIC_POD_UID = "kubernetes.io/config.hash"

# Of a memory.numa_stat, what is neither free nor page cache; v1 counts pages, and alone the cgroups below apart.
_V2_NUMA = (b"inactive_anon", b"active_anon", b"unevictable")
_V1_NUMA = (b"hierarchical_anon", b"hierarchical_unevictable")
_V1_NUMA_UNIT_BYTES = 4096


class Measured(NamedTuple):
    """What pods and containers use: by uid, and by "uid/name"."""

    pods: Mapping[str, Usage]
    containers: Mapping[str, Usage]


def name_of(pod: Pod) -> PodName:
    """What its cgroup may be named by; its own uid first, as anyone can write an annotation."""
    static = pod.metadata.annotation(ANNOTATION_STATIC_POD_UID)
    return PodName(pods.kube_qos(pod), (pod.metadata.uid, *([static] if static else [])))


def container_key(uid: str, name: str) -> str:
    """The entity of a container."""
    return f"{uid}/{name}"


def containers_of(pod: Pod) -> Sequence[ContainerStatus]:
    """The pod's containers that have been made, those that run before or beside the others among them."""
    status = pod.status
    found = itertools.chain(status.init_container_statuses or (), status.container_statuses or ())
    return [one for one in found if one.container_id]


class _Watched:
    """One pod and its containers, as of one version of the pod."""

    __slots__ = ("cold", "containers", "numa_bytes", "path", "pod", "tracked")

    def __init__(self, pod: Pod, tracked: Tracked, now: float) -> None:
        self.pod = pod
        self.path: str | None = None  # of the cgroup, once it was found
        self.tracked = tracked
        self.containers: dict[str, tuple[str, Tracked]] = {}  # by entity: the container's id, its cgroup
        self.cold = Pace(COLD_SECONDS, now)
        self.numa_bytes: Mapping[int, int] = {}

    def close(self) -> None:
        self.tracked.close()
        for _, tracked in self.containers.values():
            tracked.close()


class PodCgroups:
    """Every pod's cgroup under one layout. A pod is looked for at each tick, a container now and then."""

    def __init__(self, layout: Layout, descriptors: Descriptors, monotonic: Monotonic = time.monotonic) -> None:
        self._layout = layout
        self._hierarchy = layout.hierarchy
        self._descriptors = descriptors
        self._monotonic = monotonic
        self._watched: dict[str, _Watched] = {}

    def sample(self, wanted: Sequence[Pod], now: float, cpu_count: int, readings: Readings) -> Measured:
        """Usage of what has a readable cgroup; `readings` gets what else is due at `now`."""
        usages: dict[str, Usage] = {}
        containers: dict[str, Usage] = {}
        for pod in wanted:
            uid = pod.metadata.uid
            watched = self._watched.get(uid)
            if watched is None or watched.pod is not pod:
                watched = self._watch(pod, watched, now)
            usage = watched.tracked.sample(now, cpu_count, readings)
            if usage is not None:
                usages[uid] = usage
            for entity, (_, tracked) in watched.containers.items():
                usage = tracked.sample(now, cpu_count, readings)
                if usage is not None:
                    containers[entity] = usage
            if watched.cold.due(now):
                pressures = watched.tracked.read_cold(readings)
                for _, tracked in watched.containers.values():
                    tracked.read_cold(readings, pressures)
                watched.numa_bytes = self._numa_bytes(watched)
        if len(self._watched) > len(wanted):
            for uid in self._watched.keys() - {pod.metadata.uid for pod in wanted}:
                self._watched.pop(uid).close()
        return Measured(usages, containers)

    @property
    def found(self) -> bool:
        """Whether any pod has a cgroup here."""
        return any(watched.tracked.found for watched in self._watched.values())

    def numa_bytes(self) -> dict[int, int]:
        """What all pods hold of each NUMA node, as of each pod's last turn."""
        total: dict[int, int] = {}
        for watched in self._watched.values():
            for node, held in watched.numa_bytes.items():
                total[node] = total.get(node, 0) + held
        return total

    def close(self) -> None:
        for watched in self._watched.values():
            watched.close()
        self._watched.clear()

    def _watch(self, pod: Pod, known: _Watched | None, now: float) -> _Watched:
        """Follows `pod` as it is now: containers come, go, and start again under the same name."""
        uid = pod.metadata.uid
        watched = known or _Watched(pod, Tracked(lambda: self._find_pod(uid)), now)
        watched.pod = pod
        self._watched[uid] = watched
        present = {container_key(uid, one.name): one.container_id for one in containers_of(pod)}
        for entity, (container_id, tracked) in list(watched.containers.items()):
            if present.get(entity) != container_id:
                tracked.close()
                del watched.containers[entity]
        for entity, container_id in present.items():
            if entity not in watched.containers:
                watched.containers[entity] = container_id, self._container(watched, entity, container_id)
        return watched

    def _container(self, watched: _Watched, entity: str, container_id: str) -> Tracked:
        def find() -> Cgroup | None:
            if watched.path is None:
                return None
            path = self._layout.find_container(watched.path, container_id)
            return None if path is None else self._open(Kind.CONTAINER, entity, path)

        return Tracked(find, LOOK_AGAIN_SECONDS)

    def _find_pod(self, uid: str) -> Cgroup | None:
        watched = self._watched[uid]
        watched.numa_bytes = {}
        watched.path = self._layout.find_pod(*name_of(watched.pod))
        return None if watched.path is None else self._open(Kind.POD, uid, watched.path)

    def _open(self, kind: Kind, entity: str, path: str) -> Cgroup:
        directories = self._hierarchy.directories(path)
        return Cgroup(
            kind,
            entity,
            directories,
            v2=self._hierarchy.v2,
            descriptors=self._descriptors,
            monotonic=self._monotonic,
        )

    def _numa_bytes(self, watched: _Watched) -> Mapping[int, int]:
        if not watched.tracked.found or watched.path is None:
            return {}
        v2 = self._hierarchy.v2
        try:
            stat = read_small(f"{self._hierarchy.directories(watched.path).memory}/memory.numa_stat")
            if v2:
                return formats.numa_bytes(stat, _V2_NUMA, 1)
            return formats.numa_bytes(stat, _V1_NUMA, _V1_NUMA_UNIT_BYTES)
        except (OSError, ValueError):
            return {}
