"""The working copy of the deletions within one step of the machine, and the instructions so far."""

import logging
from dataclasses import replace

from manager.autoscaler.actuation.node_deletion import (
    DeletedNode,
    DeleteNode,
    DeletionState,
    Instruction,
    LogLine,
    NodeDeletion,
)
from manager.autoscaler.scale_down.removal_status import CooldownTimestamps, DeletionStage

# For which the Node of a deleted machine is ignored (Cluster Autoscaler's MaxCloudProviderNodeDeletionTime). If it is
# still there then, and not being deleted, the machine was not deleted, whatever the cloud answered.
GONE_SECONDS = 300.0


class DeletionChanges:
    """The working copy of the state within one step, and the instructions so far."""

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
        if each.review is None:
            self.note(each.group, CooldownTimestamps(deleted=now))
        else:
            self.instructions.append(DeleteNode(each.name, each.uid))
        self.log(logging.INFO, "node deleted", each, kind=each.removal.kind.value)
        self.end(each, DeletionStage.GONE)

    def fail(self, name: str, why: str, now: float) -> None:
        """The node stays, and so do the others of an atomic deletion whose outcome is not open."""
        each = self.state.deletions[name]
        if each.error:
            return
        if each.review is not None:
            self.end(replace(each, error=why), DeletionStage.FAILED)
            return
        self.update(replace(each, error=why))
        self.log(logging.ERROR, f"the node stays: {why}", each)
        self.note(each.group, CooldownTimestamps(failed=now))
        for other in list(self.state.deletions.values()) if each.atomic else ():
            if other.atomic and other.group == each.group and other.unconfirmed is None and not other.error:
                self.update(replace(other, error=f"node {name} of the same group stays: {why}"))

    def take_ended(self, nodes: frozenset[str] | None) -> None:
        """Drops what has ended; of `nodes` alone, if given, and what was not tried there: the next scan tries it."""
        if nodes is None:
            self.state = replace(self.state, ended=())
            return
        ended = tuple(each for each in self.state.ended if each.node not in nodes)
        awaited = {
            name: each
            for name, each in self.state.deletions.items()
            if name not in nodes or each.unconfirmed is not None
        }
        self.state = replace(self.state, ended=ended, deletions=awaited)

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
