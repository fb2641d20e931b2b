"""The autoscaler's limits, balance, health and backoff."""

from collections.abc import Callable, Mapping
from typing import Any

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state import state
from manager.autoscaler.cluster_state.registry import (
    Registry,
    active_backoff,
    back_off,
    drop_old_backoffs,
    remove_backoff,
)
from manager.autoscaler.cluster_state.state import Readiness, bears
from manager.autoscaler.estimator import limits
from manager.autoscaler.estimator.limits import Allowance, Quota
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.balancing import GroupSize, balance_sizes
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings
from manager.autoscaler.settings.estimates import BackoffTimes, HealthLimits
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeInfo
from shared.api.selectors import LabelSelector
from shared.errors import InvalidInput
from tests.conformance.matching import Holds

Input = dict[str, Any]  # a row's input, JSON of the row's own making


def quota_check(row: Input) -> object:
    try:
        return _allowance(limits.check_quotas(_quotas(row), _usage(row), row["node_delta"]))
    except ValueError:
        return {"error": True}


def quota_consume(row: Input) -> object:
    allowance, quotas = limits.consume_quotas(_quotas(row), _usage(row), row["node_delta"])
    return {**_allowance(allowance), "limits_left_after_consume": {quota.name: quota.left for quota in quotas}}


def gpu_limit_flag(row: Input) -> object:
    try:
        kind, bounds = limits.parse_gpu_total(row["flag"])
    except InvalidInput as refused:
        return {"error": refused.problem}
    return {"type": kind, "min": bounds.low, "max": bounds.high}


def min_limit(row: Input) -> object:
    return limits.lowest_limit(row["base"], row["target"])


def similar_group_capacity_threshold(row: Input) -> object:
    return limits.group_capacity([row["current_max_target"], *row["similar_max_target"]])


def cluster_capacity_threshold(row: Input) -> object:
    nodes = [NodeInfo(f"node-{number}") for number in range(row["current_nodes"])]
    settings = ScaleUpSettings(Ownership(), max_nodes_total=row["max_nodes"])
    return orchestrator.headroom(ScaleUpInput(cluster.snapshot_of_nodes(nodes)), settings).most_nodes


def balanced(row: Input) -> object:
    groups = [GroupSize(each["id"], each["current"], each["max"]) for each in row["groups"]]
    grown = balance_sizes(groups, row["new_nodes"])

    def agrees(claim: object) -> bool:
        if not isinstance(claim, Mapping):
            return False
        either = claim.get("any_of")  # which of two equal groups gets the odd node
        return grown == claim if either is None else sorted(grown.values()) == sorted(either.values())

    return Holds(agrees)


def cluster_health(row: Input) -> object:
    allowed = HealthLimits(row["ok_total_unready_count"], row["max_total_unready_percentage"])
    return {"healthy": bears(allowed, unready=row["unready"], total=row["total"])}


def acceptable_range(row: Input) -> object:
    found = state.acceptable_range(
        target=row["target"],
        long_unregistered=row["long_unregistered"],
        pending_increase=row["scale_up_increase"],
        pending_deletions=row["scale_downs"],
    )
    return {"min": found.low, "max": found.high, "current_target": found.target}


def upcoming_nodes(row: Input) -> object:
    readiness = Readiness(
        ready=row["ready"],
        unready=row.get("unready", 0),
        not_started=row.get("not_started", 0),
        being_deleted=row.get("deleted", 0),
    )
    found = state.upcoming_nodes(readiness, target=row["target"], pending_increase=row["request"])
    return {"upcoming": found, "registered": ["not started"] * readiness.not_started}


def backoff(row: Input) -> object:
    times = BackoffTimes(row["initial_s"], row["max_s"], row["reset_s"])
    known = Registry()
    for what, *of in row["ops"]:
        match what:
            case "backoff":
                known = back_off(known, of[0], of[2], of[1], times, code="")
            case "remove":
                known = remove_backoff(known, of[0])
            case "status":
                found = active_backoff(known, of[0], of[1])
                if (None if found is None else found.reason) != of[2]:
                    return f"at {of[1]} s {of[0]} is backed off for {found}"
            case "stale":
                known = drop_old_backoffs(known, times, of[0])
                if sorted(known.backoffs) != sorted(of[1]):
                    return f"at {of[0]} s {sorted(known.backoffs)} are remembered"
    return "all status/stale expectations hold"


def _quotas(row: Input) -> list[Quota]:
    quotas = [Quota(given["id"], given["left"], _selector(given)) for given in row.get("quotas", ())]
    return [quota for quota in quotas if quota.matches({})]


def _selector(given: Input) -> LabelSelector:
    return LabelSelector({} if given["matches"] else {"another": "node"})


def _usage(row: Input) -> Mapping[str, int]:
    node = row.get("node", {"cpu_milli": 0, "memory_bytes": 0})
    return limits.usage_of({"cpu": node["cpu_milli"], "memory": node["memory_bytes"]})


def _allowance(found: Allowance) -> dict[str, object]:
    exceeded = [{"id": each.name, "resources": sorted(each.resources)} for each in found.exceeded]
    return {"allowed_delta": found.nodes, "exceeded": exceeded}


ADAPTERS: dict[str, Callable[[Any], object]] = {
    "quota_check": quota_check,
    "quota_consume": quota_consume,
    "gpu_limit_flag": gpu_limit_flag,
    "min_limit": min_limit,
    "similar_group_capacity_threshold": similar_group_capacity_threshold,
    "cluster_capacity_threshold": cluster_capacity_threshold,
    "balance": balanced,
    "cluster_health": cluster_health,
    "acceptable_range": acceptable_range,
    "upcoming_nodes": upcoming_nodes,
    "backoff": backoff,
}
