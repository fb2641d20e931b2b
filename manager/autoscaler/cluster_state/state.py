"""The state of every group: present, upcoming, missing and failed nodes, requests, backoffs, and incidents.

`reconciliation.reconcile` computes it, from one observation and the `registry` of earlier requests. Health and backoff
are Cluster Autoscaler's rules: a failure during a backoff restarts it with the same duration; a failure after its end
doubles the duration, up to a limit; a group without a failure for long enough starts again.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.contract import Group, GroupOptions, GroupSpec, Instance, InstanceError
from manager.autoscaler.settings.estimates import BackoffTimes, HealthLimits
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.cluster import NodeTemplate


@dataclass(frozen=True, slots=True)
class Readiness:
    """The number of nodes of one group by state.

    `suspended` ones are not ready because the cloud takes them; `unregistered` ones have no Node yet,
    `long_unregistered` for too long.
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


def bears(limits: HealthLimits, *, unready: int, total: int) -> bool:
    """Whether `unready` of `total` nodes still count as healthy."""
    return unready <= limits.ok_total_unready_count or unready * 100 <= limits.max_total_unready_percentage * total


def is_group_healthy(
    readiness: Readiness | None, *, target: int, least: int, acceptable: AcceptableRange, limits: HealthLimits
) -> bool:
    """Whether all missing or unready nodes of the group can be explained, within the limits."""
    if readiness is None:
        return target == 0 or least == 0
    unjustified = max(0, acceptable.low - readiness.ready - readiness.suspended)
    return bears(limits, unready=unjustified, total=readiness.registered)


def upcoming_nodes(readiness: Readiness, *, target: int, pending_increase: int | None) -> int:
    """The number of requested nodes that are not up; none without a request under way."""
    if not pending_increase:
        return 0
    there = readiness.ready + readiness.unready + readiness.suspended + readiness.long_unregistered
    return max(0, target - there)


@dataclass(frozen=True, slots=True)
class GroupBackoff:
    """One group's backoff: the reason, the last failure, the duration, and the inclusive end.

    `code` is the failure in one word. `ended`: its end has been reported.
    """

    reason: str
    failed_at: float
    seconds: float
    until: float
    code: str = ""
    ended: bool = False

    def is_forgotten(self, times: BackoffTimes, now: float) -> bool:
        """Whether the group has gone without a failure for so long that it starts again."""
        return self.failed_at + times.node_group_backoff_reset_timeout_seconds < now

    def holds(self, now: float) -> bool:
        """Whether the backoff is in effect; its end is inclusive."""
        return now <= self.until


def next_backoff(
    before: GroupBackoff | None, times: BackoffTimes, now: float, reason: str, code: str = ""
) -> GroupBackoff:
    """The backoff after a failure now; `before` is the previous backoff."""
    seconds = times.initial_node_group_backoff_duration_seconds
    if before is not None:
        seconds = (
            before.seconds
            if before.holds(now)
            else min(before.seconds * 2, times.max_node_group_backoff_duration_seconds)
        )
    return GroupBackoff(reason, now, seconds, now + seconds, code)


@dataclass(frozen=True, slots=True)
class OptionRefusal:
    """kube-scheduler refused pods on an empty, ready node of a group, although our predicates allow them there.

    `pods` is the digest of such pods and `example` one of them; `groups` are the group and the candidate that it was
    created from; `template` is the digest of the template. It is in effect from `at` until `until`, in Unix seconds,
    and the `times`-th in a row.
    """

    pods: str
    example: str
    groups: tuple[str, ...]
    template: str
    node: str
    message: str
    at: float
    until: float
    times: int = 1


@dataclass(frozen=True)
class Increase:
    """A new target of one group."""

    group: str
    from_size: int
    to_size: int
    max_size: int

    @property
    def nodes(self) -> int:
        return self.to_size - self.from_size

    def __str__(self) -> str:
        return f"{self.group} {self.from_size}->{self.to_size} (max: {self.max_size})"


@dataclass(frozen=True)
class ScaleUpRequest:
    """An increase under way: `nodes` nodes since `started_at`, given up at `deadline`, in Unix seconds.

    `to_size` is the requested target, less the nodes that have failed since.
    """

    group: str
    nodes: int
    started_at: float
    deadline: float
    to_size: int = 0


