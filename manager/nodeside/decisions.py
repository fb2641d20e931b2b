"""The decisions about each node, with their memory from one look to the next."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec

from manager.nodeside import outages
from manager.nodeside.eviction.reliever import Pressed
from manager.nodeside.eviction.tracker import TrackedShortfall
from manager.nodeside.noderesource import damping, explain, holdings, prod_first, situation, writing
from manager.nodeside.noderesource.batch import Above
from manager.nodeside.noderesource.buffer import NOTHING_LEARNED, Learner
from manager.nodeside.noderesource.damping import Damping
from manager.nodeside.noderesource.explain import Decision, Known, Offer
from manager.nodeside.noderesource.holdings import NOTHING_LATELY, Holding
from manager.nodeside.noderesource.mid import NO_LESSONS
from manager.nodeside.noderesource.plausibility import ReportHistory
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.noderesource.situation import NodeFacts
from manager.nodeside.noderesource.writing import NodeWriteRule, OfferChange, Wait, Waiting, Write, WriteRule
from manager.nodeside.outages import Outage
from manager.nodeside.policy import ClusterPolicy
from manager.nodeside.reports import EventReporter
from manager.pods import NodeRequests, PodRecord
from manager.settings import ManagerSettings
from shared.api.colocation import DEFAULTS, ColocationStrategy, NodeStrategy
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.names import Tier
from shared.quantity import Resources

logger = logging.getLogger(__name__)

# A scheduler may bind a pod by what a Node showed before a write that is younger than this.
LATELY_SECONDS = 60.0


class LastWrite(msgspec.Struct, frozen=True):
    """This process's last write to a Node, and its reason."""

    time: float
    monotonic: float
    reason: str
    why: str
    changes: Mapping[Tier, OfferChange]


class DecidedNode(msgspec.Struct, frozen=True):
    """A node with the decision about it, and the write that is due or the reason to wait."""

    node: Node
    strategy: NodeStrategy | None
    decision: Decision
    outcome: Write | Wait | None


class Pending(msgspec.Struct, frozen=True):
    """Why the decision is not on the Node yet; `until` is the Unix time at which that ends, if time alone ends it."""

    reason: str
    until: float | None = None


class KnownNode(msgspec.Struct, frozen=True):
    """The known state of one node, for readers."""

    node: Node
    requested: NodeRequests
    decision: Decision | None
    last_write: LastWrite | None
    pending: Pending | None = None
    strategy: NodeStrategy | None = None
    shortfalls: Mapping[Tier, TrackedShortfall] = msgspec.field(default_factory=dict)
    pressed: Pressed | None = None


class DecisionSources(Protocol):
    """The present inputs of decisions."""

    policy: ClusterPolicy

    def report(self, name: str) -> NodeReport | None: ...
    def pods(self, name: str) -> Collection[PodRecord]: ...
    def requested(self, name: str) -> NodeRequests: ...


class CachedNodeConfig(msgspec.Struct, frozen=True):
    """The facts from one version of a Node and of the policy, regardless of reports.

    `facts` is None for an invalid Node.
    """

    node: Node
    policy: ClusterPolicy
    strategy: NodeStrategy | None
    facts: NodeFacts | None


@dataclass(slots=True, eq=False)
class NodeHistory:
    """The memory of one node."""

    decided: DecidedNode | None = None
    standing: CachedNodeConfig | None = None
    of_pods: tuple[Collection[PodRecord], Above] | None = None
    of_holding: tuple[Collection[PodRecord], Node, Mapping[Tier, Resources], Mapping[Tier, Holding]] | None = None
    last_write: LastWrite | None = None
    look_again_at: float | None = None  # wall time
    failures: tuple[str, ...] = ()
    learner: Learner = field(default_factory=Learner)
    learned_from: str | None = None
    damping: dict[Tier, Damping] = field(default_factory=dict)
    past: ReportHistory = field(default_factory=ReportHistory)
    was_ahead: float | None = None  # the time of a report that was in the future when read


