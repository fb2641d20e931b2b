"""The worker, which decides about one node after another, and the writers, which write what is due.

Decisions are level-based, on the present caches, so missed, repeated or reordered changes do no harm. Only the leader
writes; the other replicas decide too, and serve their decisions.
"""

import logging
import threading
from collections.abc import Callable

from manager.nodeside.caches import Caches
from manager.nodeside.decisions import DecidedNode, KnownNode, Pending
from manager.nodeside.eviction.reliever import Pressed
from manager.nodeside.node_plans import NodePart, NodePlan
from manager.nodeside.node_writes import NodeWrites
from manager.nodeside.noderesource import explain
from manager.nodeside.noderesource.explain import Decision
from manager.nodeside.noderesource.writing import Wait, Write
from manager.nodeside.workqueue import Outbox, TokenBucket, WorkQueue
from manager.settings import ManagerSettings
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.stop import Stop

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0  # for which a write waits for nodes that may be more urgent
_IDLE_SECONDS = 10.0  # between two signs of life of a thread that waits
_SHORTLY_SECONDS = 0.02


class NodeResourceController:
    """One worker that drains `queue`, reading `caches`, and any number of writers."""

    def __init__(
        self,
        caches: Caches,
        queue: WorkQueue,
        writes: NodeWrites,
        settings: ManagerSettings,
        clock: Clock,
        pressed: Callable[[str], Pressed | None],
    ) -> None:
        self._caches = caches
        self._queue = queue
        self._writes = writes
        self._planner = writes.planner
        self._counters = writes.counters
        self._is_leader = writes.is_leader
        self._dry_run = settings.dry_run
        self._clock = clock
        self._pressed = pressed
        self._outbox = Outbox(clock)
        self._bucket = TokenBucket(clock, per_second=settings.writes_per_second, burst=settings.write_burst)
        self._turned_at: dict[str, float] = {}  # by thread
        self._failed: dict[str, frozenset[NodePart]] = {}  # by node: the parts that failed since the last look at it

    def run(self, stop: Stop) -> None:
        """Looks at nodes until `stop`; for one thread."""
        with stop.calling(self._queue.wake):
            while not stop.is_set():
                self._turn()
                name = self._queue.get(_IDLE_SECONDS)
                if name is not None:
                    self._attempt(name, self._reconcile)

    def write(self, stop: Stop) -> None:
        """Writes what is due until `stop`; for several threads, since a write mostly waits for its answer.

        Decisions come first: they are cheap, and find out what is urgent. Under a load that never lets the queue run
        empty, a write waits for that no longer than its patience.
        """
        with stop.calling(self._outbox.wake):
            while not stop.is_set():
                self._turn()
                if not self._outbox.wait(_IDLE_SECONDS):
                    continue
                may_write = not self._queue.is_filled() or self._outbox.oldest_seconds() > PATIENCE_SECONDS
                if not self._is_leader():
                    self._outbox.clear()  # the next term begins with a look at every node
                elif may_write and self._bucket.take():
                    self._write_next()
                else:
                    stop.wait(_SHORTLY_SECONDS)

    def check(self) -> None:
        self._queue.add(self._planner.due())

    def reconcile_all(self) -> None:
        """Queues every node; call it when this process starts to lead."""
        self._queue.add(self._caches.names())

    def states(self) -> list[KnownNode]:
        return [self._state(node) for node in sorted(self._caches.nodes(), key=lambda node: node.metadata.name)]

    def state(self, name: str) -> KnownNode | None:
        """One node, or None if it does not exist."""
        node = self._caches.node(name)
        return None if node is None else self._state(node)

    def decision(self, name: str) -> Decision | None:
        """The last decision about the node."""
        memory = self._planner.decisions.history_of(name)
        return None if memory is None or memory.decided is None else memory.decided.decision

    def is_settled(self, name: str) -> bool:
        """Whether everything known about the node has been decided on."""
        return name not in self._queue and not self._caches.unsynced()

    def pending(self) -> tuple[int, int]:
        return len(self._queue), len(self._outbox)

    def oldest_seconds(self) -> tuple[float, float]:
        """For how long the first of each have waited."""
        return self._queue.oldest_seconds(), self._outbox.oldest_seconds()

    def silent_seconds(self) -> float:
        """Seconds since the last turn of the worker, or of the slowest writer."""
        return self._clock.monotonic() - min(self._turned_at.copy().values(), default=self._clock.monotonic())

    def _state(self, node: Node) -> KnownNode:
        name = node.metadata.name
        memory, requested = self._planner.decisions.history_of(name), self._caches.requested(name)
        decided = None if memory is None else memory.decided
        if memory is None or decided is None:
            return KnownNode(node, requested, None, None)
        return KnownNode(
            node,
            requested,
            decided.decision,
            memory.last_write,
            self._why_not_written(decided),
            decided.strategy,
            self._planner.tracker.shortfalls_of(name),
            self._pressed(name),
        )

    def _why_not_written(self, decided: DecidedNode) -> Pending | None:
        if decided.decision.hold:
            return Pending(explain.UNDECIDED_REASON)
        match decided.outcome:
            case None:
                return None
            case Wait(why=why, until=until):
                now = self._clock.now() - self._clock.monotonic()
                return Pending(why, None if until is None else now + until)
            case Write(why=why):
                if self._dry_run:
                    return Pending(f"dry run: {why}")
                if not self._is_leader():
                    return Pending(f"not the leader: {why}")
                return Pending(f"one of {len(self._outbox)} writes that wait for their turn: {why}")

    def _turn(self) -> None:
        self._turned_at[threading.current_thread().name] = self._clock.monotonic()

    def _write_next(self) -> None:
        name = self._outbox.pop()
        if name is None:
            return  # another writer was faster
        try:
            self._attempt(name, self._act)
        finally:
            self._outbox.finish(name)

    def _attempt(self, name: str, work: Callable[[str], None]) -> None:
        try:
            work(name)
        except Exception as error:
            delay = self._queue.retry(name, error)
            self._counters.failures.labels(type(error).__name__).inc()
            log = logger.warning if isinstance(error, HeadroomError) else logger.exception
            log("node not brought up to date, next attempt in %.1f s: %s", delay, error, extra={"node": name})

    def _reconcile(self, name: str) -> None:
        if self._caches.unsynced():
            return  # every name comes again after the sync
        self._failed.pop(name, None)
        with self._planner.lock:
            plan = self._plan(name, self._caches.node(name))
        suppressed = self._why_suppressed(plan)
        if suppressed is not None:
            self._counters.suppressed.labels(suppressed).inc()
        urgency = min(plan.urgencies.values(), default=None)
        if urgency is None:
            self._queue.forget(name)
        elif self._dry_run:
            what = plan.step or (plan.write and plan.write.patch) or plan.notice
            logger.info("dry run, not written: %s", what, extra={"node": name})
        elif self._is_leader():
            self._outbox.add(name, urgency)
            return
        self._outbox.discard(name)

    def _plan(self, name: str, node: Node | None) -> NodePlan:
        if node is None:
            self._writes.forget(name)
        return self._planner.plan(name, node)

    def _why_suppressed(self, plan: NodePlan) -> str | None:
        """Why a difference between the decision and the Node is not written."""
        match plan.decided:
            case DecidedNode(outcome=Wait(reason=reason)):
                return reason
            case DecidedNode(outcome=Write()):
                return "dry_run" if self._dry_run else None if self._is_leader() else "not_leader"
        return None

    def _act(self, name: str) -> None:
        """Does the first part that the node needs, as needed now and not when it was queued.

        A part that fails lets the others go first until the next look at the node.
        """
        node = self._writes.newest(name, self._caches.node(name))
        with self._planner.lock:
            plan = self._plan(name, node)
        failed = self._failed.get(name, frozenset())
        due = [part for part in plan.urgencies if part not in failed]
        try:
            if due:
                self._writes.carry_out(due[0], plan, name)
        except Exception:
            self._failed[name] = failed | {due[0]}
            raise
        finally:
            if rest := [plan.urgencies[part] for part in due[1:]]:
                self._outbox.add(name, min(rest))
        if not failed:
            self._queue.forget(name)
