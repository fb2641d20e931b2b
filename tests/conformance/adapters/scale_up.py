"""Decisions of scale-up and of node auto-provisioning."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from manager.autoscaler.actuation import group_writer
from manager.autoscaler.cloudprovider.contract import Created, Group, GroupOptions, GroupSpec
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator.limits import UNLIMITED, Quota, ResourceBounds, cluster_wide
from manager.autoscaler.expander.priority import Pattern, Priorities
from manager.autoscaler.pricing.model import NVIDIA_GPU
from manager.autoscaler.scale_up import balancing, candidates, groups, orchestrator
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.scale_up.capacity_quotas import CapacityLimits
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.groups import Headroom, QuotaUsage
from manager.autoscaler.scale_up.options import EstimateRules, ScaleUpInput, ScaleUpSettings
from manager.autoscaler.settings.estimates import SimilarityRules
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import PODS, NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import NodeDemands, PodInfo
from shared.api.core import Taint, Toleration
from shared.api.selectors import LabelSelector
from shared.quantity import MILLI_PER_CORE, Amounts
from tests.conformance.matching import Holds
from tests.support.candidates import first_specs

Input = dict[str, Any]  # a row's input, JSON of the row's own making

MIB = 1 << 20
NODE = {"cpu": 1500, "mem": 1000 * MIB}  # where a row names none
MOST = 10
GPU_TAINT = Taint(NVIDIA_GPU, "present", "NoSchedule")
GPU_TOLERATION = Toleration(NVIDIA_GPU, operator="Exists")
_TRIGGERED = "both pods (whole option pods list)"
RESULTS = {
    ScaleUpOutcome.NO_OPTIONS: "ScaleUpNoOptionsAvailable",
    ScaleUpOutcome.ALL_NODES: "ScaleUpLimitedByMaxNodesTotal",
}


def scaled_up(row: Input) -> object:
    settings, situation = _settings(row), _situation(row)
    decision = orchestrator.decide(situation, settings, random.Random(1))
    created = []
    for creation in decision.creations:
        made = _created(creation.spec, row.get("extra_groups", 0))
        machine = next(each.template for each in situation.groups if each.id == creation.group)
        assert machine is not None
        templates = {each.id: _template(each.id, machine.node) for each in (made.main, *made.extras)}
        decision = orchestrator.after_creation(decision, creation, made, templates, settings)
        created.append(made.main.id)
    targets = {each.id: each.group.target_size for each in situation.groups if each.exists}
    if row.get("fail"):
        return _executed(row, decision, targets)
    scaled = {each.group: each.nodes for each in decision.increases}
    targets |= {each.group: each.to_size for each in decision.increases}
    reasons = {each.reason for each in decision.skipped}
    rejecting = {group for left in decision.left for group in decision.reasons(left)}
    return {
        "scaled": Holds(lambda claim: claim == scaled),
        "options": [f"{each.group}:+{each.node_count}" for each in decision.considered],
        # Upstream lists all pods of the option, also those whose nodes are capped away.
        "triggered": Holds(
            lambda claim: (
                claim == _TRIGGERED and decision.chosen is not None and decision.chosen.pod_count == len(_pending(row))
            )
        ),
        "target_sizes": targets,
        "result": RESULTS.get(decision.outcome, decision.outcome),
        "reason": Holds(lambda claim: claim in reasons),
        "created": created,
        "p2_rejected_groups_contains": Holds(lambda claim: claim in rejecting),
        "p2_rejected_groups_not_contains": Holds(lambda claim: claim not in rejecting),
    }


def _executed(row: Input, decision: ScaleUpDecision, targets: dict[str, int]) -> object:
    """What is done of a decision by a cloud that takes a new target before it fails."""
    failures = {"always": 1 << 31, "once": 1}[row["fail"]]

    def increase(group: str, delta: int) -> None:
        nonlocal failures
        targets[group] += delta
        failures -= 1
        if failures >= 0:
            raise Refused("test", group, "failed")

    results = group_writer.try_increases(decision.increases, increase, parallel=row["parallel"])
    failed = [each for each in results if each.error is not None]
    return {
        "sum_of_target_sizes": sum(targets.values()),
        "remain_unschedulable": 0 if len(failed) < len(results) else len(decision.triggered),
        "error_type": "cloudProviderError" if any(isinstance(each.error, ProviderError) for each in failed) else "",
        "note": Holds(lambda _: True),  # how the cloud of the row behaves
    }


def _settings(row: Input) -> ScaleUpSettings:
    bounds = {}
    if "max_cores" in row:
        bounds["cpu"] = ResourceBounds(0, row["max_cores"])
    if "max_memory_bytes" in row:
        bounds["memory"] = ResourceBounds(0, row["max_memory_bytes"])
    priorities = Priorities()
    if "choice" in row:
        priorities = Priorities({1: (Pattern(f"^{re.escape(row['choice'].partition(':')[0])}$"),)})
    return ScaleUpSettings(
        ownership=Ownership(listed=dict.fromkeys(_group_ids(row)), prefix="autoprovisioned"),
        expanders=("priority", "most-pods"),
        priorities=priorities,
        bounds=bounds,
        max_nodes_total=row.get("max_nodes_total", UNLIMITED),
        estimates=EstimateRules(
            similarity=SimilarityRules(balancing_ignore_label=tuple({_label(each) for each in _given_quotas(row)})),
            balance_similar_node_groups=row.get("balance_similar", False),
            scale_up_all_or_nothing=row.get("all_or_nothing", False),
        ),
        enforce_node_group_min_size="pending" not in row and "choice" not in row,
    )


def _situation(row: Input) -> ScaleUpInput:
    nodes = [replace(_facts(each, _labels(row, each["group"])), name=each["name"]) for each in _nodes(row)]
    taken = [(position, PodInfo(requests=held)) for position, held in enumerate(_running(row, nodes))]
    states = [_state(row, group) for group in _group_ids(row)]
    if row.get("autoprovisioning"):
        machines = {name: _template(name, _facts(each, {})) for name, each in row["machine_types"].items()}
        rules = AutoprovisioningRules(node_autoprovisioning=True, autoprovisioning_prefix="autoprovisioned")
        states += [
            GroupStatus(
                Group(f"autoprovisioned-theory-{spec.machine_type}", 0, 1000, 0),
                template=_template(f"autoprovisioned-theory-{spec.machine_type}", machines[spec.machine_type].node),
                spec=spec,
            )
            for spec in first_specs(_pending(row), machines, rules)
        ]
    return ScaleUpInput(
        cluster.snapshot_of_nodes(nodes, taken),
        _pending(row),
        states,
        len(nodes),
        tuple(_quotas(row, nodes)),
        new_groups=1,
    )


def _running(row: Input, nodes: Sequence[NodeInfo]) -> list[Amounts]:
    """What is requested on each node; where a row does not say, there is no room for what is pending."""
    if "running_per_node" in row:
        return [{"cpu": row["running_per_node"]} for _ in nodes]
    if "running" in row:
        return [{"cpu": cpu} for cpu in row["running"]]
    return [node.allocatable for node in nodes]


def _group_ids(row: Input) -> list[str]:
    found = {*row.get("groups", {}), *row.get("initial", {}), *(each["group"] for each in row.get("nodes", ()))}
    return sorted(found - {""})


def _nodes(row: Input) -> list[Input]:
    if "nodes" in row:
        return list(row["nodes"])
    sizes = row.get("initial") or {name: each.get("size", 0) for name, each in row.get("groups", {}).items()}
    shape = row.get("node") or {"cpu": row.get("node_cpu", NODE["cpu"]), "mem": row.get("node_mem", NODE["mem"])}
    return [
        {"name": f"{group}-{number}", "group": group, "cpu_milli": shape["cpu"], "memory": shape["mem"]}
        for group, size in sizes.items()
        for number in range(size)
    ]


def _state(row: Input, group: str) -> GroupStatus:
    given = row.get("groups", {}).get(group, {})
    members = [each for each in _nodes(row) if each["group"] == group]
    shape = given.get("template") or members[0]
    size = given.get("size", len(members))
    return GroupStatus(
        Group(group, given.get("min", 0), given.get("max", MOST), size),
        template=_template(group, _facts(shape, _labels(row, group))),
        options=GroupOptions(zero_or_max_node_scaling=row.get("zero_or_max", False)),
    )


def _facts(given: Input, labels: Mapping[str, str]) -> NodeInfo:
    taints = (GPU_TAINT,) if given.get("gpu") else ()
    return NodeInfo("new", labels, {}, taints, _amounts(given), _amounts(given))


def _template(group: str, node: NodeInfo) -> NodeTemplate:
    return NodeTemplate(group, node)


def _amounts(given: Input) -> dict[str, int]:
    amounts = {"cpu": given.get("cpu_milli", given.get("cpu", 0)), "memory": given.get("memory", given.get("mem", 0))}
    return {**amounts, PODS: 100, **({NVIDIA_GPU: given["gpu"]} if given.get("gpu") else {})}


def _pending(row: Input) -> list[EquivalenceGroup]:
    given = row.get("pending", ())
    if "choice" in row and not given:  # as many pods as make the row's choice, one a node
        given = [{"cpu": row["node"]["cpu"]}] * int(row["choice"].partition(":+")[2])
    return [
        EquivalenceGroup(
            PodInfo(
                requests={
                    name: each[key]
                    for name, key in (("cpu", "cpu"), ("memory", "mem"), (NVIDIA_GPU, "gpu"))
                    if each.get(key)
                },
                demands=NodeDemands(tolerations=(GPU_TOLERATION,) if each.get("tolerates_gpu") else ()),
            ),
            (each.get("name", f"pod-{number}"),),
        )
        for number, each in enumerate(given)
    ]


def _given_quotas(row: Input) -> list[Input]:
    return [*row.get("quotas", ()), *([{"id": "quota", **row["quota"]}] if "quota" in row else [])]


def _label(quota: Input) -> str:
    """What marks the nodes that a quota holds for; else groups are all alike."""
    return f"quota/{quota['id']}"


def _labels(row: Input, group: str) -> dict[str, str]:
    return {_label(each): "yes" for each in _given_quotas(row) if group in each.get("groups", (group,))}


def _quotas(row: Input, nodes: list[NodeInfo]) -> list[Quota]:
    found = []
    for each in _given_quotas(row):
        most: dict[str, int] = {name: each[name] for name in ("cpu", "memory", "nodes") if name in each}
        found.append(
            CapacityLimits(each["id"], most, LabelSelector({_label(each): "yes"})).remaining_quota(
                nodes, {}, QuotaUsage()
            )
        )
    return found


def _created(spec: GroupSpec, extras: int) -> Created:
    name = f"autoprovisioned-{spec.machine_type}"
    made = [
        Group(name if number == 0 else f"{name}-{number}", 0, 1000, 0, autoprovisioned=True)
        for number in range(extras + 1)
    ]
    return Created(made[0], tuple(made[1:]))


def nap(row: Input) -> object:
    if "machine_types" not in row:
        given = [Group(each["id"], 0, MOST, each["target"], each["autoprovisioned"]) for each in row["groups"]]
        instances = {each["id"]: each["nodes"] for each in row["groups"]}
        return {"deleted": candidates.unneeded_groups(given, instances, Ownership(prefix="ng"))}
    created = row["autoprovisioned_groups"]
    known = [Group(name, 0, MOST, 1, name in created) for name in {*row["groups"], *created}]
    rules = AutoprovisioningRules(
        node_autoprovisioning=row["enabled"], max_autoprovisioned_node_group_count=row["max_autoprovisioned"]
    )
    machines = {name: _template(name, _facts({"cpu": 4000, "mem": 1 << 30}, {})) for name in row["machine_types"]}
    pending = [EquivalenceGroup(PodInfo(requests={"cpu": 100}), (f"p{number}",)) for number in range(row["pending"])]
    found = first_specs(pending, machines, rules) if candidates.groups_left(known, rules) else []
    count = len(known) + len(found)
    return {"node_groups": count, "node_infos": count}


def seed_nap_limits(row: Input) -> object:
    given: Input = row["groups"]
    assert row["current_cpu"] == sum(each["cpu"] * each["count"] for each in given.values())
    listed = {name for name, each in given.items() if each.get("autoscaled")}
    ownership = Ownership(listed=dict.fromkeys(listed))
    usages = [{"cpu": each["cpu"]} for each in given.values() for _ in range(each["count"])]
    quota = cluster_wide({"cpu": ResourceBounds(0, row["max_cpu"])}, usages)
    room = Headroom((quota,))

    def growth(name: str, each: Input) -> int:
        state = GroupStatus(
            Group(name, each.get("min", 0), each.get("max", 1000), each["count"]),
            template=_template(name, _facts({"cpu": each["cpu"] * MILLI_PER_CORE}, {})),
        )
        if groups.skip_reason(state, room, QuotaUsage(), ownership):
            return 0
        return balancing.balance_nodes([state], state.room, room, QuotaUsage()).node_count

    by_machine = {each["machine"]: (each["count"], growth(name, each)) for name, each in given.items()}
    new = growth("nodeautoprovisioning-new", {"cpu": 1, "count": 0})
    highmem_now, highmem = by_machine["n1-highmem-4"]
    listed_now, listed_more = by_machine["n1-standard-16"]
    claims = [
        f"+{highmem} in the n1-highmem-4 group",
        f"or a new group with up to {new} n1-standard-1",
        f'+{listed_more} in "as" (its max {listed_now + listed_more})',
        f"highmem-4 group may grow to {highmem_now + highmem} nodes ({highmem_now}+{highmem})",
        *(["other new groups"] if new else []),
    ]
    return {
        "room_cpu": quota.left["cpu"],
        "allowed": Holds(lambda _: not (by_machine["n1-standard-2"][1] or highmem or listed_more or new)),
        "options": Holds(lambda options: isinstance(options, list) and set(options) <= set(claims)),
    }


ADAPTERS: dict[str, Callable[[Any], object]] = {
    "scale_up": scaled_up,
    "nap": nap,
    "seed_nap_limits": seed_nap_limits,
}
