"""A group's state between scans. It is in memory only: a new process starts without it.

The node itself records how long it has been tainted. This module only maps that time to today's clock, because a time
written before a clock correction belongs to another clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization.observation import GroupNode, Observation
from manager.autoscaler.utilization.rules import ScanRules
from shared.errors import InvalidInput
from shared.quantity import Resources

PATIENCE_SECONDS = 900.0  # how long a requested node counts as upcoming


def is_within(seconds: float, *, since: float | None, now: float) -> bool:
    """Whether less than `seconds` have passed.

    A clock that was set back ends the wait, so that nothing waits forever.
    """
    return since is not None and 0 <= now - since < seconds


@dataclass(frozen=True, slots=True)
class ScaleLock:
    """Held for the cool-down after a scale-up of the cloud by `nodes`. Nothing releases it earlier."""

    since: float
    nodes: int

    def is_held(self, *, now: float, cool_down_seconds: float) -> bool:
        return is_within(cool_down_seconds, since=self.since, now=now)


@dataclass(frozen=True, slots=True)
class Breaker:
    """Stops requests to a cloud that does not deliver.

    `failures` counts the scale-ups in a row after which no more instances ran than before. The last one was requested
    at `asked_at`, when `size_before` ran, to have `asked_size`. `open_until_size`: so many instances must run before
    the next request; None while the breaker is closed.
    """

    failures: int = 0
    size_before: int | None = None
    open_until_size: int | None = None
    asked_size: int | None = None
    asked_at: float | None = None

    @property
    def is_open(self) -> bool:
        return self.open_until_size is not None

    def observe_size(self, *, size: int, target: int, now: float) -> "Breaker":
        """The breaker after an observation of `size` running instances.

        A cloud that has given up, and so has nothing left to deliver, gets one more try after a while, which decides.
        """
        if self.open_until_size is None:
            return self
        if size >= self.open_until_size:
            return Breaker()
        waits = size < target or is_within(PATIENCE_SECONDS, since=self.asked_at, now=now)
        return self if waits else Breaker(self.failures)

    def before_increase(self, *, size: int, most_failures: int) -> "Breaker":
        """Judges the last increase when the next one is wanted; opens if that was one failure too many.

        It compares with the requested size, because a cloud that gives up lowers its target again.
        """
        if not most_failures or self.is_open or self.size_before is None or self.asked_size is None:
            return self
        failed = size <= self.size_before and size < self.asked_size
        failures = self.failures + 1 if failed else 0
        is_too_many = failures >= most_failures
        return replace(self, failures=failures, open_until_size=self.asked_size if is_too_many else None)

    def increased(self, *, size: int, asked_size: int, now: float) -> "Breaker":
        return Breaker(self.failures, size, self.open_until_size, asked_size, now)

    def deleted(self, count: int) -> "Breaker":
        """Accounts for nodes that were deleted on purpose, which are not missing."""
        if self.size_before is None or self.asked_size is None:
            return self
        return replace(self, size_before=self.size_before - count, asked_size=self.asked_size - count)


@dataclass(frozen=True, slots=True)
class Awaited:
    """`nodes` requested nodes are not present; none has come since `since`."""

    since: float
    nodes: int

    def is_late(self, nodes: int, *, now: float) -> bool:
        """Whether just as many are still missing after so long that they no longer count as upcoming."""
        return nodes == self.nodes and not is_within(PATIENCE_SECONDS, since=self.since, now=now)


@dataclass(frozen=True, slots=True)
class Mark:
    """A node's taint: the time that it `says`, and the time `since` when it is there on the present clock."""

    says: float
    since: float


@dataclass(frozen=True, slots=True)
class Memory:
    """`node_size` is the allocatable of the first node seen last; `scaled_out_at` is since when nodes are wanted, if
    any.

    `dry_tainted` are the nodes that would have been tainted, in that order. `untainted_at` and `marks` are by node.
    """

    lock: ScaleLock | None = None
    awaited: Awaited | None = None
    node_size: Resources = field(default_factory=Resources)
    scaled_out_at: float | None = None
    tainted_at: float | None = None
    untainted_at: Mapping[str, float] = field(default_factory=dict)
    dry_tainted: tuple[str, ...] = ()
    dry_force_tainted: tuple[str, ...] = ()
    breaker: Breaker = field(default_factory=Breaker)
    marks: Mapping[str, Mark] = field(default_factory=dict)


def shifted(memory: Memory, seconds: float) -> Memory:
    """The memory after a clock jump of `seconds`: all ages stay the same."""

    def moved(moment: float | None) -> float | None:
        return None if moment is None else moment + seconds

    lock, awaits, breaker = memory.lock, memory.awaited, memory.breaker
    return replace(
        memory,
        lock=None if lock is None else replace(lock, since=lock.since + seconds),
        awaited=None if awaits is None else replace(awaits, since=awaits.since + seconds),
        scaled_out_at=moved(memory.scaled_out_at),
        tainted_at=moved(memory.tainted_at),
        untainted_at={name: at + seconds for name, at in memory.untainted_at.items()},
        breaker=replace(breaker, asked_at=moved(breaker.asked_at)),
        marks={name: replace(mark, since=mark.since + seconds) for name, mark in memory.marks.items()},
    )


def marks_on(nodes: Iterable[GroupNode], before: Mapping[str, Mark], *, now: float) -> dict[str, Mark]:
    """The taint times of the nodes.

    A taint from the future was written by a clock that was ahead, and counts from its first observation: it would
    otherwise keep its node for as long as that clock was ahead.
    """
    found = {}
    for node in nodes:
        try:
            says = taints.tainted_at(node.taints, node=node.name)
        except InvalidInput:
            continue
        if says is not None:
            known = before.get(node.name)
            found[node.name] = known if known is not None and known.says == says else Mark(says, min(says, now))
    return found


def marks_put(nodes: Iterable[GroupNode], *, now: float) -> dict[str, Mark]:
    """The taint times of nodes that were tainted now."""
    at = float(int(now))
    return {node.name: Mark(at, at) for node in nodes}


def dated(seen: Observation, marks: Mapping[str, Mark]) -> Observation:
    """The observation with its taint times converted to the present clock."""
    off = {name: mark.since for name, mark in marks.items() if mark.since != mark.says}
    if not off:
        return seen
    return replace(
        seen,
        nodes=tuple(
            replace(node, taints=taints.with_scan_time(node.taints, at=off[node.name])) if node.name in off else node
            for node in seen.nodes
        ),
    )


def taken_over(seen: Observation, *, now: float) -> Memory:
    """The memory of a new process: a lock for the nodes that the cloud has not delivered yet."""
    if seen.unlisted or not seen.missing:
        return Memory()
    return Memory(lock=ScaleLock(now, seen.missing))


def awaited(before: Awaited | None, seen: Observation, *, asked: int, now: float) -> Awaited | None:
    """The missing nodes after a scan that requested `asked` more."""
    missing = max(0, seen.cloud.target_size + asked - len(seen.nodes))
    if before is not None and missing == before.nodes and not asked:
        return before
    return Awaited(now, missing) if missing else None


def lock_state(rules: ScanRules, memory: Memory, *, now: float) -> bool:
    return memory.lock is not None and memory.lock.is_held(now=now, cool_down_seconds=rules.cool_down_seconds)
