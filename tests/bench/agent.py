"""The agent's hot paths, each beside a plain implementation measured in the same call.

Times are process CPU time. The rows that read pods do so in real cgroups; where none can be made they are left out.
"""

import itertools
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

import httpx
import numpy as np
import psutil

from agent.metric_cache import aggregate
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.ring import Ring
from agent.metric_cache.series import Usage
from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroups import Driver, Layout
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.host import Host
from agent.metrics_advisor.pod_cgroups import PodCgroups
from agent.predict_server import histogram
from agent.predict_server.bank import Bank
from shared.api.core import Pod, PodStatus
from shared.api.meta import ObjectMeta
from shared.kube.client import Client
from shared.kube.resources import NODES as NODES_RESOURCE
from shared.kube.resources import PODS as PODS_RESOURCE
from shared.names import KubeQoS
from tests.bench.row import Row
from tests.support import eventually
from tests.support.apiserver import TOKEN, EmbeddedApiServer

PODS, CONTAINERS_PER_POD = 250, 2
PROCESS_PODS = 30
SERIES = 4000
MODELS = 1500
NOW = 1_700_000_000.0
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


def rows() -> list[Row]:
    return [*sampling(), *cache(), *bank(), *process()]


@contextmanager
def pod_tree(uids: Sequence[str]) -> Iterator[Layout | None]:
    """Burstable pods of two containers each in real cgroups; None where none can be made."""
    hierarchy = cgroups.hierarchy(Path("/sys/fs/cgroup"))
    if hierarchy is None or hierarchy.v2 or not all(os.access(root, os.W_OK) for root in hierarchy.roots.values()):
        yield None
        return
    layout = Layout(hierarchy, Driver.CGROUPFS, f"headroom-bench-{uuid.uuid4().hex[:8]}")
    try:
        for controller in hierarchy.roots:
            for uid in uids:
                for container in range(CONTAINERS_PER_POD):
                    layout.container_dir(controller, KubeQoS.BURSTABLE, uid, f"c{container}").mkdir(parents=True)
        yield layout
    finally:
        for root in hierarchy.roots.values():
            for directory, _, _ in os.walk(root / layout.parent, topdown=False):
                os.rmdir(directory)


def sampling() -> Iterator[Row]:
    uids = [str(uuid.uuid4()) for _ in range(PODS)]
    status = PodStatus(qos_class=KubeQoS.BURSTABLE)
    pods = [Pod(metadata=ObjectMeta(name=uid, uid=uid), status=status) for uid in uids]
    with pod_tree(uids) as layout:
        if layout is None:
            return
        descriptors = Descriptors()
        reader, host = PodCgroups(layout, descriptors), Host(Path("/proc"), descriptors)

        def tick() -> None:
            reader.sample(pods, host.cpu_count)
            host.sample()

        def naive() -> None:
            for uid in uids:
                int((layout.pod_dir("cpu", KubeQoS.BURSTABLE, uid) / "cpuacct.usage").read_text())
                text = (layout.pod_dir("memory", KubeQoS.BURSTABLE, uid) / "memory.stat").read_text()
                stat = dict(line.split() for line in text.splitlines())
                sum(int(stat[f"total_{key}"]) for key in ("inactive_anon", "active_anon", "unevictable"))
            Path("/proc/stat").read_text().split()
            Path("/proc/meminfo").read_text().split()

        ours, theirs = cpu_seconds(tick, rounds=5), cpu_seconds(naive, rounds=2, repeats=3)
        reader.close()
        host.close()
    yield Row(
        figure=f"sampling tick, {PODS} pod cgroups and the node (no container's own)",
        value=ours * 1e3,
        unit="ms CPU",
        target=8.0,
        baseline="open, read, split each file",
        baseline_value=theirs * 1e3,
        note=f"cpu and memory of each; the {PODS * CONTAINERS_PER_POD} container cgroups below are in the pods' sums",
    )


