"""Nodes on their way out, as far as they have come."""

import enum
from dataclasses import dataclass

from manager.autoscaler.scale_down.verdict import Kind


class Stage(enum.StrEnum):
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
        return self in (Stage.GONE, Stage.FAILED)


@dataclass(frozen=True, slots=True)
class Leaving:
    """One node. `since` when it was chosen, in Unix seconds; `waits_for` are pods that are still to go."""

    node: str
    group: str
    kind: Kind
    stage: Stage
    since: float
    waits_for: tuple[str, ...] = ()
    error: str = ""
