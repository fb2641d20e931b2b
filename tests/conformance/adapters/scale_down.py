"""Scale-down: utilization, eligibility, drain rules and budgets."""

from collections.abc import Callable, Sequence
from typing import Any

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.pricing.model import NVIDIA_GPU
from manager.autoscaler.scale_down import drain, planner
from manager.autoscaler.scale_down.drain import (
    DisruptionBudget,
    DrainInfo,
    DrainOutcome,
    PodController,
    RemainingDisruptions,
)
from manager.autoscaler.scale_down.eligibility import ANNOTATION_DISABLED, node_utilization
from manager.autoscaler.scale_down.planner import AtomicSize, CroppedBuckets, NodeBucket
from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from manager.autoscaler.scale_down.removal_status import DeletionCounts, GroupRules, NodeStanding, ScaleDownRules
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext, ShrinkingGroup
from manager.autoscaler.settings.scale_down import DrainRules, Parallelism, RemovalRules
from manager.autoscaler.snapshot.cluster import PODS, TAINT_TO_BE_DELETED, NodeInfo, NodeState
from manager.autoscaler.snapshot.equivalence_groups import DAEMON_SET
from manager.autoscaler.snapshot.pod_info import PodInfo
from shared.api.core import Taint
from shared.api.selectors import LabelSelector
from tests.conformance.matching import Holds, Unanswered

Input = dict[str, Any]  # a row's input, JSON of the row's own making

NOW = 1_700_000_000.0
HOUR = 3600.0
GPU_LABEL = "cloud.google.com/gke-accelerator"
PARALLELISM = Parallelism(max_scale_down_parallelism=10, max_drain_parallelism=5)  # of all rows


def utilization_of_row(row: Input) -> object:
    if any(isinstance(each, str) for each in row["pods"]):
        raise Unanswered("its pods are told in words")
    cpu, memory = row["node"]
    allocatable = {"cpu": cpu, "memory": memory, **({NVIDIA_GPU: row["gpu"]} if "gpu" in row else {})}
    node = NodeInfo("n", {GPU_LABEL: "t4"} if "gpu_label" in row else {}, {}, (), allocatable, allocatable)
    counted = [_requests(each) for each in row["pods"]]
    ignored: list[dict[str, int]] = []
    for kind in ("daemonset", "mirror"):
        (ignored if row.get(f"skip_{kind}") else counted).extend(_requests(each) for each in row.get(kind, ()))
    if "gpu_pod" in row:
        counted.append({NVIDIA_GPU: row["gpu_pod"]})
    return {"util": node_utilization(node, counted, ignored, GPU_LABEL).share}


def _requests(pod: Sequence[int]) -> dict[str, int]:
    return {"cpu": pod[0], "memory": pod[1]}


def eligible(row: Input) -> object:
    amounts = {"cpu": row.get("cpu", 1000), "memory": 1 << 30, PODS: 10}
    marked = [NOW - row["taint_age_s"]] if "taint_age_s" in row else []
    taints = tuple(Taint(TAINT_TO_BE_DELETED, str(round(moment)), "NoSchedule") for moment in marked)
    annotations = {ANNOTATION_DISABLED: "true"} if row.get("annotation") else {}
    state = NodeState.READY if row.get("ready", True) else NodeState.UNREADY
    nodes = [
        NodeInfo("n", {}, annotations, taints, amounts, amounts, state),
        NodeInfo("other", {}, {}, (), amounts, amounts),
    ]
    pods = [_placed("used", row.get("used", 0), None), _placed("ds", row.get("ds", 0), DAEMON_SET)]
    group = GroupRules(
        scale_down_utilization_threshold=row.get("threshold", 0.5),
        ignore_daemonsets_utilization=row.get("ignore_ds", False),
    )
    rules = ScaleDownRules(removal=RemovalRules(scale_down_unready_enabled=row.get("scale_down_unready", True)))
    situation = ScaleDownContext(
        NOW,
        nodes,
        [pod for pod in pods if pod.facts.requests["cpu"]],
        rules,
        groups={"g": ShrinkingGroup(Group("g", 0, 10, 1), group)},
        group_of={"n": "g"},
    )
    verdict = planner.decide(situation).statuses["n"]
    return "unneeded" if verdict.standing is NodeStanding.UNNEEDED else verdict.reason


