"""Nodes that are too many: an iteration with scale-down, and the decision of a scan by utilisation alone, from cached
objects.
"""

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import utilization_method
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_down.removal_status import DeletionsInProgress, ScaleDownDecision, ScaleDownHistory
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization import rules, scan
from manager.autoscaler.utilization.node_groups import NodeGroup
from manager.autoscaler.utilization.observation import CloudGroup, Observer
from manager.autoscaler.utilization.scan import DueScans
from manager.main import collect_seldom
from shared.api.core import Node, Pod
from tests.bench import iteration
from tests.bench.iteration import FixedCloud
from tests.bench.row import Measure, Row
from tests.bench.timing import cpu_seconds

T = TypeVar("T")

NOW = iteration.NOW
SHAPES = 60
CORES = 4
SCANNED_NODES, SCANNED_PODS = 1_000, 30_000
PEERS = "Cluster Autoscaler, 2,000 nodes of 40 pods, its whole loop: 26 s"
NEEDED_MILLI, OTHERS_MILLI = 2200, 500  # of all pods of a node: more than half of it there, an eighth here

GROUP = NodeGroup(
    name="shared",
    label_key="customer",
    label_value="shared",
    cloud_provider_group_name="shared",
    min_nodes=1,
    max_nodes=5_000,
    taint_upper_capacity_threshold_percent=40,
    taint_lower_capacity_threshold_percent=10,
    scale_up_threshold_percent=70,
    slow_node_removal_rate=20,
    fast_node_removal_rate=50,
    soft_delete_grace_period="1m",
    hard_delete_grace_period="10m",
    scale_up_cool_down_period="2m",
)