class NodeDecisions:
    """Decides on the present `caches`. One thread at a time decides; all may read."""

    def __init__(
        self,
        caches: DecisionSources,
        settings: ManagerSettings,
        clock: Clock,
        reporter: EventReporter,
        unheard_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._unheard_seconds = unheard_seconds
        self._outage: Outage | None = None
        self._caches = caches
        self._clock = clock
        self._reporter = reporter
        self._tiers = settings.tiers
        self._rule = WriteRule(settings.write_rule)
        self._memories: dict[str, NodeHistory] = {}

    def decide(self, node: Node) -> DecidedNode:
        """Decides about the node, records when elapsed time may change the result, and applies the write rule."""
        name, now, monotonic = node.metadata.name, self._clock.now(), self._clock.monotonic()
        memory = self._memories.get(name)
        if memory is None:
            memory = self._memories[name] = NodeHistory()
        strategy, decision = self._decided(node, memory, now)
        if _inherits(memory, node, decision):
            strategy, decision = self._decided(node, memory, now)
        in_effect = strategy.strategy if strategy else DEFAULTS
        self._remember(memory, decision, in_effect, monotonic)
        last = None if memory.last_write is None else memory.last_write.monotonic
        rule = NodeWriteRule.from_strategy(in_effect, kind=self._rule, now=monotonic, last_write=last)
        outcome = None
        if not decision.hold:
            obsolete = explain.obsolete_annotations(decision)
            outcome = writing.plan(node, decision.offers, rule, damping=memory.damping, obsolete=obsolete)
            outcome = self._spared(outcome, decision, in_effect, monotonic - now)
        memory.look_again_at = _look_again_at(decision, outcome, now, monotonic)
        memory.decided = DecidedNode(node, strategy, decision, outcome)
        return memory.decided

    def written(self, name: str, write: Write) -> None:
        """The write has reached the Node."""
        if memory := self._memories.get(name):
            memory.last_write = LastWrite(
                self._clock.now(), self._clock.monotonic(), write.reason, write.why, write.changes
            )

    def due(self) -> list[str]:
        """The nodes for which elapsed time changes something now; each is returned once."""
        now, due = self._clock.now(), []
        self._sense()
        for name, memory in list(self._memories.items()):
            if memory.look_again_at is not None and memory.look_again_at < now:
                memory.look_again_at = None
                due.append(name)
        return due

    def history_of(self, name: str) -> NodeHistory | None:
        return self._memories.get(name)

    def forget(self, name: str) -> None:
        """The node no longer exists."""
        self._memories.pop(name, None)
        self._reporter.forget(name)

    def _sense(self) -> None:
        """Records whether the API server answers."""
        self._outage = outages.sensed(self._outage, self._unheard_seconds(), self._clock.monotonic())

    def _spared(
        self, outcome: Write | Wait | None, decision: Decision, strategy: ColocationStrategy, ahead: float
    ) -> Write | Wait | None:
        """The outcome for a Node with a stale NodeMetric: it waits while an outage is the reason.

        `ahead` is how far the monotonic clock is ahead of the wall clock.
        """
        report = None if decision.observed is None else decision.observed.report
        is_stale = any(offer.explanation.cpu.bound == explain.STALE for offer in decision.offers.values())
        if not (is_stale and isinstance(outcome, Write) and report is not None and report.update_time is not None):
            return outcome
        if not all(change.shrinks or change.old == change.new for change in outcome.changes.values()):
            return outcome  # what pods hold is shown at once
        self._sense()
        until = outages.spared_until(
            self._outage,
            reported_at=report.update_time + ahead,
            degrade_seconds=strategy.degrade_seconds,
            interval_seconds=strategy.metric_report_interval_seconds,
            now=self._clock.monotonic(),
        )
        return outcome if until is None else Wait(Waiting.OUTAGE, partial(_outlasting, decision), until)

    def _decided(self, node: Node, memory: NodeHistory, now: float) -> tuple[NodeStrategy | None, Decision]:
        name, strategy = node.metadata.name, None
        try:
            standing = self._standing(node, memory)
            strategy, report = standing.strategy, self._caches.report(name)
            if report is not None and report.update_time is not None and explain.is_ahead(report.update_time, now):
                memory.was_ahead = report.update_time
            requested = self._caches.requested(name)
            memory.past = memory.past.after_report(report.updated if report else None, requested.prod)
            above_batch, held = self._above_batch(name, memory), self._find_holdings(node, memory)
            thresholds = self._caches.policy.thresholds_of(node)
            lessons = NO_LESSONS if report is None else prod_first.lessons(report.prod_waits, thresholds)
            known = Known(requested, above_batch, memory.was_ahead, memory.past.most_requested, held, lessons)
            learned, facts = memory.learner.learned, standing.facts
            decision = explain.decide(
                node, report, known, strategy, now, tiers=self._tiers, learned=learned, facts=facts
            )
            decision = _confirmed(memory, decision)
            why = "" if report is None else prod_first.hold(report.prod_waits, report.update_time, thresholds, now)
            decision = explain.paused(decision, why) if why else decision
        except Exception as error:  # whatever data caused it, a failed decision must not leave an offer in place
            decision = explain.failed(error, self._tiers, now)
            decision = explain.with_floors(decision, self._find_holdings(node, memory))
        failures = tuple(offer.reason for offer in decision.offers.values() if offer.failed)
        if failures and failures != memory.failures:
            logger.error(
                "the decision failed, so these tiers are withdrawn: %s", "; ".join(failures), extra={"node": name}
            )
        memory.failures = failures
        return strategy, decision

    def _standing(self, node: Node, memory: NodeHistory) -> CachedNodeConfig:
        """The cached facts. Most looks follow a report, with Node and policy unchanged."""
        policy, known = self._caches.policy, memory.standing
        if known is not None and known.node is node and known.policy is policy:
            return known
        strategy = policy.strategy(node)
        self._reporter.strategy(node, strategy)
        try:
            facts: NodeFacts | None = situation.facts(node)
        except InvalidInput:  # deciding will find and report it again
            facts = None
        memory.standing = CachedNodeConfig(node, policy, strategy, facts)
        return memory.standing

    def _above_batch(self, name: str, memory: NodeHistory) -> Above:
        """The facts of the pods above Batch; computed once per set of pods."""
        there = self._caches.pods(name)
        if memory.of_pods is None or memory.of_pods[0] is not there:
            memory.of_pods = there, Above.from_pods(there)
        return memory.of_pods[1]

    def _find_holdings(self, node: Node, memory: NodeHistory) -> Mapping[Tier, Holding]:
        """What pods hold of each tier; computed once per set of pods and version of the Node."""
        there, lately = self._caches.pods(node.metadata.name), NOTHING_LATELY
        last, known = memory.last_write, memory.of_holding
        if last is not None and self._clock.monotonic() - last.monotonic < LATELY_SECONDS:
            lately = {tier: change.old for tier, change in last.changes.items() if change.old is not None}
        if known is not None and known[0] is there and known[1] is node and known[2] == lately:
            return known[3]
        facts = None if memory.standing is None else memory.standing.facts
        memory.of_holding = there, node, lately, holdings.find(node, there, facts, lately)
        return memory.of_holding[3]

    def _remember(
        self, memory: NodeHistory, decision: Decision, strategy: ColocationStrategy, monotonic: float
    ) -> None:
        for tier, offer in decision.offers.items():
            if offer.resources is None:
                memory.damping.pop(tier, None)
            else:
                interval = strategy.update_time_threshold_seconds
                memory.damping[tier] = damping.remember(memory.damping.get(tier), offer.resources, monotonic, interval)
        mid = decision.offers.get(Tier.MID)
        if mid is not None:
            _learn(memory, mid, decision)


def _confirmed(memory: NodeHistory, decision: Decision) -> Decision:
    """The decision, without a contradiction that only one report had so far."""
    contradicts = bool(decision.contradiction)
    if contradicts is not memory.past.contradicts:
        memory.past = memory.past.with_verdict(contradicts)
    if contradicts and not memory.past.is_confirmed:
        return msgspec.structs.replace(decision, contradiction="")
    return decision


def _inherits(memory: NodeHistory, node: Node, decision: Decision) -> bool:
    """Whether the first report shows that another process held back Mid; then this process inherits the share."""
    if memory.learned_from is not None or memory.last_write is not None:
        return False
    mid, shown = decision.offers.get(Tier.MID), holdings.on_offer(node, Tier.MID)
    if mid is None or mid.resources is None or shown is None or shown == mid.floor:
        return False  # the held amount was shown for another reason
    memory.learner.inherit(mid.resources.plus(mid.held_back), shown)
    return memory.learner.learned != NOTHING_LEARNED


def _learn(memory: NodeHistory, mid: Offer, decision: Decision) -> None:
    """Takes in the raw Mid offer of each report, once."""
    if mid.resources is None:
        memory.learner.interrupt()
        memory.learned_from = None
        return
    report = None if decision.observed is None else decision.observed.report
    if report is not None and report.updated != memory.learned_from:
        memory.learned_from = report.updated
        memory.learner.learn(mid.resources.plus(mid.held_back).plus(mid.taught))


def _outlasting(decision: Decision) -> str:
    return f"the API server was away, so agents get one report interval before anything is withdrawn: {decision.reason}"


def _look_again_at(decision: Decision, outcome: Write | Wait | None, now: float, monotonic: float) -> float | None:
    """The wall time at which the NodeMetric turns stale, or a waiting write may go."""
    times = [] if decision.expires_at is None else [decision.expires_at]
    if isinstance(outcome, Wait) and outcome.until is not None:
        times.append(now + outcome.until - monotonic)
    return min(times, default=None)
