"""Usage of the last seven days from our agents: samples of a second, kept as means and maxima of five minutes.

Agents keep a week of pods, not of containers: a pod's usage is divided among its containers as their requests are.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import httpx
import msgspec

from deploy.backtest.server import PrometheusServer
from deploy.savings.usage import DAY_SECONDS, ContainerUse, KnownUsage, ResourceUse, Source
from deploy.savings.workloads import ContainerRole, Listed, WorkloadContainer
from shared.errors import HeadroomError, shown

WEEK = "168h"
_STEP_SECONDS = 300.0
_QUANTILE = "p99"  # of a week: a twentieth of its busiest day is no less
_METRICS = ("cpu", "memory")


class _Value(msgspec.Struct, frozen=True):
    labels: dict[str, str]
    value: float | None


class _Aggregates(msgspec.Struct, frozen=True):
    tier: str
    values: list[_Value]


class _PodWeek(NamedTuple):
    """Of one pod and resource: cores or bytes."""

    pod: str
    median: float
    quantile: float
    most: float
    points: int


def usage(servers: Iterable[PrometheusServer], listed: Listed) -> KnownUsage:
    """Of all pods that these agents know. Raises HeadroomError."""
    weeks: dict[str, defaultdict[tuple[str, str, str], list[_PodWeek]]] = {
        metric: defaultdict(list) for metric in _METRICS
    }
    for server in servers:
        for metric in _METRICS:
            for key, week in _weeks(server, metric):
                if key in listed.owner_of:
                    weeks[metric][listed.owner_of[key]].append(week)
    by_owner: defaultdict[tuple[str, str, str], list[WorkloadContainer]] = defaultdict(list)
    for each in listed.containers:
        if each.role is not ContainerRole.INIT:
            by_owner[each.key[:3]].append(each)
    uses = {}
    for owner, containers in by_owner.items():
        cpu, memory = (weeks[metric].get(owner, []) for metric in _METRICS)
        if not cpu and not memory:
            continue
        for place, each in enumerate(containers):
            uses[each.key] = ContainerUse(
                Source.AGENTS,
                cpu=_use(cpu, _share([one.cpu_request for one in containers], place)),
                memory=_use(memory, _share([one.memory_request for one in containers], place)),
                pods=max(len(cpu), len(memory)),
                shared=len(containers) > 1,
            )
    return KnownUsage(uses)


def _weeks(server: PrometheusServer, metric: str) -> Iterable[tuple[str, _PodWeek]]:
    """Of each pod by its key."""
    found = {how: _aggregate(server, metric, how) for how in ("p50", _QUANTILE, "max", "count")}
    for key, most in found["max"].items():
        points = int(found["count"].get(key, 0.0))
        yield key, _PodWeek(key, found["p50"].get(key, most), found[_QUANTILE].get(key, most), most, points)


def _aggregate(server: PrometheusServer, metric: str, how: str) -> dict[str, float]:
    query = {"kind": "pod", "metric": metric, "window": WEEK, "agg": how}
    status, content = server.asked("GET", "/api/v1/aggregate", query)
    if status != httpx.codes.OK:
        raise HeadroomError(f"{server.name}: {status} {shown(content[:200].decode(errors='replace'))}")
    try:
        answer = msgspec.json.decode(content, type=_Aggregates)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HeadroomError(f"{server.name}: no answer of an agent: {error}") from error
    return {
        f"{each.labels['namespace']}/{each.labels['pod']}": each.value
        for each in answer.values
        if each.value is not None and "pod" in each.labels and "namespace" in each.labels
    }


def _share(requests: Sequence[int | None], place: int) -> float:
    total = sum(each or 0 for each in requests)
    return (requests[place] or 0) / total if total else 1.0 / len(requests)


def _use(weeks: Sequence[_PodWeek], share: float) -> ResourceUse | None:
    if not weeks:
        return None
    decides = max(weeks, key=lambda week: week.quantile)
    longest = max(week.points for week in weeks)
    return ResourceUse(
        median=share * sorted(week.median for week in weeks)[len(weeks) // 2],
        quantile=share * decides.quantile,
        most=share * max(week.most for week in weeks),
        points=sum(week.points for week in weeks),
        days=longest * _STEP_SECONDS / DAY_SECONDS,
        busiest=f"{decides.pod} in a week",
    )
