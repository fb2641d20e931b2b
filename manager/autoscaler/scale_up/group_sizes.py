"""New nodes spread over similar groups, so that their sizes draw level."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSize:
    """One group's target size now, and the most it may have."""

    group: str
    target: int
    most: int


def balance_sizes(groups: Iterable[GroupSize], new_nodes: int) -> dict[str, int]:
    """The new target of each group that grows: one node after the other goes to the smallest that has room.

    Groups of the same size come in the order of their names. What no group has room for is not placed.
    """
    open_groups = [(each.target, each.group, each.most) for each in groups if each.target < each.most]
    heapq.heapify(open_groups)
    grown: dict[str, int] = {}
    for _ in range(new_nodes):
        if not open_groups:
            break
        target, group, most = open_groups[0]
        grown[group] = target + 1
        if target + 1 < most:
            heapq.heapreplace(open_groups, (target + 1, group, most))
        else:
            heapq.heappop(open_groups)
    return grown
