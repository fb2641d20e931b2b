"""Which nodes have to go, and why: in the order in which they do."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption.rules import MOST_UNHEALTHY_PERCENT, DisruptionRules, RepairPolicy
from manager.autoscaler.snapshot import interruptions
from shared import durations
from shared.api.core import Condition, Node

_ORDER = {
    reason: number
    for number, reason in enumerate(
        (
            DisruptionReason.UNHEALTHY,
            DisruptionReason.INTERRUPTED,
            DisruptionReason.EXPIRED,
            DisruptionReason.DRIFTED,
        )
    )
}


@dataclass(frozen=True, slots=True)
class DueNode:
    """`why` is a sentence about the node; `since` is when it became due, in Unix seconds."""

    name: str
    group: str
    reason: DisruptionReason
    why: str
    since: float

    @property
    def turn(self) -> tuple[int, float, str]:
        return _ORDER[self.reason], self.since, self.name


def find_due(
    nodes: Iterable[Node],
    group_of: Mapping[str, str],
    lifetimes: Mapping[str, float],
    drifted: Mapping[str, str],
    rules: DisruptionRules,
    now: float,
) -> list[DueNode]:
    """The nodes of groups in `lifetimes` (seconds, 0 for no limit) that have to go, each for its first reason.
    `drifted` says of nodes why they are not what their group would launch.
    """
    judged = (
        _due(node, group, lifetimes[group], drifted.get(node.metadata.name, ""), rules.of_group(group), now)
        for node in nodes
        if (group := group_of.get(node.metadata.name, "")) in lifetimes
    )
    return sorted((each for each in judged if each is not None), key=lambda each: each.turn)


def too_many_unhealthy(nodes: Iterable[Node], group_of: Mapping[str, str], rules: DisruptionRules) -> dict[str, str]:
    """The groups whose nodes are not repaired, because too many of theirs, or of all groups' with repairs, are
    unhealthy, each with the reason. A share of the nodes rounds up, so that one node of a small group can be repaired.
    """
    total: dict[str, int] = {}
    unhealthy: dict[str, int] = {}
    for node in nodes:
        group = group_of.get(node.metadata.name)
        policies = () if group is None else rules.of_group(group).repairs
        if group is not None and policies:
            total[group] = total.get(group, 0) + 1
            unhealthy[group] = unhealthy.get(group, 0) + any(True for _ in _unhealthy(node, policies))
    all_unhealthy, everywhere = sum(unhealthy.values()), sum(total.values())
    if _is_beyond(all_unhealthy, everywhere):
        return dict.fromkeys(total, _describe(all_unhealthy, everywhere, "nodes"))
    return {
        group: _describe(unhealthy[group], count, "nodes of its group")
        for group, count in total.items()
        if _is_beyond(unhealthy[group], count)
    }


def unknown_conditions(nodes: Iterable[Node], repairs: Iterable[RepairPolicy]) -> list[str]:
    """The condition types that no node has."""
    known = {condition.type for node in nodes for condition in node.status.conditions or ()}
    return sorted({each.condition for each in repairs} - known) if known else []


def _due(
    node: Node, group: str, lifetime_seconds: float, drift: str, rules: DisruptionRules, now: float
) -> DueNode | None:
    name, created = node.metadata.name, node.metadata.created_at
    lasting = ((since + policy.toleration_seconds, policy, each) for policy, each, since in _since(node, rules.repairs))
    due_at, policy, condition = min(lasting, key=lambda each: each[0], default=(now, None, None))
    if policy is not None and condition is not None and due_at < now:
        because = f" ({condition.reason})" if condition.reason else ""
        lasted = durations.render(round(now - due_at + policy.toleration_seconds))
        longest = durations.render(policy.toleration_seconds)
        why = f"its condition {policy.condition} is {policy.status}{because} for {lasted}, longer than {longest}"
        return DueNode(name, group, DisruptionReason.UNHEALTHY, why, due_at)
    announced = interruptions.read_interruption(node) if rules.replaces_interrupted else None
    if announced is not None and not announced.is_imminent:
        since = now if announced.since is None else announced.since
        return DueNode(name, group, DisruptionReason.INTERRUPTED, f"the cloud has announced {announced}", since)
    if created and 0 < lifetime_seconds < now - created:
        why = f"it is {durations.render(round(now - created))} old, more than {durations.render(lifetime_seconds)}"
        return DueNode(name, group, DisruptionReason.EXPIRED, why, created + lifetime_seconds)
    if drift and rules.replaces_drifted:
        return DueNode(name, group, DisruptionReason.DRIFTED, drift, created)
    return None


def _since(node: Node, policies: Iterable[RepairPolicy]) -> Iterator[tuple[RepairPolicy, Condition, float]]:
    """The conditions that ask for a repair, with the time of their last change; without a readable one, none does."""
    for policy, condition in _unhealthy(node, policies):
        if condition.last_transition_time:
            yield policy, condition, durations.instant(condition.last_transition_time)


def _unhealthy(node: Node, policies: Iterable[RepairPolicy]) -> Iterator[tuple[RepairPolicy, Condition]]:
    for condition in node.status.conditions or ():
        for policy in policies:
            if (condition.type, condition.status) == (policy.condition, policy.status):
                yield policy, condition


def _is_beyond(unhealthy: int, total: int) -> bool:
    return unhealthy > -(-total * MOST_UNHEALTHY_PERCENT // 100)


def _describe(unhealthy: int, total: int, what: str) -> str:
    return f"{unhealthy} of {total} {what} are unhealthy, more than {MOST_UNHEALTHY_PERCENT} %: something else is wrong"
