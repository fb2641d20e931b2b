"""The agent's hot paths, each beside a plain implementation measured in the same call.

Times are process CPU time. The rows that read pods do so in real cgroups; where none can be made they are left out.
"""

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import numpy as np
import psutil
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from agent.main import METRIC_CACHE_DIRECTORY, spare_the_garbage_collector
from agent.metric_cache import aggregate
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import HOUR_SECONDS, MetricCache
from agent.metric_cache.ring_file import BLOCK_COLUMNS
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metric_cache.storage import DEFAULT_LIMIT_BYTES, Disk
from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroup import COLD_SECONDS, Readings
from agent.metrics_advisor.cgroups import Driver, Layout
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.host import Host
from agent.metrics_advisor.pod_cgroups import PodCgroups
from agent.predict_server import histogram
from agent.predict_server.bank import Bank
from agent.predict_server.predicting import NOTHING_REQUESTED
from agent.predict_server.prediction import NodePrediction
from agent.reporter import measurements
from agent.reporter import policy as report_policy
from agent.reporter.report import ReportInputs, patch, status
from agent.reporter.schedule import ReportReason
from agent.settings import AgentSettings
from agent.states_informer.pods import describe
from deploy.local import ports
from shared import names
from shared.api.core import ContainerStatus, Pod, PodSpec, PodStatus
from shared.api.meta import ObjectMeta
from shared.api.nodemetric import NodeMetricReport
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.resources import NODEMETRICS
from shared.kube.resources import NODES as NODES_RESOURCE
from shared.kube.resources import PODS as PODS_RESOURCE
from shared.names import KubeQoS, PriorityClass
from tests.apiserver.binaries import Unavailable
from tests.bench import vpa_peer
from tests.bench.row import Measure, Row, instead
from tests.support import eventually
from tests.support.apiserver import TOKEN, EmbeddedApiServer

PODS, CONTAINERS_PER_POD = 250, 2
SAMPLED_PODS = (30, 110, PODS, 500)
CONTAINERS = [f"c{number}" for number in range(CONTAINERS_PER_POD)]
COLD_METRICS = [one for one in Metric if one.startswith(("psi", "cpu_throttled", "memory_with"))]
WARM_UP_SECONDS, MEASURED_SECONDS = 35, 65  # a step of training before, two of them and a report meanwhile
STARTS = 3  # of which the best counts: what else the machine does only ever adds
PLAIN_READER = "pread of both files of each, open all the time, in plain Python"
SERIES = 4000
MODELS = 1500
PLAIN_RING_SECONDS = 300
NOW = 1_700_000_000.0
Floats = NDArray[np.float64]

PERCENTILES = np.array([0.5, 0.6, 0.9, 0.95, 0.98])


def cpu_seconds(work: Callable[[], object], rounds: int, repeats: int = 5) -> float:
    """CPU seconds of one round; the least of several repeats, as anything beyond it is somebody else's."""
    work()
    best = math.inf
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(rounds):
            work()
        best = min(best, time.process_time() - began)
    return best / rounds


def measures() -> tuple[Measure, ...]:
    return sampling, cache, bank, report, process


@contextmanager
def pod_tree(uids: Sequence[str]) -> Iterator[Layout | None]:
    """Burstable pods of two containers each in real cgroups; None where none can be made."""
    hierarchy = cgroups.hierarchy(Path("/sys/fs/cgroup"))
    if hierarchy is None or hierarchy.v2 or not all(os.access(root, os.W_OK) for root in hierarchy.roots.values()):
        yield None
        return
    layout = Layout(hierarchy, Driver.CGROUPFS, f"headroom-bench-{uuid.uuid4().hex[:8]}")
    roots = {root for root in (*hierarchy.roots.values(), hierarchy.throttling, hierarchy.pressure) if root}
    try:
        for root in roots:
            for uid in uids:
                for container in CONTAINERS:
                    (root / layout.pod_path(KubeQoS.BURSTABLE, uid) / container).mkdir(parents=True)
        yield layout
    finally:
        for root in roots:
            for directory, _, _ in os.walk(root / layout.parent, topdown=False):
                os.rmdir(directory)


