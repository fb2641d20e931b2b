"""The manager: from the API server's bytes to its decision, and whole clusters on a process of its own."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
from kubernetes import watch as official

from manager.main import collect_seldom
from manager.nodeside.decisions import DecidedNode, NodeDecisions
from manager.nodeside.nodemetric import lifecycle, spec
from manager.nodeside.noderesource import report
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.noderesource.writing import Write
from manager.nodeside.policy import ClusterPolicy
from manager.nodeside.reports import EventReporter
from manager.pods import NodeRequests, PodLedger, PodRecord, record
from manager.settings import ManagerSettings
from shared import durations
from shared.api import colocation
from shared.api.core import Node, NodeStatus, Pod
from shared.api.nodemetric import NodeMetric
from shared.clock import ManualClock
from shared.kube import objects
from tests.bench import fleet
from tests.bench.api_stub import WRITE_SECONDS
from tests.bench.manager_process import Used
from tests.bench.row import Measure, Row

ROOT = Path(__file__).resolve().parents[2]
EVENTS = 1_000
NODES, PODS_PER_NODE = 5_000, 30
MANY_NODES, FEW_PODS = 65_000, 6  # 390,000 pods: more than any API server is known to bear
REPORT_SECONDS, WATCHED_SECONDS = 60, 12
WRITE_INTERVAL_SECONDS = 300  # how often each Node is written at least, when its numbers change all the time
PLANNED_WITHIN_SECONDS = 600.0
PAGE = 500
MIB = 1 << 20


def measures() -> tuple[Measure, ...]:
    collect_seldom()  # as the manager's own process does
    return _event, _decided_at_once, _cold_start, _with_autoscaler, _steady_state


class Known:
    """A cluster that is what it is told."""

    def __init__(self) -> None:
        config = colocation.parse('{"enable": true}', source="bench")
        self.policy = ClusterPolicy(config, available=True, settled=True)
        self.reports: dict[str, NodeReport] = {}
        self.ledger = PodLedger()

    def report(self, name: str) -> NodeReport | None:
        return self.reports.get(name)

    def pods(self, name: str) -> Collection[PodRecord]:
        return self.ledger.pods_on(name)

    def requested(self, name: str) -> NodeRequests:
        return self.ledger.requested(name)


class Deciding:
    """The manager's own way from a report to what is to be done about a node, without a cluster."""

    def __init__(self) -> None:
        self.known = Known()
        self._decisions = NodeDecisions(self.known, ManagerSettings(), ManualClock(fleet.NOW), EventReporter(None))

    def take(self, metric: NodeMetric) -> None:
        """What the informer keeps of it."""
        self.known.reports[metric.metadata.name] = report.read(metric)

    def decide(self, node: Node) -> tuple[DecidedNode, lifecycle.Create | lifecycle.Update | None]:
        """Mid, Batch and the NodeMetric's spec, and which of them is to be written."""
        decided, said = self._decisions.decide(node), self.known.reports[node.metadata.name]
        assert decided.strategy is not None
        assert all(offer.resources for offer in decided.decision.offers.values())
        wanted = spec.desired(decided.strategy, settled=True, old=said.spec)
        return decided, lifecycle.plan(node.metadata.name, said.spec, wanted)

    def written(self, node: Node, write: Write) -> Node:
        """The Node once it was written."""
        self._decisions.written(node.metadata.name, write)
        patched: dict[str, Any] = write.patch
        offers = patched["status"]
        status = NodeStatus(
            capacity=(node.status.capacity or {}) | offers["capacity"],
            allocatable=(node.status.allocatable or {}) | offers["allocatable"],
        )
        annotations = (node.metadata.annotations or {}) | patched["metadata"].get("annotations", {})
        metadata = msgspec.structs.replace(node.metadata, annotations=annotations)
        return msgspec.structs.replace(node, metadata=metadata, status=status)

    def decide_anew(self, node: Node) -> None:
        """Each is a write, as it must be for a node that offers nothing yet."""
        decided, step = self.decide(node)
        assert isinstance(decided.outcome, Write)
        assert step


