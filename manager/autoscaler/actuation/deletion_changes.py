"""The working copy of a state within one step of the deletion machine."""

import logging
from dataclasses import replace

from manager.autoscaler.actuation.node_deletion import (
    DeletedNode,
    DeletionState,
    Instruction,
    LogLine,
    NodeDeletion,
)
from manager.autoscaler.scale_down.removal_status import CooldownTimestamps, DeletionStage

GONE_SECONDS = 900.0  # for which the Node of a deleted machine is ignored


class DeletionChanges:
    """The state and the instructions so far."""

    def __init__(self, state: DeletionState) -> None:
        self.state = state
        self.instructions: list[Instruction] = []

    def update(self, each: NodeDeletion) -> NodeDeletion:
        """Replaces the deletion of the same node."""
        self.state = replace(self.state, deletions={**self.state.deletions, each.name: each})
        return each

    def end(self, each: NodeDeletion, stage: DeletionStage) -> None:
        """Drops a deletion that is over, for the loop to see."""
        ended = replace(each, stage=stage)
        rest = {name: other for name, other in self.state.deletions.items() if name != each.name}
        self.state = replace(self.state, deletions=rest, ended=(*self.state.ended, ended.progress()))

    def record_deletion(self, each: NodeDeletion, now: float) -> None:
        """The cloud has accepted: the node is no longer part of its group."""
        state = self.state
        self.state = replace(
            state,
            deleted={**state.deleted, each.name: DeletedNode(each.group, each.uid, now + GONE_SECONDS)},
            accepted={**state.accepted, each.group: state.accepted.get(each.group, 0) + 1},
        )
        self.note(each.group, CooldownTimestamps(deleted=now))
        self.log(logging.INFO, "node deleted", each, kind=each.removal.kind.value)
        self.end(each, DeletionStage.GONE)

    def fail(self, name: str, why: str, now: float) -> None:
        """The node stays, and so do the others of an atomic deletion whose outcome is not open."""
        each = self.state.deletions[name]
        if each.error:
            return
        self.update(replace(each, error=why))
        self.log(logging.ERROR, f"the node stays: {why}", each)
        self.note(each.group, CooldownTimestamps(failed=now))
        for other in list(self.state.deletions.values()) if each.atomic else ():
            if other.atomic and other.group == each.group and other.unconfirmed is None and not other.error:
                self.update(replace(other, error=f"node {name} of the same group stays: {why}"))

    def forget_abandoned(self, name: str) -> None:
        """Drops a node whose taint no deletion works on."""
        rest = {node: tried for node, tried in self.state.abandoned.items() if node != name}
        self.state = replace(self.state, abandoned=rest)

    def note(self, group: str, happened: CooldownTimestamps) -> None:
        """Moves the group's latest events."""
        known = self.state.latest.get(group, CooldownTimestamps())
        self.state = replace(self.state, latest={**self.state.latest, group: known.latest(happened)})

    def log(self, level: int, text: str, each: NodeDeletion, **fields: str) -> None:
        self.instructions.append(LogLine(level, text, {"node": each.name, "group": each.group, **fields}))

    def log_node(self, level: int, text: str, node: str) -> None:
        self.instructions.append(LogLine(level, text, {"node": node}))
