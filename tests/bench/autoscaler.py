"""Scale-up in an iteration of the loop, from cached objects to explained decisions, against plain packing."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.scale_up.decisions import ScaleUpDecision
from manager.autoscaler.scale_up.options import EstimateRules, ScaleUpSettings
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeState
from shared.api.core import DaemonSet, Node, Pod
from tests.bench import iteration
from tests.bench.iteration import FixedCloud
from tests.bench.row import Measure, Row
from tests.bench.timing import cpu_seconds

GIB = 1 << 30
SHAPES = 60
CONSTRAINED_EVERY = 5  # in mixes with rules between pods, every so manieth shape has one
DAEMON_CPU, DAEMON_MEMORY = 200, 512 << 20
MOST_NODES = 1000  # Cluster Autoscaler's default of one scale-up
GROWTH = 4
READY = {"type": "Ready", "status": "True"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
TEAMS = 10  # so many different selectors
BASELINE = "first-fit-decreasing of counted sizes on each machine type, resources only, in NumPy"
ESTIMATOR = "Cluster Autoscaler's estimator: "


def measures() -> tuple[Measure, ...]:
    daemons = _daemons()
    return (
        partial(_rules_between_pods, daemons),
        partial(_many_nodes, daemons),
        partial(_without_owner, daemons),
        partial(_heterogeneous, daemons),
        partial(_spread_everywhere, daemons),
        partial(_growth, daemons),
        partial(_autoprovisioning, daemons),
    )


def _many_nodes(daemons: DaemonSet) -> Iterator[Row]:
    row = _plan(f"51,000 pods in {SHAPES} shapes", _pods(51_000, SHAPES), [_machine(20, 42)], daemons, 0.5, 0)
    yield replace(row, peers=f"{ESTIMATOR}8.7 s")


def _without_owner(daemons: DaemonSet) -> Iterator[Row]:
    """Pods that no controller has made, all equal but for their names."""
    pods = [_without_its_owner(pod) for pod in _pods(50_000, 1)]
    row = _plan("50,000 equal pods without owner", pods, [_machine(32, 64)], daemons, 0.5)
    yield replace(row, peers="Cluster Autoscaler's RunOnce, its whole loop: 20 s")


def _without_its_owner(pod: Pod) -> Pod:
    """The pod without its owner."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=None))


def _heterogeneous(daemons: DaemonSet) -> Iterator[Row]:
    shapes, types = 2_000, 200
    figure = f"100,000 pods, {shapes:,} shapes x {types} machine types"
    yield _plan(figure, _pods(100_000, shapes), _machines(types), daemons, 10.0)


def _rules_between_pods(daemons: DaemonSet) -> Iterator[Row]:
    """What affinity and spread in every fifth shape cost."""
    mixed, ruled = _pods(30_000, SHAPES), _pods(30_000, SHAPES, rules=True)
    plain = _plan(f"30,000 pods in {SHAPES} shapes", mixed, [_machine(32, 64)], daemons, 0.5)
    yield replace(plain, peers=f"{ESTIMATOR}2.4 s")
    bound = _plan("30,000 pods with affinity or spread in every fifth shape", ruled, [_machine(32, 64)], daemons, None)
    beside = f"{ESTIMATOR}22 s"
    yield replace(bound, baseline="the mix without", baseline_value=plain.value, peers=beside)


def _spread_everywhere(daemons: DaemonSet) -> Iterator[Row]:
    """Every Deployment is spread over zones, and none of its pods shares a node with another."""
    pods, shapes, groups = 20_000, 2_000, 10
    decoder = msgspec.json.Decoder(Pod)
    pending = []
    for index in range(pods):
        made = _pod(index, index % shapes, rules=False, teams=0)
        selector = {"labelSelector": {"matchLabels": made["metadata"]["labels"]}}
        made["spec"]["topologySpreadConstraints"] = [_spread("topology.kubernetes.io/zone", selector)]
        made["spec"]["affinity"] = {"podAntiAffinity": _required("kubernetes.io/hostname", selector)}
        pending.append(decoder.decode(msgspec.json.encode(made)))
    figure = f"{pods:,} pods, {shapes:,} shapes with zone spread and host anti-affinity, {groups} groups"
    yield _plan(figure, pending, _machines(groups), daemons, 5.0, there=MOST_NODES)


def _plan(
    figure: str,
    pending: list[Pod],
    machines: list[Node],
    daemons: DaemonSet,
    target: float | None,
    most: int = MOST_NODES,
    there: int = 1,
) -> Row:
    """The figure's name ends with how many nodes the decision buys."""
    decide = _deciding(pending, machines, daemons, most=most, there=there)
    decision = decide()
    chosen = decision.chosen
    return Row(
        figure=f"scale-up iteration, {figure} -> {decision.new_nodes:,} nodes",
        value=cpu_seconds(decide, 3 if len(machines) == 1 else 2),
        unit="s of CPU",
        target=target,
        baseline=BASELINE,
        baseline_value=cpu_seconds(lambda: _first_fit(pending, machines, most), 1),
        note=f"{chosen.pod_count if chosen else 0} pods in the group that was chosen",
    )


