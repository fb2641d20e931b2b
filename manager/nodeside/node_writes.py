"""Carries out what is planned for a node: each part is one write, conditional where two writers may meet."""

import logging
from collections.abc import Callable

from manager.nodeside.decisions import DecidedNode
from manager.nodeside.eviction.condition import Notice
from manager.nodeside.metrics import ManagerCounters
from manager.nodeside.node_plans import NodePart, NodePlan, NodePlanner
from manager.nodeside.nodemetric import lifecycle
from manager.nodeside.nodemetric.lifecycle import LifecycleOutcome
from manager.nodeside.noderesource.explain import Decision
from manager.nodeside.noderesource.writing import Write
from manager.nodeside.reports import EventReporter
from shared.api.core import Node
from shared.kube import objects
from shared.kube.client import Client, Patch
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import NODES

logger = logging.getLogger(__name__)

CONFLICT_ATTEMPTS = 4
WRITE_TIMEOUT_SECONDS = 10.0


class NodeWrites:
    """The writes about nodes; for several threads."""

    def __init__(
        self,
        client: Client,
        planner: NodePlanner,
        reporter: EventReporter,
        counters: ManagerCounters,
        is_leader: Callable[[], bool],
    ) -> None:
        self.planner = planner
        self.counters = counters
        self.is_leader = is_leader
        self._client = client.single_attempt(WRITE_TIMEOUT_SECONDS)  # the queue decides about retries
        self._reporter = reporter
        self._answered: dict[str, str] = {}  # by node: the newest version that an answer to this process contained

    def carry_out(self, part: NodePart, plan: NodePlan, name: str) -> None:
        """Does one part of a plan. Raises HeadroomError."""
        if part is NodePart.WRITE:
            self._write(plan.decided)
        elif self.is_leader():
            if plan.step is not None and part is NodePart.STEP:
                self._take(plan.step)
            elif plan.notice is not None and part is NodePart.NOTICE:
                self._say(plan.notice)

    def _take(self, step: lifecycle.Step) -> None:
        """Executes a step of the NodeMetric's lifecycle, and remembers one that had no effect."""
        outcome = lifecycle.perform(self._client, step)
        if outcome is not LifecycleOutcome.OVERTAKEN:
            self.counters.node_metric_writes.labels(type(step).__name__.lower()).inc()
        if isinstance(step, lifecycle.Update) and outcome is LifecycleOutcome.UNKEPT:
            self.planner.remember_unkept(step)

    def _write(self, decided: DecidedNode | None) -> None:
        """Patches the Node; after a conflict decides again on the present Node. A deleted node is no error."""
        conflicts = 0
        while decided is not None and isinstance(decided.outcome, Write) and self.is_leader():
            name = decided.node.metadata.name
            try:
                written = self._client.patch(NODES, name, decided.outcome.patch, subresource="status")
                self._answered[name] = written.resource_version
                return self._written(decided.node, decided.outcome, decided.decision)
            except NotFound:
                return logger.info("node deleted before its write", extra={"node": name})
            except Conflict:
                self.counters.conflicts.inc()
                conflicts += 1
                if conflicts == CONFLICT_ATTEMPTS:
                    raise
            fresh = self._fresh(name)
            with self.planner.lock:
                decided = None if fresh is None else self.planner.decide(fresh)
        return None

    def _say(self, notice: Notice) -> None:
        """Patches the Node's own conditions, which only this manager writes."""
        name = notice.node.metadata.name
        try:
            patch = notice.patch(self._client.clock.now())
            written = self._client.patch(NODES, name, patch, kind=Patch.STRATEGIC, subresource="status")
        except NotFound:
            return logger.info("node deleted before its condition was written", extra={"node": name})
        self._answered[name] = written.resource_version
        with self.planner.lock:
            self.planner.tracker.record_notice(notice)
        self.counters.condition_writes.inc()
        for type_ in notice.turned:
            said = notice.said[type_]
            self._reporter.node_event(notice.node, *said.event(type_))
        return None

    def forget(self, name: str) -> None:
        """The node does not exist any more."""
        self._answered.pop(name, None)

    def newest(self, name: str, cached: Node | None) -> Node | None:
        """The cached node, or the server's while the watch lags behind this process's own writes.

        A write on an outdated version would be refused until the watch catches up.
        """
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
        with self.planner.lock:
            self.planner.decisions.written(node.metadata.name, write)
            self._reporter.written(node, write, decision)
        self.counters.writes.labels(write.reason).inc()
