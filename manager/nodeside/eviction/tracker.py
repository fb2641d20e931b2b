"""Tracks since when nodes have shortfalls, and which conditions about them and implausible NodeMetrics are due."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from manager.nodeside.eviction import condition, shortfall
from manager.nodeside.eviction.condition import FALSE, TYPES, Notice, Said
from manager.nodeside.eviction.shortfall import Cause, Shortfall
from manager.nodeside.noderesource.explain import Decision
from manager.pods import PodRecord
from shared import names
from shared.api.colocation import NodeStrategy
from shared.api.core import Node
from shared.clock import Clock
from shared.names import Tier

logger = logging.getLogger(__name__)

# A shortfall ends after so long without one: one that comes and goes is reported once.
CALM_SECONDS = 60.0
# How old the numbers in a message may be, since every update is a write; misleading ones only so old.
MESSAGE_SECONDS = 300.0
MOVED_SECONDS = 60.0
# Longer than a write takes to come back through the watch.
ECHO_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TrackedShortfall:
    """A shortfall of one node and tier under `decision`, and since when (monotonic) it has the same cause.

    `began` is that time in Unix seconds, for people; `eviction_seconds` is the strategy's.
    """

    node: str
    tier: Tier
    shortfall: Shortfall
    decision: Decision
    since: float
    began: float | None
    eviction_seconds: int | None

    @property
    def patience_seconds(self) -> int | None:
        """The time before pods are evicted; None for causes other than a certain one."""
        return self.eviction_seconds if self.shortfall.cause is Cause.SHRUNK else None


@dataclass(frozen=True, slots=True)
class _Last:
    """What this process last wrote into one condition of a node, and when (monotonic)."""

    said: Said
    at: float

    def is_outdated(self, wanted: Said, now: float) -> bool:
        """Whether it is time to write it again."""
        return now - self.at >= (MOVED_SECONDS if self.said.misleads(wanted) else MESSAGE_SECONDS)


_NOTHING: Mapping[Tier, TrackedShortfall] = {}


class Tracker:
    """Takes every decision about a node from the deciding thread; all threads may read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tracked: dict[str, Mapping[Tier, TrackedShortfall]] = {}
        self._calm_since: dict[str, Mapping[str, float]] = {}  # by node, and by condition type
        self._last: dict[str, Mapping[str, _Last]] = {}

    def track(
        self, node: Node, strategy: NodeStrategy | None, decision: Decision, pods: Iterable[PodRecord]
    ) -> Notice | None:
        """Takes the decision about a node with these pods; returns the conditions due on it, if any."""
        name, now = node.metadata.name, self._clock.monotonic()
        found = shortfall.find(decision, pods)
        before, current = self._tracked.get(name, _NOTHING), {}
        for tier, each in found.items():
            old = before.get(tier)
            since, began = now, self._clock.now()
            if old is not None and old.shortfall.cause is each.cause:
                since, began = old.since, old.began or began
            else:
                logger.info("%s is short, %s: %s", tier, each.cause, each.reason, extra={"node": name})
            after = strategy.strategy.eviction_seconds(tier) if strategy else None
            current[tier] = TrackedShortfall(name, tier, each, decision, since, began, after)
        if current:
            self._tracked[name] = current
        else:
            self._tracked.pop(name, None)
        return None if decision.hold else self._notice(node, decision, current, now)

    def record_notice(self, notice: Notice) -> None:
        """The conditions were written."""
        now = self._clock.monotonic()
        name, said = notice.node.metadata.name, {type_: _Last(said, now) for type_, said in notice.said.items()}
        self._last[name] = {**self._last.get(name, {}), **said}

    def shortfalls_of(self, name: str) -> Mapping[Tier, TrackedShortfall]:
        """The shortfalls of one node."""
        return self._tracked.get(name, _NOTHING)

    def all(self) -> list[TrackedShortfall]:
        """All present shortfalls, the longest first."""
        return sorted((each for of in list(self._tracked.values()) for each in of.values()), key=lambda one: one.since)

    def overdue(self, within_seconds: float = 0.0) -> list[TrackedShortfall]:
        """The shortfalls for which pods are to be evicted now, or within this time, the longest first."""
        now = self._clock.monotonic() + within_seconds
        return [
            each
            for each in self.all()
            if each.patience_seconds is not None and now - each.since >= each.patience_seconds
        ]

    def due(self) -> set[str]:
        """The nodes whose conditions are due because of elapsed time alone."""
        now = self._clock.monotonic()
        calm = list(self._calm_since.items())
        return {name for name, since in calm if now - min(since.values()) >= CALM_SECONDS}

    def restart(self) -> None:
        """Restarts all times, for a process that has not watched meanwhile."""
        now = self._clock.monotonic()
        for name, of in list(self._tracked.items()):
            self._tracked[name] = {tier: replace(each, since=now) for tier, each in of.items()}

    def forget(self, name: str) -> None:
        """The node no longer exists."""
        self._tracked.pop(name, None)
        self._calm_since.pop(name, None)
        self._last.pop(name, None)

    def _notice(
        self, node: Node, decision: Decision, current: Mapping[Tier, TrackedShortfall], now: float
    ) -> Notice | None:
        name = node.metadata.name
        calm_since, last = self._calm_since.get(name, {}), self._last.get(name, {})
        if not (current or decision.contradiction or calm_since or last or node.status.conditions):
            return None  # as for most nodes at all times
        said, turned, still_calm = {}, set(), {}
        for type_, trouble in _troubles(decision, current):
            before = _said_before(node, type_, last.get(type_), now)
            if trouble is not None:
                wanted = trouble
            elif before is None or before.status == FALSE:
                continue
            else:
                still_calm[type_] = since = calm_since.get(type_, now)
                if now - since < CALM_SECONDS:
                    continue  # it may only have paused
                wanted = condition.ENDS[type_]
            if before is None or (before.status, before.reason) != (wanted.status, wanted.reason):
                turned.add(type_)
            elif before == wanted or (type_ in last and not last[type_].is_outdated(wanted, now)):
                continue
            said[type_] = wanted
        if still_calm:
            self._calm_since[name] = still_calm
        else:
            self._calm_since.pop(name, None)
        return Notice(node, said, frozenset(turned)) if said else None


def _troubles(decision: Decision, current: Mapping[Tier, TrackedShortfall]) -> Iterator[tuple[str, Said | None]]:
    """The content of each condition; None where there is no problem."""
    for tier in decision.offers:
        tracked = current.get(tier)
        yield (
            TYPES[tier],
            None
            if tracked is None
            else condition.describe(tracked.shortfall, patience_seconds=tracked.patience_seconds),
        )
    mid = decision.offers.get(Tier.MID)
    if mid is not None and not mid.is_degraded:  # a report that does not count says nothing
        contradiction = decision.contradiction
        yield names.CONDITION_CONTRADICTION, condition.of_contradiction(contradiction) if contradiction else None


def _said_before(node: Node, type_: str, last: _Last | None, now: float) -> Said | None:
    """The Node's present condition, or the one it will show once our own last write has come back."""
    if last is not None and now - last.at < ECHO_SECONDS:
        return last.said
    found = condition.find(node, type_)
    return None if found is None else Said(found.status, found.reason, found.message)
