"""The agent's hot paths, each beside a plain implementation measured in the same call.

Times are process CPU time. The sampling row reads 250 real pod cgroups that hold 500 container cgroups; where cgroups
cannot be made it is left out.
"""

import itertools
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

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
from shared.names import KubeQoS
from tests.bench.row import Row

PODS, CONTAINERS_PER_POD = 250, 2
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
    return [*sampling(), *cache(), *bank()]


@contextmanager
def pod_tree() -> Iterator[tuple[Layout, list[Pod]] | None]:
    """250 burstable pods of two containers each in real cgroups; None where none can be made."""
    hierarchy = cgroups.hierarchy(Path("/sys/fs/cgroup"))
    if hierarchy is None or hierarchy.v2 or not all(os.access(root, os.W_OK) for root in hierarchy.roots.values()):
        yield None
        return
    layout = Layout(hierarchy, Driver.CGROUPFS, f"headroom-bench-{uuid.uuid4().hex[:8]}")
    uids = [str(uuid.uuid4()) for _ in range(PODS)]
    try:
        for controller in hierarchy.roots:
            for uid in uids:
                for container in range(CONTAINERS_PER_POD):
                    layout.container_dir(controller, KubeQoS.BURSTABLE, uid, f"c{container}").mkdir(parents=True)
        status = PodStatus(qos_class=KubeQoS.BURSTABLE)
        yield layout, [Pod(metadata=ObjectMeta(name=uid, uid=uid), status=status) for uid in uids]
    finally:
        for root in hierarchy.roots.values():
            for directory, _, _ in os.walk(root / layout.parent, topdown=False):
                os.rmdir(directory)


def sampling() -> Iterator[Row]:
    with pod_tree() as made:
        if made is None:
            return
        layout, pods = made
        descriptors = Descriptors()
        reader, host = PodCgroups(layout, descriptors), Host(Path("/proc"), descriptors)

        def tick() -> None:
            reader.sample(pods, host.cpu_count)
            host.sample()

        def naive() -> None:
            for pod in pods:
                uid = pod.metadata.uid
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
        figure="sampling tick, 250 pods / 500 containers",
        value=ours * 1e3,
        unit="ms CPU",
        target=8.0,
        baseline="open, read, split each file",
        baseline_value=theirs * 1e3,
        note="cpu and memory of the node and of every pod cgroup, which contains its containers",
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
