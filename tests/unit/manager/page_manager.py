"""A manager's page over a cluster of any size: the real routes, over objects that are held in memory."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

import msgspec
from prometheus_client import CollectorRegistry

from manager import http
from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cluster_state import cost
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.http.router import router
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.reporting.cost_trend import CostTrend
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.scale_down import planner
from manager.autoscaler.scale_down.drain import DrainInfo
from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from manager.autoscaler.scale_down.removal_status import GroupRules
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext, ShrinkingGroup
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import PODS, NodeInfo
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.nodeside import fleet_answers, workload_trends, workloads
from manager.nodeside.answers import Status
from manager.nodeside.decisions import KnownNode
from manager.nodeside.node_trends import NodeAmounts, NodeTrends
from manager.nodeside.noderesource import explain
from manager.nodeside.noderesource import report as reports
from manager.nodeside.noderesource.explain import Known
from manager.nodeside.noderesource.report import NodeReport, ReportedUsage
from manager.nodeside.workload_trends import WorkloadTrends
from manager.nodeside.workloads import WorkloadTable
from manager.pods import NodeRequests, PodRecord, record
from shared import names, web
from shared.api.core import Pod, Quantities
from shared.api.nodemetric import PromiseDebt, ReclaimableMetric, ResourceMap, UsageHistogram
from shared.clock import ManualClock
from shared.quantity import Amounts, Resources
from tests.unit.manager import fleets, objects, rounds
from tests.unit.manager.objects import GIB, NOW

ROUNDS = 3
STALE_EVERY = 100  # every hundredth node has not reported for an hour
SAMPLES = 40
STEP_SECONDS = 600.0
TEAMS = {"shop": {"team": "storefront"}, "data": {"team": "analytics"}}


def name_of(number: int) -> str:
    """As EKS calls a node."""
    return f"ip-10-0-{number // 256}-{number % 256}.eu-central-1.compute.internal"


def node_of(number: int) -> KnownNode:
    """A node of 16 cores, which its agent has reported on and the manager has decided about."""
    lent, name = 1000 * (number % 7) + 500, name_of(number)
    mid: Quantities = {names.MID_CPU: f"{lent}", names.MID_MEMORY: f"{4 * GIB}"}
    node = objects.node(name, cpu="16", memory="64Gi", mid=mid)
    requests = NodeRequests(Resources(12_000, 48 * GIB), Resources(12_000, 48 * GIB))
    return KnownNode(
        node, requests, explain.decide(node, _report(number), Known(requests), objects.enabled(), NOW), None
    )


def _report(number: int) -> NodeReport:
    age = 3600.0 if number % STALE_EVERY == 1 else 0.0
    used: Quantities = {"cpu": f"{3000 + 10 * (number % 300)}m", "memory": "20Gi"}
    offered: Quantities = {"cpu": f"{1000 * (number % 7) + 500}m", "memory": "4Gi"}
    told = fleets.promising(
        objects.metric(name_of(number), age_seconds=age, reclaimable=offered, usage=used),
        peak={"cpu": "9", "memory": "40Gi"},
        cpu_violation_percent=f"{(number % 5) * 0.35:.2f}",
        cpu_debt=PromiseDebt(number % 5, cause="Growing" if number % 5 == 4 else None),
    )
    peak = ReclaimableMetric(resource=ResourceMap(resources={"cpu": "5500m", "memory": "44Gi"}))
    told = msgspec.structs.replace(told, status=msgspec.structs.replace(told.status, prod_peak_metric=peak))
    histogram = UsageHistogram("cpu", (0, 2000, 4000, 8000), (6000, 3000, 1000), 1500, 5000, 6500, 7500)
    pods = {
        pod.key: ReportedUsage("", pod.requests.cpu_milli // 2, pod.requests.memory_bytes // 3) for pod in _pods(number)
    }
    return msgspec.structs.replace(reports.read(told), histograms=msgspec.json.encode((histogram,)), pods=pods)


def _pods(number: int) -> list[PodRecord]:
    """A replica of one of 40 Deployments, a Job's pod, and one that no controller replaces."""
    on = name_of(number)
    labels = {"pod-template-hash": "5d9c"}
    web_of = f"web-{number % 40}-5d9c"
    made = [
        objects.pod(
            f"{web_of}-{number}",
            on=on,
            cpu="8",
            memory="32Gi",
            owner=("ReplicaSet", web_of),
            namespace="shop",
            labels=labels,
        ),
        objects.pod(f"sort-{number}", cpu="3", memory="12Gi", owner=("Job", "sort"), namespace="data", on=on),
        objects.pod(f"burner-{number}", cpu="1", memory="4Gi", namespace="lab", on=on),
    ]
    return [record(each) for each in made]


