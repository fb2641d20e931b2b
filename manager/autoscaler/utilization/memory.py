"""What a group's next scan must know of those before: in memory only, a new process begins without it.

How long a node has been tainted is not here but on the node. Here is only which time of today's clock that is: what was
written before the clock was corrected is of another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from manager.autoscaler import taints
from manager.autoscaler.utilization.observation import GroupNode, Observation
from manager.autoscaler.utilization.rules import ScanRules
from shared.errors import InvalidInput
from shared.quantity import Resources

PATIENCE_SECONDS = 900.0  # for so long what a cloud was asked for counts as on its way


def is_within(seconds: float, *, since: float | None, now: float) -> bool:
    """Whether so much time is not over yet. A clock that was set back ends it, so that nothing waits for ever."""
    return since is not None and 0 <= now - since < seconds


@dataclass(frozen=True, slots=True)
class ScaleLock:
    """Held after a scale-up of the cloud by so many nodes, for the cool-down. Nothing lets go of it earlier."""

    since: float
    nodes: int

    def is_held(self, *, now: float, cool_down_seconds: float) -> bool:
        return is_within(cool_down_seconds, since=self.since, now=now)


@dataclass(frozen=True, slots=True)
class Breaker:
    """Stops asking a cloud that does not deliver.

    `failures`: scale-ups in a row after which no more instances ran than before. The last one was asked for at
    `asked_at`, when `size_before` ran, to have `asked_size`. `open_until_size`: so many must run until the cloud is
    asked again; None while it is closed.
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
        """With so many instances running.

        A cloud that has given up, and so has nothing left to bring, is tried once more after a while: that one decides.
        """
        if self.open_until_size is None:
            return self
        if size >= self.open_until_size:
            return Breaker()
        waits = size < target or is_within(PATIENCE_SECONDS, since=self.asked_at, now=now)
        return self if waits else Breaker(self.failures)

    def before_increase(self, *, size: int, most_failures: int) -> "Breaker":
        """Judges the last increase as the next one is wanted; open when that was one failure too many.

        It goes by what was asked for, as the target of a cloud that gives up is as low as before.
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
        """With so many nodes fewer that were taken away on purpose, and are not missing."""
        if self.size_before is None or self.asked_size is None:
            return self
        return replace(self, size_before=self.size_before - count, asked_size=self.asked_size - count)


@dataclass(frozen=True, slots=True)
class Awaited:
    """So many nodes that the cloud was asked for are not there; none of them has come `since` then."""

    since: float
    nodes: int

    def is_late(self, nodes: int, *, now: float) -> bool:
        """Whether as many are missing still, so long after, that nobody should count on them."""
        return nodes == self.nodes and not is_within(PATIENCE_SECONDS, since=self.since, now=now)


@dataclass(frozen=True, slots=True)
class Mark:
    """A node's taint: the time that it `says`, and `since` when it is there by the clock as it goes now."""

    says: float
    since: float


@dataclass(frozen=True, slots=True)
class Memory:
    """`node_size` is what the first node seen last can give; `scaled_out_at` since when nodes are wanted, if they are.

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
    """After the clock has jumped by so much: what was ten seconds ago still was."""

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
    """The marks of nodes as they are. One from a time to come was written by a clock that was ahead, and counts from
    when it was first seen: it would keep its node for as long as that clock was ahead.
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
    """The marks of nodes that were tainted now."""
    at = float(int(now))
    return {node.name: Mark(at, at) for node in nodes}


def dated(seen: Observation, marks: Mapping[str, Mark]) -> Observation:
    """The same, whose taints say what the marks of its nodes come to by the clock as it goes now."""
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


def taken_over(rules: ScanRules, seen: Observation, *, now: float) -> Memory:
    """The memory of a process that begins."""
    if seen.unlisted or not rules.fixes.takes_over or not seen.missing:
        return Memory()
    return Memory(lock=ScaleLock(now, seen.missing))


def awaited(before: Awaited | None, seen: Observation, *, asked: int, now: float) -> Awaited | None:
    """What is missing after a scan that asked for so many nodes more."""
    missing = max(0, seen.cloud.target_size + asked - len(seen.nodes))
    if before is not None and missing == before.nodes and not asked:
        return before
    return Awaited(now, missing) if missing else None
