"""Since when which nodes are short of what their pods hold, and what is due to be said about it, and about NodeMetrics
that cannot be right.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from manager.eviction import condition, shortfall
from manager.eviction.condition import FALSE, TYPES, Notice, Said
from manager.eviction.shortfall import Cause, Shortfall
from manager.noderesource.explain import Decision
from manager.pods import PodRecord
from shared import names
from shared.api.colocation import NodeStrategy
from shared.api.core import Node
from shared.clock import Clock
from shared.names import Tier

logger = logging.getLogger(__name__)

# A shortfall counts as over when there has been none for so long: one that comes and goes is said once.
CALM_SECONDS = 60.0
# The numbers in what is said may be so old, as each change of them would be a write; those that mislead only so old.
MESSAGE_SECONDS = 300.0
MOVED_SECONDS = 60.0
# Longer than a write takes to come back through the watch.
ECHO_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TrackedShortfall:
    """A shortfall of one node and tier by `decision`, and since when (monotonic) there is one for the same cause.

    `began` is that in Unix seconds, for people; `eviction_seconds` is the strategy's.
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
        """After how long pods are evicted; never but for a cause that leaves no doubt."""
        return self.eviction_seconds if self.shortfall.cause is Cause.SHRUNK else None


@dataclass(frozen=True, slots=True)
class _Last:
    """What this process last said by one condition of a node, and when (monotonic)."""

    said: Said
    at: float

    def is_outdated(self, wanted: Said, now: float) -> bool:
        """Whether it is time to say it anew."""
        return now - self.at >= (MOVED_SECONDS if self.said.misleads(wanted) else MESSAGE_SECONDS)


_NOTHING: Mapping[Tier, TrackedShortfall] = {}


class Tracker:
    """Told of every look at a node by the thread that looks; read by all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tracked: dict[str, Mapping[Tier, TrackedShortfall]] = {}
        self._calm_since: dict[str, Mapping[str, float]] = {}  # by node, and by condition type
        self._last: dict[str, Mapping[str, _Last]] = {}

    def looked(
        self, node: Node, strategy: NodeStrategy | None, decision: Decision, pods: Iterable[PodRecord]
    ) -> Notice | None:
        """Takes in what was decided about a node with these pods; what is to be said about it now, if anything."""
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

    def noticed(self, notice: Notice) -> None:
        """It was said."""
        now = self._clock.monotonic()
        name, said = notice.node.metadata.name, {type_: _Last(said, now) for type_, said in notice.said.items()}
        self._last[name] = {**self._last.get(name, {}), **said}

    def of(self, name: str) -> Mapping[Tier, TrackedShortfall]:
        """The shortfalls of one node."""
        return self._tracked.get(name, _NOTHING)

    def all(self) -> list[TrackedShortfall]:
        """All shortfalls there are, the longest first."""
        return sorted((each for of in list(self._tracked.values()) for each in of.values()), key=lambda one: one.since)

    def overdue(self) -> list[TrackedShortfall]:
        """Those for which pods are to be evicted by now, the longest first."""
        now = self._clock.monotonic()
        return [
            each
            for each in self.all()
            if each.patience_seconds is not None and now - each.since >= each.patience_seconds
        ]

    def due(self) -> set[str]:
        """The nodes for which time alone made something due to be said."""
        now = self._clock.monotonic()
        calm = list(self._calm_since.items())
        return {name for name, since in calm if now - min(since.values()) >= CALM_SECONDS}

    def restart(self) -> None:
        """Lets every time begin anew, for a process that has not watched meanwhile."""
        now = self._clock.monotonic()
        for name, of in list(self._tracked.items()):
            self._tracked[name] = {tier: replace(each, since=now) for tier, each in of.items()}

    def forget(self, name: str) -> None:
        """The node is gone."""
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
    """What each condition is to say; None where there is nothing to complain of."""
    for tier in decision.offers:
        tracked = current.get(tier)
        yield (
            TYPES[tier],
            None if tracked is None else condition.of(tracked.shortfall, patience_seconds=tracked.patience_seconds),
        )
    mid = decision.offers.get(Tier.MID)
    if mid is not None and not mid.is_degraded:  # of a report that does not count nothing is known
        contradiction = decision.contradiction
        yield names.CONDITION_CONTRADICTION, condition.of_contradiction(contradiction) if contradiction else None


def _said_before(node: Node, type_: str, last: _Last | None, now: float) -> Said | None:
    """What the Node says now, or will once our own last write has come back."""
    if last is not None and now - last.at < ECHO_SECONDS:
        return last.said
    found = condition.on(node, type_)
    return None if found is None else Said(found.status, found.reason, found.message)
