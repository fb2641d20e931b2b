"""The worker, which decides about one node after another, and the writers, which write what is due.

Decisions are level-based, on the present caches, so missed, repeated or reordered changes do no harm. Only the leader
writes; the other replicas decide too, and serve their decisions.
"""

import enum
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from manager.nodeside.caches import Caches
from manager.nodeside.decisions import KnownNode, Look, NodeDecisions, Pending
from manager.nodeside.eviction.condition import Notice
from manager.nodeside.eviction.reliever import Pressed
from manager.nodeside.eviction.tracker import Tracker
from manager.nodeside.metrics import ManagerCounters
from manager.nodeside.nodemetric import lifecycle, spec
from manager.nodeside.nodemetric.lifecycle import LifecycleOutcome
from manager.nodeside.noderesource import explain
from manager.nodeside.noderesource.explain import Decision
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.noderesource.topology import ZoneWrite
from manager.nodeside.noderesource.writing import Wait, Waiting, Write
from manager.nodeside.reports import EventReporter
from manager.nodeside.topologies import Topologies
from manager.nodeside.workqueue import Outbox, TokenBucket, Urgency, WorkQueue
from manager.settings import ManagerSettings
from shared.api.colocation import NodeStrategy
from shared.api.core import Node
from shared.api.nodemetric import PredictionPrior
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube import objects
from shared.kube.client import Client, Patch
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import NODERESOURCETOPOLOGIES, NODES

logger = logging.getLogger(__name__)

CONFLICT_ATTEMPTS = 4
WRITE_TIMEOUT_SECONDS = 10.0
PATIENCE_SECONDS = 1.0  # for which a write waits for nodes that may be more urgent
_IDLE_SECONDS = 0.5
_SHORTLY_SECONDS = 0.02


class _Part(enum.Enum):
    """The parts of a node that may need a write."""

    WRITE = enum.auto()
    STEP = enum.auto()
    NOTICE = enum.auto()
    ZONES = enum.auto()


@dataclass(frozen=True)
class _Plan:
    """What would bring a node to its desired state."""

    step: lifecycle.Step | None
    look: Look | None = None
    notice: Notice | None = None

    @property
    def write(self) -> Write | None:
        return self.look.outcome if self.look is not None and isinstance(self.look.outcome, Write) else None

    @property
    def zones(self) -> ZoneWrite | None:
        return None if self.look is None else self.look.zones

    @property
    def urgencies(self) -> dict[_Part, Urgency]:
        """The urgency of each pending part, in the order of execution."""
        shrinks = self.write is not None and self.write.shrinks
        parts = (
            (_Part.WRITE, self.write, Urgency.SHRINK if shrinks else Urgency.GROW),
            (_Part.STEP, self.step, Urgency.LIFECYCLE),
            (_Part.NOTICE, self.notice, Urgency.LIFECYCLE),
            (_Part.ZONES, self.zones, Urgency.GROW),
        )
        return {part: urgency for part, there, urgency in parts if there is not None}