def _growth(daemons: DaemonSet) -> list[Row]:
    """What four times as much of one thing costs, beside four times the time of the smaller."""

    def row(figure: str, small: Callable[[], ScaleUpDecision], large: Callable[[], ScaleUpDecision]) -> Row:
        step = f"{GROWTH} times the smaller"
        name = f"scale-up iteration, growth with {figure}"
        return Row(name, cpu_seconds(large, 2), "s of CPU", None, step, GROWTH * cpu_seconds(small))

    few, many, forms = _pods(10_000, SHAPES), _pods(GROWTH * 10_000, SHAPES), _pods(10_000, GROWTH * SHAPES)
    one = [_machine(32, 64)]
    return [
        row("pods, 10,000 -> 40,000", _deciding(few, one, daemons, most=0), _deciding(many, one, daemons, most=0)),
        row("shapes of pods, 60 -> 240", _deciding(few, one, daemons), _deciding(forms, one, daemons)),
        row(
            "nodes there are, 500 -> 2,000",
            _deciding(few, one, daemons, there=500),
            _deciding(few, one, daemons, there=GROWTH * 500),
        ),
        row(
            "groups, 10 -> 40",
            _deciding(few, _machines(10), daemons),
            _deciding(few, _machines(GROWTH * 10), daemons),
        ),
    ]


def _autoprovisioning(daemons: DaemonSet) -> Iterator[Row]:
    """The ninth scenario of "Node Auto-provisioning", scalability: a large cluster, many kinds of pods, and no group
    yet for any of them.
    """
    nodes, pods, kinds, types = 5_000, 20_000, 200, 40
    pending = _pods(pods, kinds, teams=TEAMS)
    rules = AutoprovisioningRules(node_autoprovisioning=True)
    decide = _deciding(pending, _machines(types), daemons, there=nodes, autoprovisioning=rules)
    decision = decide()
    size = f"{nodes:,} nodes, {pods:,} pods in {kinds} shapes, {types} machine types"
    yield Row(
        figure=f"auto-provisioning iteration (TC9), {size}",
        value=cpu_seconds(decide, 2),
        unit="s of CPU",
        target=None,
        baseline="does any node there is have room, pod by pod, in NumPy",
        baseline_value=cpu_seconds(lambda: _fitting(pending, nodes), 1),
        note=f"{len(decision.considered)} groups considered, {decision.new_nodes} nodes in {len(decision.nodes)}",
    )


def _deciding(
    pending: list[Pod],
    machines: list[Node],
    daemons: DaemonSet,
    *,
    most: int = MOST_NODES,
    there: int = 1,
    autoprovisioning: AutoprovisioningRules | None = None,
) -> Callable[[], ScaleUpDecision]:
    """The decision of an iteration with every reason that there is. `there`: nodes without room."""
    nodes = _full(there)
    placed = [_taking_all(node) for node in nodes]
    cloud = FixedCloud({each.metadata.name: each for each in machines}, creates_groups=autoprovisioning is not None)
    settings = iteration.settings_of(
        cloud,
        DecisionSettings(
            scale_up=ScaleUpSettings(Ownership(), estimates=EstimateRules(max_nodes_per_scaleup=most)),
            prices=FilePricing(),
            scale_down_enabled=False,
            autoprovisioning=autoprovisioning or AutoprovisioningRules(),
        ),
    )
    objects = ClusterObjects(iteration.NOW, tuple(nodes), (*placed, *pending), (daemons,))

    def decide() -> ScaleUpDecision:
        decision = iteration.planned(objects, cloud, settings).iteration.decision
        assert decision is not None
        for left in decision.left:
            decision.reasons(left)
        return decision

    return decide


def _full(count: int) -> list[Node]:
    full = {"cpu": "2", "memory": "4Gi", "pods": "1"}
    labels = {"topology.kubernetes.io/zone": "a"}
    return [
        msgspec.convert(
            {
                "metadata": {"name": f"there-{index}", "labels": labels},
                "status": {"capacity": full, "allocatable": full, "conditions": [READY]},
            },
            Node,
        )
        for index in range(count)
    ]


def _taking_all(node: Node) -> Pod:
    meta = {"name": f"on-{node.metadata.name}", "namespace": "d"}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node.metadata.name}}, Pod)


def _fitting(pending: list[Pod], nodes: int) -> int:
    """How many pods some of those nodes has room for, one pod being on each already."""
    free = np.tile(np.array([2000, 4 * GIB, 0]), (nodes, 1))
    return sum(bool((free >= (*_size(pod), 1)).all(axis=1).any()) for pod in pending)


