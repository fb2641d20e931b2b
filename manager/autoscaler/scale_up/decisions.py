"""A scale-up decision with all that led to it. The executor reads `increases` and `creations`."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.estimator.binpacking import Estimate
from manager.autoscaler.expander.ranking import PricedOption
from manager.autoscaler.scale_up.groups import Headroom, Skipped
from shared.quantity import Amounts

Reasons = Mapping[str, tuple[str, ...]]  # by group, in kube-scheduler's words or in those of `groups`


class ScaleUpOutcome(enum.StrEnum):
    NOT_NEEDED = "no pod needs a new node"
    ALL_NODES = "max total nodes in cluster reached"
    NO_OPTIONS = "no group can help"
    GROW = "scale up"


@dataclass(frozen=True)
class PodDemand:
    """One class of pending pods. Of its pods so many find a place on nodes there are, or on upcoming ones; so many on
    what reclaiming gives within one reporting interval; the others, `unplaced`, need a new node. `requests` are each's.
    """

    namespace: str
    pods: tuple[str, ...]
    schedulable: int = 0
    reclaimed: int = 0
    requests: Amounts = field(default_factory=dict)

    @property
    def unplaced(self) -> tuple[str, ...]:
        return self.pods[self.schedulable + self.reclaimed :]


@dataclass(frozen=True)
class RankedOption:
    """A group with what it could do. `pods` counts by position of the class; `similar` would share the nodes."""

    ranked: PricedOption
    pods: Mapping[int, int]
    similar: tuple[str, ...] = ()
    spec: GroupSpec | None = None

    @property
    def group(self) -> str:
        return self.ranked.option.group

    @property
    def node_count(self) -> int:
        return self.ranked.option.node_count

    @property
    def pod_count(self) -> int:
        return self.ranked.option.pod_count

    @property
    def exists(self) -> bool:
        return self.ranked.option.exists


@dataclass(frozen=True)
class ExpanderStep:
    """What one expander left over."""

    expander: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Cap:
    """A limit that took nodes off what one group was to get."""

    group: str
    limit: str
    wanted: int
    allowed: int


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
class GroupCreation:
    """A group to create, empty, before `nodes` nodes go to it and to what comes with it. `group` is its id as yet,
    `headroom` what all else that was decided leaves for these nodes.
    """

    group: str
    spec: GroupSpec
    nodes: int
    headroom: Headroom = field(default_factory=Headroom)
    max_size: int = 0


@dataclass(frozen=True)
class NodeMix:
    """Nodes by group that place `pods` (counted by position of the class), and what they cost in $/h.

    The cost is None where one of the groups has no price. `estimates` say which pods go together on one node.
    """

    nodes: Mapping[str, int]
    pods: Mapping[int, int]
    cost: float | None
    estimates: tuple[Estimate, ...] = field(default=(), repr=False, compare=False)

    @property
    def pod_count(self) -> int:
        return sum(self.pods.values())


@dataclass(frozen=True)
class Comparison:
    """One group against several that place the same pods. `minimum` is what the pods cost on machines that fit them
    perfectly; `several` is None where no mix was found.
    """

    single: NodeMix
    several: NodeMix | None
    minimum: float | None
    uses_several: bool = False


@dataclass(frozen=True)
class UnscheduledPods:
    """Pods of one class that get no node now. `awaiting`: some group could take them, in a later round."""

    position: int
    pods: tuple[str, ...]
    awaiting: bool


def _no_reasons(_: int) -> Reasons:
    return {}


@dataclass(frozen=True)
class ScaleUpDecision:
    """`triggered` are the pods that the nodes which are bought are for; `chosen` counts those, too, whose nodes were
    capped away, and which are `left`.

    `unmatched` are the groups that the priority expander left out as no pattern matches them, or would have, had any
    other matched. `remaining` is what the cluster may still take when all of it is done. Machines of
    `preferred_cpu_milli` suit its size best; None where nothing was ranked. Of an `advice` nothing is done: a group in
    it may only be recommended.
    """

    outcome: ScaleUpOutcome
    demands: tuple[PodDemand, ...] = ()
    considered: tuple[RankedOption, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    steps: tuple[ExpanderStep, ...] = ()
    unmatched: tuple[str, ...] = ()
    chosen: RankedOption | None = None
    comparison: Comparison | None = None
    caps: tuple[Cap, ...] = ()
    increases: tuple[Increase, ...] = ()
    creations: tuple[GroupCreation, ...] = ()
    triggered: tuple[str, ...] = ()
    left: tuple[UnscheduledPods, ...] = ()
    remaining: Headroom = field(default_factory=Headroom)
    preferred_cpu_milli: int | None = None
    advice: bool = False
    why_not: Callable[[int], Reasons] = field(default=_no_reasons, repr=False, compare=False)

    @property
    def nodes(self) -> dict[str, int]:
        """How many new ones each group gets, those included that are to be created."""
        return {each.group: each.nodes for each in self.increases} | {each.group: each.nodes for each in self.creations}

    @property
    def new_nodes(self) -> int:
        return sum(self.nodes.values())

    def reasons(self, left: UnscheduledPods) -> Reasons:
        """Why every group that cannot take these pods cannot. Worked out when it is asked for."""
        return self.why_not(left.position)