class NodeResourceController:
    """One worker that drains `queue`, reading `caches`, and any number of writers."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        queue: WorkQueue,
        settings: ManagerSettings,
        clock: Clock,
        *,
        reporter: EventReporter,
        counters: ManagerCounters,
        is_leader: Callable[[], bool],
        tracker: Tracker,
        pressed: Callable[[str], Pressed | None] = lambda _: None,
        prior: Callable[[], PredictionPrior | None] = lambda: None,
        topologies: Topologies | None = None,
    ) -> None:
        self._client = client.single_attempt(WRITE_TIMEOUT_SECONDS)  # the queue decides about retries
        self._caches = caches
        self._queue = queue
        self._dry_run = settings.dry_run
        self._clock = clock
        self._reporter = reporter
        self._counters = counters
        self._is_leader = is_leader
        self._tracker = tracker
        self._pressed = pressed
        self._prior = prior
        self._outbox = Outbox(clock)
        self._bucket = TokenBucket(clock, per_second=settings.writes_per_second, burst=settings.write_burst)
        self._decisions = NodeDecisions(caches, settings, clock, reporter, topologies, caches.unheard_seconds)
        self._deciding = threading.Lock()  # held while deciding, and while recording results; never during a call
        self._turned_at: dict[str, float] = {}  # by thread
        self._failed: dict[str, frozenset[_Part]] = {}  # by node: the parts that failed since the last look at it
        self._answered: dict[str, str] = {}  # by node: the newest version that an answer to this process contained
        self._unkept: dict[str, str] = {}  # by node: what was requested of its NodeMetric, and dropped by the server

    def run(self, stop: threading.Event) -> None:
        """Looks at nodes until `stop`; for one thread."""
        while not stop.is_set():
            self._turn()
            name = self._queue.get(_IDLE_SECONDS)
            if name is not None:
                self._attempt(name, self._look)

    def write(self, stop: threading.Event) -> None:
        """Writes what is due until `stop`; for several threads, since a write mostly waits for its answer.

        Decisions come first: they are cheap, and find out what is urgent. Under a load that never lets the queue run
        empty, a write waits for that no longer than its patience.
        """
        while not stop.is_set():
            self._turn()
            if not self._is_leader():
                stop.wait(_IDLE_SECONDS)
            elif self._outbox.wait(_IDLE_SECONDS):
                may_write = not self._queue.is_filled() or self._outbox.oldest_seconds() > PATIENCE_SECONDS
                if may_write and self._bucket.take():
                    self._write_next()
                else:
                    stop.wait(_SHORTLY_SECONDS)

    def check(self) -> None:
        """Queues the nodes for which elapsed time changes something: a NodeMetric turns stale, a write falls due."""
        self._queue.add(self._decisions.due())
        self._queue.add(self._tracker.due())

    def look_at_all(self) -> None:
        """Queues every node; call it when this process starts to lead."""
        self._queue.add(self._caches.names())

    def states(self) -> list[KnownNode]:
        """All nodes by name."""
        return [self._state(node) for node in sorted(self._caches.nodes(), key=lambda node: node.metadata.name)]

    def state(self, name: str) -> KnownNode | None:
        """One node, or None if it does not exist."""
        node = self._caches.node(name)
        return None if node is None else self._state(node)

    def decision(self, name: str) -> Decision | None:
        """The last decision about the node."""
        memory = self._decisions.of(name)
        return None if memory is None or memory.look is None else memory.look.decision

    def is_settled(self, name: str) -> bool:
        """Whether everything known about the node has been decided on."""
        return name not in self._queue and not self._caches.unsynced()

    def pending(self) -> tuple[int, int]:
        """How many nodes wait for a decision, and how many for a write."""
        return len(self._queue), len(self._outbox)

    def oldest_seconds(self) -> tuple[float, float]:
        """For how long the first of each have waited."""
        return self._queue.oldest_seconds(), self._outbox.oldest_seconds()

    def silent_seconds(self) -> float:
        """Seconds since the last turn of the worker, or of the slowest writer."""
        return self._clock.monotonic() - min(self._turned_at.copy().values(), default=self._clock.monotonic())

    def _state(self, node: Node) -> KnownNode:
        name = node.metadata.name
        memory, requested = self._decisions.of(name), self._caches.requested(name)
        look = None if memory is None else memory.look
        if memory is None or look is None:
            return KnownNode(node, requested, None, None)
        return KnownNode(
            node,
            requested,
            look.decision,
            memory.last_write,
            self._why_not_written(look),
            look.strategy,
            self._tracker.of(name),
            self._pressed(name),
        )

    def _why_not_written(self, look: Look) -> Pending | None:
        if look.decision.hold:
            return Pending(explain.UNDECIDED_REASON)
        match look.outcome:
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
            self._outbox.done(name)

    def _attempt(self, name: str, work: Callable[[str], None]) -> None:
        try:
            work(name)
        except Exception as error:
            delay = self._queue.retry(name, error)
            self._counters.failures.labels(type(error).__name__).inc()
            log = logger.warning if isinstance(error, HeadroomError) else logger.exception
            log("node not brought up to date, next attempt in %.1f s: %s", delay, error, extra={"node": name})

    def _look(self, name: str) -> None:
        if self._caches.unsynced():
            return  # every name comes again after the sync
        self._failed.pop(name, None)
        with self._deciding:
            plan = self._plan(name, self._caches.node(name))
        suppressed = self._why_suppressed(plan)
        if suppressed is not None:
            self._counters.suppressed.labels(suppressed).inc()
        urgency = min(plan.urgencies.values(), default=None)
        if urgency is None:
            self._queue.forget(name)
        elif self._dry_run:
            what = plan.step or (plan.write and plan.write.patch) or (plan.zones and plan.zones.patch) or plan.notice
            logger.info("dry run, not written: %s", what, extra={"node": name})
        elif self._is_leader():
            self._outbox.put(name, urgency)
            return
        self._outbox.discard(name)

    def _why_suppressed(self, plan: _Plan) -> str | None:
        """Why a difference between the decision and the Node is not written."""
        match plan.look:
            case Look(outcome=Wait(reason=reason)):
                return reason
            case Look(outcome=Write()):
                return "dry_run" if self._dry_run else None if self._is_leader() else "not_leader"
        return None

    def _act(self, name: str) -> None:
        """Does the first part that the node needs, as needed now and not when it was queued.

        A part that fails lets the others go first until the next look at the node.
        """
        node = self._newest(name)
        with self._deciding:
            plan = self._plan(name, node)
        failed = self._failed.get(name, frozenset())
        due = [part for part in plan.urgencies if part not in failed]
        try:
            if due:
                self._do(due[0], plan, name)
        except Exception:
            self._failed[name] = failed | {due[0]}
            raise
        finally:
            if rest := [plan.urgencies[part] for part in due[1:]]:
                self._outbox.put(name, min(rest))
        if not failed:
            self._queue.forget(name)

    def _do(self, part: _Part, plan: _Plan, name: str) -> None:
        if part is _Part.WRITE:
            self._write(plan.look)
        elif self._is_leader():
            if plan.step is not None and part is _Part.STEP:
                self._take(plan.step)
            elif plan.notice is not None and part is _Part.NOTICE:
                self._say(plan.notice)
            elif plan.zones is not None and part is _Part.ZONES:
                self._write_zones(name, plan.zones)

    def _plan(self, name: str, node: Node | None) -> _Plan:
        report = self._caches.report(name)
        if node is None:
            self._decisions.forget(name)
            self._tracker.forget(name)
            self._answered.pop(name, None)
            self._unkept.pop(name, None)
            return _Plan(self._removal(name, report))
        look = self._looked(node)
        return _Plan(self._step(name, report, look.strategy), look, self._notice(look))

    def _looked(self, node: Node) -> Look:
        look = self._decisions.look(node)
        self._counters.decided(look.decision)
        return look

    def _notice(self, look: Look) -> Notice | None:
        """The conditions due about a shortfall; an error here must not delay a shrinking offer."""
        name = look.node.metadata.name
        if isinstance(look.outcome, Wait) and look.outcome.reason is Waiting.OUTAGE:
            return None  # it is unchanged, as far as is known
        try:
            return self._tracker.looked(look.node, look.strategy, look.decision, self._caches.pods(name))
        except Exception:
            logger.exception("it could not be told what pods hold beyond what there is", extra={"node": name})
            return None

    def _removal(self, name: str, report: NodeReport | None) -> lifecycle.Delete | None:
        if report is not None:
            return lifecycle.Delete(name, report.uid)
        return lifecycle.Delete(name) if self._caches.has_unread_metric(name) else None

    def _step(self, name: str, report: NodeReport | None, strategy: NodeStrategy | None) -> lifecycle.Step | None:
        if strategy is None or (report is None and self._caches.has_unread_metric(name)):
            return None
        old = None if report is None else report.spec
        configuration, node = self._caches.configuration, self._caches.node(name)
        thresholds = None if node is None else configuration.thresholds_of(node)
        wanted = spec.desired(
            strategy, settled=configuration.settled, old=old, prior=self._prior(), thresholds=thresholds
        )
        version, unread = ("", None) if report is None else (report.resource_version, report.unread_spec)
        step = lifecycle.plan(name, old, wanted, version=version, unread=unread)
        return None if isinstance(step, lifecycle.Update) and step.asked == self._unkept.get(name) else step

    def _take(self, step: lifecycle.Step) -> None:
        """Executes a step of the NodeMetric's lifecycle, and remembers one that had no effect."""
        outcome = lifecycle.perform(self._client, step)
        if outcome is not LifecycleOutcome.OVERTAKEN:
            self._counters.node_metric_writes.labels(type(step).__name__.lower()).inc()
        if isinstance(step, lifecycle.Update) and outcome is LifecycleOutcome.UNKEPT:
            logger.info("the schema of NodeMetrics lacks what was asked: %s", step.asked, extra={"node": step.name})
            self._unkept[step.name] = step.asked

    def _write(self, look: Look | None) -> None:
        """Patches the Node; after a conflict decides again on the present Node. A deleted node is no error."""
        conflicts = 0
        while look is not None and isinstance(look.outcome, Write) and self._is_leader():
            name = look.node.metadata.name
            try:
                written = self._client.patch(NODES, name, look.outcome.patch, subresource="status")
                self._answered[name] = written.resource_version
                return self._written(look.node, look.outcome, look.decision)
            except NotFound:
                return logger.info("node vanished before its write", extra={"node": name})
            except Conflict:
                self._counters.conflicts.inc()
                conflicts += 1
                if conflicts == CONFLICT_ATTEMPTS:
                    raise
            fresh = self._fresh(name)
            with self._deciding:
                look = None if fresh is None else self._looked(fresh)
        return None

    def _say(self, notice: Notice) -> None:
        """Patches the Node's own conditions, which only this manager writes."""
        name = notice.node.metadata.name
        try:
            patch = notice.patch(self._clock.now())
            written = self._client.patch(NODES, name, patch, kind=Patch.STRATEGIC, subresource="status")
        except NotFound:
            return logger.info("node vanished before its condition was written", extra={"node": name})
        self._answered[name] = written.resource_version
        with self._deciding:
            self._tracker.noticed(notice)
        self._counters.condition_writes.inc()
        for type_ in notice.turned:
            said = notice.said[type_]
            self._reporter.node_event(notice.node, said.event_type, said.event_reason(type_), said.message)
        return None

    def _write_zones(self, name: str, write: ZoneWrite) -> None:
        """Patches the NodeResourceTopology. Raises Conflict if it has changed; the watch then queues the node again."""
        try:
            self._client.patch(NODERESOURCETOPOLOGIES, name, write.patch, kind=Patch.JSON)
        except NotFound:
            return logger.info("zones vanished before their write", extra={"node": name})
        with self._deciding:
            self._decisions.zones_written(name, write)
        return self._counters.zone_writes.inc()

    def _newest(self, name: str) -> Node | None:
        """The cached node, or the server's while the watch lags behind this process's own writes.

        A write on an outdated version would be refused until the watch catches up.
        """
        cached = self._caches.node(name)
        if cached is not None and objects.is_older(cached.metadata.resource_version, self._answered.get(name, "")):
            return self._fresh(name)
        return cached

    def _fresh(self, name: str) -> Node | None:
        try:
            node = self._client.get(NODES, name, into=Node)
        except NotFound:
            return None
        self._answered[name] = node.metadata.resource_version
        return node

    def _written(self, node: Node, write: Write, decision: Decision) -> None:
        with self._deciding:
            self._decisions.written(node.metadata.name, write)
            self._reporter.written(node, write, decision)
        self._counters.writes.labels(write.reason).inc()
