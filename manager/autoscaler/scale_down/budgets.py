"""Limits how many nodes may go.

No group falls below its minimum size, nor the cluster below its lower bounds. At one time, atomic groups come first,
whole or not at all, then empty nodes, then drained nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.estimator import limits
from manager.autoscaler.estimator.limits import CLUSTER_WIDE, Quota, ResourceBounds
from manager.autoscaler.scale_down.rules import GroupRules, Parallelism


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


@dataclass(frozen=True, slots=True)
class NodeBucket:
    """The nodes of one group that may go, in the order of their removal."""

    group: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AtomicSize:
    """The target and the registered nodes of a group that has all of its nodes or none."""

    target: int
    registered: int

    def is_all(self, nodes: int) -> bool:
        """Whether this many nodes are the whole group. Nodes that never registered go with the others."""
        return nodes in (self.target, self.registered)


@dataclass(frozen=True, slots=True)
class DeletionCounts:
    """The nodes under deletion."""

    empty: int = 0
    drained: int = 0


@dataclass(frozen=True, slots=True)
class CroppedBuckets:
    empty: tuple[NodeBucket, ...]
    drained: tuple[NodeBucket, ...]


@dataclass
class _Left:
    nodes: int
    drained: int
    is_untouched: bool = True  # no atomic group has been taken yet

    def takes_whole(self, empty: int, drained: int) -> bool:
        """Whether a whole group may go.

        The first one may exceed the rest of the budget, since a large group would otherwise never go; it may not when
        no budget is left.
        """
        if empty + drained <= self.nodes and drained <= self.drained:
            return True
        return self.is_untouched and self.nodes > 0 and (not drained or self.drained > 0)

    def take(self, empty: int, drained: int) -> None:
        self.nodes -= empty + drained
        self.drained -= drained


def crop(
    empty: Sequence[NodeBucket],
    drained: Sequence[NodeBucket],
    atomic: Mapping[str, AtomicSize],
    in_progress: DeletionCounts,
    parallelism: Parallelism,
) -> CroppedBuckets:
    """The nodes whose deletion may begin now.

    `atomic` holds the groups that go as a whole: those with empty nodes come first, then those that only drain.
    """
    left = _Left(parallelism.nodes - in_progress.empty - in_progress.drained, parallelism.drained - in_progress.drained)
    chosen_empty: list[NodeBucket] = []
    chosen_drained: list[NodeBucket] = []
    parts: dict[str, tuple[list[NodeBucket], list[NodeBucket]]] = {}
    for which, buckets in enumerate((empty, drained)):
        for bucket in buckets:
            if bucket.group in atomic:
                parts.setdefault(bucket.group, ([], []))[which].append(bucket)
    held: set[bool] = set()
    for group, (of_empty, of_drained) in parts.items():
        only_drains = not of_empty
        if only_drains in held:
            continue
        counts = sum(len(each.nodes) for each in of_empty), sum(len(each.nodes) for each in of_drained)
        if not left.takes_whole(*counts):
            held.add(only_drains)  # its turn comes; smaller groups of its kind would otherwise keep it waiting forever
        elif atomic[group].is_all(sum(counts)):
            left.take(*counts)
            left.is_untouched = False
            chosen_empty += of_empty
            chosen_drained += of_drained
    chosen_empty += _cropped((each for each in empty if each.group not in atomic), left.nodes)
    left.nodes -= sum(len(each.nodes) for each in chosen_empty if each.group not in atomic)
    chosen_drained += _cropped((each for each in drained if each.group not in atomic), min(left.nodes, left.drained))
    return CroppedBuckets(tuple(chosen_empty), tuple(chosen_drained))


def _cropped(buckets: Iterable[NodeBucket], most: int) -> list[NodeBucket]:
    found = []
    for bucket in buckets:
        nodes = bucket.nodes[: max(0, most)]
        if nodes:
            found.append(NodeBucket(bucket.group, nodes))
            most -= len(nodes)
    return found
