"""The deletion of nodes, as a state machine: `step(state, event)` returns the next state and the instructions.

A node is tainted, drained, inspected once more, and deleted by the cloud; or its taint is removed again:

    MARKING -> DRAINING -> DELETING -> GONE
       +----------+-----------+------> (error) -> FAILED

Invariants of every state, whatever event comes next:

1. No pod is evicted, and the cloud is not asked, before the node has been tainted for `delay_seconds`.
2. A node is deleted only after an inspection that found it tainted and without pods that need another place, unless it
   was chosen with a grace for its pods, and that is over, or its scan's verdict still holds.
3. No group has more nodes drained or deleted than it has above its minimum, as of the last observation of the cloud.
4. The cloud is not asked again about a node whose deletion it has neither accepted nor refused, until a later
   observation shows the result.
5. A deletion with an error only untaints its node, until that is done; a scan's taint stays. All nodes of an atomic
   deletion fail together.
6. A deletion ends once: GONE when the cloud has accepted it or the Node no longer exists, FAILED when the taint is
   removed.
7. No state must outlive the process. Taint and cordon are on the Node: the next leader finds them there, reports them
   as abandoned, and untaints the nodes.

`step` reads no clocks and makes no calls: the actuator carries out the instructions in order, and reports the result of
each as an event. Any instruction may be the last before the process ends.
"""

import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from manager.autoscaler.actuation.deletion_changes import DeletionChanges
from manager.autoscaler.actuation.node_deletion import (
    AcceptedTaken,
    BatchDeleted,
    BatchInspected,
    CloudObserved,
    CloudObservedAgain,
    CloudView,
    DeleteBatch,
    DeleteNode,
    DeletionFailed,
    DeletionOptions,
    DeletionState,
    EndedTaken,
    Event,
    EvictionsChosen,
    EvictionTried,
    EvictPod,
    InspectBatch,
    Inspection,
    InstancesChosen,
    Instruction,
    LeadershipEnded,
    LogLine,
    NodeDeletion,
    NodeGone,
    NodesAdded,
    NodesChosen,
    NodesObserved,
    NodeTainted,
    NodeUntainted,
    ObserveCloud,
    PassEnding,
    TaintedChosen,
    TaintFailed,
    TaintNode,
    TaintsAbandoned,
    UnconfirmedDeletion,
    UntaintNode,
)
from manager.autoscaler.actuation.node_drain import CannotDelete, NodeDrain, PodsToDrain
from manager.autoscaler.scale_down.removal_status import CooldownTimestamps, DeletionStage
from manager.autoscaler.utilization.reaping import TaintedNodeReason

TAINTING_SECONDS = 5.0  # after which a taint that cannot be written is given up
AGAIN_SECONDS = 5.0  # between two tries to remove a taint
SILENCE_SECONDS = 60.0  # after an unanswered deletion, until a machine that is still present counts as kept
HOLD_SECONDS = 120.0  # for which annotations delay the deletion of a drained node
CLOUD_SECONDS = 600.0  # for which a node waits for a silent cloud


def step(state: DeletionState, event: Event, options: DeletionOptions) -> tuple[DeletionState, tuple[Instruction, ...]]:
    """The next state and the instructions after the event."""
    changes = DeletionChanges(state)
    nodes, batches = _NodeSteps(changes, options), BatchSteps(changes, options)
    match event:
        case NodesChosen():
            nodes.choose(event.deletions)
        case InstancesChosen():
            changes.instructions.append(DeleteBatch(event.group, event.refs, below_min=True))
        case TaintedChosen():
            if new := nodes.choose(event.deletions):
                changes.instructions.append(InspectBatch(new[0].group, tuple(new)))
        case EvictionsChosen():
            changes.instructions += [EvictPod(event.node, pod) for pod in event.pods]
        case TaintsAbandoned():
            nodes.abandon(event.nodes)
        case NodesAdded():
            for group in event.groups:
                changes.note(group, CooldownTimestamps(added=event.now))
        case LeadershipEnded():
            changes.state = DeletionState(cloud=state.cloud)
        case EndedTaken():
            changes.take_ended(event.nodes)
        case AcceptedTaken():
            changes.state = replace(state, accepted={})
        case CloudObserved():
            number = state.cloud.observation + 1
            changes.state = replace(state, cloud=CloudView(number, event.present, event.deleting, event.spare))
        case CloudObservedAgain():
            nodes.confirm_reviewed(event.now)
            batches.retry_alone(state.deletions)
        case NodesObserved():
            nodes.begin_pass(event)
        case PassEnding():
            batches.end_pass(event)
        case NodeUntainted():
            nodes.end_untainted(event.node)
        case NodeGone():
            nodes.end_vanished(event.node)
        case BatchInspected():
            batches.delete_inspected(event)
        case BatchDeleted():
            batches.accept(event)
        case DeletionFailed():
            batches.handle_failure(event)
        case NodeTainted() | TaintFailed() | EvictionTried():
            nodes.continue_after(event)
    return changes.state, tuple(changes.instructions)