def sampling() -> Iterator[Row]:
    spare_the_garbage_collector()  # as the agent does
    for count in SAMPLED_PODS:
        yield from sampling_of(count)


def sampling_of(pod_count: int) -> Iterator[Row]:
    uids = [str(uuid.uuid4()) for _ in range(pod_count)]
    containers = tuple(ContainerStatus(name, f"containerd://{name}") for name in CONTAINERS)
    status = PodStatus(qos_class=KubeQoS.BURSTABLE, container_statuses=containers)
    pods = [Pod(metadata=ObjectMeta(name=uid, uid=uid), status=status) for uid in uids]
    with pod_tree(uids) as layout:
        if layout is None:
            return
        clock = ManualClock()  # a second a tick, so that everything's turn comes as it does in life
        descriptors = Descriptors()
        reader = PodCgroups(layout, descriptors, clock.monotonic)
        host = Host(Path("/proc"), descriptors, clock.monotonic)

        def tick() -> None:
            clock.advance(1.0)
            readings: Readings = {}
            reader.sample(pods, clock.monotonic(), host.cpu_count, readings)
            host.sample(clock.monotonic(), readings)

        # A whole round of the colder values' turns, so that each tick bears its share of them.
        ours = cpu_seconds(tick, rounds=int(COLD_SECONDS))
        with plain_reader(layout, uids) as plain:
            theirs = cpu_seconds(plain, rounds=2, repeats=3)
        reader.close()
        host.close()
    yield Row(
        figure=f"sampling tick, {pod_count} pods with {CONTAINERS_PER_POD} containers each",
        value=ours * 1e3,
        unit="ms CPU",
        target=8.0 if pod_count == PODS else None,
        baseline=PLAIN_READER,
        baseline_value=theirs * 1e3,
        note="cpu of each and charge of pods at every tick, the rest in turns; the baseline reads cpu and memory alone",
    )


@contextmanager
def plain_reader(layout: Layout, uids: Sequence[str]) -> Iterator[Callable[[], None]]:
    """A tick that reads CPU and memory alone, of each pod and container, from descriptors that stay open."""
    pods = [layout.pod_path(KubeQoS.BURSTABLE, uid) for uid in uids]
    paths = [*pods, *(f"{path}/{name}" for path in pods for name in CONTAINERS)]
    cpu, memory = layout.hierarchy.roots["cpu"], layout.hierarchy.roots["memory"]
    fields = [f"\ntotal_{key} ".encode() for key in ("inactive_anon", "active_anon", "unevictable")]
    with contextlib.ExitStack() as opened:

        def descriptor(path: Path) -> int:
            return opened.enter_context(path.open("rb", buffering=0)).fileno()

        usages = [descriptor(cpu / path / "cpuacct.usage") for path in paths]
        stats = [descriptor(memory / path / "memory.stat") for path in paths]
        host = [descriptor(Path("/proc") / name) for name in ("stat", "meminfo")]

        def tick() -> None:
            for usage, stat in zip(usages, stats, strict=True):
                int(os.pread(usage, 64, 0))
                text = os.pread(stat, 4096, 0)
                for field in fields:
                    start = text.index(field) + len(field)
                    int(text[start : text.index(b"\n", start)])
            for one in host:
                os.pread(one, 1 << 16, 0).split()

        yield tick


def cache() -> Iterator[Row]:
    """On disk, where an agent's samples are."""
    with tempfile.TemporaryDirectory() as directory:
        yield from cache_in(Path(directory))


