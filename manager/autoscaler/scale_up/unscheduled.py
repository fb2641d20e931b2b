"""Why pods get no node in a decision, and whether a group could take them in a later iteration."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator import binpacking
from manager.autoscaler.scale_up import groups
from manager.autoscaler.scale_up.decisions import PodDemand, Reasons, UnscheduledPods
from manager.autoscaler.scale_up.groups import Headroom, QuotaUsage, Skipped
from manager.autoscaler.scale_up.options import GroupEstimate, Unestimated
from shared.cached_property import cached_property

# Estimates that ended by these reasons say nothing about further nodes.
_OF_LIMITS = frozenset({(binpacking.NOT_PERMITTED,), (binpacking.OUT_OF_TIME,)})


@dataclass(frozen=True)
class WhyNot:
    """Why each group that cannot take a class cannot. `limits` are those that keep groups from further nodes."""

    estimated: Sequence[GroupEstimate]
    skipped: Sequence[Skipped]
    limits: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, position: int) -> Reasons:
        found = {each.state.id: reasons for each in self.estimated if (reasons := self._of_group(each, position))}
        found |= {each.group: (each.reason,) for each in self.skipped}
        return dict(sorted(found.items()))

    def _of_group(self, each: GroupEstimate, position: int) -> tuple[str, ...]:
        if not each.fit.flags[position]:
            return each.fit.reasons(position)
        reasons = each.estimate.reasons.get(position, ())
        limit = self.limits.get(each.state.id, "")
        if not limit and each.limit == groups.AT_MAXIMUM and position in each.estimate.placed:
            return ()  # it takes some of the pods later, up to its maximum
        if reasons == (binpacking.NOT_PERMITTED,):
            return (limit or each.limit or binpacking.NOT_PERMITTED,)
        return reasons or ((limit,) if limit else ())


@dataclass(frozen=True)
class LaterRoom:
    """The groups' room for further nodes after a decision. `nodes` are those it buys, by group, and `new_groups` is how
    many groups may still be created.
    """

    remaining: Headroom
    usage: QuotaUsage
    ownership: Ownership
    nodes: Mapping[str, int] = field(default_factory=dict)
    new_groups: int = 0

    def limit(self, state: GroupStatus) -> str:
        """What keeps a group from growing in a later iteration; empty if nothing does."""
        bought = self.nodes.get(state.id, 0)
        if not (state.exists or bought) and self.new_groups < state.makes:
            return groups.AT_MOST_GROUPS
        state = replace(state, group=replace(state.group, target_size=state.group.target_size + bought))
        if reason := groups.skip_reason(state, self.remaining, self.usage, self.ownership):
            return reason
        return "; ".join(map(str, groups.allowance(state, self.remaining, self.usage, state.least_step).exceeded))


@dataclass(frozen=True)
class Outlook:
    """Which classes a group could take later. `main` is the chosen group, which places as many pods of each class as
    are `triggered` now; without one, no estimated group does.
    """

    room: LaterRoom
    estimated: Sequence[GroupEstimate] = ()
    unestimated: Sequence[Unestimated] = ()
    main: str | None = None
    triggered: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def limits(self) -> dict[str, str]:
        """By group: what keeps it from growing."""
        found = {each.state.id: self.room.limit(each.state) for each in self.estimated}
        return {group: limit for group, limit in found.items() if limit}

    @cached_property
    def _open(self) -> dict[str, bool]:
        """Whether a group that was not estimated could grow, as far as it was asked about."""
        return {}

    def _is_open(self, each: Unestimated) -> bool:
        group = each.state.id
        if group not in self._open:
            self._open[group] = not self.room.limit(each.state)
        return self._open[group]

    def takes(self, position: int) -> bool:
        """Whether a group could take more pods of a class."""
        return any(each.fit.flags[position] and self._is_open(each) for each in self.unestimated) or any(
            self._takes(each, position) for each in self.estimated if each.state.id not in self.limits
        )

    def _takes(self, each: GroupEstimate, position: int) -> bool:
        if self.main is None:
            return False
        before = self.triggered.get(position, 0) if each.state.id == self.main else 0
        is_limited = each.estimate.reasons.get(position) in _OF_LIMITS
        return each.estimate.placed.get(position, 0) > before or is_limited


def left_pods(demands: Iterable[PodDemand], outlook: Outlook) -> tuple[UnscheduledPods, ...]:
    """The pods that get no node now, by class."""
    return tuple(
        UnscheduledPods(position, pods, outlook.takes(position))
        for position, demand in enumerate(demands)
        if (pods := demand.unplaced[outlook.triggered.get(position, 0) :])
    )
