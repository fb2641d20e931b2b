"""Nodes that must be replaced, in their order, and what a replacement of one takes.

One node at a time. A node whose pods have places on nodes that stay is deleted without a new one, unless its group is
at its minimum. Else a new one of its own group comes first; where that group cannot grow, or its nodes have no room for
the pods, one or several of another group, the cheapest that have. Spot nodes replace only spot nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption import candidates
from manager.autoscaler.disruption.candidates import BASE_DISRUPTION, Limit, ReplaceableNode
from manager.autoscaler.disruption.replacement_search import Purpose, SearchInputs
from manager.autoscaler.disruption.rules import MOST_UNHEALTHY_PERCENT, DisruptionRules, RepairPolicy
from manager.autoscaler.disruption.simulation import PodPlacement, ReplacementSimulation
from manager.autoscaler.disruption.verdicts import (
    ConsolidationDecision,
    ConsolidationReason,
    Denied,
    ReplacementOption,
    ReplacementVerdict,
)
from manager.autoscaler.pricing import list_prices
from manager.autoscaler.snapshot import interruptions
from manager.autoscaler.snapshot.cluster import NodeState
from shared import durations
from shared.api.core import Condition, Node

MOST_NEW_NODES = 3  # in place of one
_NEED_A_NODE = (ConsolidationReason.AT_MINIMUM, ConsolidationReason.BELOW_LIMIT)
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

    def verdict(self, reason: ConsolidationReason | None, detail: str) -> ReplacementVerdict:
        text = f"{self.reason}, {self.why}; {detail}"
        return ReplacementVerdict(self.name, reason, text, disruption=self.reason)


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
    announced = interruptions.read_interruption(node) if rules.replace_interrupted_nodes else None
    if announced is not None and not announced.is_imminent:
        since = now if announced.since is None else announced.since
        return DueNode(name, group, DisruptionReason.INTERRUPTED, f"the cloud has announced {announced}", since)
    if created and 0 < lifetime_seconds < now - created:
        why = f"it is {durations.render(round(now - created))} old, more than {durations.render(lifetime_seconds)}"
        return DueNode(name, group, DisruptionReason.EXPIRED, why, created + lifetime_seconds)
    if drift and rules.replace_drifted_nodes:
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


class DuePurpose(Purpose):
    """`due` are in their order. `unhealthy` gives by group why its nodes are not repaired. `is_forced`: nodes go in the
    end whatever protects their pods.
    """

    def __init__(
        self, inputs: SearchInputs, due: Sequence[DueNode], unhealthy: Mapping[str, str], *, is_forced: bool
    ) -> None:
        silent = frozenset(each.name for each in due if each.reason is DisruptionReason.UNHEALTHY)
        forced = frozenset(each.name for each in due if is_forced)
        super().__init__(inputs, ReplacementSimulation(inputs.context, inputs.unneeded, silent, forced))
        self._due = {each.name: each for each in due}
        self._unhealthy = unhealthy

    def candidates(self) -> tuple[list[ReplaceableNode], dict[str, Denied]]:
        nodes = {node.name: node for node in self.inputs.context.registered}
        found, refused = [], {}
        for due in self._due.values():
            node = nodes.get(due.name)
            if node is None:
                refused[due.name] = Denied(ConsolidationReason.NOT_ELIGIBLE, "it cannot be read")
                continue
            has_not_started = (node.readiness or node.state) is NodeState.NOT_STARTED
            sick = self._unhealthy.get(due.group) if due.reason is DisruptionReason.UNHEALTHY else None
            too_many = Denied(ConsolidationReason.TOO_MANY_UNHEALTHY, sick) if sick else None
            why = self.inputs.unfit(node, "it has not started yet" if has_not_started else "", too_many)
            if why is not None:
                refused[due.name] = why
                continue
            is_spot = list_prices.is_spot_machine(node.machine)
            found.append(ReplaceableNode(node, due.group, 0.0, BASE_DISRUPTION, is_spot, due.reason))
        return found, refused

    def verdict(
        self, node: str, judged: ReplacementOption | Denied, removed: Sequence[ReplaceableNode] = ()
    ) -> ReplacementVerdict:
        due = self._due[node]
        if isinstance(judged, Denied):
            return due.verdict(judged.reason, judged.detail)
        return ReplacementVerdict(node, None, str(judged), disruption=due.reason)

    def completed(self, decision: ConsolidationDecision) -> ConsolidationDecision:
        """In the order in which they are due."""
        ordered = {name: decision.verdicts[name] for name in self._due}
        return replace(decision, verdicts=ordered)

    def judge(self, removed: Sequence[ReplaceableNode]) -> ReplacementOption | Denied:
        (old,) = removed
        names = [old.name]
        drains = self.simulation.drains(names, ())
        is_needed = isinstance(drains, Denied) and drains.reason in _NEED_A_NODE
        if isinstance(drains, Denied) and not is_needed:
            return drains
        present = self.simulation.place(names)
        if present.stuck is None and not is_needed:
            return self._option(old.name, {}, present)
        detail = drains.detail if isinstance(drains, Denied) else present.stuck.detail if present.stuck else ""
        limits: dict[str, Limit] = {}
        fit = (each for each in self.inputs.targets if each.id == old.group or old.is_spot or not each.is_spot)
        for target in sorted(fit, key=lambda each: (each.id != old.group, each.price, each.id)):
            found = self.launch(
                names,
                present,
                target,
                most_nodes=MOST_NEW_NODES,
                suits=lambda new: not isinstance(self.simulation.drains(names, new), Denied),
            )
            if isinstance(found, Limit):
                limits[target.id] = found
            elif found is not None:
                return self._option(old.name, {target.id: len(found.added)}, found.placed)
        if limits:
            detail = f"{detail}; {candidates.explain_limits(limits)}"
        detail = f"{detail}, and no group that may grow has nodes that help"
        return Denied(ConsolidationReason.NO_NEW_NODE, detail)

    def _option(self, node: str, added: Mapping[str, int], placed: PodPlacement) -> ReplacementOption:
        due = self._due[node]
        return ReplacementOption(
            (node,), added, 0.0, 0.0, 0.0, placed.moves, alternatives=None, reason=due.reason, why=due.why
        )
