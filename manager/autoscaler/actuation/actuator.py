"""The edge of `deletion_machine`: carries out its instructions in order, and reports the result of each.

The loop chooses nodes and reads the progress of their deletions; one thread works on them, in passes. A pass does not
start while another process leads, and every write checks leadership again.
"""

import logging
import threading
from collections import deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Protocol

from manager.autoscaler.actuation import deletion_machine
from manager.autoscaler.actuation.deletion_machine import DeletionOptions
from manager.autoscaler.actuation.node_deletion import (
    AcceptedTaken,
    BatchDeleted,
    BatchInspected,
    CloudObserved,
    DeleteBatch,
    DeletionFailed,
    DeletionState,
    EndedTaken,
    Event,
    EvictionTried,
    EvictPod,
    InspectBatch,
    Inspection,
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
    PassEnding,
    TaintFailed,
    TaintNode,
    TaintsAbandoned,
    UntaintNode,
)
from manager.autoscaler.actuation.node_drain import PodsToDrain
from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter, UnreadablePod
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state.registry_store import LeadershipLost
from manager.autoscaler.scale_down import pods_on_nodes
from manager.autoscaler.scale_down.budgets import DeletionCounts
from manager.autoscaler.scale_down.pods_on_nodes import Controllers
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    DeletionProgress,
    DeletionsInProgress,
    NodeToRemove,
    ScaleDownHistory,
)
from manager.autoscaler.snapshot import taints
from shared.api.core import Node, Pod
from shared.api.workloads import PodDisruptionBudget
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.errors import Conflict, NotFound, Unreachable

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0  # between two passes: each goes through all pods of the cluster
ANNOTATION_HOLD = "delay-deletion.cluster-autoscaler.kubernetes.io/"  # a prefix


class ClusterSource(Protocol):
    """The state of the cluster. `listers.Listers` is one."""

    def node(self, name: str) -> Node | None: ...
    def pods_on(self, nodes: Container[str]) -> dict[str, list[Pod]]: ...
    def controllers(self) -> Controllers | None: ...
    def budgets(self) -> tuple[PodDisruptionBudget, ...]: ...
    def stale(self) -> list[str]: ...


