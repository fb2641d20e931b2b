"""The worker: looks at one node after the other, decides, and writes what is due.

Every look is level-based, at the caches as they are now, so a missed, repeated or reordered change does no harm.
Whoever leads writes; the others decide all the same, and serve what they know.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from manager.caches import Caches
from manager.metrics import Counters
from manager.nodemetric import lifecycle, spec
from manager.noderesource import explain, writing
from manager.noderesource.explain import Decision
from manager.noderesource.situation import Requested
from manager.noderesource.writing import Write
from manager.reports import Reporter
from manager.settings import ManagerSettings
from manager.workqueue import Outbox, TokenBucket, Urgency, WorkQueue
from shared.api.colocation import DEFAULTS, NodeStrategy
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import NODES
from shared.quantity import Resources

logger = logging.getLogger(__name__)

CONFLICT_ATTEMPTS = 4
WRITE_TIMEOUT_SECONDS = 10.0
_IDLE_SECONDS = 0.5


@dataclass(frozen=True)
class LastWrite:
    """What this process last wrote to a Node; `offer` is None when it took Mid away."""

    time: float
    monotonic: float
    reason: str
    offer: Resources | None


@dataclass(frozen=True)
class NodeState:
    """All that is known of one node, for those who read."""

    node: Node
    requested: Requested
    decision: Decision | None
    last_write: LastWrite | None


@dataclass(frozen=True)
class _Due:
    """A write that is due, with the Node and the decision it rests on."""

    node: Node
    decision: Decision
    write: Write


@dataclass(frozen=True)
class _Plan:
    """What would bring a node to its wanted state."""

    step: lifecycle.Step | None
    due: _Due | None = None

    @property
    def urgency(self) -> Urgency | None:
        if self.due is not None and self.due.write.shrinks:
            return Urgency.SHRINK
        if self.step is not None:
            return Urgency.LIFECYCLE
        return None if self.due is None else Urgency.GROW


class Controller:
    """One worker that drains `queue`, looking at `caches`."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        queue: WorkQueue,
        settings: ManagerSettings,
        clock: Clock,
        *,
        reporter: Reporter,
        counters: Counters,
        is_leader: Callable[[], bool],
    ) -> None:
        self._client = client.single_attempt(WRITE_TIMEOUT_SECONDS)  # the queue has its own idea of when to try again
        self._caches = caches
        self._queue = queue
        self._dry_run = settings.dry_run
        self._clock = clock
        self._reporter = reporter
        self._counters = counters
        self._is_leader = is_leader
        self._outbox = Outbox()
        self._bucket = TokenBucket(clock, per_second=settings.writes_per_second, burst=settings.write_burst)
        self._decisions: dict[str, Decision] = {}
        self._last_writes: dict[str, LastWrite] = {}
        self._look_again_at: dict[str, float] = {}  # wall time
        self._turned_at = clock.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Works until `stop`. Looking comes first: it is cheap, and finds out what is urgent."""
        while not stop.is_set():
            self._turned_at = self._clock.monotonic()
            may_write = len(self._outbox) > 0 and self._is_leader()
            name = self._queue.get(min(_IDLE_SECONDS, self._bucket.delay_seconds()) if may_write else _IDLE_SECONDS)
            if name is not None:
                self._attempt(name, self._look)
            if may_write and self._bucket.take() and (due := self._outbox.pop()) is not None:
                self._attempt(due, self._act)

    def check(self) -> None:
        """Queues the nodes for which time alone changes something: a NodeMetric turns stale, a write falls due."""
        now = self._clock.now()
        due = [name for name, at in list(self._look_again_at.items()) if at < now]
        for name in due:
            self._look_again_at.pop(name, None)
        self._queue.add(due)

    def look_at_all(self) -> None:
        """Queues every node; to be called when this process starts leading."""
        self._queue.add(self._caches.names())

    def states(self) -> list[NodeState]:
        """All nodes by name."""
        return [self._state(node) for node in sorted(self._caches.nodes(), key=lambda node: node.metadata.name)]

    def state(self, name: str) -> NodeState | None:
        """One node, if there is such a node."""
        node = self._caches.node(name)
        return None if node is None else self._state(node)

    def pending(self) -> tuple[int, int]:
        """How many nodes wait to be looked at, and how many to be written."""
        return len(self._queue), len(self._outbox)

    def silent_seconds(self) -> float:
        """Since the worker last came round."""
        return self._clock.monotonic() - self._turned_at

    def _state(self, node: Node) -> NodeState:
        name = node.metadata.name
        return NodeState(node, self._caches.requested(name), self._decisions.get(name), self._last_writes.get(name))

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
            return  # every name comes again once all is seen
        plan = self._plan(name)
        urgency = plan.urgency
        if urgency is None:
            self._queue.forget(name)
        elif self._dry_run:
            what = plan.step or (plan.due and plan.due.write.patch)
            logger.info("dry run, not written: %s", what, extra={"node": name})
        elif self._is_leader():
            self._outbox.put(name, urgency)
            return
        self._outbox.discard(name)

    def _act(self, name: str) -> None:
        """Takes the node's most urgent step, as it is needed now and not when it was queued."""
        plan = self._plan(name)
        if plan.due is not None:
            self._write(plan.due)
            if plan.step is not None:
                self._outbox.put(name, Urgency.LIFECYCLE)
        elif plan.step is not None and self._is_leader():
            lifecycle.perform(self._client, plan.step)
            self._counters.node_metric_writes.labels(type(plan.step).__name__.lower()).inc()
        self._queue.forget(name)

    def _plan(self, name: str) -> _Plan:
        node, metric = self._caches.node(name), self._caches.metric(name)
        if node is None:
            self._forget(name)
            return _Plan(None if metric is None else lifecycle.Delete(name, metric.metadata.uid))
        strategy = self._strategy(node)
        return _Plan(self._step(name, strategy), self._due(node, strategy))

    def _strategy(self, node: Node) -> NodeStrategy | None:
        strategy = self._caches.configuration.strategy(node)
        self._reporter.strategy(node, strategy)
        return strategy

    def _step(self, name: str, strategy: NodeStrategy | None) -> lifecycle.Step | None:
        if strategy is None:
            return None
        metric = self._caches.metric(name)
        settled = self._caches.configuration.settled
        wanted = spec.desired(strategy, settled=settled, old=None if metric is None else metric.spec)
        return lifecycle.plan(name, metric, wanted)

    def _due(self, node: Node, strategy: NodeStrategy | None) -> _Due | None:
        """Decides about the node, notes when time alone may change the answer, and applies the write rule."""
        name, now = node.metadata.name, self._clock.now()
        decision = explain.decide(node, self._caches.metric(name), self._caches.requested(name), strategy, now)
        self._decisions[name] = decision
        self._counters.decisions.inc()
        rule, last = strategy.strategy if strategy else DEFAULTS, self._last_writes.get(name)
        since = None if last is None else self._clock.monotonic() - last.monotonic
        times = [] if decision.expires_at is None else [decision.expires_at]
        if since is not None and since <= rule.update_time_threshold_seconds:
            times.append(now + rule.update_time_threshold_seconds - since)
        if times:
            self._look_again_at[name] = min(times)
        if decision.hold:
            return None
        write = writing.plan(node, decision.offer, strategy=rule, since_last_seconds=since)
        return None if write is None else _Due(node, decision, write)

    def _write(self, due: _Due | None) -> None:
        """Patches the Node; on a conflict decides again on the Node as it is now. A node that is gone is no error."""
        conflicts = 0
        while due is not None and self._is_leader():
            name = due.node.metadata.name
            try:
                self._client.patch(NODES, name, due.write.patch, subresource="status")
                return self._written(due)
            except NotFound:
                return logger.info("node vanished before its write", extra={"node": name})
            except Conflict:
                self._counters.conflicts.inc()
                conflicts += 1
                if conflicts == CONFLICT_ATTEMPTS:
                    raise
            fresh = self._fresh(name)
            due = None if fresh is None else self._due(fresh, self._strategy(fresh))
        return None

    def _fresh(self, name: str) -> Node | None:
        try:
            return self._client.get(NODES, name, into=Node)
        except NotFound:
            return None

    def _written(self, due: _Due) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        self._last_writes[due.node.metadata.name] = LastWrite(now, monotonic, due.write.reason, due.write.new)
        self._counters.writes.labels(due.write.reason).inc()
        self._reporter.written(due.node, due.write, due.decision)

    def _forget(self, name: str) -> None:
        for known in (self._decisions, self._last_writes, self._look_again_at):
            known.pop(name, None)
        self._reporter.forget(name)
        self._caches.forget(name)
