"""The edge of `deletion_machine`: carries out its instructions in order, and reports the result of each.

The loop chooses nodes and reads the progress of their deletions; one thread works on them, in passes. A pass does not
start while another process leads, and every write checks leadership again.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Protocol

from manager.autoscaler.actuation import deletion_machine, node_deletion, node_drain
from manager.autoscaler.actuation.node_deletion import (
    AcceptedTaken,
    BatchDeleted,
    BatchInspected,
    CloudObserved,
    CloudObservedAgain,
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
    UntaintNode,
)
from manager.autoscaler.actuation.node_drain import PodsToDrain
from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter, UnreadablePod
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.scale_down import drain, pods_on_nodes
from manager.autoscaler.scale_down.drain import GangBudget
from manager.autoscaler.scale_down.pods_on_nodes import Controllers
from manager.autoscaler.scale_down.removal_status import (
    CooldownTimestamps,
    DeletionCounts,
    DeletionProgress,
    DeletionsInProgress,
    NodeToRemove,
    ScaleDownHistory,
)
from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import observation
from manager.autoscaler.utilization.review import NodeReview
from shared.api.core import Node, Pod
from shared.api.workloads import PodDisruptionBudget
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.errors import NOT_LEADING, Conflict, LeadershipLost, NotFound, Unreachable

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0  # between two passes: each goes through all pods of the cluster
MOST_NAMED = 3  # of many, in an error
UNANSWERED = "the result of another deletion must be known first"
ANNOTATION_HOLD = "delay-deletion.cluster-autoscaler.kubernetes.io/"  # a prefix


class ClusterSource(Protocol):
    """The state of the cluster. `listers.Listers` is one."""

    def node(self, name: str) -> Node | None: ...
    def pods_on(self, nodes: Container[str]) -> dict[str, list[Pod]]: ...
    def controllers(self) -> Controllers | None: ...
    def budgets(self) -> tuple[PodDisruptionBudget, ...]: ...
    def gang_budgets(self) -> list[GangBudget]: ...
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

    def delete_instances(self, group: str, refs: Sequence[NodeRef]) -> str:
        """Has the cloud delete instances that never became nodes, at once; returns the error, if any."""
        with self._lock:
            term, instructions = self._term, self._apply(InstancesChosen(group, tuple(refs)))
        result: Event | None = None
        for instruction in instructions:
            if isinstance(instruction, DeleteBatch):
                try:
                    with self._writer.cloud_lock:
                        result = self._delete(instruction)
                except LeadershipLost as error:
                    return str(error)
                if result is not None:
                    self._carry_out(result, term)
        return result.error if isinstance(result, DeletionFailed) else ""

    def delete_tainted(self, group: str, reviews: Iterable[NodeReview], nodes: Mapping[str, Node]) -> dict[str, str]:
        """Deletes nodes that a scan has tainted, at once; returns the errors by node. Passes find out what a cloud that
        gives no answer has done.
        """
        wall, now = self._clock.now(), self._clock.monotonic()
        chosen = tuple(node_deletion.reviewed(group, each, nodes[each.node.name], wall, now) for each in reviews)
        names = frozenset(each.name for each in chosen)
        if not self._writer.may_write():
            return dict.fromkeys(names, NOT_LEADING)
        with self._lock:
            term = self._term
        try:
            self._carry_out(TaintedChosen(chosen), term)
        finally:
            with self._lock:
                state = self._state
                self._apply(EndedTaken(names))
        failed = {each.node: each.error for each in state.ended if each.node in names and each.error}
        open_ = {name: each.unconfirmed for name, each in state.deletions.items() if name in names}
        untried = f"group {group}: {UNANSWERED}" if self._writer.may_write() else NOT_LEADING
        return failed | {name: untried if asked is None else asked.error for name, asked in open_.items()}

    def evict_tainted(self, review: NodeReview) -> str:
        """Evicts all pods that keep a node that its scan drains, at once; returns why the node or pods of it were left
        alone. A pod that cannot be evicted keeps no other from being evicted. Raises the errors of the client.
        """
        name, now = review.node.name, self._clock.monotonic()
        try:
            node, pods = self._writer.node(name), self._writer.pods_on(name)
        except NodeVanished:
            return f"{name}: it is gone"
        except UnreadablePod as error:
            return str(error)
        if objection := review.objection(node, pods):
            return objection
        leaving = review.pods_to_evict(node, pods)
        evictions = tuple(node_drain.eviction(pod, self._options.actuation, now) for pod in leaving)
        with self._lock:
            instructions = self._apply(EvictionsChosen(name, evictions))
        errors = []
        for each in instructions:
            if isinstance(each, EvictPod) and (tried := self._evict(each)).error:
                errors.append(f"{each.pod.key} stays: {tried.error}")
                if not tried.answered:
                    break
        return f"{name}: {'; '.join(errors[:MOST_NAMED])}" if errors else ""

    def untaint_abandoned(self, nodes: Iterable[str]) -> None:
        """Takes the taints off nodes that no process deletes any more."""
        self._report(TaintsAbandoned(tuple(nodes)))

    def cloud_observed(self, observed: CloudObservation) -> None:
        """The caller has held the cloud's lock since before the observation."""
        instances = [each for group in observed.groups.values() for each in group.instances]
        deleting = frozenset(each.provider_id for each in instances if each.state is InstanceState.DELETING)
        spare = {name: each.group.settled_size - each.group.min_size for name, each in observed.groups.items()}
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
        if not (state.deletions or state.deleted or state.abandoned):
            return
        uids = {name: node.metadata.uid for name in state.deleted if (node := self._source.node(name)) is not None}
        self._carry_out(NodesObserved(self._clock.monotonic(), self._pods_on(state.deletions), uids), term)
        if not state.deletions:
            return
        kept = frozenset(filter(self._asks_to_be_kept, state.deletions))
        self._carry_out(PassEnding(self._clock.monotonic(), kept, bool(self._source.stale())), term)

    def _pods_on(self, nodes: Collection[str]) -> dict[str, PodsToDrain]:
        if not nodes:
            return {}
        controllers, budgets, now = self._source.controllers(), self._source.budgets(), self._clock.now()
        present = self._source.pods_on(nodes)
        on_nodes = {name: self._matter(present.get(name, ())) for name in nodes}
        of_gangs = drain.gang_budgets_of_nodes(self._source.gang_budgets(), on_nodes)
        return {name: PodsToDrain(on_nodes[name], controllers, budgets, now, of_gangs[name]) for name in nodes}

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
                case ObserveCloud():
                    return self._next(self._observe_again(), term)
                case DeleteNode():
                    return self._delete_node(instruction)
                case DeleteBatch():
                    with self._writer.cloud_lock:  # the next observation comes after the result is known
                        return self._next(self._delete(instruction), term)
        except LeadershipLost:
            return ()

    def _taint(self, what: TaintNode) -> Event:
        cordons = self._options.actuation.cordon_node_before_terminating
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
            logger.warning("the taint was not removed, it is retried: %s", error, extra={"node": what.node})
            return None
        return NodeUntainted(what.node)

    def _evict(self, what: EvictPod) -> EvictionTried:
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
        found = tuple(map(self._inspection, what.nodes))
        return BatchInspected(what.group, found, self._clock.monotonic())

    def _inspection(self, each: NodeDeletion) -> Inspection:
        name = each.name
        try:
            node = _same(self._writer.node(name), each.uid)
            if each.review is None and not taints.is_being_deleted(node):
                return Inspection(name, stays="another process removed its taint")
            pods = self._writer.pods_on(name)
        except NodeVanished:
            return Inspection(name, is_gone=True, stays=f"{name}: it is gone")
        except UnreadablePod as error:
            return Inspection(name, stays=f"a pod on it cannot be read: {error.pod}")
        except HeadroomError as error:
            logger.warning("the node was not deleted, it is retried: %s", error, extra={"node": name})
            return Inspection(name, error=str(error))
        if each.review is not None:
            return self._inspection_after_scan(each, each.review.objection(node, pods), node)
        return Inspection(name, pods=PodsToDrain(self._matter(pods), None, (), self._clock.now()))

    def _inspection_after_scan(self, each: NodeDeletion, objection: str, node: Node) -> Inspection:
        """A scan chooses nodes by their labels, so that the cloud says whether the node is in the group."""
        guard, name = self._writer.guard, each.name
        state = guard.observed.member(each.group, each.ref)
        if state is InstanceState.DELETING:
            objection = f"{name}: the cloud is deleting it"
        elif state is None and not objection:
            objection = f"{name} ({each.ref.provider_id}) is not in the cloud's group"
            if not observation.is_ready(node) and taints.has_taint(node.spec.taints or (), taints.TO_BE_REMOVED):
                with contextlib.suppress(ProviderError), self._writer.cloud_lock:
                    if guard.launched_at(each.ref) is None:
                        return Inspection(name, has_machine=False)
        return Inspection(name, stays=objection, pods=PodsToDrain((), None, (), self._clock.now()))

    def _observe_again(self) -> Event | None:
        try:
            with self._writer.cloud_lock:
                self.cloud_observed(self._writer.guard.observe_again())
        except ProviderError as error:
            logger.warning("the result of a deletion is not known: %s", error)
            return None
        return CloudObservedAgain(self._clock.monotonic())

    def _delete_node(self, what: DeleteNode) -> Sequence[Instruction]:
        """If that fails, the cloud's own controllers do it later."""
        try:
            self._writer.delete_node(what.node, what.uid)
        except NotFound:
            pass
        except LeadershipLost:
            raise
        except HeadroomError as error:
            logger.warning("the Node object was not deleted: %s", error, extra={"node": what.node})
        return ()

    def _delete(self, what: DeleteBatch) -> Event | None:
        if self._writer.guard.is_in_doubt(what.group) and not what.below_min:
            return None
        names, now = tuple(each.name for each in what.nodes), self._clock.monotonic
        try:
            self._writer.delete_machines(what.group, what.nodes, below_min=what.below_min)
        except ProviderError as error:
            unconfirmed = self._writer.guard.is_in_doubt(what.group)
            return DeletionFailed(what.group, names, now(), str(error), isinstance(error, Refused), unconfirmed)
        return BatchDeleted(what.group, names, now())


def _same(node: Node, uid: str) -> Node:
    """The node. Raises NodeVanished unless it is the chosen one."""
    if uid and node.metadata.uid != uid:
        raise NodeVanished(f"another Node is called {node.metadata.name} by now")
    return node
