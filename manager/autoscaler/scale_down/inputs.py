"""The inputs of a pass of scale-down, and what all of its steps derive from them."""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.scale_down import pods_on_nodes
from manager.autoscaler.scale_down.budgets import DeletionCounts, EmptyNodeLimit, ShrinkingGroup
from manager.autoscaler.scale_down.drain import DisruptionBudget, RemainingDisruptions
from manager.autoscaler.scale_down.pods_on_nodes import BlockingPod, DrainPlan, DrainPlanner, PodOnNode
from manager.autoscaler.scale_down.removal_status import CooldownTimestamps, Objection, ScaleDownHistory
from manager.autoscaler.scale_down.rules import ScaleDownRules, UnremovableReason
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED, NodeInfo, NodeState
from manager.autoscaler.snapshot.interruptions import Interruption
from shared.quantity import Resources


@dataclass(frozen=True)
class ScaleDownInputs:
    """The inputs of a pass. `groups` are those that may shrink; `group_of` gives a node's group by the node's name.

    `nodes` are registered ones. `residents` are the pods on them, and pending pods that found a place there. `peaks`
    gives each node's predicted peak where peaks count; a node without one takes no pods, and its own pods do not move.
    `untold` holds the keys of pods that the peaks do not cover. `unreadable` gives, by node, the part of the node or
    its pods that could not be read. `happened_in` is by group. Nodes in `leaving` count as tainted. `interruptions`
    gives the cloud's announcements by node: nodes that it takes within minutes are among `leaving`. `kept` gives, by
    group, the reason why scale-down leaves its nodes alone. `replacing` gives the role of each node, old or new, in a
    replacement under way: scale-down leaves these alone, too. `empty_node_limits` limit the empty nodes of their groups
    that may go; no group is in two of them.
    """

    now: float
    nodes: Sequence[NodeInfo]
    residents: Sequence[PodOnNode] = ()
    groups: Mapping[str, ShrinkingGroup] = field(default_factory=dict)
    group_of: Mapping[str, str] = field(default_factory=dict)
    disruption_budgets: Sequence[DisruptionBudget] = ()
    memory: ScaleDownHistory = field(default_factory=ScaleDownHistory)
    happened: CooldownTimestamps = field(default_factory=CooldownTimestamps)
    happened_in: Mapping[str, CooldownTimestamps] = field(default_factory=dict)
    in_progress: DeletionCounts = field(default_factory=DeletionCounts)
    peaks: Mapping[str, Resources] | None = None
    untold: Container[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    leaving: Collection[str] = frozenset()
    interruptions: Mapping[str, Interruption] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    replacing: Mapping[str, str] = field(default_factory=dict)
    empty_node_limits: Sequence[EmptyNodeLimit] = ()


class ScaleDownContext:
    """The registered nodes and their pods in a fixed order, and the predicted peaks with pods that these do not cover.

    `peaks` is None where peaks do not count.
    """

    def __init__(self, inputs: ScaleDownInputs, rules: ScaleDownRules) -> None:
        self.inputs = inputs
        self.rules = rules
        self.now = inputs.now
        self._drains = DrainPlanner(rules.drain, inputs.now)
        self.nodes = sorted(
            (node for node in inputs.nodes if node.state is not NodeState.UPCOMING), key=lambda node: node.name
        )
        self._pods = {
            name: sorted(found, key=lambda each: each.key)
            for name, found in pods_on_nodes.pods_by_node(inputs.residents).items()
        }
        told = inputs.peaks
        self.peaks = None if told is None else pods_on_nodes.peaks_with_new_pods(told, self._pods, inputs.untold)

    def group_of(self, node: NodeInfo) -> str:
        """The id of the node's group; empty without one."""
        return self.inputs.group_of.get(node.name, "")

    def pods_on(self, node: str) -> Sequence[PodOnNode]:
        """All pods of a node."""
        return self._pods.get(node, ())

    def pods_that_need_places(self, node: str) -> list[PodOnNode]:
        """The pods that need another node once this one is gone."""
        return [each for each in self.pods_on(node) if each.needs_a_place(self.now)]

    def pods_that_move(self, node: str) -> list[PodOnNode]:
        """The same without pods that the removal waits for."""
        return [each for each in self.pods_that_need_places(node) if not each.is_awaited]

    def drain_plan(self, node: str, disruptions: RemainingDisruptions) -> DrainPlan | BlockingPod:
        """What happens to the pods of a node that is drained, by what remains of the budgets."""
        return self._drains.plan(self.pods_on(node), disruptions)

    def why_leaving(self, node: NodeInfo) -> Objection:
        """The cause of a node's leaving."""
        announced = self.inputs.interruptions.get(node.name)
        if announced is not None and announced.is_imminent:
            return Objection(UnremovableReason.INTERRUPTED, f"the cloud takes it: {announced}")
        return Objection(UnremovableReason.BEING_DELETED, "it is being deleted")

    def is_leaving(self, node: NodeInfo) -> bool:
        """Whether the node is under deletion, or was tainted for it a short while ago.

        A taint without a readable time counts, and so does one with a future time.
        """
        return node.name in self.inputs.leaving or any(
            not taint.value.isdecimal() or self.now - int(taint.value) < self.rules.deletion_seconds
            for taint in node.taints
            if taint.key == TAINT_TO_BE_DELETED
        )