class _NodeSteps:
    """What happens to each node by itself, until it is drained."""

    def __init__(self, changes: DeletionChanges, options: DeletionOptions) -> None:
        self._changes = changes
        self._options = options

    def choose(self, deletions: Iterable[NodeDeletion]) -> list[NodeDeletion]:
        """Begins the deletions of nodes that are not being deleted yet, and returns these."""
        state = self._changes.state
        new = {each.name: each for each in deletions if each.name not in {*state.deletions, *state.deleted}}
        abandoned = {name: tried for name, tried in state.abandoned.items() if name not in new}
        self._changes.state = replace(state, deletions={**state.deletions, **new}, abandoned=abandoned)
        return list(new.values())

    def abandon(self, nodes: Iterable[str]) -> None:
        """Finds nodes with a taint that no deletion works on."""
        state = self._changes.state
        known = {*state.deletions, *state.deleted, *state.abandoned}
        new = {name: -AGAIN_SECONDS for name in nodes if name not in known}
        self._changes.state = replace(state, abandoned={**state.abandoned, **new})

    def begin_pass(self, event: NodesObserved) -> None:
        """Works on every deletion, and on abandoned taints."""
        now = event.now
        deleted = {
            name: each
            for name, each in self._changes.state.deleted.items()
            if event.uids.get(name) == each.uid and now <= each.until
        }
        due = [name for name, tried in self._changes.state.abandoned.items() if now - tried >= AGAIN_SECONDS]
        self._changes.state = replace(
            self._changes.state, deleted=deleted, abandoned={**self._changes.state.abandoned, **dict.fromkeys(due, now)}
        )
        self._changes.instructions += map(UntaintNode, due)
        for name in self._changes.state.deletions:
            if each := self._changes.state.deletions.get(name):
                try:
                    self._advance(each, event.pods.get(name), now)
                except CannotDelete as error:
                    self._changes.fail(name, str(error), now)

    def continue_after(self, event: NodeTainted | TaintFailed | EvictionTried) -> None:
        """Goes on with a node after a write to it or its pods."""
        each = self._changes.state.deletions.get(event.node)
        if each is None or each.error:
            return
        match event:
            case NodeTainted():
                self._changes.update(replace(each, tainted_at=event.now))
                self._changes.log(logging.INFO, "marked as being deleted", each)
            case TaintFailed() if event.now - each.began_at >= TAINTING_SECONDS:
                self._changes.fail(each.name, f"it could not be marked: {event.error}", event.now)
            case EvictionTried() if each.drain is not None:
                drain = each.drain.tried(event.uid, event.now, event.error)
                self._evict_next(
                    self._changes.update(replace(each, drain=drain)), drain, event.now, answered=event.answered
                )

    def end_untainted(self, name: str) -> None:
        """Ends a failed deletion whose taint is removed."""
        each = self._changes.state.deletions.get(name)
        if each is not None and each.error:
            self._changes.end(each, DeletionStage.FAILED)
        elif name in self._changes.state.abandoned:
            self._changes.log_node(logging.WARNING, "abandoned taint removed", name)
            self._changes.forget_abandoned(name)

    def end_vanished(self, name: str) -> None:
        """Ends the deletion of a Node that no longer exists."""
        each = self._changes.state.deletions.get(name)
        if each is not None:
            self._changes.log_node(logging.INFO, "gone by itself", name)
            self._changes.end(each, DeletionStage.GONE)
        self._changes.forget_abandoned(name)

    def _advance(self, each: NodeDeletion, pods: PodsToDrain | None, now: float) -> None:
        """The next action for one node. Raises CannotDelete."""
        delay = self._options.actuation.node_delete_delay_after_taint_seconds
        if each.error:
            if each.untainted_at is None or now - each.untainted_at >= AGAIN_SECONDS:
                self._changes.update(replace(each, untainted_at=now))
                self._changes.instructions.append(UntaintNode(each.name, each.uid))
        elif each.unconfirmed is not None:
            retries = each.unconfirmed.of_many and not each.atomic and each.review is None
            self._confirm(each, each.unconfirmed, now, may_retry=retries)
        elif each.tainted_at is None:
            self._changes.instructions.append(TaintNode(each.name, each.uid))
        elif each.ready_at is None and pods is not None and now - each.tainted_at >= delay:
            self._drain(each, pods, now, now - each.tainted_at)

    def _drain(self, each: NodeDeletion, pods: PodsToDrain, now: float, waited_seconds: float) -> None:
        if each.drain is None and not self._is_spare(each, waited_seconds):
            return
        grace = each.removal.grace_seconds
        ends_at = None if grace is None else now + grace
        drain = each.drain or NodeDrain(now, each.removal.is_drained, ends_at=ends_at)
        each = self._changes.update(replace(each, stage=DeletionStage.DRAINING, drain=drain))
        drain = drain.observed(pods, self._options.drain, self._options.actuation, now)
        self._evict_next(self._changes.update(replace(each, drain=drain)), drain, now)

    def _is_spare(self, each: NodeDeletion, waited_seconds: float) -> bool:
        """Whether the group can do without the node and those chosen before it.

        Raises CannotDelete if it cannot, or if the cloud has not returned the group's size for too long.
        """
        cloud = self._changes.state.cloud
        spare = cloud.spare.get(each.group)
        before = itertools.takewhile(lambda other: other.name != each.name, self._changes.state.deletions.values())
        going = sum(
            other.group == each.group and not other.error and other.ref.provider_id not in cloud.deleting
            for other in before
        )
        if spare is not None and spare <= going:
            raise CannotDelete(
                f"its group can do without {max(0, spare)} nodes, and {going} others are being deleted already"
            )
        if spare is None and waited_seconds > CLOUD_SECONDS:
            raise CannotDelete("the cloud does not say how large its group is")
        return spare is not None

    def _evict_next(self, each: NodeDeletion, drain: NodeDrain, now: float, *, answered: bool = True) -> None:
        pod = drain.next_eviction(now) if answered else None
        if pod is not None:
            self._changes.instructions.append(EvictPod(each.name, pod))
        elif overdue := drain.overdue(self._options.actuation, now):
            self._changes.fail(each.name, overdue, now)

    def confirm_reviewed(self, now: float) -> None:
        """Finds out what came of the calls for nodes of a scan, while it goes on."""
        for each in list(self._changes.state.deletions.values()):
            if each.review is not None and each.unconfirmed is not None:
                try:
                    self._confirm(each, each.unconfirmed, now, may_retry=each.unconfirmed.of_many)
                except CannotDelete as error:
                    self._changes.fail(each.name, str(error), now)

    def _confirm(self, each: NodeDeletion, asked: UnconfirmedDeletion, now: float, *, may_retry: bool) -> None:
        """Finds out the result of a deletion call that failed. Raises CannotDelete."""
        cloud = self._changes.state.cloud
        is_news = cloud.observation > asked.observation and each.group in cloud.spare
        if is_news and each.ref.provider_id not in cloud.present:
            self._changes.record_deletion(each, now)
        elif is_news and now >= asked.until:
            self._changes.update(replace(each, unconfirmed=None, alone=may_retry))
            if not may_retry:
                raise CannotDelete(f"the cloud did not delete it: {asked.error}")
        elif now - asked.until > CLOUD_SECONDS:
            raise CannotDelete(f"the cloud does not report the result of its deletion: {asked.error}")


