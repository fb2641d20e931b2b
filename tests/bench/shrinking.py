"""Nodes that are too many: a scan by utilisation and a pass of scale-down, from cached objects to decisions."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.node_groups import NodeGroup
from manager.autoscaler.scale_down import planner, pods_on_nodes
from manager.autoscaler.scale_down.budgets import ShrinkingGroup
from manager.autoscaler.scale_down.inputs import ScaleDownInputs
from manager.autoscaler.scale_down.removal_status import ScaleDownHistory
from manager.autoscaler.scale_down.rules import GroupRules, ScaleDownRules
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeState
from manager.autoscaler.snapshot.pod_info import ReferencedObjects
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization import rules, scan
from manager.autoscaler.utilization.observation import CloudGroup, Observer
from manager.main import collect_seldom
from shared.api.core import Node, Pod
from tests.bench.row import Row
from tests.bench.timing import cpu_seconds

T = TypeVar("T")

NOW = 1_800_000_000.0
SHAPES = 60
CORES = 4
SCANNED_NODES, SCANNED_PODS = 1_000, 30_000
NODES, REMOVABLE = 2_000, 1_200
PODS_ON_NEEDED, PODS_ON_OTHERS = 10, 5
NEEDED_MILLI, OTHERS_MILLI = 220, 100  # of one pod: more than half of a node there, an eighth here

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


def rows() -> list[Row]:
    """What it takes to see which nodes are too many."""
    with _as_in_the_manager():
        return [*_scans(), _pass()]


def _scans() -> list[Row]:
    nodes = [_node(f"n{index}") for index in range(SCANNED_NODES)]
    pods = [_pod(index, f"n{index % SCANNED_NODES}", 5 * (index % SHAPES)) for index in range(SCANNED_PODS)]
    known = rules.scan_rules(GROUP)
    observer = Observer(known)

    def scanned(by: Observer) -> int:
        seen = by.observe(nodes, pods, CloudGroup(0, 5_000, SCANNED_NODES, SCANNED_NODES))
        return scan.decide(known, seen, memories.Memory(), now=NOW).taint.count

    first = cpu_seconds(lambda: scanned(Observer(known)))
    tainted = scanned(observer)
    baseline = "what every pod requests, summed by node in plain Python"
    plain = cpu_seconds(lambda: _summed(pods))
    what = f"scan by utilisation, {SCANNED_NODES:,} nodes, {SCANNED_PODS:,} pods"
    return [
        Row(f"{what}, the first", first, "s of CPU", 0.2, baseline, plain, f"{tainted} nodes tainted"),
        Row(f"{what}, nothing changed", cpu_seconds(lambda: scanned(observer)), "s of CPU", 0.2, baseline, plain),
    ]


def _pass() -> Row:
    needed = NODES - REMOVABLE
    nodes = [_node(f"n{index:04d}") for index in range(NODES)]
    pods = []
    for index in range(NODES):
        many, milli = (PODS_ON_NEEDED, NEEDED_MILLI) if index < needed else (PODS_ON_OTHERS, OTHERS_MILLI)
        pods += [_pod(10 * index + each, f"n{index:04d}", milli) for each in range(many)]
    names = [node.metadata.name for node in nodes]
    group = ShrinkingGroup(Group("shared", 1, 5_000, NODES), GroupRules())
    given: dict[str, Any] = {
        "groups": {"shared": group},
        "group_of": dict.fromkeys(names, "shared"),
        "memory": ScaleDownHistory(dict.fromkeys(names, NOW - 86_400)),
    }

    def decided() -> int:
        facts = [cluster.node_info(node, NodeState.READY) for node in nodes]
        read = pods_on_nodes.read_pods(pods, ReferencedObjects())
        return len(planner.decide(ScaleDownInputs(NOW, facts, read.residents, **given), ScaleDownRules()).unneeded)

    return Row(
        f"scale-down pass, {NODES:,} nodes, {REMOVABLE:,} removable",
        cpu_seconds(decided),
        "s of CPU",
        2.0,
        "the pods of those nodes to the first of the others with room, pod by pod, in plain Python",
        cpu_seconds(lambda: _moved(pods, set(names[needed:])), 1),
        f"{decided():,} found unneeded, {len(pods):,} pods",
    )


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
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return _decoded(body, Node)


def _pod(index: int, node: str, milli: int) -> Pod:
    shape = index % SHAPES
    requests = {"cpu": f"{milli}m", "memory": str(64 << 20)}
    body = {
        "metadata": {
            "name": f"app-{shape}-{index:06d}",
            "namespace": f"team-{shape % 7}",
            "uid": f"{index:032x}",
            "labels": {"app": f"app-{shape}"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "controller": True}],
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


@contextmanager
def _as_in_the_manager() -> Iterator[None]:
    """With its garbage collection."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
