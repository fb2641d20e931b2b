"""Disruption budgets in Karpenter's terms: how many nodes may be on their way out at one time."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption import schedule
from manager.autoscaler.disruption.schedule import BadSchedule, CronSchedule
from manager.autoscaler.scale_down.scale_down_context import EmptyNodeLimit, ScaleDownContext
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared import durations
from shared.errors import InvalidInput

T = TypeVar("T")

EMPTY = "empty"  # of empty nodes that scale-down removes; a limit governs them only if it names this reason
REASONS = (*(each.lower() for each in DisruptionReason), EMPTY)

_NODES = re.compile(r"([0-9]{1,9})(%?)")
_MOST_DURATION_SECONDS = 31 * 86_400.0


@dataclass(frozen=True, slots=True)
class DisruptionLimit:
    """How many of the nodes may be on their way out: `nodes`, in percent of all of them where `is_percent`.

    With a schedule it holds for `duration_seconds` from each time that the schedule begins.
    """

    text: str
    nodes: int
    is_percent: bool = False
    schedule: CronSchedule | None = None
    duration_seconds: float = 0.0
    reasons: frozenset[str] = frozenset()

    def is_active(self, now: float, reason: str) -> bool:
        if self.reasons and reason.lower() not in self.reasons:
            return False
        return self.schedule is None or self.schedule.began(now, self.duration_seconds) is not None

    def allowed(self, total: int) -> int:
        """The number of nodes, of `total`, that may be disrupted at a time; percentages round up."""
        return -(-total * self.nodes // 100) if self.is_percent else self.nodes


@dataclass(frozen=True, slots=True)
class Allowed:
    """How many nodes may go now, and the limit that decided; empty without one."""

    nodes: int
    limit: str = ""


def allowed_nodes(limits: Iterable[DisruptionLimit], total: int, unavailable: int, now: float, reason: str) -> Allowed:
    """The smallest of the limits that are active for this reason, less the nodes that are not ready or go already."""
    active = [Allowed(each.allowed(total), each.text) for each in limits if each.is_active(now, reason)]
    least = min(active, key=lambda each: each.nodes, default=Allowed(total))
    return Allowed(max(0, least.nodes - unavailable), least.limit)


def parse_limit(text: str, *, source: str, name: str) -> DisruptionLimit:
    """Such as "10%", "3" or "0;schedule=0 8 * * mon-fri;duration=10h;reasons=Underutilized+Empty".

    Raises InvalidInput.
    """

    def refused(problem: str) -> InvalidInput:
        return InvalidInput(source=source, field=name, value=text, problem=problem)

    first, *more = (part.strip() for part in text.split(";"))
    found = _NODES.fullmatch(first)
    if found is None:
        raise refused("it begins with a number of nodes, or a percentage such as 10%")
    nodes, is_percent = int(found[1]), bool(found[2])
    if is_percent and nodes > 100:
        raise refused("more than 100 percent")
    given: dict[str, str] = {}
    for part in more:
        key, _, value = (each.strip() for each in part.partition("="))
        if key not in ("schedule", "duration", "reasons") or key in given or not value:
            raise refused(f"{part!r} is none of schedule=, duration= and reasons=, each at most once")
        given[key] = value
    if ("schedule" in given) != ("duration" in given):
        raise refused("schedule and duration go together")
    reasons = frozenset(each.strip().lower() for each in given.get("reasons", "").split("+") if each.strip())
    if unknown := sorted(reasons.difference(REASONS)):
        raise refused(f"reason {unknown[0]!r} is none of {', '.join(REASONS)}")
    if "schedule" not in given:
        return DisruptionLimit(text, nodes, is_percent, reasons=reasons)
    try:
        seconds = durations.parse(given["duration"])
    except ValueError as error:
        raise refused(f"duration {given['duration']!r} is {error}") from error
    if not 60 <= seconds <= _MOST_DURATION_SECONDS:
        raise refused(f"duration {given['duration']!r} is not from 1m to {durations.render(_MOST_DURATION_SECONDS)}")
    try:
        begins = schedule.parse(given["schedule"])
    except BadSchedule as error:
        raise refused(f"schedule {given['schedule']!r}: {error}") from error
    return DisruptionLimit(text, nodes, is_percent, begins, seconds, reasons)


DEFAULT_LIMITS = (DisruptionLimit("10%", 10, is_percent=True),)


def parse_limits(texts: Iterable[str], *, source: str, name: str) -> tuple[DisruptionLimit, ...]:
    """Raises InvalidInput."""
    return tuple(parse_limit(each, source=source, name=name) for each in texts)


@dataclass(frozen=True)
class DisruptionLimits:
    """A group with `own` limits has these over its nodes; the `shared` ones hold over the nodes of all other groups."""

    shared: Sequence[DisruptionLimit] = DEFAULT_LIMITS
    own: Mapping[str, Sequence[DisruptionLimit]] = field(default_factory=dict)


@dataclass(frozen=True)
class DisruptionAllowance:
    """What the limits allow now: of the nodes of each group with `own` limits, and of all others together."""

    shared: Allowed
    own: Mapping[str, Allowed] = field(default_factory=dict)

    def of_group(self, group: str) -> Allowed:
        return self.own.get(group, self.shared)

    def cropped(self, nodes: Iterable[T], group_of: Callable[[T], str]) -> list[T]:
        """The first of the nodes, as many as may go together."""
        left = {group: each.nodes for group, each in self.own.items()}
        shared = self.shared.nodes
        found = []
        for node in nodes:
            group = group_of(node)
            if left.get(group, shared) < 1:
                continue
            if group in left:
                left[group] -= 1
            else:
                shared -= 1
            found.append(node)
        return found


def allowance(context: ScaleDownContext, limits: DisruptionLimits, reason: str) -> DisruptionAllowance:
    """How many nodes the limits allow to go now. Unready nodes do not use up the limits of their own repair, which has
    a bound of its own on how many may be unhealthy; nor do nodes that others have cordoned because of an announced
    interruption use up those of its replacement.
    """
    own: dict[str, list[NodeInfo]] = {group: [] for group in limits.own if group in context.groups}
    others: list[NodeInfo] = []
    for node in context.nodes:
        group = context.group_of.get(node.name, "")
        if group in context.groups and (node.readiness or node.state) is not NodeState.NOT_STARTED:
            own.get(group, others).append(node)

    def is_unavailable(node: NodeInfo) -> bool:
        if node.name in context.leaving:
            return True
        is_announced = reason == DisruptionReason.INTERRUPTED and node.name in context.interruptions
        is_excused = is_announced and (node.readiness or node.state) in (NodeState.READY, NodeState.CORDONED)
        return node.state is not NodeState.READY and reason != DisruptionReason.UNHEALTHY and not is_excused

    def allowed(which: Sequence[DisruptionLimit], nodes: Sequence[NodeInfo]) -> Allowed:
        return allowed_nodes(which, len(nodes), sum(map(is_unavailable, nodes)), context.now, reason)

    return DisruptionAllowance(
        allowed(limits.shared, others), {group: allowed(limits.own[group], nodes) for group, nodes in own.items()}
    )


def empty_node_limits(context: ScaleDownContext, limits: DisruptionLimits) -> tuple[EmptyNodeLimit, ...]:
    """How many empty nodes scale-down may remove now, by the limits that name the reason Empty."""

    def naming(which: Sequence[DisruptionLimit]) -> list[DisruptionLimit]:
        return [each for each in which if EMPTY in each.reasons]

    named = DisruptionLimits(naming(limits.shared), {group: naming(each) for group, each in limits.own.items()})
    found = allowance(context, named, EMPTY)
    parts = [
        (found.shared, frozenset(context.groups).difference(found.own)),
        *((each, frozenset({group})) for group, each in found.own.items()),
    ]
    return tuple(EmptyNodeLimit(groups, each.nodes, each.limit) for each, groups in parts if each.limit)
