"""What a pass of scale-down looks at."""

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
    """All that a pass looks at. `groups` are those that may shrink; `group_of` gives a node's group by its name.

    `nodes` are registered ones. `residents` are the pods on them, and pending ones that have found a place there.
    `peaks` gives each node's predicted peak where these count; a node it does not tell of takes no pods, and none of
    its own move. They do not tell of `untold` pods, by key. `unreadable` says, by node, what of it or its pods could
    not be read. `happened_in` is by group. Nodes that are `leaving` are as those that are marked; `kept` says of groups
    why their nodes are not to go by this.
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
