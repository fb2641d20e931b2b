"""Scale-up plans from cached objects to estimates: process CPU time, against plain first-fit-decreasing pod by pod."""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from manager.autoscaler import cluster, estimator, podclasses, problem, templates
from manager.autoscaler.cluster import NodeFacts, NodeState
from manager.autoscaler.estimator import Permissions
from manager.autoscaler.podfacts import Surroundings
from manager.autoscaler.templates import Daemon
from shared.api.core import DaemonSet, Node, Pod
from tests.bench.row import Row

GIB = 1 << 30
SHAPES = 60
CONSTRAINED_EVERY = 5  # in mixes with rules between pods, every so manieth shape has one
DAEMON_CPU, DAEMON_MEMORY = 200, 512 << 20
MOST_NODES = 1000  # Cluster Autoscaler's default of one scale-up
BASELINE_PODS = 2_000  # what the plain packing of many machine types is measured on
BASELINE = "first-fit-decreasing pod by pod, resources only, in plain Python"


def rows() -> list[Row]:
    """The autoscaler's figures."""
    daemons = _daemons()
    mixed = _pods(30_000, SHAPES)
    ruled = _pods(30_000, SHAPES, rules=True)
    plain = _plan("scale-up plan, 30,000 pods, 1 -> 1,000 nodes", mixed, [_machine(32, 64)], daemons, 0.5)
    bound = _plan("the same, every fifth shape with affinity or spread", ruled, [_machine(32, 64)], daemons, None)
    factor = bound.value / plain.value
    return [
        plain,
        Row(
            "factor of affinity and spread mixed in",
            factor,
            "x",
            None,
            "the mix without",
            1.0,
            f"{bound.value:.3f} s; {bound.note}",
        ),
        _plan("scale-up plan, 51,000 pods -> 2,595 nodes", _pods(51_000, SHAPES), [_machine(20, 42)], daemons, 0.5, 0),
        _plan(
            "scale-up plan, 100,000 pods, 2,000 shapes x 200 machine types",
            _pods(100_000, 2_000),
            [_machine(2 + each // 2, (2 + each // 2) * (2 + 2 * (each % 2))) for each in range(200)],
            daemons,
            10.0,
        ),
    ]


def _plan(
    figure: str,
    pending: list[Pod],
    machines: list[NodeFacts],
    daemons: tuple[Daemon, ...],
    target: float | None,
    most: int = MOST_NODES,
) -> Row:
    full = {"cpu": "2", "memory": "4Gi", "pods": "1"}
    node = msgspec.convert({"metadata": {"name": "there"}, "status": {"capacity": full, "allocatable": full}}, Node)
    there = msgspec.convert({"metadata": {"name": "t", "namespace": "d"}, "spec": {"nodeName": "there"}}, Pod)
    found: list[estimator.Estimate] = []

    def ours() -> None:
        found.clear()
        surroundings = Surroundings()
        classes = podclasses.classify(pending, surroundings).classes
        taken = cluster.snapshot([(node, NodeState.READY)], [there])
        groups = [templates.from_provider(f"group-{index}", machine, daemons) for index, machine in enumerate(machines)]
        asked = problem.problem(taken, classes, groups)
        left = estimator.schedulable(asked)
        for group in groups:
            fit = estimator.fitting(asked, group, left)
            found.append(estimator.estimate(asked, group, fit.positions, Permissions(most), after=left))

    share = 1.0 if len(machines) == 1 else len(pending) / BASELINE_PODS
    sample = pending if len(machines) == 1 else pending[:: len(pending) // BASELINE_PODS]
    value = _cpu_seconds(ours)
    return Row(
        figure=figure,
        value=value,
        unit="s of CPU",
        target=target,
        baseline=BASELINE if share == 1.0 else f"{BASELINE}, one machine of each ten, a sample of pods x their share",
        baseline_value=_cpu_seconds(lambda: [_first_fit(sample, each, most) for each in machines[::10]], 1)
        * share
        * (1 if len(machines) == 1 else 10),
        note=f"{found[0].node_count} nodes, {found[0].pod_count} pods in the first group",
    )


def _first_fit(pending: list[Pod], machine: NodeFacts, most: int) -> int:
    """How many nodes plain first-fit-decreasing needs: each pod goes to the first node with room."""
    fresh = [machine.allocatable["cpu"] - DAEMON_CPU, machine.allocatable["memory"] - DAEMON_MEMORY]
    fresh.append(machine.allocatable["pods"] - 1)
    sizes = []
    for pod in pending:
        asked = pod.spec.containers[0].resources.requests or {}
        sizes.append((int(str(asked["cpu"])[:-1]), int(asked["memory"])))
    sizes.sort(key=lambda size: -(size[0] / fresh[0] + size[1] / fresh[1]))
    nodes: list[list[int]] = []
    for cpu, memory in sizes:
        for node in nodes:
            if node[0] >= cpu and node[1] >= memory and node[2]:
                break
        else:
            if cpu > fresh[0] or memory > fresh[1] or (most and len(nodes) >= most):
                continue
            node = fresh.copy()
            nodes.append(node)
        node[0] -= cpu
        node[1] -= memory
        node[2] -= 1
    return len(nodes)


def _pods(count: int, shapes: int, rules: bool = False) -> list[Pod]:
    """Decoded one by one, as a watch delivers them: no two share anything but what decoding shares."""
    decoder = msgspec.json.Decoder(Pod)
    return [decoder.decode(msgspec.json.encode(_pod(index, index % shapes, rules))) for index in range(count)]


def _pod(index: int, shape: int, rules: bool) -> dict[str, Any]:
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
    return {"metadata": meta, "spec": spec}


def _required(key: str, selector: dict[str, Any]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, **selector}]}


def _spread(key: str, selector: dict[str, Any]) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selector}


def _machine(cores: int, memory_gib: int) -> NodeFacts:
    amounts = {"cpu": cores * 1000, "memory": memory_gib * GIB, "pods": 110}
    labels = {"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a"}
    return NodeFacts(f"machine-{cores}-{memory_gib}", labels, capacity=amounts, allocatable=amounts)


def _daemons() -> tuple[Daemon, ...]:
    requests = {"cpu": f"{DAEMON_CPU}m", "memory": str(DAEMON_MEMORY)}
    made = {"spec": {"containers": [{"name": "agent", "resources": {"requests": requests}}]}}
    found = msgspec.convert({"metadata": {"name": "agent", "uid": "ds"}, "spec": {"template": made}}, DaemonSet)
    return templates.read_daemons([found], Surroundings())[0]


def _cpu_seconds(work: Callable[[], object], rounds: int = 3) -> float:
    """CPU seconds of one round, the best of several: what else the machine does only ever adds."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)
