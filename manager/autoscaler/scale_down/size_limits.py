"""How far the cluster may shrink: no group below its minimum size, and the cluster not below its lower bounds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from manager.autoscaler import limits
from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.limits import CLUSTER_WIDE, Quota, ResourceBounds
from manager.autoscaler.scale_down.rules import GroupRules


@dataclass(frozen=True)
class ShrinkingGroup:
    """A group that may shrink. `deleting` of its nodes are under deletion and still part of its target."""

    group: Group
    rules: GroupRules = field(default_factory=GroupRules)
    deleting: int = 0

    @property
    def spare(self) -> int:
        """How many more nodes may go."""
        return max(0, self.group.target_size - self.deleting - self.group.min_size)


def above_bounds(bounds: Mapping[str, ResourceBounds], usages: Iterable[Mapping[str, int]]) -> Quota:
    """What the cluster has above its lower bounds, given the usage of every node; see `limits.usage_of`."""
    least = {resource: bound.low for resource, bound in bounds.items() if bound.low}
    total = limits.total_usage(least, usages)
    left = {resource: max(0, total[resource] - low) for resource, low in least.items()}
    return Quota(CLUSTER_WIDE, left)


class GroupSizeLimits:
    """What may still go within one pass."""

    def __init__(self, groups: Iterable[ShrinkingGroup], above: Quota) -> None:
        self._nodes = {each.group.id: each.spare for each in groups}
        self._above = above

    def has_node(self, group: str) -> bool:
        return self._nodes[group] > 0

    def short_of(self, usage: Mapping[str, int]) -> tuple[str, ...]:
        """The resources in which the cluster would fall below its bounds without a node of this usage."""
        exceeded = limits.check_quotas([self._above], usage, 1).exceeded
        return exceeded[0].resources if exceeded else ()

    def take(self, group: str, usage: Mapping[str, int]) -> None:
        self._nodes[group] -= 1
        _, (self._above,) = limits.consume_quotas([self._above], usage, 1)