@contextmanager
def _as_in_the_manager() -> Iterator[None]:
    """With its garbage collection."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass(frozen=True)
class Pass:
    """Nodes, two fifths of which are needed; the others have half as many pods."""

    nodes: int
    pods_on_needed: int
    most_seconds: float
    most_mib: float | None

    @property
    def needed(self) -> int:
        return self.nodes * 2 // 5


PASSES = (Pass(2_000, 10, 2.0, None), Pass(15_000, 10, 4.0, 763.0), Pass(5_000, 110, 8.0, 1431.0))


def measures() -> Iterator[Measure]:
    yield _scans
    for each in PASSES:
        yield partial(_pass, each)


@_as_in_the_manager()
def _scans() -> list[Row]:
    nodes = [_node(f"n{index}") for index in range(SCANNED_NODES)]
    pods = [_pod(index, f"n{index % SCANNED_NODES}", 5 * (index % SHAPES)) for index in range(SCANNED_PODS)]
    known = rules.scan_rules(GROUP)
    observer = Observer(known)

    def scanned(by: Observer) -> int:
        seen = by.observe(nodes, pods, CloudGroup(0, 5_000, SCANNED_NODES, SCANNED_NODES))
        return scan.decide(known, seen, memories.Memory(), now=NOW).taint.count

    cloud = FixedCloud({"shared": _node("template")}, {"shared": nodes})
    settings = DecisionSettings(groups=(GROUP,), scanned=(known,))
    objects = ClusterObjects(NOW, tuple(nodes), tuple(pods))
    first = cpu_seconds(lambda: utilization_method.plan_scans(settings, objects, cloud.observed, DueScans()))
    tainted = scanned(observer)
    baseline = "what every pod requests, summed by node in plain Python"
    plain = cpu_seconds(lambda: _summed(pods))
    size, again = f"{SCANNED_NODES:,} nodes, {SCANNED_PODS:,} pods", cpu_seconds(lambda: scanned(observer))
    return [
        Row(f"first scan by utilisation, {size}", first, "s of CPU", 0.2, baseline, plain, f"{tainted} nodes tainted"),
        Row(f"decision of a scan by utilisation, {size}, nothing changed", again, "s of CPU", 0.2, baseline, plain),
    ]


@_as_in_the_manager()
def _pass(of: Pass) -> list[Row]:
    nodes = [_node(f"n{index:05d}") for index in range(of.nodes)]
    pods = []
    for index in range(of.nodes):
        many, milli = (of.pods_on_needed, NEEDED_MILLI) if index < of.needed else (of.pods_on_needed // 2, OTHERS_MILLI)
        pods += [_pod(of.pods_on_needed * index + each, f"n{index:05d}", milli // many) for each in range(many)]
    names = [node.metadata.name for node in nodes]
    cloud = FixedCloud({"shared": _node("template")}, {"shared": nodes})
    settings = iteration.settings_of(cloud, DecisionSettings(prices=FilePricing()))
    objects = ClusterObjects(NOW, tuple(nodes), tuple(pods))
    unneeded_long = ScaleDownHistory(dict.fromkeys(names, NOW - 86_400))

    def decided(cache: AutoscalerCache, memory: ScaleDownHistory) -> ScaleDownDecision:
        underway = DeletionsInProgress(memory)
        found = iteration.planned(objects, cloud, settings, cache=cache, underway=underway).iteration.scale_down
        assert found is not None
        return found

    figure = f"scale-down iteration, {of.nodes:,} nodes, {len(pods):,} pods"
    kept = AutoscalerCache(settings)
    before = decided(kept, unneeded_long)
    baseline = "the pods of removable nodes to the first of the others with room, pod by pod, in plain Python"
    plain = cpu_seconds(lambda: _moved(pods, set(names[of.needed :])), 1)
    note = f"{len(before.unneeded):,} found unneeded"
    first = cpu_seconds(lambda: decided(AutoscalerCache(settings), unneeded_long), 2)
    next_one = cpu_seconds(lambda: decided(kept, before.memory), 2)
    rows = [
        Row(figure, first, "s of CPU", of.most_seconds, baseline, plain, note, PEERS),
        Row(f"{figure}, nothing changed", next_one, "s of CPU", of.most_seconds, baseline, plain, note),
    ]
    if of.most_mib is not None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        held = sum(len(msgspec.json.encode(each)) for each in (*nodes, *pods)) / (1 << 20)
        note = "of the whole process so far, with its imports"
        rows.append(
            Row(f"{figure}, peak memory", peak, "MiB RSS", of.most_mib, "the JSON of these objects", held, note)
        )
    return rows


def _summed(pods: list[Pod]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for pod in pods:
        asked = pod.spec.containers[0].resources.requests or {}
        cpu, memory = found.get(pod.spec.node_name, (0, 0))
        found[pod.spec.node_name] = cpu + int(str(asked["cpu"])[:-1]), memory + int(asked["memory"])
    return found


def _moved(pods: list[Pod], leaving: set[str]) -> int:
    """How many pods of those nodes find a place on the others."""
    free: dict[str, int] = {}
    moving = []
    for pod in pods:
        milli = int(str((pod.spec.containers[0].resources.requests or {})["cpu"])[:-1])
        if pod.spec.node_name in leaving:
            moving.append(milli)
        else:
            free[pod.spec.node_name] = free.get(pod.spec.node_name, CORES * 1000) - milli
    found = 0
    for milli in moving:
        name = next((each for each, left in free.items() if left >= milli), None)
        if name is not None:
            free[name] -= milli
            found += 1
    return found


def _node(name: str) -> Node:
    amounts = {"cpu": str(CORES), "memory": "16Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a", "customer": "shared"}
    body = {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"providerID": f"cloud:///{name}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    }
    return _decoded(body, Node)


def _pod(index: int, node: str, milli: int) -> Pod:
    shape = index % SHAPES
    requests = {"cpu": f"{milli}m", "memory": str(64 << 20)}
    # One Deployment for each shape and size, which all its pods share.
    made_by = f"app-{shape}-{milli}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": made_by, "uid": made_by, "controller": True}
    body = {
        "metadata": {
            "name": f"app-{shape}-{index:06d}",
            "namespace": f"team-{shape % 7}",
            "uid": f"{index:032x}",
            "labels": {"app": f"app-{shape}"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node,
            "nodeSelector": {"customer": "shared"},
            "containers": [{"name": "main", "image": "registry.example/app:1", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }
    return _decoded(body, Pod)


def _decoded(body: dict[str, Any], kind: type[T]) -> T:
    """As a watch delivers it: no two share anything but what decoding shares."""
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)
