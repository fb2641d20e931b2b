"""The inputs of a pass of scale-down."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.scale_down.budgets import DeletionCounts
from manager.autoscaler.scale_down.disruptions import DisruptionBudget
from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from manager.autoscaler.scale_down.removal_status import ScaleDownHistory
from manager.autoscaler.scale_down.size_limits import ShrinkingGroup
from manager.autoscaler.scale_down.timing import CooldownTimestamps
from manager.autoscaler.snapshot.cluster import NodeInfo
from shared.quantity import Resources


@dataclass(frozen=True)
class ScaleDownInputs:
    """The inputs of a pass. `groups` are those that may shrink; `group_of` gives a node's group by the node's name.

    `nodes` are registered ones. `residents` are the pods on them, and pending pods that found a place there. `peaks`
    gives each node's predicted peak where peaks count; a node without one takes no pods, and its own pods do not move.
    `untold` holds the keys of pods that the peaks do not cover. `unreadable` gives, by node, what of the node or its
    pods could not be read. `happened_in` is by group. Nodes in `leaving` count as tainted. `kept` gives, by group, the
    reason why scale-down leaves its nodes alone.
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
    leaving: Container[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)