def _event() -> Iterator[Row]:
    # A node in its stride: what was decided first is on it, and every report differs from the others in each memory
    # and, by up to a tenth, in cpu.
    deciding, node = Deciding(), msgspec.json.decode(fleet.node(0), type=Node)
    for slot in range(fleet.PODS_REPORTED):
        deciding.known.ledger.replace(None, record(msgspec.json.decode(fleet.pod(slot, 0, slot), type=Pod)))
    deciding.take(msgspec.json.decode(fleet.node_metric(0), type=NodeMetric))
    decided, _ = deciding.decide(node)
    assert isinstance(decided.outcome, Write)
    assert decided.strategy is not None
    node = deciding.written(node, decided.outcome)
    delivered = spec.desired(decided.strategy, settled=True, old=None)
    lines = [
        fleet.event("MODIFIED", fleet.node_metric(0, round_=index % 100, spec=delivered)) for index in range(EVENTS)
    ]
    texts = [line.decode() for line in lines[: EVENTS // 4]]
    watch = official.Watch()

    def ours() -> None:
        for line in lines:
            event = objects.decode_event(line, NodeMetric)
            assert isinstance(event, objects.WatchEvent)
            assert event.object is not None
            deciding.take(event.object)
            deciding.decide(node)

    def official_client() -> None:
        for text in texts:
            watch.unmarshal_event(text, "object")

    yield Row(
        figure="NodeMetric event to decision about Mid and Batch",
        value=_cpu_seconds(ours) / len(lines) * 1e6,
        unit="us of CPU",
        target=100,
        baseline="official client, watch event decoded only",
        baseline_value=_cpu_seconds(official_client) / len(texts) * 1e6,
        note=f"{sum(map(len, lines)) // len(lines)} bytes and {fleet.PODS_REPORTED} pods each",
    )


def _decided_at_once() -> Iterator[Row]:
    node_pages, metric_pages = _pages(fleet.node), _pages(fleet.node_metric)

    def ours() -> None:
        deciding = Deciding()
        for page in metric_pages:
            for metric in objects.decode_page(page, NodeMetric).items:
                deciding.take(metric)
        for page in node_pages:
            for node in objects.decode_page(page, Node).items:
                deciding.decide_anew(node)

    def plain() -> None:
        for page in (*node_pages, *metric_pages):
            json.loads(page)

    yield Row(
        figure=f"{NODES} nodes and NodeMetrics alone, from pages to all decided",
        value=_cpu_seconds(ours),
        unit="s of CPU",
        target=2.0,
        baseline="json.loads of the same pages",
        baseline_value=_cpu_seconds(plain),
        note=f"{sum(map(len, (*node_pages, *metric_pages))) // MIB} MiB",
    )


def _cold_start() -> list[Row]:
    with _cluster(NODES, PODS_PER_NODE) as cluster, _manager(cluster.url, dry_run=True) as manager:
        used = manager.when_decided(NODES)
        pages = cluster.pages()
    note = f"{pages.total_bytes // MIB} MiB over HTTP, the whole process with its imports"
    return [
        Row(
            figure=f"{NODES} nodes and NodeMetrics, {NODES * PODS_PER_NODE} pods, cold start to all decided",
            value=used.cpu_seconds,
            unit="s of CPU",
            target=15.0,
            baseline="json.loads of the same pages",
            baseline_value=pages.loads_seconds,
            note=note,
        ),
        Row(
            figure=f"{NODES} nodes and NodeMetrics, {NODES * PODS_PER_NODE} pods, peak memory",
            value=used.peak_bytes / MIB,
            unit="MiB RSS",
            target=800,
            baseline="the JSON of the same objects",
            baseline_value=pages.total_bytes / MIB,
            note=note,
        ),
    ]


def _with_autoscaler() -> list[Row]:
    """The manager that plans node groups, too, once its first iteration has read the whole cluster."""
    settings: dict[str, object] = {"cloud_provider": "simulated", "ok_total_unready_count": NODES}
    with (
        tempfile.NamedTemporaryFile("w", suffix=".yaml") as cloud,
        _cluster(NODES, PODS_PER_NODE) as cluster,
        _manager(cluster.url, dry_run=True, cloud_config=cloud.name, **settings) as manager,
    ):
        manager.when_decided(NODES)
        manager.when_planned()
        used = manager.when_decided(NODES)
        pages = cluster.pages()
    whole = (
        f"{NODES} nodes and NodeMetrics, {NODES * PODS_PER_NODE} pods, with an autoscaler, after its first iteration"
    )
    note = f"{pages.total_bytes // MIB} MiB over HTTP, the whole process with its imports"
    return [
        Row(
            figure=figure,
            value=value / MIB,
            unit=unit,
            target=None,
            baseline="the JSON of the same objects",
            baseline_value=pages.total_bytes / MIB,
            note=note,
        )
        for figure, value, unit in (
            (f"{whole}, memory", used.private_bytes, "MiB USS"),
            (f"{whole}, resident memory", used.resident_bytes, "MiB RSS"),
            (f"{whole}, peak memory", used.peak_bytes, "MiB RSS"),
        )
    ] + [
        Row(
            figure=f"{whole}, from its start",
            value=used.cpu_seconds,
            unit="s of CPU",
            target=None,
            baseline="json.loads of the same pages",
            baseline_value=pages.loads_seconds,
            note=note,
        )
    ]


def _steady_state() -> list[Row]:
    """Nodes report at their rate in real time, while as many are written as would be if all numbers always change."""
    per_second = MANY_NODES / REPORT_SECONDS
    writes_per_second = MANY_NODES / WRITE_INTERVAL_SECONDS
    with (
        _cluster(MANY_NODES, FEW_PODS) as cluster,
        _manager(cluster.url, writes_per_second=writes_per_second) as manager,
    ):
        manager.when_decided(MANY_NODES)
        # What was put off while all was new is paid for before it is measured.
        cluster.report(round(per_second * WATCHED_SECONDS / 2), WATCHED_SECONDS / 2)
        before, started = manager.when_decided(0), time.monotonic()
        last = cluster.report(round(per_second * WATCHED_SECONDS), WATCHED_SECONDS)
        behind = manager.seconds_until_seen(last)
        after, ended = manager.when_decided(0), time.monotonic()
    line = fleet.event("MODIFIED", fleet.node_metric(0))
    loads = _cpu_seconds(lambda: [json.loads(line) for _ in range(EVENTS)]) / EVENTS
    writes = f"{writes_per_second:.0f} writes a second of {1000 * WRITE_SECONDS:.0f} ms"
    note = f"{per_second:.0f} reports and {writes}, {behind:.1f} s behind at the end"
    size = sum(MANY_NODES * len(each) for each in (fleet.node(0), fleet.node_metric(0)))
    size += MANY_NODES * FEW_PODS * len(fleet.pod(0, 0, 0))
    return [
        Row(
            figure=f"{MANY_NODES} nodes that report every {REPORT_SECONDS} s",
            value=(after.cpu_seconds - before.cpu_seconds) / (ended - started) * 100,
            unit="% of one core",
            target=70,
            baseline="json.loads of the same events",
            baseline_value=loads * per_second * 100,
            note=note,
        ),
        Row(
            figure=f"{MANY_NODES} nodes and {MANY_NODES * FEW_PODS} pods, memory",
            value=after.resident_bytes / MIB,
            unit="MiB RSS",
            target=None,
            baseline="the JSON of the same objects",
            baseline_value=size / MIB,
            note=note,
        ),
    ]


class Pages(msgspec.Struct, frozen=True):
    """All pages of a cluster."""

    total_bytes: int
    loads_seconds: float


class RunningCluster:
    """The stub process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.url = _line_of(process)

    def report(self, reports: int, seconds: float) -> tuple[str, float]:
        """Has so many nodes report within that time; the last one's name, and when it reported."""
        _tell(self._process, f"{reports} {seconds}")
        name, at = _line_of(self._process).split()
        return name, float(at)

    def pages(self) -> Pages:
        total, seconds = 0, 0.0
        counts = {"nodes": NODES, "nodemetrics": NODES, "pods": NODES * PODS_PER_NODE}
        with httpx.Client(base_url=self.url) as http:
            for plural, count in counts.items():
                for start in range(0, count, PAGE):
                    page = http.get(f"/{plural}", params={"limit": PAGE, "continue": start}).content
                    begun = time.process_time()
                    json.loads(page)
                    seconds += time.process_time() - begun
                    total += len(page)
        return Pages(total, seconds)


class RunningManager:
    """The manager's process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._url = _line_of(process)

    def when_decided(self, nodes: int) -> Used:
        """What it has used up once so many nodes have been decided about."""
        _tell(self._process, str(nodes))
        return msgspec.json.decode(_line_of(self._process), type=Used)

    def when_planned(self) -> None:
        """Waits for the first iteration of the autoscaler that decided."""
        deadline = time.monotonic() + PLANNED_WITHIN_SECONDS
        while time.monotonic() < deadline:
            answer = httpx.get(f"{self._url}/api/v1/groups").raise_for_status().json()
            if answer["time"] is not None and not answer["blocked_reason"]:
                return
            time.sleep(0.2)
        raise TimeoutError(f"no iteration decided: {answer['held']}")

    def seconds_until_seen(self, last: tuple[str, float]) -> float:
        """How long it takes from now until the manager has decided with this report."""
        name, at = last
        started = time.monotonic()
        while durations.timestamp(at) not in httpx.get(f"{self._url}/api/v1/nodes/{name}").text:
            time.sleep(0.05)
        return time.monotonic() - started


@contextlib.contextmanager
def _cluster(nodes: int, pods_per_node: int) -> Iterator[RunningCluster]:
    with _running("tests.bench.api_stub", str(nodes), str(pods_per_node)) as process:
        yield RunningCluster(process)


@contextlib.contextmanager
def _manager(server: str, **settings: object) -> Iterator[RunningManager]:
    chosen = {"leader_elect": False, "listen": "127.0.0.1:0", **settings}
    with _running("tests.bench.manager_process", server, json.dumps(chosen)) as process:
        yield RunningManager(process)


@contextlib.contextmanager
def _running(module: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def _line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, f"{process.args!r} has ended"
    return line


def _cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one round, the best of three: what else the machine does only ever adds."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def _pages(make: Callable[[int], bytes]) -> list[bytes]:
    return [fleet.page([make(index) for index in range(start, start + PAGE)]) for start in range(0, NODES, PAGE)]
