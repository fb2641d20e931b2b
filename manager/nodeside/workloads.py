"""The requests and usage of the pods on nodes, by workload: `GET /api/v1/workloads`."""

import operator
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Protocol, TypeAlias

import msgspec
from fastapi import APIRouter, HTTPException, Query, Response

from manager.nodeside.answers import Amount
from manager.nodeside.noderesource.report import NodeReport, complete
from manager.pods import PodRecord
from shared import durations, errors
from shared.clock import Clock
from shared.names import LENDING_CLASSES, PriorityClass
from shared.quantity import Resources

# For which one count is served: 150,000 pods take tenths of a second of CPU, and their reports come by the minute.
KEPT_SECONDS = 10.0
STALE_SECONDS = 900.0  # a report older than this says nothing of the present; Koordinator's degradeTimeMinutes
MOST_ROWS = 500
MOST_PODS = 1000
BARE = "Pod"  # the kind of a pod that no controller replaces
ANY = "*"  # ends the name of a row for bare pods alike; no pod's name has it
# A number, or what an API server adds to a generateName.
_COUNTED_END = re.compile(r"-(?:\d+|[bcdfghjklmnpqrstvwxz2456789]{5})$")

Order = Literal["workload", "tier", "pods", "nodes", "cpu_requested", "cpu_used", "memory_requested", "memory_used"]


@dataclass(frozen=True)
class WorkloadRow:
    """The active pods of one workload that are on nodes. The kind of a pod without a controller is "Pod". Several of
    them are one row, "name-*", if their names differ only in a number or a generated end.

    `tiers` are those of its pods: "prod", with pods of no class, "mid", "batch" or "free". `requested` is of the nodes'
    own resources and of Mid and Batch. `used` is the usage of the `measured_pods`, null if there are none.
    """

    namespace: str
    kind: str
    name: str
    tiers: list[str]
    pods: int
    nodes: int
    requested: Amount
    measured_pods: int
    used: Amount | None


@dataclass(frozen=True)
class WorkloadsAnswer:
    """Some rows of all `matching` ones, as of `time` (RFC 3339), from the row number `offset` on."""

    time: str
    total: int
    matching: int
    offset: int
    workloads: list[WorkloadRow]


@dataclass(frozen=True)
class WorkloadPodRow:
    """One pod; `used` is null if no recent report has it.

    `predicted_peak` is the `percentile` model's: by default 95 % of the time the pod uses no more cpu, 98 % no more
    memory, and a tenth is added. It is null for a pod with little history, for one that is not Prod, and where the
    listed pods are on more than 20 nodes.
    """

    name: str
    node: str
    tier: str
    requested: Amount
    used: Amount | None
    predicted_peak: Amount | None = None


@dataclass(frozen=True)
class WorkloadPods:
    """The pods of one workload that use most CPU, of `total`."""

    time: str
    namespace: str
    kind: str
    name: str
    total: int
    pods: list[WorkloadPodRow]


# The predicted peaks of pods by "namespace/name", of those asked for by node; `pod_peaks.PodPeaks.read` is one.
PeakSource: TypeAlias = Callable[[Mapping[str, Collection[str]]], Mapping[str, Resources]]


class PodSource(Protocol):
    """The cached pods and reports. `caches.Caches` is one."""

    def names(self) -> set[str]: ...
    def pods(self, name: str) -> Collection[PodRecord]: ...
    def report(self, name: str) -> NodeReport | None: ...


