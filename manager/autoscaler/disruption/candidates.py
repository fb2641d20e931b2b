"""Nodes that may be replaced for their price, what may take their places, and what that saves and disturbs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.pricing import gce
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext
from manager.autoscaler.scale_up import groups
from manager.autoscaler.scale_up.groups import Headroom, QuotaUsage
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeTemplate
from shared.api.core import Pod
from shared.explanation import Term

BASE_DISRUPTION = 1.0  # of a node without pods
MOST_POD_DISRUPTION = 10.0
UNKNOWN_PRICE = math.inf  # of a group; such a group is launched only where the price is not what matters
SLACK = 1e-9  # prices are floats
ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


@dataclass(frozen=True)
class LaunchTarget:
    """A group that exists or could be created. `price` is that of one node per hour, `closed` why it may not grow,
    `unpriced` why the price is not known, or only guessed.
    """

    state: GroupStatus
    template: NodeTemplate
    price: float
    is_spot: bool = False
    closed: str = ""
    unpriced: str = ""

    @property
    def id(self) -> str:
        return self.state.id

    def is_like(self, node: NodeInfo, price: float) -> bool:
        """Whether it could be created with nodes like this one, at no lower price."""
        spec = self.state.spec
        return spec is not None and spec.machine_type == gce.machine_type(node.labels) and self.price >= price - SLACK


class Limit(NamedTuple):
    """The number of nodes that a group may not get, and why."""

    nodes: int
    why: str


def limit_on(added: Sequence[LaunchTarget], remaining: Headroom, usage: QuotaUsage, new_groups: int = 0) -> str:
    """What keeps groups from these nodes beside all present nodes and groups; empty if nothing does."""
    if closed := next((each.closed for each in added if each.closed), ""):
        return closed
    counts, states = Counter(each.id for each in added), {each.id: each.state for each in added}
    if sum(state.makes for state in states.values() if not state.exists) > new_groups:
        return groups.AT_MOST_GROUPS
    for group, count in counts.items():
        state = states[group]
        if count > state.room:
            return groups.AT_MAXIMUM
        allowance = groups.allowance(state, remaining, usage, count)
        if allowance.nodes < count:
            return "; ".join(map(str, allowance.exceeded))
        remaining = groups.headroom_after(state, remaining, usage, count)
    return ""


def explain_limits(limits: Mapping[str, Limit]) -> str:
    """The first group that gets fewer nodes than would be tried, with its limit, and how many there are."""
    (group, (count, why)), others = next(iter(limits.items())), len(limits) - 1
    named = "1 more node" if count == 1 else f"{count} more nodes"
    more = f", nor {others} more group{'s' if others > 1 else ''} what they would need" if others else ""
    return f"group {group} may not get {named} ({why}){more}"


@dataclass(frozen=True, slots=True)
class ReplaceableNode:
    """`price` per hour, `disruption` as in `SavingBalance`; `reason` is what asks for the replacement."""

    node: NodeInfo
    group: str
    price: float
    disruption: float
    is_spot: bool
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def turn(self) -> tuple[float, str]:
        return -self.price / self.disruption, self.name


class SavingBalance:
    """Weighs what is saved against what it disturbs, each as a share of the whole of the groups that may shrink."""

    def __init__(
        self, context: ScaleDownContext, prices: Mapping[str, float], disruptions: Mapping[str, float], least: float
    ) -> None:
        ours = [node for node in context.registered if context.group_id(node) in context.groups]
        self.least = least
        self.disruption = {node.name: _disruption_of(node, context, disruptions) for node in ours}
        self._total_price = sum(prices.get(node.name, 0.0) for node in ours)
        self._total_disruption = sum(self.disruption.values())

    def score(self, saving: float, removed: Iterable[ReplaceableNode]) -> float:
        disturbed = sum(each.disruption for each in removed)
        return balance_score(saving, self._total_price, disturbed, self._total_disruption)

    def terms(self, saving: float, removed: Iterable[ReplaceableNode]) -> tuple[Term, ...]:
        return (
            Term("score", round(1000 * self.score(saving, removed)), "thousandths", "cost saved over disruption"),
            Term("leastScore", round(1000 * self.least), "thousandths", "--consolidation-balance"),
        )

    def explain(self, saving: float, removed: Sequence[ReplaceableNode]) -> str:
        disturbed = sum(each.disruption for each in removed) / self._total_disruption
        saved = saving / self._total_price if self._total_price else 0.0
        return (
            f"{saved:.1%} of the cost saved, {disturbed:.1%} of the cluster disturbed, "
            f"which scores {self.score(saving, removed):.2f} of {self.least:g}"
        )


def _disruption_of(node: NodeInfo, context: ScaleDownContext, disruptions: Mapping[str, float]) -> float:
    """1, and what the eviction of each of its pods costs, as in Karpenter."""
    moving = (each for each in context.pods_that_move(node.name) if each.drain_info is not None)
    return BASE_DISRUPTION + sum(max(0.0, disruptions.get(each.key, 1.0)) for each in moving)


def balance_score(saving: float, price: float, disturbed: float, disruption: float) -> float:
    """The share of the `price` of all nodes that is saved over the share of all `disruption`, as Karpenter's policy
    Balanced scores it.
    """
    return saving / price / (disturbed / disruption) if price else 0.0


def eviction_costs(listed: Iterable[Pod]) -> dict[str, float]:
    """What the eviction of each pod costs where that is not 1, by "namespace/name": Karpenter's formula and bounds."""
    found = {}
    for pod in listed:
        text = pod.metadata.annotation(ANNOTATION_DELETION_COST) or ""
        cost = int(text) if text.removeprefix("-").isdecimal() and len(text) <= len(str(-(1 << 31))) else 0
        priority = pod.spec.priority or 0
        if cost or priority:
            total = 1.0 + cost / (1 << 27) + priority / (1 << 25)
            found[pod.metadata.key] = min(max(total, -MOST_POD_DISRUPTION), MOST_POD_DISRUPTION)
    return found
