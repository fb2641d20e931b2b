"""A scale-up decision with its reasons. The executor reads `increases` and `creations`."""

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.estimator.binpacking import Estimate
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.expander.ranking import PricedOption
from manager.autoscaler.scale_up.groups import Headroom, Skipped
from shared.explanation import ScaleExplanation, Term
from shared.quantity import Amounts

BELOW_MINIMUM = "below its minimum"
ALLOWED = "allowed"  # the term that binds a growth cut by a limit or quota

Reasons = Mapping[str, tuple[str, ...]]  # by group, in the words of kube-scheduler or of `groups`


def count_groups(reasons: Reasons) -> str:
    """Every reason, with its number of groups; a reason without a group stands alone."""
    count = Counter(reason for those in reasons.values() for reason in those)
    return ", ".join(f"{many} {reason}" if all(reasons) else reason for reason, many in sorted(count.items()))


class ScaleUpOutcome(enum.StrEnum):
    NOT_NEEDED = "no pod needs a new node"
    ALL_NODES = "max total nodes in cluster reached"
    NO_OPTIONS = "no group can help"
    GROW = "scale up"


@dataclass(frozen=True)
class PodDemand:
    """One class of pending pods.

    `schedulable` of its pods fit on present or upcoming nodes, and `on_ready` are the ready nodes that would take some;
    `reclaimed` fit on what reclaiming adds within one reporting interval; the others, `unplaced`, need a new node.
    `requests` are those of each pod.
    """

    namespace: str
    pods: tuple[str, ...]
    schedulable: int = 0
    reclaimed: int = 0
    requests: Amounts = field(default_factory=dict)
    on_ready: tuple[str, ...] = ()

    @property
    def unplaced(self) -> tuple[str, ...]:
        return self.pods[self.schedulable + self.reclaimed :]


@dataclass(frozen=True)
class RankedOption:
    """A group with its option. `pods` counts by position of the class; `similar` groups would share the nodes."""

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

    @property
    def node_price(self) -> float | None:
        """The price of one new node per hour."""
        rank = self.ranked.rank
        return None if rank is None else rank.nodes_price / self.node_count


@dataclass(frozen=True)
class ExpanderStep:
    """The groups that one expander left. `problem`: why it failed, and left all of them."""

    expander: str
    groups: tuple[str, ...]
    problem: str = ""


@dataclass(frozen=True)
class Cap:
    """A limit that capped the nodes of one group."""

    group: str
    limit: str
    wanted: int
    allowed: int

    def __str__(self) -> str:
        return f"{self.allowed} of {self.wanted} nodes: {self.limit}"


@dataclass(frozen=True)
class GroupCreation:
    """A group to create, empty, before `nodes` nodes go to it and to its extra groups.

    `group` is its provisional id, `headroom` what the rest of the decision leaves for these nodes.
    """

    group: str
    spec: GroupSpec
    nodes: int
    headroom: Headroom = field(default_factory=Headroom)
    max_size: int = 0


@dataclass(frozen=True)
class NodeMix:
    """Nodes by group that place `pods` (counted by position of the class), and their cost in $/h.

    The cost is None if one of the groups has no price. `estimates` say which pods share a node.
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
    """One group compared with several that place the same pods.

    `minimum` is the pods' cost on machines that fit them perfectly; `several` is None if no mix was found.
    """

    single: NodeMix
    several: NodeMix | None
    minimum: float | None
    uses_several: bool = False


@dataclass(frozen=True)
class UnscheduledPods:
    """Pods of one class that get no node now. `awaiting`: some group could take them in a later iteration."""

    position: int
    pods: tuple[str, ...]
    awaiting: bool


def _no_reasons(_: int) -> Reasons:
    return {}


@dataclass(frozen=True)
class ScaleUpDecision:
    """`triggered` are the pods that the bought nodes are for; `chosen` also counts pods whose nodes were capped, which
    are in `left`.

    `unmatched` are the groups that the priority expander dropped, or would have dropped, because no pattern matches
    them. `remaining` is the cluster's headroom after the decision. Machines of `preferred_cpu_milli` suit the cluster's
    size best; None if nothing was ranked. An `advice` is not carried out: a group in it may be in recommend mode. The
    pods of a decision `for_buffers` are chunks of CapacityBuffers, those of one `for_requests` are of a
    ProvisioningRequest. `settled` is the cluster holding the pods that need no new node.
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
    for_buffers: bool = False
    for_requests: bool = False
    why_not: Callable[[int], Reasons] = field(default=_no_reasons, repr=False, compare=False)
    settled: Packing | None = field(default=None, repr=False, compare=False)

    @property
    def nodes(self) -> dict[str, int]:
        """The number of new nodes per group, groups to create included."""
        return {each.group: each.nodes for each in self.increases} | {each.group: each.nodes for each in self.creations}

    @property
    def new_nodes(self) -> int:
        return sum(self.nodes.values())

    def reasons(self, left: UnscheduledPods) -> Reasons:
        """The reason of each group that cannot take these pods. Computed on demand."""
        return self.why_not(left.position)

    def reasons_or_limit(self, left: UnscheduledPods) -> Reasons:
        """The same; without a group if the cluster has its maximum of nodes."""
        if self.outcome is ScaleUpOutcome.ALL_NODES:
            return {"": (self.outcome.value,)}
        return dict(self.reasons(left))


def explain_growth(decision: ScaleUpDecision, group: str, nodes: int, max_size: int) -> ScaleExplanation:
    """Explains a group's growth: the pods, the rank, and the caps."""
    own, caps = f"node group {group}", [each for each in decision.caps if each.group == group]
    limit = min(caps, key=lambda each: each.allowed, default=None)
    ranks = {each.group: each.ranked.rank for each in decision.considered}
    rank = ranks.get(group) or (None if decision.chosen is None else ranks.get(decision.chosen.group))
    terms = [Term("maxSize", max_size, "nodes", own), Term("wanted", limit.wanted if limit else nodes, "nodes", own)]
    if rank is not None and rank.rank is not None:
        terms.insert(0, Term("rank", round(rank.rank * 1000), "thousandths", "the lowest rank wins"))
    reason = bound = BELOW_MINIMUM
    if decision.outcome is ScaleUpOutcome.GROW:
        count = len(decision.triggered)
        what = "buffer chunk" if decision.for_buffers else "requested pod" if decision.for_requests else "pending pod"
        reason, bound = f"{count} {what}{'' if count == 1 else 's'}", "triggered"
        terms.insert(0, Term(bound, count, "pods", f"{what}s"))
    if limit is not None:
        reason, bound = f"{reason}; {limit}", ALLOWED
        terms.append(Term(bound, limit.allowed, "nodes", limit.limit))
    return ScaleExplanation(reason, tuple(terms), bound, nodes)
