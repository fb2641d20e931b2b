"""Usage of pods and containers from their cgroups."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agent.metric_cache.series import Kind, Usage
from agent.metrics_advisor import formats
from agent.metrics_advisor.cgroup import COLD_SECONDS, LOOK_AGAIN_SECONDS, Cgroup, Readings, TrackedCgroup
from agent.metrics_advisor.cgroups import Layout, PodName
from agent.metrics_advisor.files import Descriptors, read_small
from agent.metrics_advisor.pace import Pace, Turns
from agent.metrics_advisor.rates import Monotonic
from agent.metrics_advisor.sweep import Sweep
from agent.metrics_advisor.usages import Names
from agent.metrics_advisor.waits import Waits
from shared import names
from shared.api import pods
from shared.api.core import ContainerStatus, Pod

# The API's copy of a static pod, its mirror, has a uid of its own; the kubelet names the cgroup by the hash.
ANNOTATION_STATIC_POD_UID = "kubernetes.io/config.hash"

# The lines of a memory.numa_stat that are neither free nor page cache. v1 counts pages, and has separate lines for
# totals with the cgroups below.
_V2_NUMA = (b"inactive_anon", b"active_anon", b"unevictable")
_V1_NUMA = (b"hierarchical_anon", b"hierarchical_unevictable")
_V1_NUMA_UNIT_BYTES = os.sysconf("SC_PAGE_SIZE")


class MeasuredPods(NamedTuple):
    """Usage of pods and containers: by uid, and by "uid/name"."""

    pods: Mapping[str, Usage]
    containers: Mapping[str, Usage]


def name_of(pod: Pod) -> PodName:
    """The possible names of its cgroup: its own uid first. Only a mirror that the node itself created has another one,
    because any user can write an annotation.
    """
    meta = pod.metadata
    of_node = any(owner.controller and owner.kind == "Node" for owner in meta.owner_references or ())
    is_mirror = of_node and meta.annotation(names.ANNOTATION_MIRROR) is not None
    static = meta.annotation(ANNOTATION_STATIC_POD_UID) if is_mirror else None
    return PodName(pods.kube_qos(pod), (pod.metadata.uid, *([static] if static else [])))


def container_key(uid: str, name: str) -> str:
    """The entity of a container."""
    return f"{uid}/{name}"


def containers_of(pod: Pod) -> Sequence[ContainerStatus]:
    """The pod's created containers, including init, sidecar and ephemeral containers."""
    status = pod.status
    kinds = (status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses)
    return [one for kind in kinds for one in kind or () if one.container_id]


class _Watched:
    """One pod and its containers, for one version of the pod."""

    __slots__ = ("cold", "containers", "numa_bytes", "path", "pod", "tracked")

    def __init__(self, pod: Pod, tracked: TrackedCgroup, now: float) -> None:
        self.pod = pod
        self.path: str | None = None  # of the cgroup, once known
        self.tracked = tracked
        self.containers: dict[str, tuple[str, TrackedCgroup]] = {}  # by entity: the container's id, its cgroup
        self.cold = Pace(COLD_SECONDS, now)
        self.numa_bytes: Mapping[int, int] = {}

    def read_cold(self, readings: Readings) -> None:
        pressures = self.tracked.read_cold(readings)
        for _, tracked in self.containers.values():
            tracked.read_cold(readings, pressures)


