"""Usage of the last seven days from our agents: samples of a second, kept as means and maxima of five minutes.

Agents keep a week of pods, not of containers: a pod's usage is divided among its containers in proportion to their
requests. For deleted pods they keep the mean over a workload's pods on their node.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from deploy.backtest.server import AgentServer
from deploy.backtest.server import read as ask
from deploy.savings.usage import DAY_SECONDS, ContainerUse, KnownUsage, ResourceUse, Source
from deploy.savings.workloads import ContainerRole, Listed, WorkloadContainer
from shared.errors import HeadroomError, shown

WEEK = "168h"
_SAMPLE_SECONDS = 1.0  # seconds between two counted samples; if an agent measures less often, a week looks shorter
_QUANTILE = "p99"  # of a week: a twentieth of its busiest day is no less
_UNITS = {"cpu": "cores", "memory": "bytes"}
_METRICS = tuple(_UNITS)
_MOST_NAMED = 3

_Owner = tuple[str, str, str]


class _Value(msgspec.Struct, frozen=True):
    labels: dict[str, str]
    value: float | None


class _Aggregates(msgspec.Struct, frozen=True):
    tier: str
    unit: str
    values: list[_Value]


class _AskedNode(msgspec.Struct, frozen=True):
    name: str


class _Week(NamedTuple):
    """One resource of one pod, or of a workload's pods on one node: cores or bytes."""

    whose: str
    median: float
    quantile: float
    most: float
    points: int


class _Weeks(NamedTuple):
    """One resource of one workload."""

    pods: list[_Week]
    together: list[_Week]


class AgentWeeks(NamedTuple):
    """One agent's answer: its node's pods ("namespace/pod") and workloads ("namespace/kind/name"), by resource."""

    node: str
    pods: Mapping[str, Mapping[str, _Week]]
    workloads: Mapping[str, Mapping[str, _Week]]


def read(server: AgentServer) -> AgentWeeks:
    """Raises HeadroomError."""
    node = ask(server, "/api/v1/node", _AskedNode).name
    pods = {metric: _read_weeks(server, "pod", metric) for metric in _METRICS}
    return AgentWeeks(node, pods, {metric: _read_weeks(server, "workload", metric) for metric in _METRICS})


def usage(answers: Iterable[AgentWeeks], listed: Listed, nodes: Collection[str] = ()) -> KnownUsage:
    """The usage of all pods that these agents know; a note lists the `nodes` without an agent."""
    weeks: dict[str, defaultdict[_Owner, _Weeks]] = {metric: defaultdict(lambda: _Weeks([], [])) for metric in _METRICS}
    owners, asked = set(listed.owner_of.values()), set()
    for answer in answers:
        asked.add(answer.node)
        for metric in _METRICS:
            for pod, week in answer.pods[metric].items():
                if pod in listed.owner_of:
                    weeks[metric][listed.owner_of[pod]].pods.append(week._replace(whose=pod))
            for workload, week in answer.workloads[metric].items():
                namespace, kind, name = workload.split("/", 2)
                if (namespace, kind, name) in owners:
                    weeks[metric][namespace, kind, name].together.append(week._replace(whose=f"pods of {name}"))
    by_owner: defaultdict[_Owner, list[WorkloadContainer]] = defaultdict(list)
    for each in listed.containers:
        if each.role is not ContainerRole.INIT:
            by_owner[each.key[:3]].append(each)
    uses = {}
    for owner, containers in by_owner.items():
        cpu, memory = (weeks[metric].get(owner, _Weeks([], [])) for metric in _METRICS)
        if not any((*cpu, *memory)):
            continue
        for place, each in enumerate(containers):
            uses[each.key] = ContainerUse(
                Source.AGENTS,
                cpu=_use(cpu, _share([one.cpu_request for one in containers], place)),
                memory=_use(memory, _share([one.memory_request for one in containers], place)),
                shared=len(containers) > 1,
            )
    return KnownUsage(uses, _notes(sorted(set(nodes) - asked), len(nodes)))


def _notes(silent: Sequence[str], nodes: int) -> tuple[str, ...]:
    if not silent:
        return ()
    named = ", ".join(silent[:_MOST_NAMED]) + (", ..." if len(silent) > _MOST_NAMED else "")
    return (f"no agent of {len(silent)} of {nodes} nodes was asked, so what ran there is not known ({named})",)


def _read_weeks(server: AgentServer, kind: str, metric: str) -> dict[str, _Week]:
    """The week of each pod or workload that the agent can name."""
    found = {how: _aggregate(server, kind, metric, how) for how in ("p50", _QUANTILE, "max", "count")}
    return {
        whose: _Week(
            "",
            found["p50"].get(whose, most),
            found[_QUANTILE].get(whose, most),
            most,
            int(found["count"].get(whose, 0)),
        )
        for whose, most in found["max"].items()
    }


def _aggregate(server: AgentServer, kind: str, metric: str, how: str) -> dict[str, float]:
    query = {"kind": kind, "metric": metric, "window": WEEK, "agg": how}
    answer = ask(server, "/api/v1/aggregate", _Aggregates, query)
    unit = "samples" if how == "count" else _UNITS[metric]
    if answer.unit != unit:
        raise HeadroomError(f"{server.name}: {metric} in {shown(answer.unit)}, expected {unit}")
    return {
        each.labels[kind] if kind == "workload" else f"{each.labels['namespace']}/{each.labels[kind]}": each.value
        for each in answer.values
        if each.value is not None and kind in each.labels and "namespace" in each.labels
    }


def _share(requests: Sequence[int | None], place: int) -> float:
    total = sum(each or 0 for each in requests)
    return (requests[place] or 0) / total if total else 1.0 / len(requests)


def _use(weeks: _Weeks, share: float) -> ResourceUse | None:
    """The usage of one container. Joint means stand in for deleted pods, and never exceed the largest of these."""
    every = [*weeks.pods, *weeks.together]
    if not every:
        return None
    decides = max(every, key=lambda week: week.quantile)
    medians = sorted(week.median for week in weeks.pods or weeks.together)
    return ResourceUse(
        median=share * medians[len(medians) // 2],
        quantile=share * decides.quantile,
        most=share * max(week.most for week in every),
        points=max(sum(week.points for week in some) for some in weeks),
        days=max(week.points for week in every) * _SAMPLE_SECONDS / DAY_SECONDS,
        busiest=f"{decides.whose} in a week",
    )
