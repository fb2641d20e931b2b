"""Reads usage, requests and nodes of pods from a Prometheus with cAdvisor's and kube-state-metrics' series."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import httpx
import numpy as np

from agent.predict_server.decay import Floats
from deploy.backtest import matrix
from deploy.backtest.matrix import PrometheusSeries
from deploy.backtest.samples import UNITS, Samples
from deploy.backtest.server import PrometheusServer
from shared.errors import HeadroomError

MOST_POINTS = 10_000  # per series and query; Prometheus permits 11,000
MOST_WINDOW_SECONDS = 86_400.0  # keeps the answer for many pods small
HOUR_SECONDS = 3600.0
TRIES = 4
SCRAPES_SECONDS = 120.0  # at least two scrapes
PAUSE_SECONDS = 0.1  # after the first attempt; doubled each time
_BUSY = (502, 503, 504)

_PODS = '{container!="", container!="POD"}'
_PLACES = 'max by (namespace, pod, node) (kube_pod_info{node!=""})'
_OWNERS = 'max by (namespace, pod, owner_kind, owner_name) (kube_pod_owner{owner_is_controller="true"})'
_OUTLIVED = {"ReplicaSet": "Deployment", "Job": "CronJob"}  # their names have one more part at the end
_REQUESTS = (
    "sum by (namespace, pod) (max by (namespace, pod, container) (kube_pod_container_resource_requests{resource=%s}))"
)


@dataclass(frozen=True)
class Period:
    """The queried period in Unix seconds; samples are `step_seconds` apart."""

    start: float
    end: float
    step_seconds: float

    def windows(self, step_seconds: float) -> Iterator["Period"]:
        """Parts of at most MOST_POINTS points and a day (at least one point each), without overlap."""
        points = max(1, min(MOST_POINTS, int(MOST_WINDOW_SECONDS // step_seconds)))
        start = self.start
        while start <= self.end:
            yield Period(start, min(self.end, start + (points - 1) * step_seconds), step_seconds)
            start += points * step_seconds


class Prometheus(PrometheusServer):
    """One Prometheus at the base URL of its API. Raises InvalidInput for an invalid URL."""

    def query_range(
        self, query: str, period: Period, came: Callable[[float], None] = lambda seconds: None
    ) -> Iterator[PrometheusSeries]:
        """The series of the query, piece by piece; `came` receives the number of seconds read so far.

        Raises HeadroomError if the server refuses the query.
        """
        for window in period.windows(period.step_seconds):
            yield from matrix.decoded(self._answer(query, window), self.name)
            came(window.end - window.start)

    def _answer(self, query: str, window: Period) -> bytes:
        fields = {
            "query": query,
            "start": f"{window.start:.3f}",
            "end": f"{window.end:.3f}",
            "step": f"{window.step_seconds:g}",
        }
        for attempt in range(TRIES):
            status, content = self.asked("POST", "/api/v1/query_range", fields)
            if status not in _BUSY:
                break
            time.sleep(PAUSE_SECONDS * 2**attempt)
        if status != httpx.codes.OK:
            raise HeadroomError(f"{self.name}: {status} {_problem(content)}")
        return content


def samples(
    server: Prometheus,
    resource: str,
    period: Period,
    came: Callable[[float], None] = lambda seconds: None,
    aggregate: str = "mean",
) -> Samples:
    """The usage of "cpu" or "memory" of every pod, with its node, its requests and its workload; of each step the mean,
    or the maximum (of means of two minutes for cpu, of scrapes for memory).

    Raises HeadroomError and InvalidInput.
    """
    source = server.name
    unit = UNITS["cpu_cores"] if resource == "cpu" else UNITS["memory_bytes"]
    query = f"{_used(resource, period.step_seconds, aggregate)} * on (namespace, pod) group_left (node) {_PLACES}"
    used = matrix.samples(server.query_range(query, period, came), unit, source)
    hourly = replace(period, step_seconds=max(HOUR_SECONDS, period.step_seconds))
    requests = {of: _largest(server.query_range(_REQUESTS % json.dumps(of), hourly)) for of in ("cpu", "memory")}
    owners = {matrix.name_of(one.metric): _workload(one.metric) for one in server.query_range(_OWNERS, hourly)}
    return replace(
        used,
        cores=_in_order(requests["cpu"], used),
        memory_bytes=_in_order(requests["memory"], used),
        workloads=[owners.get(name, "") for name in used.names] if owners else (),
        aggregate=aggregate or "mean",
    )


def _workload(labels: Mapping[str, str]) -> str:
    """The workload that outlives rollouts, as agents name it: "namespace/Kind/name", empty for a static pod."""
    kind, name = labels.get("owner_kind", ""), labels.get("owner_name", "")
    if kind in ("", "Node"):
        return ""
    if kind in _OUTLIVED and "-" in name:
        kind, name = _OUTLIVED[kind], name.rpartition("-")[0]
    return f"{labels.get('namespace', '')}/{kind}/{name}"


def _used(resource: str, step_seconds: float, aggregate: str) -> str:
    largest = aggregate == "max" and step_seconds > SCRAPES_SECONDS
    window = SCRAPES_SECONDS if largest else max(step_seconds, SCRAPES_SECONDS)
    used = f"sum by (namespace, pod) (container_memory_working_set_bytes{_PODS})"
    if resource == "cpu":
        used = f"sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{_PODS}[{window:g}s]))"
    return f"max_over_time(({used})[{step_seconds:g}s:{SCRAPES_SECONDS / 2:g}s])" if largest else used


def _largest(found: Iterable[PrometheusSeries]) -> dict[str, float]:
    """The largest value of each pod: its requests while it ran."""
    largest: dict[str, float] = {}
    for series in found:
        name = matrix.name_of(series.metric)
        largest[name] = max(largest.get(name, 0.0), *(float(value) for _, value in series.values))
    return largest


def _in_order(amounts: Mapping[str, float], samples: Samples) -> Floats:
    return np.array([amounts.get(name, np.nan) for name in samples.names])


def _problem(content: bytes) -> str:
    """The error's message on one line."""
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content[:200].decode(errors="replace")
