"""Karpenter's own benchmark mix, planned in one iteration: process CPU time, against Karpenter's own benchmark.

As `scheduling_benchmark_test.go` of Karpenter makes it: a fifth of the pods each are generic, spread over zones, spread
over hosts, together in a zone, and apart on hosts; labels, requests and selectors are drawn at random; 400 machine
types of 1 to 400 cores with 2 GiB and 10 pods a core. Here each type is a group in each of three zones. Karpenter's
cluster is empty; a cluster with a node in each zone, which has no room, is the harder one: pods that spread over zones
then need new nodes in all three, and so several decisions.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.pricing.model import UnitPrices
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_up import orchestrator, salvo
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings
from manager.autoscaler.snapshot import cluster, equivalence_groups, templates
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeInfo
from manager.autoscaler.snapshot.pod_info import ReferencedObjects
from shared.api.core import Pod
from tests.apiserver.binaries import Unavailable
from tests.bench import karpenter_peer
from tests.bench.row import Measure, Row
from tests.bench.timing import cpu_seconds

TYPES, ZONES = 400, ("test-zone-1", "test-zone-2", "test-zone-3")
TARGETS = {1_000: 2.0, 5_000: 12.0}
PEERS = {1_000: "Karpenter, all placed: 3.4 s", 5_000: "Karpenter, all placed: 22 s"}
LARGEST_GROUP = 5_000
MIB = 1 << 20
CPU_MILLI = (100, 250, 500, 1000, 1500)
MEMORY_MIB = (100, 256, 512, 1024, 2048, 4096)
OVERHEAD_CPU_MILLI, OVERHEAD_MEMORY_MIB = 100, 10  # of Karpenter's fake machines
PRICES = UnitPrices(cpu=0.1, memory_gib=0.1 * (1 << 30) / 1e9, gpu=1.0, disk_gib=0.0)  # Karpenter's fake prices
LABEL_ZONE = "topology.kubernetes.io/zone"
PEER = "Karpenter's own benchmark of that name, one scheduling"
WITHOUT_GO = (
    "first-fit-decreasing pod by pod on the smallest type that takes the largest pod, no rules, in plain Python"
)


def measures() -> Iterator[Measure]:
    """The mix with and without controllers of the pods."""
    machines = _machines()
    for count in TARGETS:
        for owned in (True, False):
            yield partial(_row, count, machines, owned=owned)
    yield partial(_row, 1_000, machines, owned=True, there=[_full(zone) for zone in ZONES])


def _row(count: int, machines: list[NodeInfo], *, owned: bool, there: Sequence[NodeInfo] = ()) -> Iterator[Row]:
    pending = diverse_pods(count, owned=owned)
    plan = planning(pending, machines, there)
    decisions: list[ScaleUpDecision] = []
    value = cpu_seconds(lambda: decisions.extend(plan()), 1)
    placed = count - sum(len(each.pods) for each in decisions[-1].left)
    nodes = sum(each.new_nodes for each in decisions if each.outcome is ScaleUpOutcome.GROW)
    grown = {group for each in decisions for group in each.nodes}
    baseline, baseline_value = _baseline(pending, machines)
    kind = "owned" if owned else "bare"
    beside = ", beside a full node in each" if there else ""
    yield Row(
        figure=f"Karpenter's mix, {count:,} {kind} pods x {TYPES} machine types in {len(ZONES)} zones{beside}",
        value=value,
        unit="s of CPU",
        target=None if there else TARGETS[count],
        baseline=baseline,
        baseline_value=baseline_value,
        note=f"{placed:,} pods on {nodes:,} nodes of {len(grown)} groups in {len(decisions)} decisions",
        peers="" if there else PEERS[count],
    )


def _baseline(pending: list[Pod], machines: list[NodeInfo]) -> tuple[str, float]:
    """What it is, and its CPU seconds: Karpenter's own code, where it can be built."""
    try:
        return PEER, karpenter_peer.cpu_seconds(len(pending))
    except Unavailable:
        sizes = _sizes(pending)
        return WITHOUT_GO, cpu_seconds(lambda: _first_fit(sizes, machines), 1)


def planning(
    pending: list[Pod], machines: list[NodeInfo], there: Sequence[NodeInfo] = ()
) -> Callable[[], list[ScaleUpDecision]]:
    """All decisions of one iteration, from objects as the caches hold them."""

    def plan() -> list[ScaleUpDecision]:
        surroundings = ReferencedObjects()
        classes = equivalence_groups.build_equivalence_groups(pending, surroundings).classes
        taken = cluster.snapshot_of_nodes(there)
        states = [
            GroupStatus(Group(each.name, 0, LARGEST_GROUP, 0), template=templates.from_provider(each.name, each, ()))
            for each in machines
        ]
        settings = ScaleUpSettings(Ownership({each.name: None for each in machines}), FilePricing(units=PRICES))
        situation = ScaleUpInput(taken, classes, states)
        chance = random.Random(1)
        decisions: list[ScaleUpDecision] = []
        while True:
            decision = orchestrator.decide(situation, settings, chance)
            if decisions and decision.outcome is not ScaleUpOutcome.GROW:
                return decisions
            decisions.append(decision)
            if decision.outcome is not ScaleUpOutcome.GROW:
                return decisions
            situation = salvo.apply_decision(situation, decision)

    return plan