class BatchSteps:
    """What happens to drained nodes: inspection and deletion, group by group."""

    def __init__(self, changes: DeletionChanges, options: DeletionOptions) -> None:
        self._changes = changes
        self._options = options

    def end_pass(self, event: PassEnding) -> None:
        """Deletes the drained nodes, group by group."""
        now = event.now
        for each in [] if event.stale else list(self._changes.state.deletions.values()):
            drains = each.stage is DeletionStage.DRAINING and not each.error
            if drains and each.drain is not None and each.drain.is_over(now):
                self._changes.update(replace(each, stage=DeletionStage.DELETING, ready_at=now))
        by_group: dict[str, list[NodeDeletion]] = {}
        for each in list(self._changes.state.deletions.values()):
            if not each.is_ready or each.review is not None:
                continue
            if each.ref.provider_id in self._changes.state.cloud.deleting:  # the cloud deletes it by itself
                self._changes.end(each, DeletionStage.GONE)
            elif each.name not in event.kept or now - (each.ready_at or 0.0) >= HOLD_SECONDS:
                by_group.setdefault(each.group, []).append(each)
        for group, members in by_group.items():
            if self._gathers(group, members):
                continue
            together = [each for each in members if not each.alone]
            for batch in (together, *([each] for each in members if each.alone)):
                if batch:
                    self._changes.instructions.append(InspectBatch(group, tuple(batch)))

    def delete_inspected(self, event: BatchInspected) -> None:
        """Deletes the nodes of a batch that the inspection found ready."""
        batch = [(each, found) for found in event.found if (each := self._changes.state.deletions.get(found.node))]
        going = [each for each, found in batch if each.is_ready and self._may_go(each, found, event.now)]
        reviewed = [each for each in going if each.review is not None]  # others were counted before their drain
        for each in reviewed[self._spare_beside(event.group, len(reviewed)) :]:
            self._changes.fail(each.name, f"{each.name}: {TaintedNodeReason.AT_MINIMUM}", event.now)
            going.remove(each)
        if going and (len(going) == len(event.found) or not any(each.atomic for each, _ in batch)):
            self._changes.instructions.append(DeleteBatch(event.group, tuple(each.ref for each in going)))

    def _spare_beside(self, group: str, nodes: int) -> int:
        """How many of these nodes the group can do without, beside its other nodes on their way out."""
        others = sum(each.group == group for each in self._changes.state.deletions.values()) - nodes
        return max(0, self._changes.state.cloud.spare.get(group, 0) - others)

    def accept(self, event: BatchDeleted) -> None:
        """Ends the deletions that the cloud has accepted."""
        cloud = self._changes.state.cloud
        left = cloud.spare.get(event.group, 0) - len(event.nodes)
        cloud = replace(cloud, spare={**cloud.spare, event.group: left})
        self._changes.state = replace(self._changes.state, cloud=cloud)
        for each in self._named(event.nodes):
            self._changes.record_deletion(each, event.now)

    def handle_failure(self, event: DeletionFailed) -> None:
        """Decides what a failed call means for each of its nodes."""
        fields = {"group": event.group, "nodes": ", ".join(event.nodes)}
        self._changes.instructions.append(LogLine(logging.ERROR, f"not deleted: {event.error}", fields))
        many, is_awaited = len(event.nodes) > 1, False
        for each in self._named(event.nodes):
            if event.unconfirmed:
                until = event.now + (0.0 if event.refused else SILENCE_SECONDS)
                asked = UnconfirmedDeletion(event.error, self._changes.state.cloud.observation, until, many)
                self._changes.update(replace(each, unconfirmed=asked))
                is_awaited = is_awaited or each.review is not None
            elif not event.refused:
                self._give_up_late(each, event.error, event.now)
            elif many and not each.atomic:
                self._changes.update(replace(each, alone=True))
            else:
                self._changes.fail(each.name, event.error, event.now)

        if is_awaited:
            self._changes.instructions.append(ObserveCloud())
        else:
            self.retry_alone(event.nodes)

    def retry_alone(self, nodes: Iterable[str]) -> None:
        """Goes on with nodes of a scan that the cloud is to delete in calls of their own."""
        for each in self._named(nodes):
            if each.review is not None and each.alone and each.is_ready:
                self._changes.instructions.append(InspectBatch(each.group, (each,)))

    def _gathers(self, group: str, members: Sequence[NodeDeletion]) -> bool:
        """Whether the group waits for more of its nodes, because it is deleted as a whole."""
        atomic = sum(each.atomic for each in self._changes.state.deletions.values() if each.group == group)
        return sum(each.atomic for each in members) < atomic

    def _may_go(self, each: NodeDeletion, found: Inspection, now: float) -> bool:
        if not found.has_machine:
            self._changes.instructions.append(DeleteNode(each.name, each.uid))
            self._changes.end(each, DeletionStage.GONE)
        elif found.is_gone and each.review is None:
            self._changes.end(each, DeletionStage.GONE)
        elif found.stays:
            self._changes.fail(each.name, found.stays, now)
        elif found.pods is None:
            self._give_up_late(each, found.error, now)
        elif found.pods.moving() and not (each.drain is not None and each.drain.goes_with_pods(now)):
            self._changes.update(replace(each, stage=DeletionStage.DRAINING, ready_at=None))  # it judges them
        else:
            return True
        return False

    def _named(self, nodes: Iterable[str]) -> list[NodeDeletion]:
        return [self._changes.state.deletions[name] for name in nodes if name in self._changes.state.deletions]

    def _give_up_late(self, each: NodeDeletion, why: str, now: float) -> None:
        waits = each.review is None and now - (each.ready_at or now) <= CLOUD_SECONDS
        if not waits:  # the next scan tries it again
            self._changes.fail(each.name, why, now)