def cache_in(directory: Path) -> Iterator[Row]:
    roomy = 2 * DEFAULT_LIMIT_BYTES  # for all of the series in one ring
    ours = MetricCache(disk=Disk(directory, "bench", reserve_percent=0.0), limit_bytes=roomy)
    entities = [f"entity-{number}" for number in range(SERIES // len(Usage._fields))]
    keys = tuple(SeriesKey(Kind.POD, entity, metric) for entity in entities for metric in (Metric.CPU, Metric.MEMORY))
    values = np.random.default_rng(1).random(SERIES)
    ring = np.zeros((PLAIN_RING_SECONDS, SERIES))
    second, plain_second = iter(range(10**9)), iter(range(10**9))

    def append_plain() -> None:
        ring[next(plain_second) % PLAIN_RING_SECONDS] = values

    yield Row(
        figure=f"metric cache append, one tick of {SERIES} series",
        value=cpu_seconds(lambda: ours.append_values(next(second), keys, values), rounds=500) * 1e6,
        unit="us CPU",
        target=100.0,
        baseline="one row of a NumPy array in memory, without times, names or a disk",
        baseline_value=cpu_seconds(append_plain, rounds=500) * 1e6,
        peers="Prometheus, head and WAL, by reference: 355-930 us",
    )

    columns_of = {name: 2 * number for number, name in enumerate(entities)}
    usages = {entity: Usage(1.0, 2.0) for entity in entities}

    def append_by_name() -> None:
        row = ring[next(plain_second) % PLAIN_RING_SECONDS]
        at = np.fromiter((columns_of[name] for name in usages), np.intp, len(usages))
        row[at] = [usage.cpu_cores for usage in usages.values()]
        row[at + 1] = [usage.memory_bytes for usage in usages.values()]

    yield Row(
        figure=f"metric cache append by name, from {len(usages)} entities' usages",
        value=cpu_seconds(lambda: ours.append(next(second), usages), rounds=50) * 1e6,
        unit="us CPU",
        target=None,
        baseline="the same into such a row, by a dict of its columns",
        baseline_value=cpu_seconds(append_by_name, rounds=50) * 1e6,
        peers="Prometheus, by labels: 1.9 ms",
    )

    def p95_plain() -> None:
        at = aggregate.percentile_index(30, 0.95)
        np.partition(ring[:30], at, axis=0)[at]

    yield Row(
        figure=f"metric cache p95 over 30 s, all {SERIES} series",
        value=cpu_seconds(lambda: ours.aggregate(Aggregation.P95, 30), rounds=20) * 1e3,
        unit="ms CPU",
        target=3.0,
        baseline="np.partition of such an array, without names",
        baseline_value=cpu_seconds(p95_plain, rounds=20) * 1e3,
        peers="Prometheus, querier and a sort in Go: 12 ms",
    )
    ours.close()
    columns = math.ceil(SERIES / BLOCK_COLUMNS) * BLOCK_COLUMNS
    yield Row(
        figure="bytes per stored 1 s sample",
        value=(directory / "hour.ring").stat().st_size / (HOUR_SECONDS * columns),
        unit="bytes",
        target=4.2,
        baseline="a float64 in an array, without its time",
        baseline_value=8.0,
        peers="Gorilla 1.3-2, before index and WAL",
    )


class PlainBank:
    """Decaying histograms as a plain NumPy matrix of models and buckets, without moments."""

    def __init__(self, layout: histogram.Buckets) -> None:
        self.layout = layout
        self.weights = np.zeros((MODELS, layout.count))
        self.rows = np.arange(MODELS)

    def add(self, values: Floats, weight: float) -> None:
        first = self.layout.starts[1]
        buckets = (np.log(values * 0.05 / first + 1) / math.log(1.05)).astype(np.intp)
        self.weights[self.rows, np.minimum(buckets, self.layout.count - 1)] += weight

    def percentiles(self, shares: Floats) -> list[Floats]:
        sums = np.cumsum(self.weights, axis=1)
        reached = [np.argmax(sums >= share * sums[:, -1:], axis=1) for share in shares]
        return [self.layout.starts[np.minimum(each + 1, self.layout.count - 1)] for each in reached]


def bank() -> Iterator[Row]:
    random = np.random.default_rng(2)
    layouts = ((histogram.CPU, random.gamma(1.0, 0.5, MODELS)), (histogram.MEMORY, random.gamma(2.0, 5e8, MODELS)))
    banks = [(Bank(layout, 43200.0, rows=MODELS), values) for layout, values in layouts]
    plain = [(PlainBank(layout), values) for layout, values in layouts]
    all_rows = np.arange(MODELS)
    clock = iter(range(10**9))

    def update() -> None:
        now = NOW + 30 * next(clock)
        for one, values in banks:
            one.add(all_rows, values, now)

    def update_plain() -> None:
        weight = 2.0 ** (30 * (next(clock) % 1000) / 43200)
        for one, values in plain:
            one.add(values, weight)

    def percentiles() -> None:
        for one, _ in banks:
            one.histograms.percentiles(all_rows, PERCENTILES)

    def percentiles_plain() -> None:
        for one, _ in plain:
            one.percentiles(PERCENTILES)

    try:
        peers = vpa_peer.cpu_seconds(2 * MODELS, len(PERCENTILES), rounds=50)
        baselines = ["the Vertical Pod Autoscaler's histograms in Go, one by one"] * 2
    except Unavailable as error:
        peers = None
        plainly = ("a NumPy matrix of weights, without moments", "np.cumsum of such a matrix, and np.argmax for each")
        baselines = [instead(each, error) for each in plainly]
    yield Row(
        figure=f"histogram bank update, {MODELS} models x 2 resources",
        value=cpu_seconds(update, rounds=50) * 1e3,
        unit="ms CPU",
        target=0.3,
        baseline=baselines[0],
        baseline_value=(cpu_seconds(update_plain, rounds=50) if peers is None else peers[0]) * 1e3,
    )
    for shift in range(40):  # spreads each model's weight over many buckets, as life does
        for one, values in banks:
            one.add(all_rows, np.roll(values, shift), NOW)
        for matrix, values in plain:
            matrix.add(np.roll(values, shift), 1.0)
    yield Row(
        figure=f"histogram bank, {len(PERCENTILES)} percentiles of {MODELS} models x 2 resources",
        value=cpu_seconds(percentiles, rounds=5) * 1e3,
        unit="ms CPU",
        target=1.0,
        baseline=baselines[1],
        baseline_value=(cpu_seconds(percentiles_plain, rounds=5) if peers is None else peers[1]) * 1e3,
    )


# The daemon as a pod of the cluster runs it, which needs no kubeconfig and so no official client.
_AGENT = """
import gc, sys
gc.disable()  # as agent/__main__.py does
from agent import main
from agent.settings import AgentSettings
from shared.kube.config import Connection, StaticToken

url, token, node, cgroup_parent, state_dir, listen = sys.argv[1:]
settings = AgentSettings(node_name=node, listen=listen, state_dir=state_dir, cgroup_parent=cgroup_parent)
print(flush=True)
main.run(settings, Connection(url, StaticToken(token)))
"""
_OFFICIAL_CLIENT = "from kubernetes import client, watch; print(flush=True); input()"


@contextmanager
def running(code: str, *arguments: str) -> Iterator[psutil.Process]:
    """A Python process that runs `code`, once it has printed a line."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            child.stdout.readline()
            yield psutil.Process(child.pid)
        finally:
            child.kill()


class Memory(NamedTuple):
    """MiB that are a process's own: what it holds itself, and pages of files."""

    anonymous: float
    file: float

    @property
    def uss(self) -> float:
        return self.anonymous + self.file


def cpu_of(process: psutil.Process) -> float:
    """CPU seconds so far."""
    times = process.cpu_times()
    return times.user + times.system


def memory_of(process: psutil.Process) -> Memory:
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    private = kib["Private_Clean"] + kib["Private_Dirty"]
    anonymous = min(kib["Anonymous"], private)
    return Memory(anonymous / 1024, (private - anonymous) / 1024)


def add_node(client: Client, name: str) -> list[str]:
    """A node with its NodeMetric and its running pods; their uids."""
    client.create(NODES_RESOURCE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    amounts = {"cpu": "64", "memory": "256Gi"}
    status = {"status": {"allocatable": amounts, "capacity": amounts}}
    client.patch(NODES_RESOURCE, name, status, subresource="status")
    metric = {"apiVersion": NODEMETRICS.api_version, "kind": "NodeMetric", "metadata": {"name": name}}
    client.create(NODEMETRICS, metric)
    requests = {"cpu": "100m", "memory": "64Mi"}
    containers = [{"name": one, "image": "i", "resources": {"requests": requests}} for one in CONTAINERS]
    started = [
        {"name": one, "image": "i", "imageID": "i", "ready": True, "restartCount": 0, "containerID": f"containerd://{one}"}
        for one in CONTAINERS
    ]  # fmt: skip
    running_status = {"status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": started}}
    for number in range(PODS):
        own_name = f"{name}-{number}"
        metadata = {"name": own_name, "labels": {names.LABEL_PRIORITY_CLASS: PriorityClass.PROD.value}}
        spec = {"nodeName": name, "containers": containers}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        client.create(PODS_RESOURCE, pod, "default")
        client.patch(PODS_RESOURCE, own_name, running_status, "default", subresource="status")
    return [item["metadata"]["uid"] for item in client.list(PODS_RESOURCE, "default").items]


def keys_of(uids: Sequence[str]) -> tuple[tuple[SeriesKey, ...], tuple[SeriesKey, ...]]:
    """The series of a node with these pods: those of every second, and the colder ones."""
    containers = [f"{uid}/{name}" for uid in uids for name in CONTAINERS]
    entities = [
        *((Kind.NODE, ""), (Kind.SYSTEM, ""), (Kind.PROD_PEAK, "")),
        *((Kind.CLASS, str(one)) for one in PriorityClass),
        *((Kind.POD, uid) for uid in uids),
        *((Kind.CONTAINER, one) for one in containers),
    ]
    usage = (Metric.CPU, Metric.MEMORY)
    below_node = [(kind, entity) for kind, entity in entities if kind in (Kind.POD, Kind.CONTAINER)]
    hot = tuple(SeriesKey(*entity, metric) for entity in entities for metric in usage)
    cold = tuple(SeriesKey(*entity, metric) for entity in below_node for metric in COLD_METRICS)
    return hot, cold


def fill_an_hour(cache: MetricCache, uids: Sequence[str], last: int) -> None:
    """As if all of it had been sampled until second `last`."""
    hot, cold = keys_of(uids)
    values = np.random.default_rng(3).random(len(hot))
    readings = dict.fromkeys(cold, 0.5)
    for second in range(last - HOUR_SECONDS, last):
        cache.append_values(second, hot, values, readings if second % COLD_SECONDS == 0 else None)


def report() -> Iterator[Row]:
    """What a report costs but for its sending: aggregates of an hour of 250 pods, put together and encoded."""
    uids = [f"uid-{number}" for number in range(PODS)]
    spec = PodSpec(node_name="bench", priority=9000)
    metadata = [ObjectMeta(name=f"pod-{uid}", namespace="default", uid=uid) for uid in uids]
    pods = [describe(Pod(metadata=one, spec=spec)) for one in metadata]
    store, last = MetricCache(clock=ManualClock(NOW)), int(NOW)
    fill_an_hour(store, uids, last)
    current = report_policy.from_settings(AgentSettings())
    prediction = NodePrediction(time=NOW, model="n-sigma-v2", requests=NOTHING_REQUESTED)

    def made() -> NodeMetricReport:
        observed = ReportInputs(measurements.measure(store, current, last - 1), pods, prediction, ())
        return status(observed, ReportReason.PERIODIC, NOW)

    plain = msgspec.to_builtins(made())
    yield Row(
        figure=f"report of {PODS} pods, measured and encoded",
        value=cpu_seconds(lambda: msgspec.json.encode(patch(made())), rounds=5) * 1e3,
        unit="ms CPU",
        target=None,
        baseline="json.dumps of it, once it is made",
        baseline_value=cpu_seconds(lambda: json.dumps(plain), rounds=5) * 1e3,
        note="18 aggregates over 5, 10 and 30 minutes of node and system, averages of all else",
    )


def swept(url: str) -> float:
    """CPU seconds an agent spent on sampling."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    samples = {one.name: one.value for family in families for one in family.samples}
    return samples["headroom_agent_sweep_cpu_seconds_total"]


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def cpu_to_ready(server_url: str, cgroup_parent: str, directory: str) -> float:
    """CPU seconds of an agent's start."""
    listen = f"127.0.0.1:{ports.free()}"
    with running(_AGENT, server_url, TOKEN, "bench", cgroup_parent, directory, listen) as agent:
        eventually(lambda: answers(f"http://{listen}/readyz"), 20, 0.05)
        return cpu_of(agent)


def process() -> Iterator[Row]:
    """A whole agent, as it starts, and as it goes on after an hour, for a minute of real time."""
    official_cpu = math.inf
    for _ in range(STARTS):
        with running(_OFFICIAL_CLIENT) as official:
            official_cpu, official_memory = min(official_cpu, cpu_of(official)), memory_of(official)
    with tempfile.TemporaryDirectory() as directory:
        server = EmbeddedApiServer(Path(directory))
        try:
            uids = add_node(server.client(), "bench")
            with pod_tree(uids) as layout:
                if layout is None:
                    return
                store = MetricCache(disk=Disk(Path(directory) / METRIC_CACHE_DIRECTORY, "bench"))
                fill_an_hour(store, uids, int(time.time()))
                store.close()
                listen = f"127.0.0.1:{ports.free()}"
                url = f"http://{listen}"
                with plain_reader(layout, uids) as plain:
                    naive = cpu_seconds(plain, rounds=2, repeats=3)
                starts = [cpu_to_ready(server.url, layout.parent, directory) for _ in range(STARTS)]
                with running(_AGENT, server.url, TOKEN, "bench", layout.parent, directory, listen) as agent:
                    eventually(lambda: answers(f"{url}/readyz"), 20, 0.1)
                    eventually(lambda: f"pods_measured {PODS}.0" in httpx.get(f"{url}/metrics").text, 20, 1.0)
                    time.sleep(WARM_UP_SECONDS)
                    swept_before = swept(url)
                    began, cpu_before = time.monotonic(), cpu_of(agent)
                    time.sleep(MEASURED_SECONDS)
                    percent = 100 * (cpu_of(agent) - cpu_before) / (time.monotonic() - began)
                    memory = memory_of(agent)
                    sampling_percent = 100 * (swept(url) - swept_before) / (time.monotonic() - began)
                    assert httpx.get(f"{url}/api/v1/aggregate?kind=pod&metric=cpu&window=1h&agg=p95").is_success
                    asked = memory_of(agent)
        finally:
            server.kill()
    a_node = f"{PODS} pods with {CONTAINERS_PER_POD} containers each"
    yield Row(
        figure=f"agent start, from exec to ready, {a_node}",
        value=min(starts),
        unit="s CPU",
        target=0.6,
        baseline="import the official client",
        baseline_value=official_cpu,
        note=f"the best of {STARTS}; ready means pods and Node known and the first sample stored",
    )
    for what, value, target, note in (
        ("sampling of an agent at 1 Hz", sampling_percent, 0.8, "reading and storing, as the agent counts it itself"),
        ("agent all in at 1 Hz", percent, 1.5, f"{MEASURED_SECONDS} s of real time after {WARM_UP_SECONDS} s"),
    ):
        yield Row(
            figure=f"{what}, {a_node}",
            value=value,
            unit="% of a core",
            target=target,
            baseline=f"{PLAIN_READER}, hot",
            baseline_value=naive * 100,
            note=note,
        )
    for what, value, target in (
        ("without file-backed pages", memory.anonymous, 60.0),
        ("with them", memory.uss, 100.0),
        ("with them and the API in use", asked.uss, 60.0),
    ):
        yield Row(
            figure=f"agent memory (USS) after an hour, {what}",
            value=value,
            unit="MiB",
            target=target,
            baseline="a process that imported the official client",
            baseline_value=official_memory.uss,
            note=a_node,
        )