@dataclass(slots=True)
class WorkloadSum:
    """The requests of a workload's pods, and the usage of the measured ones.

    Integers in place, because they are added up over every pod of the cluster.
    """

    pods: int = 0
    cpu: int = 0
    memory: int = 0
    measured: int = 0
    used_cpu: int = 0
    used_memory: int = 0
    nodes: set[str] = field(default_factory=set)
    classes: set[PriorityClass] = field(default_factory=set)

    def add(self, node: str, pod: PodRecord, used: tuple[int, int] | None) -> None:
        cpu, memory = requested_amounts(pod)
        self.pods += 1
        self.cpu += cpu
        self.memory += memory
        self.nodes.add(node)
        self.classes.add(pod.priority_class)
        if used is not None:
            self.measured += 1
            self.used_cpu += used[0]
            self.used_memory += used[1]

    def merge(self, other: "WorkloadSum") -> None:
        self.pods += other.pods
        self.cpu += other.cpu
        self.memory += other.memory
        self.measured += other.measured
        self.used_cpu += other.used_cpu
        self.used_memory += other.used_memory
        self.nodes |= other.nodes
        self.classes |= other.classes


class WorkloadTable:
    """Adds up at most once in `KEPT_SECONDS`, and only when asked. Safe for any thread."""

    def __init__(self, cluster: PodSource, clock: Clock, peaks: PeakSource = lambda _nodes: {}) -> None:
        self._cluster = cluster
        self._peaks = peaks
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: list[WorkloadRow] = []
        self._time = ""
        self._until = -1.0  # monotonic

    def page(self, text: str, order: Order, *, descending: bool, offset: int, limit: int) -> WorkloadsAnswer:
        """The rows that have the text, in this order; equal ones by name."""
        with self._lock:
            if self._clock.monotonic() >= self._until:
                self._rows = rows(self._cluster, self._clock.now())
                self._time = durations.timestamp(self._clock.now())
                self._until = self._clock.monotonic() + KEPT_SECONDS
            all_rows, time = self._rows, self._time
        wanted = text.strip().lower()
        matching = [row for row in all_rows if wanted in _searched(row)] if wanted else all_rows
        if order != "workload":
            value = _VALUES[order]
            valued = [(value(row), row) for row in matching]
            known = [(found, row) for found, row in valued if found is not None]
            known.sort(key=operator.itemgetter(0), reverse=descending)
            matching = [row for _, row in known] + [row for found, row in valued if found is None]
        elif descending:
            matching = matching[::-1]
        return WorkloadsAnswer(time, len(all_rows), len(matching), offset, matching[offset : offset + limit])

    def pods(self, namespace: str, kind: str, name: str, limit: int) -> WorkloadPods | None:
        """None for a workload without active pods on nodes."""
        now = self._clock.now()
        wanted = f"{namespace}/{name}" if kind == BARE else f"{namespace}/{kind}/{name}"
        key_of = _alike if name.endswith(ANY) else str
        found = [
            WorkloadPodRow(
                name=pod.key.partition("/")[2],
                node=node,
                tier=tier_of(pod.priority_class),
                requested=Amount(*requested_amounts(pod)),
                used=None if used is None else Amount(*used),
            )
            for node, pod, used in measured_pods(self._cluster, now)
            if (pod.workload or key_of(pod.key)) == wanted
        ]
        if not found:
            return None
        found.sort(key=lambda pod: (pod.used is None, -(pod.used.cpu_milli if pod.used else 0), pod.name))
        listed = found[:limit]
        by_node: defaultdict[str, set[str]] = defaultdict(set)
        for pod in listed:
            by_node[pod.node].add(f"{namespace}/{pod.name}")
        peaks = self._peaks(by_node)
        told = [
            replace(pod, predicted_peak=Amount(*peaks[key])) if (key := f"{namespace}/{pod.name}") in peaks else pod
            for pod in listed
        ]
        return WorkloadPods(durations.timestamp(now), namespace, kind, name, len(found), told)


def rows(cluster: PodSource, now: float) -> list[WorkloadRow]:
    """All workloads with active pods on nodes, by namespace, name and kind."""
    sums: defaultdict[str, WorkloadSum] = defaultdict(WorkloadSum)
    for node, pod, used in measured_pods(cluster, now):
        sums[pod.workload or pod.key].add(node, pod, used)
    found = (_row(key, total) for key, total in merged(sums).items())
    return sorted(found, key=lambda row: (row.namespace, row.name, row.kind))


