"""Usage of containers from a Prometheus with cAdvisor's series.

Prometheus computes quantiles and maxima, day by day and namespace by namespace, so that large clusters and long
histories give small answers.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from agent.predict_server.decay import Floats
from deploy.backtest.matrix import PrometheusSeries
from deploy.backtest.prometheus import Period, Prometheus
from deploy.savings.usage import (
    DAY_SECONDS,
    QUANTILE,
    ContainerKey,
    ContainerUse,
    KnownUsage,
    PodDay,
    PodSamples,
    Source,
    over_days,
    remember,
)
from deploy.savings.vpa import VpaHistory
from shared.errors import InvalidInput

HOUR_SECONDS = 3600.0
_CONTAINERS = 'container!="", container!="POD", namespace=%s'
_CPU = "sum by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{%s}[%s]))"
_MEMORY = "max by (namespace, pod, container) (container_memory_working_set_bytes{%s})"
_KILLED = (
    "max by (namespace, pod, container) (max_over_time(kube_pod_container_status_last_terminated_reason"
    '{reason="OOMKilled", namespace=%s}[1d])) * on (namespace, pod, container) group_left '
    'max by (namespace, pod, container) (kube_pod_container_resource_limits{resource="memory", namespace=%s})'
)
_THROTTLED = (
    "sum by (namespace, pod, container) (increase(container_cpu_cfs_throttled_periods_total{%s}[1d]))"
    " / sum by (namespace, pod, container) (increase(container_cpu_cfs_periods_total{%s}[1d]))"
)

Owners = Mapping[str, tuple[str, str, str]]


class _Replica(NamedTuple):
    key: ContainerKey
    pod: str


def usage(
    server: Prometheus,
    period: Period,
    owner_of: Owners,
    *,
    with_history: bool = False,
    came: Callable[[str], None] = lambda namespace: None,
) -> KnownUsage:
    """The usage of the pods in `owner_of`, and of deleted pods whose names reveal their workload.

    `with_history` also reads hourly samples, from which VPA's recommender starts. Raises HeadroomError.
    """
    uses: dict[ContainerKey, ContainerUse] = {}
    workloads = _by_prefix(owner_of)
    for namespace in sorted({owner[0] for owner in owner_of.values()}):
        asker = _Asker(server, period, namespace, owner_of, workloads.get(namespace, {}))
        uses |= asker.uses(with_history=with_history)
        came(namespace)
    notes = () if uses else (f"{server.name} knows nothing of the containers of these pods",)
    return KnownUsage(uses, notes)


def _by_prefix(owner_of: Owners) -> dict[str, dict[str, tuple[str, str, str]]]:
    """By namespace: the workloads whose pods' names begin with theirs."""
    found: defaultdict[str, dict[str, tuple[str, str, str]]] = defaultdict(dict)
    for owner in owner_of.values():
        if owner[1] not in ("Pod", "Node"):
            found[owner[0]][owner[2]] = owner
    return found


