"""One replacement of nodes in the registry: it outlives an iteration and a restart. Times are Unix seconds."""

import enum
from dataclasses import dataclass, replace


class DisruptionReason(enum.StrEnum):
    """Why a node is replaced, in Karpenter's words.

    UNDERUTILIZED: cheaper nodes hold its pods. EXPIRED: it is older than its group allows. DRIFTED: it differs from
    what its group would launch now. UNHEALTHY: a condition has called for its repair for too long. INTERRUPTED: the
    cloud recommends leaving it, or will service it.
    """

    UNDERUTILIZED = "Underutilized"
    EXPIRED = "Expired"
    DRIFTED = "Drifted"
    UNHEALTHY = "Unhealthy"
    INTERRUPTED = "Interrupted"


class ReplacementPhase(enum.StrEnum):
    """LAUNCHING: new nodes are on their way. READY: they are present; a second check must confirm that the old nodes
    can go. DRAINING: old nodes go.
    """

    LAUNCHING = "launching"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class ReplacedNode:
    name: str
    uid: str
    group: str


@dataclass(frozen=True, slots=True)
class Launch:
    """New nodes of one group. `newest` is the creation time of the group's newest Node before the launch, by the API
    server's clock; the nodes of this launch are younger.
    """

    group: str
    from_size: int
    nodes: int
    newest: float = 0.0


@dataclass(frozen=True, slots=True)
class Replacement:
    """`left` is the number of removed nodes that still existed at its last change; `deadline` ends the phase. Nodes
    replaced for other reasons than price may go without launches, if the remaining nodes have room for their pods.
    """

    removed: tuple[ReplacedNode, ...]
    launches: tuple[Launch, ...]
    saving_per_hour: float
    started_at: float
    deadline: float
    phase: ReplacementPhase = ReplacementPhase.LAUNCHING
    left: int = 0
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED

    @property
    def groups(self) -> frozenset[str]:
        return frozenset([*(each.group for each in self.removed), *(each.group for each in self.launches)])

    def renamed(self, launched: str, group: str) -> "Replacement":
        """The same after the group to be `launched` was created, under the name that its cloud gave it."""
        launches = tuple(replace(each, group=group) if each.group == launched else each for each in self.launches)
        return replace(self, launches=launches)

    def shifted(self, seconds: float) -> "Replacement":
        """The same after a clock jump of `seconds`."""
        times = (max(0.0, self.started_at + seconds), max(0.0, self.deadline + seconds))
        return replace(self, started_at=times[0], deadline=times[1])

    def __str__(self) -> str:
        new = ", ".join(f"{each.nodes} of {each.group}" for each in self.launches) or "nodes that stay"
        return f"{', '.join(each.name for each in self.removed)} by {new}"
