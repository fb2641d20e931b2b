"""What a group's next scan must know of those before: in memory only, a new process begins without it.

How long a node has been tainted is not here but on the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.utilization.observation import Observation
from manager.autoscaler.utilization.rules import Rules
from shared.quantity import Resources


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

    `failures`: scale-ups in a row after which no more instances ran than before, `size_before` the last one.
    `open_until_size`: so many must run, or all that are still wanted of the cloud, until it is asked again; None while
    it is closed.
    """

    failures: int = 0
    size_before: int | None = None
    open_until_size: int | None = None

    @property
    def is_open(self) -> bool:
        return self.open_until_size is not None

    def seen(self, *, size: int, target: int) -> "Breaker":
        """With so many instances running."""
        if self.open_until_size is not None and size >= min(self.open_until_size, target):
            return Breaker()
        return self

    def before_increase(self, *, size: int, target: int, most_failures: int) -> "Breaker":
        """Judges the last increase as the next one is wanted; open when that was one failure too many."""
        if not most_failures or self.is_open:
            return self
        failed = self.size_before is not None and size <= self.size_before and size < target
        failures = self.failures + 1 if failed else 0
        return Breaker(failures, self.size_before, target if failures >= most_failures else None)

    def increased(self, *, size: int) -> "Breaker":
        return Breaker(self.failures, size, self.open_until_size)


@dataclass(frozen=True, slots=True)
class Memory:
    """`node_size` is what the first node seen last can give; `last_delta` what the last scan wanted.

    `dry_tainted` are the nodes that would have been tainted, in that order. `untainted_at` by node.
    """

    lock: ScaleLock | None = None
    node_size: Resources = field(default_factory=Resources)
    last_delta: int = 0
    scaled_out_at: float | None = None
    tainted_at: float | None = None
    untainted_at: Mapping[str, float] = field(default_factory=dict)
    dry_tainted: tuple[str, ...] = ()
    dry_force_tainted: tuple[str, ...] = ()
    breaker: Breaker = field(default_factory=Breaker)


def taken_over(rules: Rules, seen: Observation, *, now: float) -> Memory:
    """The memory of a process that begins."""
    on_its_way = seen.cloud.target_size - len(seen.nodes)
    if seen.unlisted or not rules.fixes.takes_over or on_its_way <= 0:
        return Memory()
    return Memory(lock=ScaleLock(now, on_its_way))
