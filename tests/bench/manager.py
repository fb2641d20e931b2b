"""From the API server's bytes to the manager's decision: process CPU time, against decoding alone."""

import json
import time
from collections.abc import Callable

import msgspec
from kubernetes import watch as official

from manager.nodemetric import lifecycle, spec
from manager.noderesource import explain, writing
from manager.noderesource.situation import Requested
from shared import durations
from shared.api import colocation
from shared.api.core import Node
from shared.api.nodemetric import NodeMetric
from shared.kube import objects
from shared.quantity import Resources
from tests.bench.row import Row

NODES = 5_000
PAGE = 500
EVENTS = 1_000
PODS = 44  # makes a NodeMetric of 12 kB, with what an agent reports beside them
NOW = 1_700_000_000.0
CONFIG = colocation.parse('{"enable": true}', source="bench")
REQUESTED = Requested(Resources(20_000, 40 << 30), Resources(18_000, 36 << 30))


def rows() -> list[Row]:
    """The manager's figures."""
    return [_event(), _cold_start()]


def _event() -> Row:
    # Every event differs, as reports do, so that no cache of parsed quantities flatters the figure.
    node = msgspec.convert(_node(0), Node)
    lines = [msgspec.json.encode({"type": "MODIFIED", "object": _node_metric(index)}) for index in range(EVENTS)]
    texts = [line.decode() for line in lines[: EVENTS // 4]]
    watch = official.Watch()

    def ours() -> None:
        for line in lines:
            event = objects.decode_event(line, NodeMetric)
            assert isinstance(event, objects.WatchEvent)
            assert _decided(node, event.object)

    def official_client() -> None:
        for text in texts:
            watch.unmarshal_event(text, "object")

    return Row(
        figure="NodeMetric event to decision",
        value=_cpu_seconds(ours) / len(lines) * 1e6,
        unit="us of CPU",
        target=100,
        baseline="official client, watch event decoded only",
        baseline_value=_cpu_seconds(official_client) / len(texts) * 1e6,
        note=f"{sum(map(len, lines)) // len(lines)} bytes each",
    )


def _cold_start() -> Row:
    node_pages, metric_pages = _pages(_node), _pages(_node_metric)

    def ours() -> None:
        metrics = {
            metric.metadata.name: metric
            for page in metric_pages
            for metric in objects.decode_page(page, NodeMetric).items
        }
        decided = sum(
            _decided(node, metrics[node.metadata.name])
            for page in node_pages
            for node in objects.decode_page(page, Node).items
        )
        assert decided == NODES

    def plain() -> None:
        for page in (*node_pages, *metric_pages):
            json.loads(page)

    return Row(
        figure=f"{NODES} nodes and NodeMetrics, cold start to all decided",
        value=_cpu_seconds(ours),
        unit="s of CPU",
        target=2.0,
        baseline="json.loads of the same pages",
        baseline_value=_cpu_seconds(plain),
        note=f"{sum(map(len, (*node_pages, *metric_pages))) >> 20} MiB",
    )


def _decided(node: Node, metric: NodeMetric | None) -> bool:
    """Decides all there is about a node; whether that is a write, as it must be for one that offers nothing yet."""
    meta = node.metadata
    strategy = colocation.for_node(CONFIG, name=meta.name, labels=meta.labels, annotations=meta.annotations)
    decision = explain.decide(node, metric, REQUESTED, strategy, NOW)
    wanted = spec.desired(strategy, settled=True, old=None if metric is None else metric.spec)
    step = lifecycle.plan(meta.name, metric, wanted)
    write = writing.plan(node, decision.offer, strategy=strategy.strategy, since_last_seconds=None)
    return write is not None and step is not None and decision.offer is not None


def _cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one round, the best of three: what else the machine does only ever adds."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def _pages(make: Callable[[int], dict[str, object]]) -> list[bytes]:
    return [
        msgspec.json.encode(
            {"metadata": {"resourceVersion": "1"}, "items": [make(index) for index in range(start, start + PAGE)]}
        )
        for start in range(0, NODES, PAGE)
    ]


def _node(index: int) -> dict[str, object]:
    native = {"cpu": "32", "memory": f"{131_000_000 + index}Ki", "pods": "110", "ephemeral-storage": "95Gi"}
    conditions = [
        {"type": name, "status": "False", "reason": f"KubeletHas{name}", "message": f"kubelet says {name} is fine"}
        for name in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [{"names": [f"registry.example/team/image-{i}@sha256:{i:064x}"], "sizeBytes": i} for i in range(20)]
    return {
        "metadata": {
            "name": f"node-{index}",
            "uid": f"{index:032x}",
            "resourceVersion": str(index),
            "labels": {f"example.com/label-{i}": f"value-{i}" for i in range(12)},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"example://node-{index}"},
        "status": {"capacity": native, "allocatable": native, "conditions": conditions, "images": images},
    }


def _node_metric(index: int) -> dict[str, object]:
    pods = [
        {
            "name": f"service-{i % 7}-6f7d8c9b5d-{index:05d}-{i}",
            "namespace": f"team-{i % 5}",
            "podUsage": _resources(101 + index + i, (1 << 28) + 4096 * (index + i)),
            "priority": "koord-prod",
            "qos": "LS",
            "extensions": {"note": "x" * 60},
        }
        for i in range(PODS)
    ]
    aggregated = [
        {"duration": f"{minutes}m0s", "usage": {p: _resources(8000 + index, 40 << 30) for p in ("avg", "p50", "p95")}}
        for minutes in (5, 10, 30)
    ]
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": f"node-{index}", "uid": f"{index:032x}", "resourceVersion": str(index)},
        "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}},
        "status": {
            "updateTime": durations.timestamp(NOW - 20),
            "nodeMetric": {
                "nodeUsage": _resources(9000 + index, 48 << 30),
                "systemUsage": _resources(300 + index % 100, 2 << 30),
                "aggregatedNodeUsages": aggregated,
            },
            "podsMetric": pods,
            "prodReclaimableMetric": {"resource": _resources(7000 + index, (12 << 30) + index)},
            "prodPeakMetric": {"resource": _resources(11_000 + index, 50 << 30)},
        },
    }


def _resources(cpu_milli: int, memory_bytes: int) -> dict[str, object]:
    return {"resources": {"cpu": f"{cpu_milli}m", "memory": str(memory_bytes)}}