class IncidentKind(enum.StrEnum):
    """The result of an increase, the end of a group's backoff, or what the cloud has noticed (see `NoticeKind`)."""

    REGISTERED = "registered"  # all requested nodes are up
    TIMED_OUT = "timed out"  # `nodes` of them did not come in time
    TAKEN_BACK = "taken back"  # nothing is upcoming any more, and the target is below the requested one
    CREATION_FAILED = "creation failed"  # the cloud could not make `nodes` of them, with `error`
    BACKOFF_ENDED = "backoff ended"  # the group may grow again
    DELETED_BY_OTHERS = "deleted by others"  # `nodes` go that were not to be deleted; `message` says which, and why
    DELAYED = "delayed"  # `nodes` of an increase are not asked for yet; `message` says what for


@dataclass(frozen=True)
class Incident:
    """Reported once, when first seen. `seconds` since the increase was requested, or the duration of a backoff."""

    kind: IncidentKind
    group: str
    nodes: int = 0
    seconds: float = 0.0
    error: InstanceError | None = None
    message: str = ""


@dataclass(frozen=True)
class GroupStatus:
    """One managed group, or one with a `spec` that does not exist yet. `nodes` names the registered nodes.

    `unregistered` maps the instances without a Node to the time since when they have none; `overdue` are those without
    one for longer than `provision_seconds`. `broken` instances could not be made. `staying` counts what is present, or
    upcoming, of the target, `leaving` what the cloud deletes.

    The registry says the rest: `upcoming` nodes were requested and are not up yet; the target size that the cloud
    reports lacks the `unconfirmed` ones among them.

    The context of an iteration adds the `template` of new nodes, and in `blocked_reason` why the group must not grow in
    any case. `makes` is the number of groups that its creation adds.
    """

    group: Group
    mode: Mode = Mode.ENFORCE
    readiness: Readiness = Readiness()
    acceptable: AcceptableRange = AcceptableRange(0, 0, 0)
    healthy: bool = True
    upcoming: int = 0
    unconfirmed: int = 0
    request: ScaleUpRequest | None = None
    backoff: GroupBackoff | None = None
    options: GroupOptions = field(default_factory=GroupOptions)
    nodes: tuple[str, ...] = ()
    provision_seconds: float = 0.0
    unregistered: Mapping[str, float] = field(default_factory=dict)
    overdue: tuple[str, ...] = ()
    broken: tuple[Instance, ...] = ()
    leaving: int = 0
    staying: int = 0
    template: NodeTemplate | None = None
    blocked_reason: str = ""
    spec: GroupSpec | None = None
    makes: int = 1

    @property
    def id(self) -> str:
        return self.group.id

    @property
    def exists(self) -> bool:
        return self.spec is None

    @property
    def zero_or_max(self) -> bool:
        """Whether the group has all of its nodes or none."""
        return bool(self.options.zero_or_max_node_scaling)

    @property
    def room(self) -> int:
        """The number of nodes up to its own maximum; negative if the group exceeds it."""
        return max(0, self.group.max_size - self.group.target_size)

    @property
    def least_step(self) -> int:
        """The fewest nodes it can grow by."""
        return self.room if self.zero_or_max else 1

    @property
    def errors(self) -> tuple[InstanceError, ...]:
        """Why instances could not be made."""
        return tuple(each.error for each in self.broken if each.error is not None)

    @property
    def target(self) -> int:
        return self.group.target_size

    @property
    def missing(self) -> int:
        """Nodes of the target without an instance."""
        return max(0, self.target - self.staying)

    @property
    def booting(self) -> int:
        """Nodes that are known to be starting."""
        return self.readiness.unregistered + self.readiness.not_started

    @property
    def up(self) -> int:
        return self.readiness.ready + self.readiness.unready + self.readiness.suspended

    @property
    def outstanding(self) -> int:
        """Nodes of the target that may still come up."""
        return max(0, self.target - self.up - len(self.broken))

    @property
    def returnable(self) -> int:
        """The number of missing nodes that may be taken off the target without falling below the minimum."""
        return min(self.missing, max(0, self.target - self.group.min_size))


@dataclass(frozen=True)
class ClusterState:
    """The managed groups by id.

    `refused` gives the reason for each group that cannot be judged; `ungrouped` nodes are in no group. `readiness`
    counts the nodes of the whole cluster.
    """

    groups: Mapping[str, GroupStatus] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    unmanaged: frozenset[str] = frozenset()
    ungrouped: tuple[str, ...] = ()
    readiness: Readiness = field(default_factory=Readiness)
    healthy: bool = True
