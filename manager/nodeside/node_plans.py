"""Plans the writes that bring a node to its desired state, from the present caches and the elapsed time."""

import enum
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from manager.nodeside.caches import Caches
from manager.nodeside.decisions import DecidedNode, NodeDecisions
from manager.nodeside.eviction.condition import Notice
from manager.nodeside.eviction.tracker import Tracker
from manager.nodeside.metrics import ManagerCounters
from manager.nodeside.nodemetric import lifecycle, spec
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.noderesource.writing import Wait, Waiting, Write
from manager.nodeside.workqueue import Urgency
from shared.api.colocation import NodeStrategy
from shared.api.core import Node
from shared.api.nodemetric_spec import PredictionPrior

logger = logging.getLogger(__name__)


class NodePart(enum.Enum):
    """The parts of a node that may need a write."""

    WRITE = enum.auto()
    STEP = enum.auto()
    NOTICE = enum.auto()


@dataclass(frozen=True)
class NodePlan:
    """The writes that bring a node to its desired state."""

    step: lifecycle.Step | None
    decided: DecidedNode | None = None
    notice: Notice | None = None

    @property
    def write(self) -> Write | None:
        return self.decided.outcome if self.decided is not None and isinstance(self.decided.outcome, Write) else None

    @property
    def urgencies(self) -> dict[NodePart, Urgency]:
        """The urgency of each pending part, in the order of execution."""
        shrinks = self.write is not None and self.write.shrinks
        parts = (
            (NodePart.WRITE, self.write, Urgency.SHRINK if shrinks else Urgency.GROW),
            (NodePart.STEP, self.step, Urgency.LIFECYCLE),
            (NodePart.NOTICE, self.notice, Urgency.LIFECYCLE),
        )
        return {part: urgency for part, there, urgency in parts if there is not None}


class NodePlanner:
    """Plans for one node after another. Hold `lock` while planning, and while recording results; never in a call."""

    def __init__(
        self,
        caches: Caches,
        decisions: NodeDecisions,
        tracker: Tracker,
        counters: ManagerCounters,
        prior: Callable[[], PredictionPrior | None],
    ) -> None:
        self.lock = threading.Lock()
        self.decisions = decisions
        self.tracker = tracker
        self._caches = caches
        self._counters = counters
        self._prior = prior
        self._unkept: dict[str, str] = {}  # by node: what was requested of its NodeMetric, and dropped by the server

    def due(self) -> set[str]:
        """The nodes for which elapsed time changes something: a NodeMetric turns stale, a write falls due."""
        return {*self.decisions.due(), *self.tracker.due()}

    def plan(self, name: str, node: Node | None) -> NodePlan:
        """The plan for the node, or for what is left of one that does not exist."""
        report = self._caches.report(name)
        if node is None:
            self.decisions.forget(name)
            self.tracker.forget(name)
            self._unkept.pop(name, None)
            return NodePlan(self._removal(name, report))
        decided = self.decide(node)
        return NodePlan(self._step(name, report, decided.strategy), decided, self._notice(decided))

    def decide(self, node: Node) -> DecidedNode:
        """Decides about the node."""
        decided = self.decisions.decide(node)
        self._counters.decided(decided.decision)
        return decided

    def _notice(self, decided: DecidedNode) -> Notice | None:
        """The conditions due about a shortfall; an error here must not delay a shrinking offer."""
        name = decided.node.metadata.name
        if isinstance(decided.outcome, Wait) and decided.outcome.reason is Waiting.OUTAGE:
            return None  # it is unchanged, as far as is known
        try:
            return self.tracker.track(decided.node, decided.strategy, decided.decision, self._caches.pods(name))
        except Exception:
            logger.exception("the shortfall of the node could not be calculated", extra={"node": name})
            return None

    def _removal(self, name: str, report: NodeReport | None) -> lifecycle.Delete | None:
        if report is not None:
            return lifecycle.Delete(name, report.uid)
        return lifecycle.Delete(name) if self._caches.has_unread_metric(name) else None

    def _step(self, name: str, report: NodeReport | None, strategy: NodeStrategy | None) -> lifecycle.Step | None:
        if strategy is None or (report is None and self._caches.has_unread_metric(name)):
            return None
        old = None if report is None else report.spec
        policy, node = self._caches.policy, self._caches.node(name)
        thresholds = None if node is None else policy.thresholds_of(node)
        wanted = spec.desired(strategy, settled=policy.settled, old=old, prior=self._prior(), thresholds=thresholds)
        version, unread = ("", None) if report is None else (report.resource_version, report.unread_spec)
        step = lifecycle.plan(name, old, wanted, version=version, unread=unread)
        return None if isinstance(step, lifecycle.Update) and step.asked == self._unkept.get(name) else step

    def remember_unkept(self, step: lifecycle.Update) -> None:
        """The server dropped what this update requested; it is not requested again."""
        logger.info("the CRD of NodeMetrics lacks a requested field: %s", step.asked, extra={"node": step.name})
        self._unkept[step.name] = step.asked
