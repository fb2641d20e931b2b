"""Nodes on their way out, as far as they have come."""

import enum
from dataclasses import dataclass

from manager.autoscaler.scale_down.removal_status import ScaleDownReason


class DeletionStage(enum.StrEnum):
    """A node is marked so that nothing comes to it, drained if it has pods to move, and deleted.

    FAILED: it stays, and what marked it is taken back.
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
    """One node. `since` when it was chosen, in Unix seconds; `waits_for` are pods that are still to go."""

    node: str
    group: str
    kind: ScaleDownReason
    stage: DeletionStage
    since: float
    waits_for: tuple[str, ...] = ()
    error: str = ""