def diverse_pods(count: int, *, owned: bool) -> list[Pod]:
    """A fifth of each kind, decoded one by one, as a watch delivers them."""
    chance = random.Random(42)
    decoder = msgspec.json.Decoder(Pod)
    kinds = (_generic, _spread_over_zones, _spread_over_hosts, _together_in_a_zone, _apart_on_hosts)
    raw = [kind(chance) for kind in kinds for _ in range(count // len(kinds))]
    pods = []
    for index, (labels, spec) in enumerate(raw):
        requests = {"cpu": f"{chance.choice(CPU_MILLI)}m", "memory": f"{chance.choice(MEMORY_MIB)}Mi"}
        spec["containers"] = [{"name": "main", "image": "image", "resources": {"requests": requests}}]
        meta: dict[str, Any] = {"name": f"pod-{index:06d}", "namespace": "default", "labels": labels}
        meta["uid"] = f"{index:032x}"
        if owned:
            uid = msgspec.json.encode((labels, spec)).hex()
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "of-a-kind", "uid": uid}
            meta["ownerReferences"] = [{**owner, "controller": True}]
        pods.append(decoder.decode(msgspec.json.encode({"metadata": meta, "spec": spec})))
    return pods


def _generic(chance: random.Random) -> tuple[dict[str, str], dict[str, Any]]:
    return {"my-label": chance.choice("abcdefg")}, {}


def _spread_over_zones(chance: random.Random) -> tuple[dict[str, str], dict[str, Any]]:
    return _spread(chance, LABEL_ZONE)


def _spread_over_hosts(chance: random.Random) -> tuple[dict[str, str], dict[str, Any]]:
    return _spread(chance, LABEL_HOSTNAME)


def _spread(chance: random.Random, key: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The selector is drawn apart from the pod's own label, so that most pods do not count for their own spread."""
    labels = {"my-label": chance.choice("abcdefg")}
    selector = {"matchLabels": {"my-label": chance.choice("abcdefg")}}
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return labels, {"topologySpreadConstraints": [constraint]}


def _together_in_a_zone(chance: random.Random) -> tuple[dict[str, str], dict[str, Any]]:
    labels = {"my-affininity": chance.choice("abcdefg")}
    return labels, {"affinity": {"podAffinity": _required(LABEL_ZONE, labels)}}


def _apart_on_hosts(_: random.Random) -> tuple[dict[str, str], dict[str, Any]]:
    labels = {"app": "nginx"}
    return labels, {"affinity": {"podAntiAffinity": _required(LABEL_HOSTNAME, labels)}}


def _required(key: str, labels: dict[str, str]) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _machines() -> list[NodeInfo]:
    found = []
    for cores in range(1, TYPES + 1):
        capacity = {"cpu": cores * 1000, "memory": cores * 2048 * MIB, "pods": cores * 10}
        allocatable = {
            **capacity,
            "cpu": capacity["cpu"] - OVERHEAD_CPU_MILLI,
            "memory": capacity["memory"] - OVERHEAD_MEMORY_MIB * MIB,
        }
        for zone in ZONES:
            labels = {"node.kubernetes.io/instance-type": f"fake-it-{cores}", LABEL_ZONE: zone}
            name = f"fake-it-{cores:03d}-{zone}"
            found.append(NodeInfo(name, labels, capacity=capacity, allocatable=allocatable))
    return found


def _full(zone: str) -> NodeInfo:
    """A node without room."""
    name = f"there-{zone}"
    return NodeInfo(name, {LABEL_ZONE: zone, LABEL_HOSTNAME: name})


def _sizes(pending: list[Pod]) -> list[tuple[int, int]]:
    sizes = []
    for pod in pending:
        asked = pod.spec.containers[0].resources.requests or {}
        sizes.append((int(str(asked["cpu"])[:-1]), int(str(asked["memory"])[:-2]) * MIB))
    return sizes


def _first_fit(sizes: list[tuple[int, int]], machines: list[NodeInfo]) -> int:
    """How many nodes of the smallest type that takes the largest pod plain first-fit-decreasing needs."""
    largest_cpu, largest_memory = max(cpu for cpu, _ in sizes), max(memory for _, memory in sizes)
    machine = next(
        each.allocatable
        for each in machines
        if each.allocatable["cpu"] >= largest_cpu and each.allocatable["memory"] >= largest_memory
    )
    fresh = [machine["cpu"], machine["memory"], machine["pods"]]
    nodes: list[list[int]] = []
    for cpu, memory in sorted(sizes, key=lambda size: -(size[0] / fresh[0] + size[1] / fresh[1])):
        for node in nodes:
            if node[0] >= cpu and node[1] >= memory and node[2]:
                break
        else:
            node = fresh.copy()
            nodes.append(node)
        node[0] -= cpu
        node[1] -= memory
        node[2] -= 1
    return len(nodes)
