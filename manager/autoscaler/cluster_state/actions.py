"""What one iteration does to groups and nodes, and what came of it."""

import enum
from dataclasses import dataclass

from manager.autoscaler.settings.modes import Mode
from shared.explanation import ScaleExplanation

NO_EXPLANATION = ScaleExplanation()
LIKELY_TO_GO, NEEDED_AGAIN = (
    "likely to go",
    "needed again",
)  # reasons of soft taints, on deletion candidates


class ActionKind(enum.StrEnum):
    """What an action does to a group."""

    INCREASE = "increase"
    DECREASE_TARGET = "decrease target"
    DELETE_NODES = "delete nodes"
    CREATE_GROUP = "create group"
    DELETE_GROUP = "delete group"
    REMOVE_NODES = "remove nodes"  # registered nodes that the cluster can do without, drained first if necessary
    TAINT = "taint"
    UNTAINT = "untaint"


@dataclass(frozen=True)
class Action:
    """One action and its result. Sizes are targets. `nodes` are provider ids of machines to delete, or names of
    registered Nodes; of an increase or a new group, the Nodes that the new ones replace. A removal is done when it has
    begun; its progress is in `Iteration.leaving`. The `explanation` is the one that all reports have.

    With `done` False and an empty `error`, the action was not tried: because of its group's mode, a dry run, or an
    earlier error.
    """

    kind: ActionKind
    group: str
    mode: Mode = Mode.ENFORCE
    from_size: int = 0
    to_size: int = 0
    max_size: int = 0
    nodes: tuple[str, ...] = ()
    explanation: ScaleExplanation = NO_EXPLANATION
    done: bool = False
    error: str = ""

    @property
    def reason(self) -> str:
        return self.explanation.reason

    @property
    def change(self) -> int:
        """By how many nodes the target changes."""
        return self.to_size - self.from_size

    @property
    def result(self) -> str:
        """What came of it, as metrics have it: done, failed, advised, or left for another time."""
        untried = "left" if self.mode is Mode.ENFORCE else "advised"
        return "done" if self.done else "failed" if self.error else untried

    @property
    def is_soft_taint(self) -> bool:
        """Whether it changes only soft taints."""
        return self.kind in (ActionKind.TAINT, ActionKind.UNTAINT) and self.reason in (LIKELY_TO_GO, NEEDED_AGAIN)
