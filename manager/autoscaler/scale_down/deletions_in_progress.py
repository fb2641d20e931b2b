"""The node deletions as a loop iteration sees them, with the history of earlier iterations."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from manager.autoscaler.scale_down.budgets import DeletionCounts
from manager.autoscaler.scale_down.removal_status import ScaleDownHistory, ScaleDownReason, UnremovableNode
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.scale_down.timing import CooldownTimestamps


class DeletionStage(enum.StrEnum):
    """A node is tainted so that no pods come, drained if it has pods to move, and deleted.

    FAILED: the node stays, and its taint is taken off.
    """

    MARKING = "marking"
    DRAINING = "draining"
    DELETING = "deleting"
    GONE = "gone"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (DeletionStage.GONE, DeletionStage.FAILED)


@dataclass(frozen=True, slots=True)
class DeletionProgress:
    """One node. `since` is when it was chosen, in Unix seconds; `waits_for` are the pods still to end."""

    node: str
    group: str
    kind: ScaleDownReason
    stage: DeletionStage
    since: float
    waits_for: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class DeletionsInProgress:
    """`leaving` holds the nodes under deletion and those whose deletion ended since the iteration before.

    `gone` maps each node that the cloud has deleted to its group, for as long as its Node may exist. `happened_in` is
    by group.
    """

    memory: ScaleDownHistory = field(default_factory=ScaleDownHistory)
    leaving: tuple[DeletionProgress, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    in_progress: DeletionCounts = field(default_factory=DeletionCounts)
    happened: CooldownTimestamps = field(default_factory=CooldownTimestamps)
    happened_in: Mapping[str, CooldownTimestamps] = field(default_factory=dict)

    @property
    def on_their_way(self) -> dict[str, str]:
        """The group of each node that no longer counts as capacity."""
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
    """Nodes whose deletion failed are not tried again before `until`, and their unneeded time starts again."""
    failed = {each.node: each.error for each in leaving if each.stage is DeletionStage.FAILED}
    if not failed:
        return memory
    since = {node: moment for node, moment in memory.unneeded_since.items() if node not in failed}
    remembered = {node: UnremovableNode(until, UnremovableReason.UNEXPECTED, error) for node, error in failed.items()}
    return ScaleDownHistory(since, {**memory.unremovable, **remembered})


def shifted_history(memory: ScaleDownHistory, seconds: float) -> ScaleDownHistory:
    """The history after a clock jump of `seconds`: what has lasted ten minutes still has."""
    return ScaleDownHistory(
        {node: moment + seconds for node, moment in memory.unneeded_since.items()},
        {node: replace(each, until=each.until + seconds) for node, each in memory.unremovable.items()},
    )
