"""The options of consolidation, and disruption budgets in Karpenter's terms."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption import schedule
from manager.autoscaler.disruption.schedule import BadSchedule, CronSchedule
from shared import durations
from shared.errors import InvalidInput

EMPTY = "empty"  # Karpenter's, whose budgets may name it; scale-down removes empty nodes by its own rules
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

    def is_active(self, now: float, reason: DisruptionReason) -> bool:
        if self.reasons and reason.lower() not in self.reasons:
            return False
        return self.schedule is None or self.schedule.began(now, self.duration_seconds) is not None

    def allowed(self, total: int) -> int:
        """Of so many nodes; percentages round up."""
        return -(-total * self.nodes // 100) if self.is_percent else self.nodes


@dataclass(frozen=True, slots=True)
class Allowed:
    """How many nodes may go now, and the limit that decided; empty without one."""

    nodes: int
    limit: str = ""


def allowed_nodes(
    limits: Iterable[DisruptionLimit], total: int, unavailable: int, now: float, reason: DisruptionReason
) -> Allowed:
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


@dataclass(frozen=True, slots=True)
class ConsolidationRules:
    """A replacement saves at least `min_savings_percent` of what the nodes cost that go, and its share of the savings
    is at least `balance` times its share of the disruption.

    `spot_alternatives`: so many groups must offer a saving before spot nodes are bought, or replaced: one alone may
    be gone tomorrow. `look_seconds`: how long the second look may go on refusing; `drain_seconds`: how long the old
    nodes may take to go, from one to the next; `search_seconds`: how long one search may take,
    while everything else waits.
    """

    min_savings_percent: float = 10.0
    balance: float = 0.5
    min_age_seconds: float = 1800.0
    cooldown_seconds: float = 600.0
    limits: Sequence[DisruptionLimit] = field(default=DEFAULT_LIMITS)
    spot_alternatives: int = 15
    look_seconds: float = 900.0
    drain_seconds: float = 1800.0
    search_seconds: float = 5.0