def merged(sums: Mapping[str, WorkloadSum]) -> dict[str, WorkloadSum]:
    """With one sum for bare pods alike, if there are several."""
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for key in sums:
        keys[_alike(key) if key.count("/") == 1 else key].append(key)
    found = {}
    for together, each in keys.items():
        if len(each) == 1:
            found[each[0]] = sums[each[0]]
            continue
        found[together] = WorkloadSum()
        for key in each:
            found[together].merge(sums[key])
    return found


def _alike(key: str) -> str:
    """What the keys of bare pods alike have in common."""
    return _COUNTED_END.sub(f"-{ANY}", key)


def tier_of(priority_class: PriorityClass) -> str:
    """The tier in a word; pods of no class count as Prod, for their unused requests are lent, too."""
    return (PriorityClass.PROD if priority_class in LENDING_CLASSES else priority_class).removeprefix("koord-")


def router(table: WorkloadTable) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/api/v1/workloads")

    @routes.get("", summary="What workloads request and use, in pages", response_model=WorkloadsAnswer)
    def workloads(
        text: Annotated[str, Query(max_length=300, description="part of namespace/Kind/name, or a tier")] = "",
        order: Order = "workload",
        descending: bool = False,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
    ) -> Response:
        return _json(table.page(text, order, descending=descending, offset=offset, limit=limit))

    @routes.get(
        "/{namespace}/{kind}/{name}",
        summary="The pods of one workload: node, tier, requests and usage",
        response_model=WorkloadPods,
        responses={404: {"description": "No active pod on a node belongs to it"}},
    )
    def pods(namespace: str, kind: str, name: str, limit: Annotated[int, Query(ge=1, le=MOST_PODS)] = 100) -> Response:
        found = table.pods(namespace, kind, name, limit)
        if found is None:
            raise HTTPException(404, f"no active pod on a node belongs to {errors.shown(f'{namespace}/{kind}/{name}')}")
        return _json(found)

    return routes


def measured_pods(cluster: PodSource, now: float) -> Iterator[tuple[str, PodRecord, tuple[int, int] | None]]:
    """The active pods of all nodes, each with its node and its usage by a recent report, None where that lacks any."""
    for node in cluster.names():
        report = cluster.report(node)
        is_recent = report is not None and report.update_time is not None and now - report.update_time < STALE_SECONDS
        usages = report.pods if report is not None and is_recent else {}
        for pod in cluster.pods(node):
            if pod.active:
                used = usages.get(pod.key)
                yield node, pod, None if used is None else complete(used.parts)


def requested_amounts(pod: PodRecord) -> tuple[int, int]:
    """cpu in milli and memory in bytes, of whatever kind."""
    (cpu, memory), (held_cpu, held_memory), (more_cpu, more_memory) = pod.requests, pod.held, pod.held_beside
    return cpu + held_cpu + more_cpu, memory + held_memory + more_memory


def _row(key: str, total: WorkloadSum) -> WorkloadRow:
    namespace, *kind, name = key.split("/")
    return WorkloadRow(
        namespace=namespace,
        kind=kind[0] if kind else BARE,
        name=name,
        tiers=sorted({tier_of(each) for each in total.classes}),
        pods=total.pods,
        nodes=len(total.nodes),
        requested=Amount(total.cpu, total.memory),
        measured_pods=total.measured,
        used=Amount(total.used_cpu, total.used_memory) if total.measured else None,
    )


def _searched(row: WorkloadRow) -> str:
    return f"{row.namespace}/{row.kind}/{row.name} {' '.join(row.tiers)}".lower()


_VALUES: dict[str, Callable[[WorkloadRow], int | str | None]] = {
    "tier": lambda row: " ".join(row.tiers),
    "pods": lambda row: row.pods,
    "nodes": lambda row: row.nodes,
    "cpu_requested": lambda row: row.requested.cpu_milli,
    "memory_requested": lambda row: row.requested.memory_bytes,
    "cpu_used": lambda row: None if row.used is None else row.used.cpu_milli,
    "memory_used": lambda row: None if row.used is None else row.used.memory_bytes,
}


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
