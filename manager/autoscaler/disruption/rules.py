"""When nodes have to go, and the texts from which that is read."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption.consolidation_rules import DEFAULT_LIMITS, DisruptionLimit
from manager.autoscaler.node_groups import NodeGroup
from shared import durations
from shared.errors import InvalidInput

MOST_UNHEALTHY_PERCENT = 20  # of the nodes; beyond that something else is wrong, and no node is repaired (Karpenter's)
MOST_LIFETIME_SECONDS = 10 * 365 * 86_400.0

_CONDITION = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_./]{0,314}[A-Za-z0-9])?)=(True|False|Unknown):(.+)")
_MOST_TOLERATION_SECONDS = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """A node is unhealthy while its condition of this type has this status, and is repaired once that has lasted for
    more than `toleration_seconds`.
    """

    condition: str
    status: str
    toleration_seconds: float

    def __str__(self) -> str:
        return f"{self.condition}={self.status}"


@dataclass(frozen=True)
class DisruptionRules:
    """What makes nodes go; by default nothing does.

    `lifetimes` are those of groups that differ from `lifetime_seconds`; 0 is no limit. After `grace_seconds` of drain a
    node goes whatever protects its pods; None waits for them. `pause_seconds` lie between the end of
    one replacement and the beginning of the next. `search_seconds`: how long one search may take, while everything else
    waits.
    """

    lifetime_seconds: float = 0.0
    lifetimes: Mapping[str, float] = field(default_factory=dict)
    replaces_drifted: bool = False
    replaces_interrupted: bool = False
    repairs: tuple[RepairPolicy, ...] = ()
    grace_seconds: float | None = None
    limits: Sequence[DisruptionLimit] = DEFAULT_LIMITS
    pause_seconds: float = 60.0
    search_seconds: float = 5.0

    def lifetime_of(self, group: str, own_seconds: float | None = None) -> float:
        """In seconds; `own_seconds` is what the group's cloud says."""
        return self.lifetimes.get(group, self.lifetime_seconds) if own_seconds is None else own_seconds

    def is_on(self, reason: DisruptionReason, lifetime_seconds: float) -> bool:
        """Whether nodes of a group of this lifetime may go for this reason."""
        match reason:
            case DisruptionReason.EXPIRED:
                return lifetime_seconds > 0
            case DisruptionReason.DRIFTED:
                return self.replaces_drifted
            case DisruptionReason.INTERRUPTED:
                return self.replaces_interrupted
            case DisruptionReason.UNHEALTHY:
                return bool(self.repairs)
            case DisruptionReason.UNDERUTILIZED:
                return False


def parse_repair(text: str, *, source: str, name: str) -> RepairPolicy:
    """Such as "Ready=Unknown:30m". Raises InvalidInput."""

    def refused(problem: str) -> InvalidInput:
        return InvalidInput(source=source, field=name, value=text, problem=problem)

    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise refused("it is no condition with status and time, such as Ready=Unknown:30m (True, False or Unknown)")
    try:
        seconds = durations.parse(found[4])
    except ValueError as error:
        raise refused(f"{found[4]!r} is {error}") from error
    if not 0 <= seconds <= _MOST_TOLERATION_SECONDS:
        raise refused(f"{found[4]!r} is not from 0s to {durations.render(_MOST_TOLERATION_SECONDS)}")
    if (found[1], found[3]) == ("Ready", "True"):
        raise refused("all nodes in order have this condition")
    return RepairPolicy(found[1], found[3], seconds)


def parse_repairs(texts: Iterable[str], *, source: str, name: str) -> tuple[RepairPolicy, ...]:
    """One of each condition and status. Raises InvalidInput."""
    found: dict[str, RepairPolicy] = {}
    for text in texts:
        policy = parse_repair(text, source=source, name=name)
        if str(policy) in found:
            raise InvalidInput(source=source, field=name, value=text, problem=f"{policy} is given twice")
        found[str(policy)] = policy
    return tuple(found.values())


def lifetimes(groups: Iterable[NodeGroup], file: str) -> dict[str, float]:
    """What the node groups file says of groups that do not scale by utilization: of the others, a scan takes the old
    nodes. Raises InvalidInput.
    """
    found = {}
    for each in groups:
        if each.is_scanned or not each.max_node_age:
            continue
        try:
            seconds = durations.parse(each.max_node_age)
        except ValueError as error:
            raise _bad_age(each, file, str(error)) from error
        if not 0 <= seconds <= MOST_LIFETIME_SECONDS:
            raise _bad_age(each, file, f"not from 0s to {durations.render(MOST_LIFETIME_SECONDS)}")
        found[each.cloud_provider_group_name] = seconds
    return found


def _bad_age(group: NodeGroup, file: str, problem: str) -> InvalidInput:
    source = f"{file}: group {group.name}"
    return InvalidInput(source=source, field="max_node_age", value=group.max_node_age, problem=problem)
