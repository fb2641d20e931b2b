"""The usage and requests of workloads and pods in the last day: `GET /api/v1/workloads/{...}/history`.

A series takes 3 kB. If there are too many workloads or pods, only those that request most CPU are kept.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from fastapi import APIRouter, Query, Response

from manager.nodeside.node_trends import AmountSeries, amount_series
from manager.nodeside.workloads import ANY, BARE, PodSource, WorkloadSum, measured_pods, merged, requested_amounts
from manager.trends import Sample, Trends
from shared import durations
from shared.clock import Clock

MOST_WORKLOADS = 5_000
MOST_PODS = 5_000
_AMOUNTS = ("used", "requested")
_ROWS = 2 * len(_AMOUNTS)  # cpu and memory of each
_UNKNOWN = (np.nan, np.nan)


@dataclass(frozen=True)
class WorkloadTrend:
    """One workload, or one `pod` of it where that is not empty; each series has a value for each of `times` (RFC 3339).

    Memory is exact to seven digits. A sum leaves out pods of which the usage was not known. All is null where it is not
    remembered, because others request more.
    """

    namespace: str
    kind: str
    name: str
    pod: str
    times: list[str]
    used: AmountSeries
    requested: AmountSeries


class WorkloadTrends:
    """The trends of the workloads with active pods on nodes, and of these pods."""

    def __init__(self, cluster: PodSource, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._trends = Trends(_ROWS, clock)

    def record(self) -> None:
        """Takes a sample, if the last one is long enough ago."""
        self._trends.record(lambda: _sample(self._cluster, self._clock.now()))

    def answer(self, namespace: str, kind: str, name: str, pod: str = "") -> WorkloadTrend:
        """A bare pod is its own workload."""
        if kind != BARE:
            workload = f"{namespace}/{kind}/{name}"
            series = _pod_key(workload, f"{namespace}/{pod}") if pod else workload
        else:
            key = f"{namespace}/{pod or name}"
            series = key if key.endswith(ANY) else _pod_key(key, key)
        times, values = self._trends.read(series)
        return WorkloadTrend(
            namespace, kind, name, pod, [durations.timestamp(time) for time in times], *amount_series(values)
        )


def router(trends: WorkloadTrends) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/api/v1/workloads")

    @routes.get(
        "/{namespace}/{kind}/{name}/history",
        summary="The last day of one workload, or of one of its pods",
        response_model=WorkloadTrend,
    )
    def workload_trend(
        namespace: str,
        kind: str,
        name: str,
        pod: Annotated[str, Query(max_length=300, description="name of one of its pods")] = "",
    ) -> Response:
        return Response(msgspec.json.encode(trends.answer(namespace, kind, name, pod)), media_type="application/json")

    return routes


def _sample(cluster: PodSource, now: float) -> Mapping[str, Sample]:
    """cpu and memory of each amount, of every workload and pod that is remembered."""
    workloads: defaultdict[str, WorkloadSum] = defaultdict(WorkloadSum)
    pods = []
    for node, pod, used in measured_pods(cluster, now):
        workloads[pod.workload or pod.key].add(node, pod, used)
        cpu, memory = requested_amounts(pod)
        pods.append((cpu, pod.key, memory, pod.workload, used or _UNKNOWN))
    sums = (
        (one.cpu, name, one.memory, (one.used_cpu, one.used_memory) if one.measured else _UNKNOWN)
        for name, one in merged(workloads).items()
    )
    # Names settle equal amounts, so that the same ones stay.
    sampled = {name: (*used, cpu, memory) for cpu, name, memory, used in heapq.nlargest(MOST_WORKLOADS, sums)}
    sampled |= {
        _pod_key(workload or key, key): (*used, cpu, memory)
        for cpu, key, memory, workload, used in heapq.nlargest(MOST_PODS, pods)
    }
    return {name: np.array(values, np.float32) for name, values in sampled.items()}


def _pod_key(workload: str, pod: str) -> str:
    return f"{workload} {pod}"  # no name has a space in it
