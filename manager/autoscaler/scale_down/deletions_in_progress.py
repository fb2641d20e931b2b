"""What scale-down has begun, and what it knows from before: all that a round takes over from those before it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from manager.autoscaler.scale_down.budgets import DeletionCounts
from manager.autoscaler.scale_down.leaving import DeletionProgress, DeletionStage
from manager.autoscaler.scale_down.removal_status import ScaleDownHistory, UnremovableNode
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.scale_down.timing import CooldownTimestamps


@dataclass(frozen=True)
class DeletionsInProgress:
    """`leaving` are nodes on their way out, and those whose way ended since the round before; `gone` those that the
    cloud has taken, by node their group, as long as their Nodes may be there. `happened_in` is by group.
    """

    memory: ScaleDownHistory = field(default_factory=ScaleDownHistory)
    leaving: tuple[DeletionProgress, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    in_progress: DeletionCounts = field(default_factory=DeletionCounts)
    happened: CooldownTimestamps = field(default_factory=CooldownTimestamps)
    happened_in: Mapping[str, CooldownTimestamps] = field(default_factory=dict)

    @property
    def on_their_way(self) -> dict[str, str]:
        """The group of each node that is not to be counted on any more."""
        return {**self.gone, **{each.node: each.group for each in self.leaving if not each.stage.is_over}}

    @property
    def draining(self) -> frozenset[str]:
        """The nodes whose pods are being moved, or are about to be."""
        return frozenset(
            each.node for each in self.leaving if each.stage in (DeletionStage.MARKING, DeletionStage.DRAINING)
        )


def history_after_failures(
    memory: ScaleDownHistory, leaving: Iterable[DeletionProgress], until: float
) -> ScaleDownHistory:
    """Nodes that could not go are not tried again until then, and begin anew to be unneeded."""
    failed = {each.node: each.error for each in leaving if each.stage is DeletionStage.FAILED}
    if not failed:
        return memory
    since = {node: moment for node, moment in memory.unneeded_since.items() if node not in failed}
    remembered = {node: UnremovableNode(until, UnremovableReason.UNEXPECTED, error) for node, error in failed.items()}
    return ScaleDownHistory(since, {**memory.unremovable, **remembered})


def shifted_history(memory: ScaleDownHistory, seconds: float) -> ScaleDownHistory:
    """After the clock has jumped by so much: what lasted ten minutes still has."""
    return ScaleDownHistory(
        {node: moment + seconds for node, moment in memory.unneeded_since.items()},
        {node: replace(each, until=each.until + seconds) for node, each in memory.unremovable.items()},
    )
