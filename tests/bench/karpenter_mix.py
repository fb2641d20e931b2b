"""Karpenter's own benchmark mix, planned by `headroom plan`: CPU time of the whole command, its start and the reading
of its files included, against Karpenter's own benchmark, which starts from objects in memory.

As `scheduling_benchmark_test.go` of Karpenter makes it: a fifth of the pods each are generic, spread over zones, spread
over hosts, together in a zone, and apart on hosts; labels, requests and selectors are drawn at random; 400 machine
types of 1 to 400 cores with 2 GiB and 10 pods a core. Here each type is a group in each of three zones. Karpenter's
cluster is empty; a cluster with a node in each zone, which has no room, is the harder one: pods that spread over zones
then need new nodes in all three, and so several decisions.
"""

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml

from manager.autoscaler.pricing.model import UnitPrices
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME
from tests.apiserver.binaries import Unavailable
from tests.bench import dumps, karpenter_peer
from tests.bench.row import Measure, Row, instead
from tests.bench.timing import HEADROOM, cpu_seconds, process_cost

TYPES, ZONES = 400, ("test-zone-1", "test-zone-2", "test-zone-3")
TARGETS = {1_000: 3.0, 5_000: 12.0}
PEERS = {1_000: "Karpenter, all placed: 3.4 s", 5_000: "Karpenter, all placed: 22 s"}
LARGEST_GROUP = 5_000
MIB = 1 << 20
CPU_MILLI = (100, 250, 500, 1000, 1500)
MEMORY_MIB = (100, 256, 512, 1024, 2048, 4096)
OVERHEAD_CPU_MILLI, OVERHEAD_MEMORY_MIB = 100, 10  # of Karpenter's fake machines
PRICES = UnitPrices(cpu=0.1, memory_gib=0.1 * (1 << 30) / 1e9, gpu=1.0, disk_gib=0.0)  # Karpenter's fake prices
LABEL_ZONE = "topology.kubernetes.io/zone"
PEER = "Karpenter's own benchmark of that name, one scheduling without its start"
WITHOUT_GO = (
    "first-fit-decreasing pod by pod on the smallest type that takes the largest pod, no rules, in plain Python"
)

JsonObject = dict[str, Any]


def measures() -> Iterator[Measure]:
    """The mix with and without controllers of the pods."""
    for count in TARGETS:
        for owned in (True, False):
            yield partial(_row, count, owned=owned)
    yield partial(_row, 1_000, owned=True, there=[_full(zone) for zone in ZONES])


def _row(count: int, *, owned: bool, there: Sequence[JsonObject] = ()) -> Iterator[Row]:
    pending = diverse_pods(count, owned=owned)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "plan.json")
        cost = process_cost(*HEADROOM, *plan_command(Path(folder), [*pending, *there]), output=answer)
        plan = json.loads(answer.read_bytes())
    baseline, baseline_value = _baseline(pending)
    mix = f"{count:,} {'owned' if owned else 'bare'} pods x {TYPES} machine types in {len(ZONES)} zones"
    placed = count - sum(each["count"] for each in plan["unplaced"])
    yield Row(
        figure=f"`headroom plan -f`, Karpenter's mix, {mix}{', beside a full node in each' if there else ''}",
        value=cost.cpu_seconds,
        unit="s of CPU",
        target=TARGETS[count],
        baseline=baseline,
        baseline_value=baseline_value,
        note=f"{placed:,} pods placed in {1 + len(plan['further'])} decisions",
        peers="" if there else PEERS[count],
    )


def plan_command(folder: Path, objects: Sequence[JsonObject]) -> tuple[str, ...]:
    """The command that plans for these objects, with its files in the folder."""
    dump, cloud, prices = folder / "cluster.json", folder / "cloud.yaml", folder / "prices.yaml"
    dumps.write_list(dump, objects)
    cloud.write_text(yaml.safe_dump({"machine_types": _machine_types(), "groups": _groups()}))
    prices.write_text(yaml.safe_dump(msgspec.to_builtins(PRICES)))
    return "plan", "-f", str(dump), "--cloud-config", str(cloud), "--prices", str(prices), "-o", "json"


def _baseline(pending: list[JsonObject]) -> tuple[str, float]:
    """What it is, and its CPU seconds: Karpenter's own code, where it can be built."""
    try:
        return PEER, karpenter_peer.cpu_seconds(len(pending))
    except Unavailable as error:
        sizes = _sizes(pending)
        return instead(WITHOUT_GO, error), cpu_seconds(lambda: _first_fit(sizes), 1)


def diverse_pods(count: int, *, owned: bool) -> list[JsonObject]:
    """A fifth of each kind."""
    chance = random.Random(42)
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
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {}})
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


def _machine_types() -> list[JsonObject]:
    return [
        {"name": f"fake-it-{cores}", "capacity": {"cpu": cores, "memory": f"{cores * 2048}Mi", "pods": cores * 10}}
        for cores in range(1, TYPES + 1)
    ]


def _groups() -> list[JsonObject]:
    return [
        {"name": f"{each['name']}-{zone}", "machine_type": each["name"], "zone": zone, "max": LARGEST_GROUP}
        for each in _machine_types()
        for zone in ZONES
    ]


def _full(zone: str) -> JsonObject:
    """A node on which no pod of the mix has room."""
    name, amounts = f"there-{zone}", {"cpu": "10m", "memory": "10Mi", "pods": "10"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {LABEL_ZONE: zone, LABEL_HOSTNAME: name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def _sizes(pending: list[JsonObject]) -> list[tuple[int, int]]:
    sizes = []
    for pod in pending:
        asked = pod["spec"]["containers"][0]["resources"]["requests"]
        sizes.append((int(str(asked["cpu"])[:-1]), int(str(asked["memory"])[:-2]) * MIB))
    return sizes


def _first_fit(sizes: list[tuple[int, int]]) -> int:
    """How many nodes of the smallest type that takes the largest pod plain first-fit-decreasing needs."""
    largest_cpu, largest_memory = max(cpu for cpu, _ in sizes), max(memory for _, memory in sizes)
    fresh = next(
        [cpu, memory, 10 * cores]
        for cores in range(1, TYPES + 1)
        if (cpu := cores * 1000 - OVERHEAD_CPU_MILLI) >= largest_cpu
        and (memory := (cores * 2048 - OVERHEAD_MEMORY_MIB) * MIB) >= largest_memory
    )
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
