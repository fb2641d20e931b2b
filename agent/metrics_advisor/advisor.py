"""One tick: read all sources, combine the values, append them to the metric cache."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metrics_advisor.rates import Floats
from agent.metrics_advisor.source import Sample, UsageSource
from agent.metrics_advisor.usages import Usages
from agent.states_informer.informer import StatesInformer
from agent.states_informer.pods import NodePod
from shared.api.core import Pod
from shared.metric_families import CounterFamily, HistogramFamily
from shared.names import LENDING_CLASSES, PriorityClass

logger = logging.getLogger(__name__)

Places: TypeAlias = NDArray[np.intp]

_METRICS = (Metric.CPU, Metric.MEMORY)  # in the order of Usage
_NODE_KEYS = tuple(SeriesKey(Kind.NODE, "", metric) for metric in _METRICS)
_CLASSES = tuple(PriorityClass)
_LENDING = np.array([priority_class in LENDING_CLASSES for priority_class in _CLASSES])

_SWEEP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

_TICKS = CounterFamily("headroom_agent_ticks", "Sampling ticks, by outcome.", ("outcome",))
_SWEEPS = HistogramFamily(
    "headroom_agent_sweep_seconds", "Duration of a sampling sweep, which reads and stores everything once."
)
_SWEEP_CPU_SECONDS = CounterFamily("headroom_agent_sweep_cpu_seconds", "CPU time of the sampling sweeps in seconds.")


class MetricsAdvisor:
    """Other threads may read it while one collects."""

    def __init__(
        self,
        source: UsageSource,
        states: StatesInformer,
        cache: MetricCache,
        *,
        registry: CollectorRegistry,
    ) -> None:
        self.sampling = threading.Event()  # set by the first sample stored
        self._source = source
        self._states = states
        self._cache = cache
        self._pods: list[NodePod] = []
        self._running: list[Pod] = []
        self._roster = Roster([], (), ())
        self._retained: frozenset[str] | None = None
        self._readable = True
        self._ticks = _TICKS.register(registry)
        self._sweeps = _SWEEPS.register(registry, _SWEEP_SECONDS)
        self._sweep_cpu = _SWEEP_CPU_SECONDS.register(registry)

    @property
    def second(self) -> int:
        """The cache's number for the present second."""
        return self._cache.second()

    @property
    def source(self) -> str:
        """The way in which usage is read."""
        return self._source.description

    def collect(self) -> None:
        """Runs one tick. An unreadable source costs this tick, and the next tick tries again."""
        cpu_before = time.thread_time()
        with self._sweeps.time():
            self._sweep()
        self._sweep_cpu.inc(time.thread_time() - cpu_before)

    def _sweep(self) -> None:
        synced = self._states.synced  # read first: an earlier list of pods may be incomplete
        pods = self._states.pods()
        if pods != self._pods:  # skips the comparison of identical objects
            self._pods, self._running = pods, [pod.pod for pod in pods if pod.running]
        try:
            sample = self._source.sample(self._running)
        except (OSError, ValueError) as error:
            self._ticks.labels("failed").inc()
            if self._readable:
                logger.error("usage cannot be read: %s", error, extra={"source": self.source})
            self._readable = False
            return
        self._readable = True
        if sample is None:
            self._ticks.labels("baseline").inc()
            return
        self._store(sample, pods if synced else None)
        self._ticks.labels("stored").inc()
        self.sampling.set()

    def _store(self, sample: Sample, pods: list[NodePod] | None) -> None:
        second = self._cache.second()
        if pods is None:
            # Without the pods, their usage would count as the system's.
            self._cache.append_values(second, _NODE_KEYS, np.array(sample.node))
            return
        if not self._roster.fits(sample, pods):
            self._roster = Roster(pods, sample.pods, sample.containers)
        roster = self._roster
        self._cache.append_values(second, roster.keys, roster.values(sample).reshape(-1), sample.readings)
        if roster.uids != self._retained:
            self._cache.retain_pods(roster.uids)
            self._retained = roster.uids


class Roster:
    """The measured entities and the destinations of their usages, computed once for as long as they stay the same."""

    def __init__(self, pods: Sequence[NodePod], sampled: Iterable[str], containers: Iterable[str]) -> None:
        self._pods = list(pods)
        self._sampled = tuple(sampled)
        self._containers = tuple(containers)
        self.uids = frozenset(pod.uid for pod in pods)
        by_uid = {pod.uid: pod for pod in pods}
        measured = [by_uid[uid] for uid in self._sampled if uid in by_uid]
        self._measured = _where(uid in by_uid for uid in self._sampled)
        self._in_containers = _where(name.partition("/")[0] in by_uid for name in self._containers)
        self._class_of = _places(_CLASSES, (pod.priority_class for pod in measured))
        workloads = tuple(dict.fromkeys(pod.workload for pod in measured if pod.workload))
        self._owned = _where(pod.workload for pod in measured)
        self._workload_of = _places(workloads, (pod.workload for pod in measured if pod.workload))
        self._workload_pods = np.bincount(self._workload_of, minlength=len(workloads))[:, np.newaxis]
        entities = [
            (Kind.NODE, ""),
            (Kind.SYSTEM, ""),
            (Kind.PROD_PEAK, ""),
            *((Kind.CLASS, str(priority_class)) for priority_class in _CLASSES),
            *((Kind.POD, pod.uid) for pod in measured),
            *((Kind.WORKLOAD, workload) for workload in workloads),
            *((Kind.CONTAINER, self._containers[place]) for place in self._in_containers),
        ]
        self.keys = tuple(SeriesKey(kind, entity, metric) for kind, entity in entities for metric in _METRICS)

    def fits(self, sample: Sample, pods: list[NodePod]) -> bool:
        """Whether the entities are still the same; a changed pod counts as another one."""
        return (
            pods == self._pods
            and Usages.of(sample.pods).names == self._sampled
            and Usages.of(sample.containers).names == self._containers
        )

    def values(self, sample: Sample) -> Floats:
        """The usage of all entities in one tick, of shape (entities, 2); `keys` names them. Pure.

        The system is the node's usage beyond its pods in the same tick, and includes unknown pods. All sums are of one
        instant, so the peak of a sum is not the sum of peaks. A workload's usage is the mean over its pods here, which
        is the expected usage of one more pod.
        """
        node = np.array(sample.node)
        pods = Usages.of(sample.pods).array[self._measured]
        classes = _sums(pods, self._class_of, len(_CLASSES))
        workloads = _sums(pods[self._owned], self._workload_of, len(self._workload_pods)) / self._workload_pods
        system = np.maximum(0.0, node - pods.sum(axis=0))
        prod_peak = system + classes[_LENDING].sum(axis=0)
        containers = Usages.of(sample.containers).array[self._in_containers]
        return np.concatenate([[node, system, prod_peak], classes, pods, workloads, containers])


def _sums(usages: Floats, groups: Places, count: int) -> Floats:
    """The sum of each of `count` groups, given the group of each row."""
    return np.stack([np.bincount(groups, column, count) for column in usages.T], axis=1)


def _where(marks: Iterable[object]) -> Places:
    return np.array([place for place, mark in enumerate(marks) if mark], np.intp)


def _places(names: Sequence[str], wanted: Iterable[str]) -> Places:
    """The position in `names` of each wanted name."""
    found = {name: place for place, name in enumerate(names)}
    return np.array([found[name] for name in wanted], np.intp)