class Cluster:
    """What the node side reads; pods and reports by node."""

    def __init__(self, nodes: int) -> None:
        self.known = {name_of(number): node_of(number) for number in range(nodes)}
        self.of_node = {name_of(number): (_pods(number), _report(number)) for number in range(nodes)}

    def states(self) -> list[KnownNode]:
        return list(self.known.values())

    def state(self, name: str) -> KnownNode | None:
        return self.known.get(name)

    def names(self) -> set[str]:
        return set(self.of_node)

    def pods(self, name: str) -> Collection[PodRecord]:
        return self.of_node[name][0]

    def report(self, name: str) -> NodeReport | None:
        return self.of_node[name][1]

    def amounts(self) -> dict[str, NodeAmounts]:
        return {
            name: NodeAmounts.read(self.known[name].node, self.known[name].requested, report)
            for name, (_, report) in self.of_node.items()
        }


def iteration(nodes: int) -> Iteration:
    """Of these nodes and pods, with something to say in every place."""
    amounts: Amounts = {"cpu": 16_000, "memory": 64 * GIB, PODS: 110, names.MID_CPU: 3500, names.MID_MEMORY: 4 * GIB}
    infos = [NodeInfo(name_of(number), capacity=amounts, allocatable=amounts) for number in range(nodes)]
    placed = [
        (number, PodInfo(namespace, labels=TEAMS.get(namespace, {}), requests={"cpu": cpu, "memory": memory}))
        for number in range(nodes)
        for record in _pods(number)
        for namespace in (record.key.partition("/")[0],)
        for cpu, memory in (record.requests,)
    ]
    there = [PodOnNode(f"{pod.namespace}/p", infos[row].name, pod, DrainInfo(pod.namespace)) for row, pod in placed]
    pool = ShrinkingGroup(Group("pool", 0, 1000, nodes), GroupRules())
    group_of = dict.fromkeys((info.name for info in infos), "pool")
    judged = planner.decide(ScaleDownContext(NOW, infos, there, groups={"pool": pool}, group_of=group_of))
    prices = cost.cluster_cost(cluster.snapshot_of_nodes(infos, placed), group_of, FilePricing(units=rounds.UNITS))
    return replace(rounds.everything(), scale_down=judged, cost=prices)


class Autoscaler:
    """Some iterations, of which the last one is of the cluster's nodes."""

    def __init__(self, nodes: int, clock: ManualClock) -> None:
        self.decision_log = DecisionLog()
        self.cost_trend = CostTrend(clock)
        for number in range(ROUNDS):
            self.decision_log.note(replace(rounds.shrinking(), number=number, time=NOW - 60 * (ROUNDS - number)))
        latest = replace(iteration(nodes), number=ROUNDS)
        self.decision_log.note(latest)
        self.cost_trend.note(latest)

    def plan_question(self, more: Sequence[Pod], settings: DecisionSettings) -> NoReturn:
        raise Unavailable("memory", "", "it plans nothing")


class NoLoops:
    def silent(self) -> dict[str, float]:
        return {}

    def overdue(self) -> dict[str, float]:
        return {}


@contextlib.contextmanager
def served(nodes: int, now: Callable[[], float] = lambda: NOW + 5) -> Iterator[str]:
    """The address of the page of a manager with `nodes` nodes; its answers about them are of `now`."""
    clock, objects_held = ManualClock(NOW - SAMPLES * STEP_SECONDS), Cluster(nodes)
    trends, workload_history = NodeTrends(objects_held.amounts, clock), WorkloadTrends(objects_held, clock)
    autoscaler = Autoscaler(nodes, clock)
    for _ in range(SAMPLES):
        trends.record()
        workload_history.record()
        clock.advance(STEP_SECONDS)
    fleet = fleet_answers.fleet(fleets.fleet(*(report for _, report in objects_held.of_node.values())))
    app = http.application(
        reader=objects_held,
        trends=trends,
        registry=CollectorRegistry(),
        status=lambda: Status("prod-1", True, False, [], True, "headroom-system/slo-controller-config", None, {}),
        fleet=lambda: fleet,
        loops=NoLoops(),
        version="1",
        now=now,
    )
    app.include_router(workloads.router(WorkloadTable(objects_held, clock)))
    app.include_router(workload_trends.router(workload_history))
    app.include_router(router(autoscaler, AutoscalerSettings(cloud_provider="simulated", cluster_name="prod-1")))
    server = web.server(app, "127.0.0.1:0")
    server.start()
    try:
        yield server.url
    finally:
        server.close()