class _Asker:
    def __init__(
        self,
        server: Prometheus,
        period: Period,
        namespace: str,
        owner_of: Owners,
        workloads: Mapping[str, tuple[str, str, str]],
    ) -> None:
        self._server, self._namespace = server, namespace
        self._owner_of, self._workloads = owner_of, workloads
        self._step = f"{period.step_seconds:g}s"
        window = max(4 * 60.0, period.step_seconds)  # four one-minute scrapes: a rate over fewer may be empty
        selected = _CONTAINERS % json.dumps(namespace)
        self._selected = selected
        self._cpu, self._memory = _CPU % (selected, f"{window:g}s"), _MEMORY % selected
        self._apart = period.step_seconds
        # Each point of an answer covers the day before it.
        self._days = Period(period.start + DAY_SECONDS, period.end, DAY_SECONDS)
        self._hours = Period(period.start, period.end, HOUR_SECONDS)

    def uses(self, *, with_history: bool) -> dict[ContainerKey, ContainerUse]:
        cpu, memory = self._pod_days(self._cpu), self._pod_days(self._memory)
        killed = self._killed()
        throttled = self._throttled()
        histories = self._histories() if with_history else {}
        found = {}
        for key in cpu.keys() | memory.keys():
            of_cpu, of_memory = cpu.get(key, []), memory.get(key, [])
            found[key] = ContainerUse(
                Source.PROMETHEUS,
                cpu=over_days(of_cpu, of_peaks=False, seconds_apart=self._apart),
                memory=over_days(of_memory, of_peaks=True, seconds_apart=self._apart),
                history=histories.get(key),
                killed=tuple(killed.get(key, ())),
                throttled=throttled.get(key),
            )
        return found

    def _pod_days(self, query: str) -> dict[ContainerKey, list[PodDay]]:
        def over_day(how: str, first: str = "") -> dict[_Replica, dict[int, float]]:
            return self._by_day(f"{how}({first}({query})[1d:{self._step}])")

        medians = over_day("quantile_over_time", "0.5, ")
        quantiles = over_day("quantile_over_time", f"{QUANTILE:g}, ")
        maxima, counts = over_day("max_over_time"), over_day("count_over_time")
        found: defaultdict[ContainerKey, list[PodDay]] = defaultdict(list)
        for replica, days in quantiles.items():
            for day, quantile in days.items():
                median, most = (known.get(replica, {}).get(day, quantile) for known in (medians, maxima))
                points = int(counts.get(replica, {}).get(day, 1))
                found[replica.key].append(PodDay(replica.pod, day, median, quantile, most, points))
        return found

    def _by_day(self, query: str) -> dict[_Replica, dict[int, float]]:
        found: defaultdict[_Replica, dict[int, float]] = defaultdict(dict)
        for series in self._server.query_range(query, self._days):
            replica = self._replica(series)
            if replica is not None:
                times, values = _numbers(series, self._server.name)
                days = ((times - DAY_SECONDS) // DAY_SECONDS).astype(np.int64)
                found[replica] |= {
                    day: value for day, value in zip(days.tolist(), values.tolist(), strict=True) if value == value
                }
        return found

    def _killed(self) -> dict[ContainerKey, list[int]]:
        quoted = json.dumps(self._namespace)
        found: defaultdict[ContainerKey, list[int]] = defaultdict(list)
        for replica, days in self._by_day(_KILLED % (quoted, quoted)).items():
            found[replica.key].append(int(max(days.values(), default=0.0)))
        return found

    def _throttled(self) -> dict[ContainerKey, float]:
        found: dict[ContainerKey, float] = {}
        for replica, days in self._by_day(_THROTTLED % (self._selected, self._selected)).items():
            found[replica.key] = max(found.get(replica.key, 0.0), *days.values()) if days else 0.0
        return found

    def _histories(self) -> dict[ContainerKey, VpaHistory]:
        cpu = self._samples(_CPU % (self._selected, "1h"))
        memory = self._samples(self._memory)
        return {key: remember(cpu.get(key, ()), memory.get(key, ())) for key in cpu.keys() | memory.keys()}

    def _samples(self, query: str) -> dict[ContainerKey, list[PodSamples]]:
        pieces: defaultdict[_Replica, list[tuple[Floats, Floats]]] = defaultdict(list)
        for series in self._server.query_range(query, self._hours):
            replica = self._replica(series)
            if replica is not None:
                pieces[replica].append(_numbers(series, self._server.name))
        found: defaultdict[ContainerKey, list[PodSamples]] = defaultdict(list)
        for replica, parts in pieces.items():
            times, values = (np.concatenate(each) for each in zip(*parts, strict=True))
            found[replica.key].append(PodSamples(replica.pod, times, values))
        return found

    def _replica(self, series: PrometheusSeries) -> _Replica | None:
        pod, container = series.metric.get("pod", ""), series.metric.get("container", "")
        owner = self._owner_of.get(f"{self._namespace}/{pod}") or self._gone(pod)
        return _Replica(ContainerKey(*owner, container), pod) if owner and container else None

    def _gone(self, pod: str) -> tuple[str, str, str] | None:
        """The workload of a deleted pod, by its name: all but the last one or two parts."""
        name = pod
        for _ in range(2):
            name = name.rpartition("-")[0]
            if name in self._workloads:
                return self._workloads[name]
        return None


def _numbers(series: PrometheusSeries, source: str) -> tuple[Floats, Floats]:
    """The values as numbers. Raises InvalidInput."""
    try:
        numbers = np.array(series.values, np.float64).reshape(-1, 2)
    except ValueError as error:
        raise InvalidInput(source=source, field="values", value=series.values[:2], problem=str(error)) from error
    return numbers[:, 0], numbers[:, 1]