class PodCgroups:
    """Every pod's cgroup under one layout. A missing pod is looked for at each tick, a missing container now and then.

    On a machine with a single NUMA node, its number saves reading how each cgroup's memory is spread.
    """

    def __init__(
        self,
        layout: Layout,
        descriptors: Descriptors,
        monotonic: Monotonic = time.monotonic,
        *,
        only_numa_node: int | None = None,
    ) -> None:
        self._layout = layout
        self._hierarchy = layout.hierarchy
        self._descriptors = descriptors
        self._monotonic = monotonic
        self._only_numa_node = only_numa_node
        self._pods_bytes = np.empty(0)  # of each pod at the last tick; NaN if unknown
        self._watched: dict[str, _Watched] = {}
        self._sweep = Sweep(v2=self._hierarchy.v2, monotonic=monotonic)
        self._waits = Waits() if self._hierarchy.v2 else None
        self._follow((), monotonic())

    def sample(self, wanted: Sequence[Pod], now: float, cpu_count: int, readings: Readings) -> MeasuredPods:
        """Usage of pods and containers with a readable cgroup; `readings` gets the other values due at `now`."""
        if wanted != self._wanted:  # skips the comparison of identical objects
            self._follow(wanted, now)
        usages = self._sweep.sample(now, cpu_count, readings)
        for place in self._cold.due(now):
            watched = self._by_turn[place]
            watched.read_cold(readings)
            if self._only_numa_node is None:
                watched.numa_bytes = self._numa_bytes(watched)
        if self._waits is not None:
            self._waits.sample(now, readings)
        pod_count = len(self._pods)
        self._pods_bytes = usages[:pod_count, 1]
        return MeasuredPods(self._pods.of(usages[:pod_count]), self._containers.of(usages[pod_count:]))

    @property
    def found(self) -> bool:
        """Whether any pod has a cgroup here."""
        return any(watched.tracked.cgroup is not None for watched in self._watched.values())

    def numa_bytes(self) -> dict[int, int]:
        """Memory of all pods on each NUMA node, as of each pod's last turn."""
        if self._only_numa_node is not None:
            return {self._only_numa_node: int(np.nansum(self._pods_bytes))}
        total: dict[int, int] = {}
        for watched in self._watched.values():
            for node, held in watched.numa_bytes.items():
                total[node] = total.get(node, 0) + held
        return total

    def close(self) -> None:
        self._follow((), self._monotonic())

    def _follow(self, wanted: Sequence[Pod], now: float) -> None:
        self._wanted = list(wanted)
        self._watched = {pod.metadata.uid: self._watch(pod, now) for pod in wanted}
        self._by_turn = list(self._watched.values())
        self._cold = Turns([watched.cold for watched in self._by_turn])
        containers = [item for watched in self._by_turn for item in watched.containers.items()]
        self._pods, self._containers = Names(self._watched), Names(entity for entity, _ in containers)
        self._sweep.follow([*(one.tracked for one in self._by_turn), *(tracked for _, (_, tracked) in containers)])
        if self._waits is not None:
            self._waits.follow({uid: one.tracked for uid, one in self._watched.items() if pods.must_not_wait(one.pod)})

    def _watch(self, pod: Pod, now: float) -> _Watched:
        """The pod's present state: containers start, stop, and restart under the same name."""
        uid = pod.metadata.uid
        watched = self._watched.get(uid)
        if watched is None:
            watched = _Watched(pod, TrackedCgroup(lambda: self._find_pod(uid)), now)
        elif watched.pod is pod:
            return watched
        watched.pod = pod
        known, watched.containers = watched.containers, {}
        for one in containers_of(pod):
            entity, container_id = container_key(uid, one.name), one.container_id
            if entity not in known or known[entity][0] != container_id:
                known[entity] = container_id, self._container(watched, entity, container_id)
            watched.containers[entity] = known[entity]
        return watched

    def _container(self, watched: _Watched, entity: str, container_id: str) -> TrackedCgroup:
        def find() -> Cgroup | None:
            if watched.path is None:
                return None
            path = self._layout.find_container(watched.path, container_id)
            return None if path is None else self._open(Kind.CONTAINER, entity, path)

        return TrackedCgroup(find, LOOK_AGAIN_SECONDS)

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
        if watched.tracked.cgroup is None or watched.path is None:
            return {}
        v2 = self._hierarchy.v2
        try:
            stat = read_small(f"{self._hierarchy.directories(watched.path).memory}/memory.numa_stat")
            if v2:
                return formats.numa_bytes(stat, _V2_NUMA, 1)
            return formats.numa_bytes(stat, _V1_NUMA, _V1_NUMA_UNIT_BYTES)
        except (OSError, ValueError):
            return {}
