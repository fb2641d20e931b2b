"""A scheduler's question about 1,000 nodes, from the bytes it sends to the bytes it gets: process CPU time."""

import json
import time
from collections.abc import Callable, Collection

import msgspec
from prometheus_client import CollectorRegistry

from manager.nodeside.noderesource import explain, report
from manager.nodeside.noderesource.explain import Known
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.scheduling import extender
from manager.nodeside.scheduling.advice import Advisor
from manager.nodeside.scheduling.args import LoadAwareArgs
from manager.nodeside.scheduling.extender import ExtenderCounters
from manager.pods import PodLedger, PodRecord, record
from shared import durations, names
from shared.api.colocation import ColocationStrategy, NodeStrategy
from shared.api.core import Node, Pod
from shared.api.nodemetric import NodeMetric
from shared.clock import ManualClock
from tests.bench.row import Measure, Row

NODES = 1_000
PODS = 30  # on each node
NOW = 1_700_000_000.0
ROUNDS = 5
GIB = 1 << 30


class Cluster:
    """What the manager's caches hold."""

    def __init__(self) -> None:
        self.ledger = PodLedger()
        self.names = [f"ip-10-0-{index // 250}-{index % 250}.eu-central-1.compute.internal" for index in range(NODES)]
        self._nodes = {name: msgspec.convert(_node(name), Node) for name in self.names}
        for name in self.names:
            for index in range(PODS):
                self.ledger.replace(None, record(msgspec.convert(_pod(name, index), Pod)))
        self._reports: dict[str, NodeReport] = {}
        self.report_all(0)

    def report_all(self, turn: int) -> None:
        """Every node reports anew."""
        for name in self.names:
            metric = msgspec.convert(_metric(name, turn), NodeMetric)
            self._reports[name] = report.read(metric)

    def unsynced(self) -> list[str]:
        return []

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def report(self, name: str) -> NodeReport | None:
        return self._reports.get(name)

    def pods(self, name: str) -> Collection[PodRecord]:
        return self.ledger.pods_on(name)


def measures() -> tuple[Measure, ...]:
    return (_rows,)


def _rows() -> list[Row]:
    """The extender's figures."""
    cluster = Cluster()
    strategy = NodeStrategy(ColocationStrategy(enable=True), enabled=True)
    decisions = {
        name: explain.decide(
            msgspec.convert(_node(name), Node),
            cluster.report(name),
            Known(cluster.ledger.requested(name)),
            strategy,
            NOW,
        )
        for name in cluster.names
    }
    advisor = Advisor(cluster, decisions.get, LoadAwareArgs(), ManualClock(NOW))
    counters = ExtenderCounters(CollectorRegistry())
    body = msgspec.json.encode({"Pod": _pod("", 0, tier=True), "Nodes": None, "NodeNames": cluster.names})

    def ask() -> None:
        filtered = extender.filter_nodes(advisor, extender.decode(body, source="filter"), counters)
        assert filtered.node_names
        scored = extender.priorities(advisor, extender.decode(body, source="prioritize"))
        msgspec.json.encode(filtered)
        msgspec.json.encode(scored)

    def plain() -> None:
        for _ in range(2):
            asked = json.loads(body)
            answer = [{"Host": name, "Score": _plain_score(advisor, name)} for name in asked["NodeNames"]]
            json.dumps(answer)

    ask()
    baseline = _cpu_seconds(plain) * 1e3
    known = _cpu_seconds(ask) * 1e3
    fresh = _cpu_seconds(ask, before=cluster.report_all) * 1e3
    about = f"extender filter and prioritize, {NODES} node names"
    against = "json and one division for each node"
    return [
        Row(about, known, "ms of CPU", 20, against, baseline, note=f"{PODS} pods on each"),
        Row(f"{about}, all reported since", fresh, "ms of CPU", 20, against, baseline, note=f"{PODS} pods on each"),
    ]


def _plain_score(advisor: Advisor, name: str) -> int:
    view = advisor.view(name)
    assert view is not None
    assert view.load is not None
    return 10 - 10 * view.load.used[0] // view.load.allocatable[0]


def _cpu_seconds(work: Callable[[], object], before: Callable[[int], object] = lambda turn: None) -> float:
    """CPU seconds of one round, the best of several: what else the machine does only ever adds."""
    times = []
    for turn in range(ROUNDS):
        before(turn)
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def _node(name: str) -> dict[str, object]:
    listed = {"cpu": "32", "memory": "128Gi", names.MID_CPU: "9000", names.MID_MEMORY: str(40 * GIB)}
    return {"metadata": {"name": name}, "status": {"capacity": listed, "allocatable": listed}}


def _pod(node: str, index: int, *, tier: bool = False) -> dict[str, object]:
    asked = {names.MID_CPU: "1000", names.MID_MEMORY: str(GIB)} if tier else {"cpu": "500m", "memory": "1Gi"}
    started = durations.timestamp(NOW - 86_400)
    return {
        "metadata": {
            "name": f"service-6f7d8c9b5d-{index}",
            "namespace": f"team-{index % 5}",
            "uid": f"{node}-{index}",
            "labels": {names.LABEL_PRIORITY_CLASS: "koord-mid" if tier else "koord-prod"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": asked, "limits": asked}}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": started}],
        },
    }


def _metric(name: str, turn: int) -> dict[str, object]:
    pods = [
        {
            "name": f"service-6f7d8c9b5d-{index}",
            "namespace": f"team-{index % 5}",
            "podUsage": _resources(100 + turn, GIB // 2),
            "priority": "koord-prod",
        }
        for index in range(PODS)
    ]
    return {
        "metadata": {"name": name, "uid": name},
        "status": {
            "updateTime": durations.timestamp(NOW - 20),
            "nodeMetric": {"nodeUsage": _resources(6000 + turn, 30 * GIB), "systemUsage": _resources(300, 2 * GIB)},
            "podsMetric": pods,
            "prodReclaimableMetric": {"resource": _resources(9000, 40 * GIB)},
            "prodPeakMetric": {"resource": _resources(6000, 20 * GIB)},
            "prediction": {"nodePeak": {"cpu": "8", "memory": "35Gi"}, "historyPercent": 90},
        },
    }


def _resources(cpu_milli: int, memory_bytes: int) -> dict[str, object]:
    return {"resources": {"cpu": f"{cpu_milli}m", "memory": str(memory_bytes)}}
