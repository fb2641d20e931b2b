"""One replacement of nodes as the books have it: it outlives an iteration and a restart. Times are Unix seconds."""

import enum
from dataclasses import dataclass, replace


class DisruptionReason(enum.StrEnum):
    """Why a node is replaced, in Karpenter's words.

    UNDERUTILIZED: cheaper nodes hold its pods. EXPIRED: it is older than its group allows. DRIFTED: it is not what its
    group would launch now. UNHEALTHY: it has had a condition for too long that asks for its repair. INTERRUPTED: the
    cloud recommends to leave it, or is going to service it.
    """

    UNDERUTILIZED = "Underutilized"
    EXPIRED = "Expired"
    DRIFTED = "Drifted"
    UNHEALTHY = "Unhealthy"
    INTERRUPTED = "Interrupted"


class ReplacementPhase(enum.StrEnum):
    """LAUNCHING: new nodes are on their way. READY: they are there; a second look is to confirm that the old nodes can
    go. DRAINING: old nodes go.
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
    """New nodes of one group. `newest` is when its newest Node was created before, by the API server's clock, so that
    the nodes of this launch are those created later.
    """

    group: str
    from_size: int
    nodes: int
    newest: float = 0.0


@dataclass(frozen=True, slots=True)
class Replacement:
    """`left` is how many of the removed nodes still existed when that changed last; `deadline` ends the phase. Nodes
    that are not replaced for their price may go without launches, if nodes that stay have room for their pods.
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
        """The same once the group that was to be `launched` exists, under the name that its cloud gave it."""
        launches = tuple(replace(each, group=group) if each.group == launched else each for each in self.launches)
        return replace(self, launches=launches)

    def shifted(self, seconds: float) -> "Replacement":
        """The same after a clock jump of `seconds`."""
        times = (max(0.0, self.started_at + seconds), max(0.0, self.deadline + seconds))
        return replace(self, started_at=times[0], deadline=times[1])

    def __str__(self) -> str:
        new = ", ".join(f"{each.nodes} of {each.group}" for each in self.launches) or "nodes that stay"
        return f"{', '.join(each.name for each in self.removed)} by {new}"