def cache() -> Iterator[Row]:
    ring = Ring(seconds=300)
    while ring.columns < SERIES:
        ring.extend()
    values = np.random.default_rng(1).random(ring.columns, np.float32)
    plain: list[list[float]] = [[] for _ in range(SERIES)]
    listed = values[:SERIES].tolist()
    second = iter(range(10**9))

    def append_plain() -> None:
        for samples, value in zip(plain, listed, strict=True):
            samples.append(value)
            if len(samples) > 300:
                del samples[0]

    yield Row(
        figure=f"metric cache append, one tick of {SERIES} series",
        value=cpu_seconds(lambda: ring.append(next(second), values), rounds=500) * 1e6,
        unit="us CPU",
        target=100.0,
        baseline="one list a series",
        baseline_value=cpu_seconds(append_plain, rounds=20) * 1e6,
    )

    by_name: dict[str, tuple[list[float], list[float]]] = {}

    def append_by_name() -> None:
        for name, usage in usages.items():
            cpu, memory = by_name.setdefault(name, ([], []))
            for samples, value in ((cpu, usage.cpu_cores), (memory, usage.memory_bytes)):
                samples.append(value)
                if len(samples) > 300:
                    del samples[0]

    usages = {f"entity-{number}": Usage(1.0, 2.0) for number in range(SERIES // len(Usage._fields))}
    whole = MetricCache(300)
    ticks = iter(range(10**9))
    cost = cpu_seconds(lambda: whole.append(next(ticks), usages), rounds=50)
    yield Row(
        figure=f"the same by name, from {len(usages)} entities' usages",
        value=cost * 1e6,
        unit="us CPU",
        target=None,
        baseline="a dict of lists",
        baseline_value=cpu_seconds(append_by_name, rounds=20) * 1e6,
    )

    def p95() -> None:
        aggregate.aggregate(ring.window(30), Aggregation.P95)

    def p95_plain() -> None:
        for samples in plain:
            sorted(samples[-30:])[aggregate.percentile_index(30, 0.95)]

    yield Row(
        figure=f"metric cache p95 over 30 s, all {SERIES} series",
        value=cpu_seconds(p95, rounds=20) * 1e3,
        unit="ms CPU",
        target=3.0,
        baseline="sorted() a series",
        baseline_value=cpu_seconds(p95_plain, rounds=2) * 1e3,
    )
    yield Row(
        figure="bytes per stored 1 s sample",
        value=ring.memory_bytes / (ring.seconds * ring.columns),
        unit="bytes",
        target=4.2,
        baseline="a float in a list (24 + 8)",
        baseline_value=32.0,
    )


class OneByOne:
    """One decaying histogram with moments as plain Python, the way the Go original holds one per model."""

    def __init__(self, layout: histogram.Buckets) -> None:
        self.layout = layout
        self.starts = layout.starts.tolist()
        self.weights = [0.0] * layout.count
        self.total = self.mean = self.square = 0.0

    def add(self, value: float, weight: float) -> None:
        first = self.starts[1]
        bucket = 0 if value < first else int(math.log(value * 0.05 / first + 1) / math.log(1.05))
        self.weights[min(bucket, self.layout.count - 1)] += weight
        self.total += weight
        distance = value - self.mean
        self.mean += distance * weight / self.total
        self.square += weight * distance * (value - self.mean)

    def percentile(self, p: float) -> float:
        threshold = p * self.total
        reached = (bucket for bucket, sum_ in enumerate(itertools.accumulate(self.weights)) if sum_ >= threshold)
        bucket = next(reached, self.layout.count - 1)
        return float(self.starts[min(bucket + 1, self.layout.count - 1)])


def bank() -> Iterator[Row]:
    random = np.random.default_rng(2)
    layouts = ((histogram.CPU, random.gamma(1.0, 0.5, MODELS)), (histogram.MEMORY, random.gamma(2.0, 5e8, MODELS)))
    banks = [(Bank(layout, 43200.0, rows=MODELS), values) for layout, values in layouts]
    singles = [([OneByOne(layout) for _ in range(MODELS)], values.tolist()) for layout, values in layouts]
    all_rows = np.arange(MODELS)
    clock = iter(range(10**9))

    def update() -> None:
        now = NOW + 30 * next(clock)
        for one, values in banks:
            one.add(all_rows, values, now)

    def update_plain() -> None:
        weight = 2.0 ** (30 * next(clock) / 43200)
        for models, values in singles:
            for model, value in zip(models, values, strict=True):
                model.add(value, weight)

    def percentiles() -> None:
        for one, _ in banks:
            one.histograms.percentiles(all_rows, PERCENTILES)

    def percentiles_plain() -> None:
        for models, _ in singles:
            for model in models:
                for p in PERCENTILES:
                    model.percentile(p)

    yield Row(
        figure=f"histogram bank update, {MODELS} models x 2 resources",
        value=cpu_seconds(update, rounds=50) * 1e3,
        unit="ms CPU",
        target=0.3,
        baseline="one Python object a model",
        baseline_value=cpu_seconds(update_plain, rounds=2) * 1e3,
    )
    for shift in range(40):  # spreads each model's weight over many buckets, as life does
        for one, values in banks:
            one.add(all_rows, np.roll(values, shift), NOW)
        for models, plain_values in singles:
            for model, value in zip(models, plain_values[shift:], strict=False):
                model.add(value, 1.0)
    yield Row(
        figure=f"histogram bank, {len(PERCENTILES)} percentiles of {MODELS} models x 2 resources",
        value=cpu_seconds(percentiles, rounds=5) * 1e3,
        unit="ms CPU",
        target=4.0,
        baseline="one Python object a model",
        baseline_value=cpu_seconds(percentiles_plain, rounds=1, repeats=2) * 1e3,
    )


# The daemon as a pod of the cluster runs it, which needs no kubeconfig and so no official client.
_AGENT = """
import sys, threading
from pathlib import Path
from prometheus_client import CollectorRegistry
from agent.main import Agent
from agent.metrics_advisor.local import LocalSource
from agent.settings import AgentSettings
from shared.clock import SystemClock
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken

url, token, node, cgroup_parent, state_dir = sys.argv[1:]
settings = AgentSettings(
    node_name=node, listen="127.0.0.1:0", state_dir=state_dir, histogram_update_interval_seconds=1.0
)
source = LocalSource(cgroup_root=Path("/sys/fs/cgroup"), cgroup_parent=cgroup_parent)
client = Client(Connection(url, StaticToken(token)), "bench")
agent = Agent(settings, client, source, SystemClock(), CollectorRegistry())
agent.start()
print(":".join(map(str, agent.address)), flush=True)
threading.Event().wait()
"""
_OFFICIAL_CLIENT = "from kubernetes import client, watch; print(flush=True); input()"


@contextmanager
def running(code: str, *arguments: str) -> Iterator[tuple[psutil.Process, str]]:
    """A Python process that runs `code`, and the first line it printed."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield psutil.Process(child.pid), child.stdout.readline().strip()
        finally:
            child.kill()


def spent(process: psutil.Process) -> tuple[float, float]:
    """CPU seconds so far, and the MiB that are the process's own."""
    times = process.cpu_times()
    return times.user + times.system, process.memory_full_info().uss / 2**20


def add_node(client: Client, name: str) -> list[str]:
    """A node with its pods; their uids."""
    client.create(NODES_RESOURCE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    requests = {"cpu": "100m", "memory": "64Mi"}
    spec = {"nodeName": name, "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
    for number in range(PROCESS_PODS):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-{number}"}, "spec": spec}
        client.create(PODS_RESOURCE, pod, "default")
    return [item["metadata"]["uid"] for item in client.list(PODS_RESOURCE, "default").items]


def process() -> Iterator[Row]:
    """What the agent's process costs to start, and holds once every pod has its models."""
    with running(_OFFICIAL_CLIENT) as (official, _):
        official_cpu, official_uss = spent(official)
    with tempfile.TemporaryDirectory() as directory:
        server = EmbeddedApiServer(Path(directory))
        try:
            uids = add_node(server.client(), "bench")
            with pod_tree(uids) as layout:
                if layout is None:
                    return
                arguments = (server.url, TOKEN, "bench", layout.parent, directory)
                with running(_AGENT, *arguments) as (agent, address):
                    eventually(lambda: httpx.get(f"http://{address}/readyz").status_code == 200, 20, 0.2)
                    cpu_to_ready, _ = spent(agent)
                    measured = f"headroom_agent_pods_measured {PROCESS_PODS}.0"
                    eventually(lambda: measured in httpx.get(f"http://{address}/metrics").text, 20, 0.2)
                    eventually(lambda: httpx.get(f"http://{address}/api/v1/histograms/{uids[0]}").is_success, 20, 0.2)
                    _, uss = spent(agent)
        finally:
            server.kill()
    yield Row(
        figure="agent start, from exec to ready",
        value=cpu_to_ready,
        unit="s CPU",
        target=0.6,
        baseline="import the official client",
        baseline_value=official_cpu,
        note="ready means pods and Node known and the first sample stored",
    )
    yield Row(
        figure=f"agent memory (USS), {PROCESS_PODS} pods measured and trained",
        value=uss,
        unit="MiB",
        target=60.0,
        baseline="a process that imported the official client",
        baseline_value=official_uss,
        note="some seconds after the start; an hour of samples adds 4 bytes for each of the series' seconds",
    )
