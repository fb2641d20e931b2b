"""Finds the replacement to begin now, for either purpose: nodes that have to go, or nodes that are dear.

A purpose says which nodes are candidates, in which order, what takes their places, and whether that is worth it. The
rest is the same: what keeps a node whatever asks for it, disruption limits, the time that a search has, the simulation,
the limits on new nodes, and one verdict on every candidate. Where several nodes may go at once, the longest prefix of
the candidates that may be replaced is found by halving; otherwise nodes are tried one by one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption import candidates, simulation
from manager.autoscaler.disruption.candidates import LaunchTarget, Limit, ReplaceableNode
from manager.autoscaler.disruption.disruption_limits import DisruptionAllowance
from manager.autoscaler.disruption.simulation import PodPlacement, ReplacementSimulation
from manager.autoscaler.disruption.verdicts import (
    ConsolidationDecision,
    ConsolidationReason,
    Denied,
    ReplacementOption,
    ReplacementVerdict,
)
from manager.autoscaler.scale_down import eligibility
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext
from manager.autoscaler.scale_up.groups import Headroom, QuotaUsage
from manager.autoscaler.scale_up.options import no_deadline
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeTemplate

NOT_ITS_TURN = Denied(ConsolidationReason.NOT_ITS_TURN, "another replacement begins now")
OUT_OF_TIME = Denied(
    ConsolidationReason.OUT_OF_TIME,
    "the time limit of this iteration was reached before this node was examined",
)


@dataclass(frozen=True, kw_only=True)
class SearchInputs:
    """What a search reads, whatever its purpose: `context` has the groups in enforce mode, or all of them for `advice`.

    `targets` are groups that exist or could be created, `new_groups` how many may be. `protected` gives, by node, what
    forbids to disturb it. `unneeded` are the nodes that scale-down is about to remove. For `untried` nodes the last
    search had no time, so that they come first. `remaining` is what the cluster's limits leave for new nodes, and
    `allowed` what the disruption limits leave for each reason. Nothing is replaced that `blocked` delays.
    """

    context: ScaleDownContext
    allowed: Mapping[DisruptionReason, DisruptionAllowance]
    targets: Sequence[LaunchTarget] = ()
    new_groups: int = 0
    protected: Mapping[str, str] = field(default_factory=dict)
    unneeded: Sequence[str] = ()
    untried: Collection[str] = ()
    remaining: Headroom = field(default_factory=Headroom)
    blocked: Denied | None = None
    advice: bool = False
    is_late: Callable[[], bool] = no_deadline

    def delayed(self, node: ReplaceableNode) -> Denied | None:
        """Why no node of its group may be disturbed now."""
        allowed = self.allowed[node.reason].of_group(node.group)
        if self.blocked is None and allowed.nodes < 1:
            return Denied(ConsolidationReason.LIMITED, f"the disruption limit {allowed.limit!r} allows no node now")
        return self.blocked

    def unfit(self, node: NodeInfo, not_now: str = "", own: Denied | None = None) -> Denied | None:
        """Why the node cannot be replaced, whatever takes its place. `not_now` says which state of the node forbids it;
        `own` is what else the purpose has against it, and is said before what people protect.
        """
        context = self.context
        if context.is_leaving(node):
            return Denied(ConsolidationReason.NOT_ELIGIBLE, context.why_leaving(node)[1])
        if node.name in self.unneeded:
            return Denied(ConsolidationReason.LEFT_TO_SCALE_DOWN, "scale-down is about to remove it")
        if not_now:
            return Denied(ConsolidationReason.NOT_ELIGIBLE, not_now)
        if context.groups[context.group_id(node)].rules.zero_or_max_node_scaling:
            return Denied(ConsolidationReason.NOT_ELIGIBLE, "its group has all of its nodes or none")
        if node.name in context.unreadable:
            return Denied(ConsolidationReason.NOT_ELIGIBLE, context.unreadable[node.name])
        if own is not None:
            return own
        if node.annotations.get(eligibility.ANNOTATION_DISABLED) == "true":
            said = f"its annotation {eligibility.ANNOTATION_DISABLED} is true"
            return Denied(ConsolidationReason.DO_NOT_DISRUPT, said)
        if node.name in self.protected:
            return Denied(ConsolidationReason.DO_NOT_DISRUPT, self.protected[node.name])
        return None


@dataclass(frozen=True, slots=True)
class Launchable:
    """New nodes of one group that hold the pods, and where these go."""

    added: tuple[LaunchTarget, ...]
    placed: PodPlacement

    @property
    def price(self) -> float:
        return sum(each.price for each in self.added)


class Purpose(ABC):
    """At most `most_at_once` nodes go together. `looks_ahead`: what is delayed now is judged nevertheless."""

    most_at_once: ClassVar[int] = 1
    looks_ahead: ClassVar[bool] = False

    def __init__(self, inputs: SearchInputs, simulated: ReplacementSimulation) -> None:
        self.inputs = inputs
        self.simulation = simulated
        self._usage = QuotaUsage(inputs.context.rules.gpu_label)

    @abstractmethod
    def candidates(self) -> tuple[list[ReplaceableNode], dict[str, Denied]]:
        """In order; and why each of the other nodes in question cannot be replaced."""

    @abstractmethod
    def judge(self, removed: Sequence[ReplaceableNode]) -> ReplacementOption | Denied:
        """What takes the places of these nodes; or why they stay."""

    @abstractmethod
    def verdict(
        self, node: str, judged: ReplacementOption | Denied, removed: Sequence[ReplaceableNode] = ()
    ) -> ReplacementVerdict:
        """Of an option, `removed` are its nodes."""

    def completed(self, decision: ConsolidationDecision) -> ConsolidationDecision:
        """The decision with what else there is to say."""
        return decision

    def limit_on(self, added: Sequence[LaunchTarget]) -> str:
        return candidates.limit_on(added, self.inputs.remaining, self._usage, self.inputs.new_groups)

    def launch(
        self,
        removed: Sequence[str],
        present: PodPlacement,
        target: LaunchTarget,
        *,
        most_nodes: int | None = None,
        below_price: float | None = None,
        suits: Callable[[Sequence[NodeTemplate]], bool] = lambda _: True,
    ) -> Launchable | Limit | None:
        """The fewest new nodes of the group that hold the pods that found no place; the limit that forbids them; or
        None. At most `most_nodes`, together cheaper than `below_price`, and only nodes that `suits` accepts.
        """
        count = simulation.node_count(present.unplaced, target.template.free)
        while (
            count is not None
            and (most_nodes is None or count <= most_nodes)
            and (below_price is None or count * target.price < below_price)
        ):
            added = (target,) * count
            if limit := self.limit_on(added):
                return Limit(count, limit)
            templates = [each.template for each in added]
            if suits(templates):
                placed = self.simulation.place(removed, templates)
                if placed.stuck is None:
                    return Launchable(added, placed)
            count += 1
        return None


def search(purpose: Purpose) -> ConsolidationDecision:
    """The replacement to begin now, and a verdict on every node in question; in whatever order the inputs come."""
    inputs = purpose.inputs
    nodes, refused = purpose.candidates()
    chosen, together = _longest_prefix(purpose, nodes) if inputs.blocked is None else (None, None)
    gone = () if chosen is None else chosen.removed
    for each in sorted(nodes, key=lambda node: node.name not in inputs.untried):
        judged: ReplacementOption | Denied
        if chosen is not None:
            judged = NOT_ITS_TURN
        elif inputs.is_late():
            judged = OUT_OF_TIME
        else:
            judged = _judge_alone(purpose, each, together)
        if isinstance(judged, ReplacementOption):
            chosen, gone = judged, judged.removed
        elif each.name not in gone:
            refused[each.name] = judged
    verdicts = {name: purpose.verdict(name, why) for name, why in refused.items()}
    if chosen is not None:
        removed = [each for each in nodes if each.name in chosen.removed]
        verdicts |= {each.name: purpose.verdict(each.name, chosen, removed) for each in removed}
    return purpose.completed(ConsolidationDecision(verdicts, chosen))


Together = tuple[Sequence[ReplaceableNode], Denied]  # nodes that would save most together, and why they do not go


def _longest_prefix(
    purpose: Purpose, nodes: Sequence[ReplaceableNode]
) -> tuple[ReplacementOption | None, Together | None]:
    """Of at least two nodes. As in Karpenter, a longer prefix is tried only after a shorter one has passed."""
    best: ReplacementOption | None = None
    together: Together | None = None
    if purpose.most_at_once > 1 and nodes:
        nodes = purpose.inputs.allowed[nodes[0].reason].cropped(nodes, lambda each: each.group)
    low, high = 2, min(len(nodes), purpose.most_at_once)
    while low <= high and not purpose.inputs.is_late():
        middle = (low + high) // 2
        found = purpose.judge(nodes[:middle])
        if isinstance(found, ReplacementOption):
            best, low = found, middle + 1
        else:
            high = middle - 1
            known = together[1].saving if together else None
            if found.saving is not None and found.saving > (known or 0.0):
                together = nodes[:middle], found
    return best, together


def _judge_alone(purpose: Purpose, node: ReplaceableNode, together: Together | None) -> ReplacementOption | Denied:
    delayed = purpose.inputs.delayed(node)
    if delayed is not None and not purpose.looks_ahead:
        return delayed
    found = purpose.judge([node])
    if isinstance(found, Denied):
        return _or_together(node, found, together)
    if delayed is not None:
        return Denied(delayed.reason, f"{delayed.detail}; {found} then", found.saving, found.terms)
    return found


def _or_together(node: ReplaceableNode, alone: Denied, together: Together | None) -> Denied:
    """Why a node is not replaced with others, where that would save more than alone; its part of that saving goes by
    its price.
    """
    if together is None or node not in together[0]:
        return alone
    members, refused = together
    saving = (refused.saving or 0.0) * node.price / (sum(each.price for each in members) or 1.0)
    if saving <= (alone.saving or 0.0):
        return alone
    others = len(members) - 1
    named = "1 other node" if others == 1 else f"{others} other nodes"
    return Denied(refused.reason, f"with {named}: {refused.detail}", saving, refused.terms)
