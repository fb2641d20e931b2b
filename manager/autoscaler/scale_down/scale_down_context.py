"""What a pass of scale-down sees: nodes with their pods, and what groups and cluster can spare."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.estimator import limits
from manager.autoscaler.estimator.limits import CLUSTER_WIDE, Quota, ResourceBounds
from manager.autoscaler.scale_down import pods_on_nodes
from manager.autoscaler.scale_down.drain import DisruptionBudget, GangBudget, RemainingDisruptions
from manager.autoscaler.scale_down.pods_on_nodes import BlockingPod, DrainPlan, DrainPlanner, PodOnNode
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    DeletionCounts,
    GroupRules,
    Objection,
    ScaleDownHistory,
    ScaleDownRules,
    UnremovableReason,
)
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED, NodeInfo, NodeState
from manager.autoscaler.snapshot.interruptions import Interruption
from shared.cached_property import cached_property
from shared.errors import InvalidInput
from shared.quantity import Resources


@dataclass(frozen=True)
class ShrinkingGroup:
    """A group that may shrink. `deleting` of its nodes are under deletion and still part of its target."""

    group: Group
    rules: GroupRules = field(default_factory=GroupRules)
    deleting: int = 0

    @property
    def spare(self) -> int:
        """The number of further nodes that may go."""
        return max(0, self.group.target_size - self.deleting - self.group.min_size)


def above_bounds(bounds: Mapping[str, ResourceBounds], usages: Iterable[Mapping[str, int]]) -> Quota:
    """The cluster's resources above its lower bounds, given the usage of every node; see `limits.usage_of`."""
    least = {resource: bound.low for resource, bound in bounds.items() if bound.low}
    total = limits.total_usage(least, usages)
    left = {resource: max(0, total[resource] - low) for resource, low in least.items()}
    return Quota(CLUSTER_WIDE, left)


class GroupSizeLimits:
    """The rest that may go within one pass."""

    def __init__(self, spare: Mapping[str, int], above: Quota) -> None:
        """`spare` nodes by group, and what the cluster has `above` its lower bounds."""
        self._nodes = dict(spare)
        self._above = above

    def has_node(self, group: str) -> bool:
        return self._nodes[group] > 0

    def short_of(self, usage: Mapping[str, int]) -> tuple[str, ...]:
        """The resources in which the cluster would fall below its bounds without a node of this usage."""
        exceeded = limits.check_quotas([self._above], usage, 1).exceeded
        return exceeded[0].resources if exceeded else ()

    def give(self, group: str) -> None:
        """Counts a node that comes to the group before others go."""
        if group in self._nodes:
            self._nodes[group] += 1

    def take(self, group: str, usage: Mapping[str, int]) -> None:
        self._nodes[group] -= 1
        _, (self._above,) = limits.consume_quotas([self._above], usage, 1)


@dataclass(frozen=True, slots=True)
class EmptyNodeLimit:
    """So many empty nodes of these groups may go now, by the disruption limit of this text."""

    groups: frozenset[str]
    nodes: int
    text: str


@dataclass(frozen=True, eq=False)
class ScaleDownContext:
    """What a pass of scale-down sees, and what all of its steps derive from that.

    `groups` are those that may shrink; `group_of` gives a node's group by the node's name. `nodes` are registered ones.
    `residents` are the pods on them, and pending pods that found a place there. `peaks` gives each node's predicted
    peak where peaks count; a node without one takes no pods, and its own pods do not move. `untold` holds the keys of
    pods that the peaks do not cover. `gangs` are those with pods on nodes. `unreadable` gives, by node, the part of the
    node or its pods that could not be read; `unread_nodes` are not among `nodes` for that. `happened_in` is by group.
    Nodes in `leaving` count as tainted. `interruptions` gives the cloud's announcements by node: nodes that it takes
    within minutes are among `leaving`. `kept` gives, by group, the reason why scale-down leaves its nodes alone.
    `replacing` gives the role of each node, old or new, in a replacement under way: scale-down leaves these alone, too.
    `empty_node_limits` limit the empty nodes of their groups that may go; no group is in two of them.
    """

    now: float
    nodes: Sequence[NodeInfo]
    residents: Sequence[PodOnNode] = ()
    rules: ScaleDownRules = field(default_factory=ScaleDownRules)
    groups: Mapping[str, ShrinkingGroup] = field(default_factory=dict)
    group_of: Mapping[str, str] = field(default_factory=dict)
    disruption_budgets: Sequence[DisruptionBudget] = ()
    gangs: Sequence[GangBudget] = ()
    memory: ScaleDownHistory = field(default_factory=ScaleDownHistory)
    happened: CooldownTimestamps = field(default_factory=CooldownTimestamps)
    happened_in: Mapping[str, CooldownTimestamps] = field(default_factory=dict)
    in_progress: DeletionCounts = field(default_factory=DeletionCounts)
    peaks: Mapping[str, Resources] | None = None
    untold: Container[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    unread_nodes: Mapping[str, InvalidInput] = field(default_factory=dict)
    leaving: Collection[str] = frozenset()
    interruptions: Mapping[str, Interruption] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    replacing: Mapping[str, str] = field(default_factory=dict)
    empty_node_limits: Sequence[EmptyNodeLimit] = ()

    @cached_property
    def registered(self) -> list[NodeInfo]:
        """The registered nodes by name: the order in which they are given does not matter."""
        there = (node for node in self.nodes if node.state is not NodeState.UPCOMING)
        return sorted(there, key=lambda node: node.name)

    @cached_property
    def known_peaks(self) -> Mapping[str, Resources] | None:
        """The predicted peaks, with the pods that they do not cover; None where peaks do not count."""
        told = self.peaks
        return None if told is None else pods_on_nodes.peaks_with_new_pods(told, self._pods, self.untold)

    @cached_property
    def _pods(self) -> Mapping[str, Sequence[PodOnNode]]:
        found = pods_on_nodes.pods_by_node(self.residents)
        return {name: sorted(pods, key=lambda each: each.key) for name, pods in found.items()}

    @cached_property
    def _drains(self) -> DrainPlanner:
        return DrainPlanner(self.rules.drain, self.now)

    def group_id(self, node: NodeInfo) -> str:
        """The id of the node's group; empty without one."""
        return self.group_of.get(node.name, "")

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
        announced = self.interruptions.get(node.name)
        if announced is not None and announced.is_imminent:
            return Objection(UnremovableReason.INTERRUPTED, f"the cloud deletes it: {announced}")
        return Objection(UnremovableReason.BEING_DELETED, "it is being deleted")

    def is_leaving(self, node: NodeInfo) -> bool:
        """Whether the node is under deletion, or was tainted for it a short while ago.

        A taint without a readable time counts, and so does one with a future time.
        """
        return node.name in self.leaving or any(
            not taint.value.isdecimal() or self.now - int(taint.value) < self.rules.deletion_seconds
            for taint in node.taints
            if taint.key == TAINT_TO_BE_DELETED
        )
