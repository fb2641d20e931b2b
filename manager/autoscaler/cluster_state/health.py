"""Whether what is there agrees with what was asked for, of the cluster and of a group (Cluster Autoscaler's rules)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Beyond both of them together there are too many nodes that are not ready."""

    ok_unready_count: int = 3
    max_unready_percent: float = 45.0

    def bear(self, *, unready: int, total: int) -> bool:
        """Whether so many unready ones of so many are still healthy."""
        return unready <= self.ok_unready_count or unready * 100 <= self.max_unready_percent * total


@dataclass(frozen=True, slots=True)
class Readiness:
    """How many nodes of one group are in which state. `unregistered` have no Node yet, `long_unregistered` too long."""

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
    """Between which numbers of nodes a group may be while what was asked for is under way."""

    low: int
    high: int
    target: int


def acceptable_range(
    *, target: int, long_unregistered: int, pending_increase: int, pending_deletions: int
) -> AcceptableRange:
    """Fewer by what has not come yet or never will, more by what has not gone yet."""
    return AcceptableRange(target - long_unregistered - pending_increase, target + pending_deletions, target)


def is_group_healthy(
    readiness: Readiness | None, *, target: int, least: int, acceptable: AcceptableRange, limits: HealthLimits
) -> bool:
    """Whether no more of the group's nodes are missing or unready than can be explained."""
    if readiness is None:
        return target == 0 or least == 0
    unjustified = max(0, acceptable.low - readiness.ready - readiness.suspended)
    return limits.bear(unready=unjustified, total=readiness.registered)


def upcoming_nodes(readiness: Readiness, *, target: int, pending_increase: int | None, backed_off: bool = False) -> int:
    """How many nodes were asked for and are not up; none without a request under way."""
    if not pending_increase or backed_off:
        return 0
    there = readiness.ready + readiness.unready + readiness.suspended + readiness.long_unregistered
    return max(0, target - there)
