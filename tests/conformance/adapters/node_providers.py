"""Karpenter's disruption rules, and the annotations of Cluster API's groups."""

from collections.abc import Callable
from typing import Any

from manager.autoscaler.cloudprovider.clusterapi.annotations import GroupAnnotations
from manager.autoscaler.cloudprovider.errors import InvalidAnswer
from manager.autoscaler.disruption import candidates, disruption_limits
from manager.autoscaler.settings.replacement import ConsolidationRules
from shared import durations
from shared.api.core import Pod, PodSpec
from shared.api.meta import ObjectMeta
from shared.errors import InvalidInput

Input = dict[str, Any]  # a row's input, JSON of the row's own making


def eviction_cost(row: Input) -> object:
    cost = row["deletion_cost"]
    annotations = {} if cost is None else {candidates.ANNOTATION_DELETION_COST: cost}
    pod = Pod(ObjectMeta(name="p", namespace="n", annotations=annotations), PodSpec(priority=row["priority"]))
    return {"cost": candidates.eviction_costs([pod]).get("n/p", 1.0)}


def budget(row: Input) -> object:
    try:
        limits = disruption_limits.parse_limits(row["budgets"], source="row", name="budgets")
    except InvalidInput:
        return {"error": True}
    now = durations.instant(row["at"])
    return {
        "allowed": disruption_limits.allowed_nodes(limits, row["nodes"], row["unavailable"], now, row["reason"]).nodes
    }


def balance(row: Input) -> object:
    score = candidates.balance_score(row["saving"], row["price"], row["disturbed"], row["disruption"])
    return {"score": score, "approved": score >= ConsolidationRules().consolidation_balance}


def bounds(row: Input) -> object:
    try:
        found = _group(row).bounds()
    except InvalidAnswer:
        return {"error": True}
    return {"group": False} if found is None else {"min": found.min_size, "max": found.max_size}


def capacity(row: Input) -> object:
    try:
        found = _group(row).node()
    except InvalidAnswer:
        return {"error": True}
    taints = [f"{each.key}={each.value}:{each.effect}" for each in found.taints]
    return {"resources": found.resources, "labels": found.labels, "taints": taints}


def _group(row: Input) -> GroupAnnotations:
    return GroupAnnotations("MachineDeployment/fleet/workers", "cluster.x-k8s.io", row["annotations"])


ADAPTERS: dict[str, Callable[[Any], object]] = {
    "karpenter_eviction_cost": eviction_cost,
    "karpenter_budget": budget,
    "karpenter_balance": balance,
    "cluster_api_bounds": bounds,
    "cluster_api_capacity": capacity,
}