def _placed(name: str, cpu_milli: int, owner: str | None) -> PodOnNode:
    who = DrainInfo(controller=PodController(owner or "ReplicaSet"), is_daemon=owner == DAEMON_SET)
    return PodOnNode(f"default/{name}", "n", PodInfo(requests={"cpu": cpu_milli}, of_node=who.is_daemon), who)


def drain_rule(row: Input) -> object:
    namespace = row.get("ns", "default")
    listed = []
    if row.get("pdb") or "pdb_ns" in row:
        listed.append(DisruptionBudget(str(row.get("pdb_ns", namespace)), "budget", LabelSelector(), 1))
    rules = DrainRules(skip_nodes_with_custom_controller_pods=row.get("skip_custom", True))
    ages = {"< timeout": drain.SYSTEM_POD_SECONDS / 2, "> timeout": drain.SYSTEM_POD_SECONDS * 2}
    kind = row.get("owner", "ReplicaSet")
    volumes = [tuple(each.split(":")) for each in row.get("volumes", ())]
    pod = DrainInfo(
        namespace=namespace,
        controller=None if kind is None else PodController(kind),
        phase=row.get("phase", "Running"),
        created_at=NOW - ages[row.get("age", "< timeout")],
        deleted_at=NOW - row["deleted_ago_s"] if "deleted_ago_s" in row else None,
        grace_seconds=row.get("grace_s", drain.DEFAULT_GRACE_SECONDS),
        is_mirror=row.get("annotation") == "kubernetes.io/config.mirror",
        is_daemon=kind == DAEMON_SET,
        safe_to_evict=row.get("safe_to_evict", ""),
        restart_policy=row.get("restart_policy", "Always"),
        local_volumes=tuple(name for kind, name in volumes if kind in ("emptyDir", "hostPath")),
        safe_local_volumes=frozenset(row.get("safe_local_volumes", "").split(",")),
    )
    found = drain.drainability(pod, rules, RemainingDisruptions(listed), NOW)
    answer = f"blocked:{found.why}" if found.outcome is DrainOutcome.BLOCKED else found.outcome.value
    return Holds(lambda claim: isinstance(claim, str) and claim.removesuffix(" (drainable)") == answer)


def scale_down_budget(row: Input) -> object:
    found = planner.crop(
        [NodeBucket("group", tuple(f"empty-{number}" for number in range(row["empty"])))],
        [NodeBucket("group", tuple(f"drained-{number}" for number in range(row["drain"])))],
        {},
        DeletionCounts(row["empty_in_progress"], row["drain_in_progress"]),
        PARALLELISM,
    )
    return {name: sum(len(each.nodes) for each in part) for name, part in _parts(found).items()}


def scale_down_budget_atomic(row: Input) -> object:
    """A group called atomic-8 has a target of 8, and as many nodes unless the row says how many others there are."""
    sizes: dict[str, int] = {}
    others = row.get("other_registered")
    for group, nodes in (*row.get("empty", ()), *row.get("drain", ())):
        sizes[group] = sizes.get(group, 0) + nodes
    atomic = {}
    for group, nodes in sizes.items():
        kind, _, target = group.partition("-")
        if kind == "atomic":
            atomic[group] = AtomicSize(int(target), int(target) if others is None else nodes + others)
    empty, drained = (
        [
            NodeBucket(group, tuple(f"{group}-{part}-{each}" for each in range(nodes)))
            for group, nodes in row.get(part, ())
        ]
        for part in ("empty", "drain")
    )
    found = planner.crop(empty, drained, atomic, DeletionCounts(), PARALLELISM)
    return {name: [[each.group, len(each.nodes)] for each in part] for name, part in _parts(found).items()}


def _parts(found: CroppedBuckets) -> dict[str, Sequence[NodeBucket]]:
    return {"empty": found.empty, "drain": found.drained}


ADAPTERS: dict[str, Callable[[Any], object]] = {
    "utilization": utilization_of_row,
    "eligibility": eligible,
    "drain_rule": drain_rule,
    "scale_down_budget": scale_down_budget,
    "scale_down_budget_atomic": scale_down_budget_atomic,
}
