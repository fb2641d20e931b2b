"""Whether the nodes match the requests, for the cluster and for a group (Cluster Autoscaler's rules)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Too many nodes are unready if both limits are exceeded."""

    ok_unready_count: int = 3
    max_unready_percent: float = 45.0

    def bear(self, *, unready: int, total: int) -> bool:
        """Whether `unready` of `total` nodes still count as healthy."""
        return unready <= self.ok_unready_count or unready * 100 <= self.max_unready_percent * total


@dataclass(frozen=True, slots=True)
class Readiness:
    """The number of nodes of one group by state.

    `unregistered` ones have no Node yet, `long_unregistered` for too long.
    """

    ready: int = 0
    unready: int = 0
    not_started: int = 0
    being_deleted: int = 0
    suspended: int = 0
    unregistered: int = 0
    long_unregistered: int = 0

    @property
    def registered(self) -> int:
        return self.ready + self.unready + self.not_started + self.being_deleted + self.suspended


@dataclass(frozen=True, slots=True)
class AcceptableRange:
    """The range of a group's number of nodes while requests are under way."""

    low: int
    high: int
    target: int


def acceptable_range(
    *, target: int, long_unregistered: int, pending_increase: int, pending_deletions: int
) -> AcceptableRange:
    """Lower by nodes that are pending or never come, higher by nodes that are still being deleted."""
    return AcceptableRange(target - long_unregistered - pending_increase, target + pending_deletions, target)


def is_group_healthy(
    readiness: Readiness | None, *, target: int, least: int, acceptable: AcceptableRange, limits: HealthLimits
) -> bool:
    """Whether all missing or unready nodes of the group can be explained, within the limits."""
    if readiness is None:
        return target == 0 or least == 0
    unjustified = max(0, acceptable.low - readiness.ready - readiness.suspended)
    return limits.bear(unready=unjustified, total=readiness.registered)


def upcoming_nodes(readiness: Readiness, *, target: int, pending_increase: int | None, backed_off: bool = False) -> int:
    """How many requested nodes are not up; none without a request under way."""
    if not pending_increase or backed_off:
        return 0
    there = readiness.ready + readiness.unready + readiness.suspended + readiness.long_unregistered
    return max(0, target - there)