def _first_fit(pending: list[Pod], machines: Sequence[Node], most: int) -> int:
    """How many nodes plain first-fit-decreasing needs at least, over all machine types: the pods of one size go to the
    first nodes with room, and the rest of them to new ones.
    """
    sizes = Counter(_size(pod) for pod in pending)
    return min(_nodes_of(sizes, machine, most) for machine in machines)


def _nodes_of(sizes: Mapping[tuple[int, int], int], machine: Node, most: int) -> int:
    has = cluster.node_info(machine, NodeState.READY).allocatable
    fresh = np.array([has["cpu"] - DAEMON_CPU, has["memory"] - DAEMON_MEMORY, has["pods"] - 1])
    free = np.empty((most or iteration.LARGEST_GROUP, 3), np.int64)
    nodes = 0
    for size in sorted(sizes, key=lambda size: -(size[0] / fresh[0] + size[1] / fresh[1])):
        one, left = np.array([*size, 1]), sizes[size]
        fits = (free[:nodes] // one).min(axis=1)
        taken = np.minimum(fits, np.maximum(0, left - (np.cumsum(fits) - fits)))
        free[:nodes] -= taken[:, None] * one
        left -= int(taken.sum())
        each = int((fresh // one).min())
        while left and each > 0 and nodes < len(free):
            count = min(each, left)
            free[nodes] = fresh - count * one
            nodes, left = nodes + 1, left - count
    return nodes


def _size(pod: Pod) -> tuple[int, int]:
    asked = pod.spec.containers[0].resources.requests or {}
    return int(str(asked["cpu"])[:-1]), int(asked["memory"])


def _pods(count: int, shapes: int, rules: bool = False, teams: int = 0) -> list[Pod]:
    """Decoded one by one, as a watch delivers them: no two share anything but what decoding shares."""
    decoder = msgspec.json.Decoder(Pod)
    return [decoder.decode(msgspec.json.encode(_pod(index, index % shapes, rules, teams))) for index in range(count)]


def _pod(index: int, shape: int, rules: bool, teams: int) -> dict[str, Any]:
    labels = {"app": f"app-{shape}", "pod-template-hash": f"{shape:x}"}
    requests = {"cpu": f"{300 + 37 * (shape % 41)}m", "memory": str((256 + 61 * (shape * 7 % 43)) << 20)}
    spec: dict[str, Any] = {
        "containers": [
            {"name": "main", "image": f"registry.example/app-{shape}:1", "resources": {"requests": requests}}
        ],
        "volumes": [{"name": f"kube-api-access-{index:05x}", "projected": {"sources": []}}],
        "tolerations": [
            {"key": f"node.kubernetes.io/{each}", "operator": "Exists", "effect": "NoExecute"}
            for each in ("not-ready", "unreachable")
        ],
        "priority": 0,
        "schedulerName": "default-scheduler",
    }
    if shape % 10 == 0:
        spec["nodeSelector"] = {"kubernetes.io/os": "linux"}
    elif teams:
        spec["nodeSelector"] = {"team": f"team-{shape % teams}"}
    if rules and shape % CONSTRAINED_EVERY == 0:
        selector = {"labelSelector": {"matchLabels": {"app": f"app-{shape}"}}}
        match shape // CONSTRAINED_EVERY % 4:
            case 0:
                spec["affinity"] = {"podAntiAffinity": _required("kubernetes.io/hostname", selector)}
            case 1:
                spec["affinity"] = {"podAffinity": _required("topology.kubernetes.io/zone", selector)}
            case 2:
                spec["topologySpreadConstraints"] = [_spread("topology.kubernetes.io/zone", selector)]
            case _:
                spec["topologySpreadConstraints"] = [_spread("kubernetes.io/hostname", selector)]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{shape}", "uid": f"{shape:032x}"}
    meta = {
        "name": f"app-{shape}-{index:06d}",
        "namespace": f"team-{shape % 7}",
        "uid": f"{index:032x}",
        "labels": labels,
        "ownerReferences": [{**owner, "controller": True}],
    }
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]}}


def _required(key: str, selector: dict[str, Any]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, **selector}]}


def _spread(key: str, selector: dict[str, Any]) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selector}


def _machine(cores: int, memory_gib: int) -> Node:
    name, amounts = f"machine-{cores}-{memory_gib}", {"cpu": str(cores), "memory": f"{memory_gib}Gi", "pods": "110"}
    labels = {"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [READY]}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


def _machines(count: int) -> list[Node]:
    """Of 2 cores and more, with little memory and with much."""
    return [_machine(2 + each // 2, (2 + each // 2) * (2 + 2 * (each % 2))) for each in range(count)]


def _daemons() -> DaemonSet:
    requests = {"cpu": f"{DAEMON_CPU}m", "memory": str(DAEMON_MEMORY)}
    made = {"spec": {"containers": [{"name": "agent", "resources": {"requests": requests}}]}}
    return msgspec.convert({"metadata": {"name": "agent", "uid": "ds"}, "spec": {"template": made}}, DaemonSet)
