"""Finds the first node that has to go and can, with the new node that takes its pods, where one is needed.

One node at a time. A node whose pods have places on nodes that stay goes without a new one, unless its group is at its
minimum. Else a new one of its own group comes first; where that group cannot grow, or its nodes do not hold the pods,
one or several of another group, the cheapest that do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption import consolidation_search as by_price
from manager.autoscaler.disruption import simulation
from manager.autoscaler.disruption.candidates import LaunchTarget
from manager.autoscaler.disruption.disruption_limits import DisruptionAllowance
from manager.autoscaler.disruption.due_nodes import DueNode
from manager.autoscaler.disruption.simulation import PodPlacement, ReplacementSimulation
from manager.autoscaler.disruption.verdicts import (
    ConsolidationDecision,
    ConsolidationReason,
    ReplacementOption,
    ReplacementVerdict,
)
from manager.autoscaler.pricing import list_prices
from manager.autoscaler.scale_down import eligibility
from manager.autoscaler.scale_down.inputs import ScaleDownContext
from manager.autoscaler.scale_up.groups import Headroom, QuotaUsage
from manager.autoscaler.scale_up.options import no_deadline
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState

MOST_NEW_NODES = 3  # in place of one

Refusal = tuple[ConsolidationReason, str]


@dataclass(frozen=True)
class DisruptionInputs:
    """What the search reads beside scale-down's inputs.

    `due` nodes in their order; `targets` are the groups that may grow. `held` gives, by node, what forbids to disturb
    it, `unneeded` are the nodes that scale-down is about to remove, `unhealthy` gives by group why its nodes are not
    repaired. Nothing is begun that `blocked` delays. `remaining` is what the cluster's limits leave for new nodes.
    `is_forced`: nodes go in the end whatever protects their pods.
    """

    due: Sequence[DueNode]
    targets: Sequence[LaunchTarget] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    unneeded: Sequence[str] = ()
    unhealthy: Mapping[str, str] = field(default_factory=dict)
    remaining: Headroom = field(default_factory=Headroom)
    allowed: Mapping[DisruptionReason, DisruptionAllowance] = field(default_factory=dict)
    blocked: Refusal | None = None
    is_forced: bool = False


def search(
    context: ScaleDownContext, inputs: DisruptionInputs, is_late: Callable[[], bool] = no_deadline
) -> ConsolidationDecision:
    """The replacement to begin now, and a verdict on every due node."""
    found = _Search(context, inputs)
    verdicts: dict[str, ReplacementVerdict] = {}
    chosen: ReplacementOption | None = None
    for due in inputs.due:
        judged: ReplacementOption | Refusal
        if chosen is not None:
            judged = ConsolidationReason.NOT_ITS_TURN, "another replacement begins now"
        elif is_late():
            judged = ConsolidationReason.OUT_OF_TIME, "the time of this pass was over before its turn came"
        else:
            judged = found.judge(due)
        if isinstance(judged, ReplacementOption):
            chosen = judged
            verdicts[due.name] = ReplacementVerdict(due.name, None, str(judged), disruption=due.reason)
        else:
            reason, detail = judged
            text = f"{due.reason}, {due.why}; {detail}"
            verdicts[due.name] = ReplacementVerdict(due.name, reason, text, disruption=due.reason)
    return ConsolidationDecision(verdicts, chosen)


class _Search:
    def __init__(self, context: ScaleDownContext, inputs: DisruptionInputs) -> None:
        self._context = context
        self._inputs = inputs
        self._nodes = {node.name: node for node in context.nodes}
        silent = frozenset(each.name for each in inputs.due if each.reason is DisruptionReason.UNHEALTHY)
        forced = frozenset(each.name for each in inputs.due if inputs.is_forced)
        self._simulation = ReplacementSimulation(context, inputs.unneeded, silent, forced)
        self._usage = QuotaUsage(context.rules.gpu_label)

    def judge(self, due: DueNode) -> ReplacementOption | Refusal:
        """What comes in the place of the node; or why it stays."""
        node = self._nodes.get(due.name)
        if node is None:
            return ConsolidationReason.NOT_ELIGIBLE, "it cannot be read"
        if (refused := self._unfit(node, due)) is not None:
            return refused
        if self._inputs.blocked is not None:
            return self._inputs.blocked
        limits = self._inputs.allowed.get(due.reason)
        allowed = None if limits is None else limits.of_group(due.group)
        if allowed is not None and allowed.nodes < 1:
            return ConsolidationReason.LIMITED, f"the disruption limit {allowed.limit!r} allows no node now"
        return self._replaced(due)

    def _unfit(self, node: NodeInfo, due: DueNode) -> Refusal | None:
        inputs, context = self._inputs, self._context
        if context.is_leaving(node):
            return ConsolidationReason.NOT_ELIGIBLE, context.why_leaving(node)[1]
        if due.name in inputs.unneeded:
            return ConsolidationReason.LEFT_TO_SCALE_DOWN, "scale-down is about to remove it"
        if (node.readiness or node.state) is NodeState.NOT_STARTED:
            return ConsolidationReason.NOT_ELIGIBLE, "it has not started yet"
        if context.inputs.groups[due.group].rules.zero_or_max:
            return ConsolidationReason.NOT_ELIGIBLE, "its group has all of its nodes or none"
        if node.name in context.inputs.unreadable:
            return ConsolidationReason.NOT_ELIGIBLE, context.inputs.unreadable[node.name]
        if due.reason is DisruptionReason.UNHEALTHY and due.group in inputs.unhealthy:
            return ConsolidationReason.TOO_MANY_UNHEALTHY, inputs.unhealthy[due.group]
        if node.annotations.get(eligibility.ANNOTATION_DISABLED) == "true":
            return ConsolidationReason.DO_NOT_DISRUPT, f"its annotation {eligibility.ANNOTATION_DISABLED} is true"
        if node.name in inputs.held:
            return ConsolidationReason.DO_NOT_DISRUPT, inputs.held[node.name]
        return None

    def _replaced(self, due: DueNode) -> ReplacementOption | Refusal:
        drains = self._simulation.drains([due.name], ())
        is_needed = isinstance(drains, tuple) and drains[0] in (
            ConsolidationReason.AT_MINIMUM,
            ConsolidationReason.BELOW_LIMIT,
        )
        if isinstance(drains, tuple) and not is_needed:
            return drains
        present = self._simulation.place([due.name])
        if present.stuck is None and not is_needed:
            return _option(due, {}, present)
        detail = drains[1] if isinstance(drains, tuple) else present.stuck.detail if present.stuck else ""
        for added in self._alternatives(due, present):
            if isinstance(self._simulation.drains([due.name], [each.template for each in added]), tuple):
                continue
            placed = self._simulation.place([due.name], [each.template for each in added])
            if placed.stuck is None:
                return _option(due, {added[0].id: len(added)}, placed)
        return ConsolidationReason.NO_NEW_NODE, f"{detail}, and no group that may grow has nodes that help"

    def _alternatives(self, due: DueNode, present: PodPlacement) -> Iterator[list[LaunchTarget]]:
        """New nodes of one group that the limits allow: of its own group, and then of the others by price. Spot nodes
        take only the place of spot nodes.
        """
        is_spot = list_prices.is_spot_machine(self._nodes[due.name].machine)
        fit = (each for each in self._inputs.targets if each.id == due.group or is_spot or not each.is_spot)
        for target in sorted(fit, key=lambda each: (each.id != due.group, each.price, each.id)):
            least = simulation.node_count(present.unplaced, target.template.free)
            for count in range(least or MOST_NEW_NODES + 1, MOST_NEW_NODES + 1):
                added = [target] * count
                if by_price.may_add(added, self._inputs.remaining, self._usage):
                    yield added


def _option(due: DueNode, added: Mapping[str, int], placed: PodPlacement) -> ReplacementOption:
    return ReplacementOption(
        (due.name,), added, 0.0, 0.0, 0.0, placed.moves, alternatives=None, reason=due.reason, why=due.why
    )