class Actuator:
    """`run` is for a thread of its own, `run_pass` for that thread and for tests, all else for the loop's thread."""

    def __init__(self, writer: NodeWriter, source: ClusterSource, options: DeletionOptions, clock: Clock) -> None:
        self._writer = writer
        self._source = source
        self._options = options
        self._clock = clock
        self._lock = threading.Lock()  # of the fields below; not held during calls to the API server or the cloud
        self._state = DeletionState()
        self._term = 0  # counts losses of leadership: results of requests of an earlier term are dropped

    def begin(
        self, removals: Iterable[NodeToRemove], nodes: Mapping[str, Node], atomic: Collection[str] = ()
    ) -> list[str]:
        """Starts to delete these nodes; returns the names of those it starts with. `atomic` groups go as a whole."""
        wall, now = self._clock.now(), self._clock.monotonic()
        chosen = tuple(
            NodeDeletion(each, NodeRef.from_node(node), node.metadata.uid, wall, now, each.group in atomic)
            for each in removals
            if (node := nodes.get(each.node)) is not None
        )
        with self._lock:
            known = {*self._state.deletions, *self._state.deleted}
            self._apply(NodesChosen(chosen))
            return list(dict.fromkeys(each.name for each in chosen if each.name not in known))

    def untaint_abandoned(self, nodes: Iterable[str]) -> None:
        """Takes the taints off nodes that no process deletes any more."""
        self._report(TaintsAbandoned(tuple(nodes)))

    def cloud_observed(self, observed: CloudObservation) -> None:
        """The caller has held the cloud's lock since before the observation."""
        instances = [each for group in observed.groups.values() for each in group.instances]
        deleting = frozenset(each.provider_id for each in instances if each.state is InstanceState.DELETING)
        spare = {name: each.group.target_size - each.group.min_size for name, each in observed.groups.items()}
        present = frozenset(each.provider_id for each in instances) - deleting
        self._report(CloudObserved(present, deleting, spare))

    def nodes_added(self, groups: Iterable[str]) -> None:
        """The loop requested nodes in these groups."""
        self._report(NodesAdded(tuple(groups), self._clock.monotonic()))

    def leadership_lost(self) -> None:
        """Another process leads, and finds the taints."""
        with self._lock:
            self._term += 1
            self._apply(LeadershipEnded())

    def counts(self) -> DeletionCounts:
        with self._lock:
            drained = sum(each.removal.is_drained for each in self._state.deletions.values())
            return DeletionCounts(len(self._state.deletions) - drained, drained)

    def take_progress(self) -> tuple[DeletionProgress, ...]:
        """All deletions in progress, and those that have ended since the last call; for the loop's thread."""
        with self._lock:
            state = self._state
            self._apply(EndedTaken())
        return (*state.ended, *(each.progress() for each in state.deletions.values()))

    def take_accepted(self) -> Mapping[str, int]:
        """The number of node deletions that the cloud has accepted since the last call, by group."""
        with self._lock:
            accepted = self._state.accepted
            self._apply(AcceptedTaken())
        return accepted

    def deletions_in_progress(
        self, progress: tuple[DeletionProgress, ...], history: ScaleDownHistory
    ) -> DeletionsInProgress:
        """The deletions as one iteration needs them; `progress` comes from `take_progress`."""
        counts = self.counts()
        offset = self._clock.now() - self._clock.monotonic()
        with self._lock:
            state = self._state
        latest = {group: each.shifted(offset) for group, each in state.latest.items()}
        of_all = CooldownTimestamps()
        for each in latest.values():
            of_all = of_all.latest(each)
        deleted = {name: each.group for name, each in state.deleted.items()}
        return DeletionsInProgress(history, progress, deleted, counts, of_all, latest)

    def run(self, stop: threading.Event) -> None:
        """Runs pass after pass, until `stop`."""
        while not self._clock.wait(stop, PAUSE_SECONDS):
            self.run_pass()

    def run_pass(self) -> None:
        """Does everything that is due now."""
        if not self._writer.may_write():
            return
        with self._lock:
            term, state = self._term, self._state
        uids = {name: node.metadata.uid for name in state.deleted if (node := self._source.node(name)) is not None}
        self._carry_out(NodesObserved(self._clock.monotonic(), self._pods_on(state.deletions), uids), term)
        if not state.deletions:
            return
        held = frozenset(filter(self._asks_to_be_kept, state.deletions))
        self._carry_out(PassEnding(self._clock.monotonic(), held, bool(self._source.stale())), term)

    def _pods_on(self, nodes: Collection[str]) -> dict[str, PodsToDrain]:
        if not nodes:
            return {}
        controllers, budgets, now = self._source.controllers(), self._source.budgets(), self._clock.now()
        on_nodes = self._source.pods_on(nodes)
        return {name: PodsToDrain(self._matter(on_nodes.get(name, ())), controllers, budgets, now) for name in nodes}

    def _matter(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if pods_on_nodes.needs_attention(pod, self._options.expendable_below))

    def _asks_to_be_kept(self, name: str) -> bool:
        node = self._source.node(name)
        annotations = None if node is None else node.metadata.annotations
        return any(each.startswith(ANNOTATION_HOLD) for each in annotations or ())

    def _apply(self, event: Event) -> Sequence[Instruction]:
        """The caller holds the lock."""
        self._state, instructions = deletion_machine.step(self._state, event, self._options)
        return instructions

    def _report(self, event: Event) -> None:
        """Applies an event that has no immediate consequences."""
        with self._lock:
            self._apply(event)

    def _carry_out(self, event: Event, term: int) -> None:
        """Carries out what follows from the event, and from each result, before any later instruction."""
        queue = deque(self._next(event, term))
        while queue:
            queue.extendleft(reversed(self._execute(queue.popleft(), term)))

    def _next(self, event: Event | None, term: int) -> Sequence[Instruction]:
        """The instructions after an event; none for a write that was not tried, or one of an earlier term."""
        with self._lock:
            return () if event is None or term != self._term else self._apply(event)

    def _execute(self, instruction: Instruction, term: int) -> Sequence[Instruction]:
        try:
            match instruction:
                case LogLine():
                    logger.log(instruction.level, instruction.text, extra=dict(instruction.fields))
                    return ()
                case TaintNode():
                    return self._next(self._taint(instruction), term)
                case UntaintNode():
                    return self._next(self._untaint(instruction), term)
                case EvictPod():
                    return self._next(self._evict(instruction), term)
                case InspectBatch():
                    return self._next(self._inspect(instruction), term)
                case DeleteBatch():
                    with self._writer.cloud_lock:  # the next observation comes after the result is known
                        return self._next(self._delete(instruction), term)
        except LeadershipLost:
            return ()

    def _taint(self, what: TaintNode) -> Event:
        cordons = self._options.actuation.cordons
        try:
            self._writer.change(
                what.node,
                lambda node: taints.deletion_patch(_same(node, what.uid), self._clock.now(), cordons=cordons),
            )
        except LeadershipLost:
            raise
        except NodeVanished as error:
            logger.info("%s", error)
            return NodeGone(what.node)
        except HeadroomError as error:
            return TaintFailed(what.node, self._clock.monotonic(), str(error))
        return NodeTainted(what.node, self._clock.monotonic())

    def _untaint(self, what: UntaintNode) -> Event | None:
        try:
            self._writer.change(what.node, lambda node: taints.retention_patch(_same(node, what.uid)))
        except LeadershipLost:
            raise
        except NodeVanished as error:
            logger.info("%s", error)
            return NodeGone(what.node)
        except HeadroomError as error:
            logger.warning("mark not taken back yet: %s", error, extra={"node": what.node})
            return None
        return NodeUntainted(what.node)

    def _evict(self, what: EvictPod) -> Event:
        pod, now = what.pod, self._clock.monotonic()
        try:
            self._writer.evict(pod.namespace, pod.name, pod.uid, pod.grace_seconds)
        except LeadershipLost:
            raise
        except (NotFound, Conflict):
            pass  # it no longer exists, or another pod has its name
        except HeadroomError as error:
            logger.info("pod not evicted: %s", error, extra={"pod": pod.key})
            answered = not isinstance(error, Unreachable)
            return EvictionTried(what.node, pod.uid, now, str(error), answered)
        logger.info("pod evicted", extra={"pod": pod.key, "node": what.node})
        return EvictionTried(what.node, pod.uid, now)

    def _inspect(self, what: InspectBatch) -> Event | None:
        if not self._writer.may_write() or self._writer.guard.is_in_doubt(what.group):
            return None
        found = tuple(self._inspection(name, uid) for name, uid in what.nodes)
        return BatchInspected(what.group, found, self._clock.monotonic())

    def _inspection(self, name: str, uid: str) -> Inspection:
        try:
            if not taints.is_being_deleted(_same(self._writer.node(name), uid)):
                return Inspection(name, stays="another process removed its taint")
            pods = self._writer.pods_on(name)
        except NodeVanished:
            return Inspection(name, is_gone=True)
        except UnreadablePod as error:
            return Inspection(name, stays=f"a pod on it cannot be read: {error.pod}")
        except HeadroomError as error:
            logger.warning("not deleted yet: %s", error, extra={"node": name})
            return Inspection(name, error=str(error))
        return Inspection(name, pods=PodsToDrain(self._matter(pods), None, (), self._clock.now()))

    def _delete(self, what: DeleteBatch) -> Event | None:
        if self._writer.guard.is_in_doubt(what.group):
            return None
        names, now = tuple(each.name for each in what.nodes), self._clock.monotonic
        try:
            self._writer.delete_machines(what.group, what.nodes)
        except ProviderError as error:
            unconfirmed = self._writer.guard.is_in_doubt(what.group)
            return DeletionFailed(what.group, names, now(), str(error), isinstance(error, Refused), unconfirmed)
        return BatchDeleted(what.group, names, now())


def _same(node: Node, uid: str) -> Node:
    """The node. Raises NodeVanished unless it is the chosen one."""
    if uid and node.metadata.uid != uid:
        raise NodeVanished(f"another Node is called {node.metadata.name} by now")
    return node
