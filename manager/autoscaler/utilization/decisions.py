"""What one scan of one group decided, with all that led to it. Nothing here acts."""

import enum
from dataclasses import dataclass, field

from manager.autoscaler.utilization.arithmetic import GroupUtilization
from manager.autoscaler.utilization.classes import Classes
from manager.autoscaler.utilization.memory import Breaker
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.reaping import Reaping
from shared.quantity import Resources


class ScanRule(enum.StrEnum):
    """What set how many nodes more, or fewer, are wanted."""

    NOTHING_THERE = "neither nodes nor pods"
    BELOW_MIN = "below the minimum"
    LOCKED = "a scale-up is under way"
    ON_ITS_WAY = "as many nodes as are wanted are on their way"
    FAST_REMOVAL = "below the lower threshold"
    SLOW_REMOVAL = "below the upper threshold"
    SCALE_UP = "above the scale-up threshold"
    ENOUGH = "between the thresholds"
    STARVING = "a pod is larger than what any node has left"
    TOO_OLD = "a node is too old"
    ABOVE_MAX = "above the maximum"
    UNHEALTHY = "too many new nodes are unhealthy"
    COOLING_DOWN = "nodes were tainted a short time ago"


@dataclass(frozen=True, slots=True)
class ScanStep:
    """One rule that had a say, and what was wanted after it."""

    rule: ScanRule
    delta: int


@dataclass(frozen=True, slots=True)
class Picks:
    """The first `count` of the candidates; one that cannot be written is passed over, and the next one taken."""

    candidates: tuple[GroupNode, ...] = ()
    count: int = 0

    @property
    def planned(self) -> tuple[GroupNode, ...]:
        return self.candidates[: self.count]


@dataclass(frozen=True, slots=True)
class Fullness:
    """What the thresholds were held against: demand on the capacity of untainted nodes."""

    requested: Resources = field(default_factory=Resources)
    demand: Resources = field(default_factory=Resources)
    capacity: Resources = field(default_factory=Resources)
    utilization: GroupUtilization | None = None


@dataclass(frozen=True, slots=True)
class ScanThresholds:
    """In percent: below `lower` a group loses nodes fast, below `upper` slowly, above `scale_up` it grows."""

    lower: int = 0
    upper: int = 0
    scale_up: int = 0


@dataclass(frozen=True)
class ScanDecision:
    """`delta` is what is wanted, before clamps, and what Escalator reports; `error` why the scan came to nothing.

    To do, in this order: taint `health_taints`, delete what `forced` says, then what `reaped` says, drain `drains`, and
    either `taint`, or `untaint` and have the cloud's target raised by `increase`, by no more than `most_increase`.
    `refusals` are what of it cannot be done. In a `dry` one nothing is. `healthy` is None where it was not checked.
    `arrived` are nodes made since the scale-up whose lock ended.
    """

    group: str
    delta: int = 0
    error: str = ""
    steps: tuple[ScanStep, ...] = ()
    classes: Classes = field(default_factory=Classes)
    fullness: Fullness = field(default_factory=Fullness)
    health_taints: tuple[GroupNode, ...] = ()
    forced: Reaping = field(default_factory=Reaping)
    reaped: Reaping = field(default_factory=Reaping)
    taint: Picks = Picks()
    untaint: Picks = Picks()
    increase: int = 0
    most_increase: int = 0
    refusals: tuple[str, ...] = ()
    healthy: bool | None = None
    arrived: tuple[GroupNode, ...] = ()
    locked: bool = False
    dry: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    thresholds: ScanThresholds = ScanThresholds()

    @property
    def deletions(self) -> tuple[GroupNode, ...]:
        return (*self.forced.nodes, *self.reaped.nodes)

    def increase_after(self, untainted: int) -> int:
        """By how much the cloud's target is to be raised when only so many nodes could be untainted."""
        return min(self.increase + self.untaint.count - untainted, self.most_increase)

    @property
    def drains(self) -> tuple[GroupNode, ...]:
        """Nodes whose pods are to be evicted, and that are deleted by the scan that finds them empty."""
        return self.reaped.draining

    @property
    def target_change(self) -> int:
        """By how much the cloud's target moves when all is done."""
        return 0 if self.dry else self.increase - len(self.deletions)

    @property
    def writes(self) -> bool:
        """Whether there is anything to do at all."""
        to_do = (*self.health_taints, *self.deletions, *self.drains, *self.taint.planned, *self.untaint.planned)
        return not self.dry and bool(to_do or self.increase)
