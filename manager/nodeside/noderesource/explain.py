"""The decision about one node: the present offer to each tier, with every term explained."""

import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from manager.nodeside.noderesource import batch, holdings, mid, plausibility, situation
from manager.nodeside.noderesource.batch import Above
from manager.nodeside.noderesource.buffer import Learned
from manager.nodeside.noderesource.holdings import Holding
from manager.nodeside.noderesource.prod_first import Lesson
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.noderesource.situation import NodeFacts, NodeSituation
from manager.pods import NOTHING, NodeRequests, PodRecord
from shared import explanation as words
from shared import names
from shared.api.colocation import DEFAULTS, ColocationStrategy, NodeStrategy
from shared.api.core import Node
from shared.errors import InvalidInput
from shared.explanation import Explanation, ResourceExplanation, Term
from shared.names import Tier
from shared.quantity import Resources

# The bounds of offers without a formula.
DISABLED = "disabled"
STALE = "stale"
UNREADABLE = "unreadable"
UNKNOWN = "unknown"
UNDECIDED = "undecided"
FAILED = "failed"
HELD = "held"  # bounds the Node's value where pods hold more than there is
PROD_SLOWED = "prod_slowed"  # bounds it to what pods hold while Prod pods wait too long

DISABLED_REASON = "node colocation is disabled in Config, reason: DisableInConfig"
DEGRADED_REASONS = {
    Tier.MID: "degrade node Mid resource because of abnormal nodeMetric, reason: degradedByMidResource",
    Tier.BATCH: "degrade node resource because of abnormal nodeMetric, reason: degradedByBatchResource",
}
CLOCK_SKEW_SECONDS = 60  # tolerance for an agent's clock, ahead or behind; no machine is replaced within it

UNDECIDED_REASON = "no colocation configuration could be read yet; the Node is not changed"

ALL_TIERS = tuple(Tier)
NO_REQUESTS = NodeRequests()
NOTHING_HELD: Mapping[Tier, Holding] = {}


class Offer(msgspec.Struct, frozen=True):
    """The offer to one tier; `resources` None removes the tier from the node.

    `held_back` is the buffer's part, `taught` what is withheld since Prod was slowed, `margin` the part that stays
    free. `floor` is what pods on the node hold of it, `beyond` are bound pods that do not count in it; see `holdings`.
    `paused` is why nothing is lent anew, empty where something may be. `say` makes the sentence of `reason`, lazily,
    since most decisions are never read.
    """

    resources: Resources | None
    explanation: Explanation
    held_back: Resources = NOTHING
    say: Callable[[], str] = str
    margin: Resources = NOTHING
    floor: Resources = NOTHING
    beyond: tuple[PodRecord, ...] = ()
    paused: str = ""
    taught: Resources = NOTHING

    @property
    def reason(self) -> str:
        """The reason, on one line."""
        said = f"{self.say()}; nothing more is lent: {self.paused}" if self.paused else self.say()
        if not self.is_held_up:
            return said
        return f"{said}; the Node shows the {_amount(self.floor)} that pods request, and nothing more is lent"

    @property
    def lent(self) -> Resources | None:
        """The amount that pods may hold: `resources`, but no more than they hold already while lending is paused."""
        return self.resources.least(self.floor) if self.paused and self.resources is not None else self.resources

    @property
    def kept_back(self) -> Resources:
        """How much above `lent` the write rule may leave on offer for a while."""
        return NOTHING if self.paused else self.held_back.plus(self.margin)

    @property
    def shown(self) -> Resources | None:
        """The amount for the Node: no less than its pods hold.

        A restarted kubelet admits running pods by the amounts of its Node, and ends all that do not fit. So a tier
        falls below the held amount only by eviction.
        """
        lent = self.lent
        if self.floor == NOTHING:
            return lent
        return self.floor if lent is None else lent.most(self.floor)

    @property
    def is_held_up(self) -> bool:
        """Whether the Node shows more than there is."""
        return self.shown != self.lent

    @property
    def told(self) -> Explanation:
        """The explanation, extended to the shown amount."""
        cpu, memory = self.explanation.cpu, self.explanation.memory
        if self.paused and self.lent is not None:
            cpu, memory = _paused(cpu, self.lent.cpu_milli, "milli"), _paused(memory, self.lent.memory_bytes, "bytes")
        if not self.is_held_up:
            return Explanation(cpu, memory, self.explanation.reason)
        return Explanation(
            _held_up(cpu, self.floor.cpu_milli, "milli"), _held_up(memory, self.floor.memory_bytes, "bytes")
        )

    @property
    def failed(self) -> bool:
        """Whether the tier is withheld because its decision failed."""
        return self.explanation.cpu.bound == FAILED

    @property
    def is_degraded(self) -> bool:
        """Whether the tier is withheld because too little is known about the node."""
        return self.explanation.cpu.bound in (STALE, UNREADABLE, UNKNOWN, FAILED)


class Decision(msgspec.Struct, frozen=True):
    """The offer to each managed tier of a node, as of `time`; with `hold` the Node stays as it is.

    `expires_at` is when the NodeMetric turns stale, and `contradiction` names its implausible values, empty without
    any. Times are Unix seconds.
    """

    offers: Mapping[Tier, Offer]
    time: float
    hold: bool = False
    observed: NodeSituation | None = None
    expires_at: float | None = None
    contradiction: str = ""

    @property
    def reason(self) -> str:
        """All reasons on one line, each once."""
        reasons = {offer.reason: tier for tier, offer in self.offers.items()}
        if len(reasons) < 2:
            return next(iter(reasons), "")
        return "; ".join(f"{tier}: {reason}" for reason, tier in reasons.items())


class Known(msgspec.Struct, frozen=True):
    """The known facts about one node's pods, and the time of a report that once was in the future.

    `prod_requested_lately` is the recent maximum of the requests of pods above Mid; see `plausibility`. `lessons` are
    what the node withholds of Mid, by resource; see `prod_first`.
    """

    requested: NodeRequests = NO_REQUESTS
    above_batch: Above = Above.from_pods(())
    was_ahead: float | None = None
    prod_requested_lately: Resources = NOTHING
    held: Mapping[Tier, Holding] = NOTHING_HELD
    lessons: Mapping[str, Lesson] = mid.NO_LESSONS

    @classmethod
    def from_pods(cls, node: Node, requested: NodeRequests, pods: Collection[PodRecord]) -> "Known":
        try:
            facts = situation.facts(node)
        except InvalidInput:  # deciding will find and report it again
            facts = None
        return cls(requested, Above.from_pods(pods), held=holdings.find(node, pods, facts))


def decide(
    node: Node,
    report: NodeReport | None,
    known: Known,
    strategy: NodeStrategy | None,
    now: float,
    *,
    tiers: Iterable[Tier] = ALL_TIERS,
    learned: Learned | None = None,
    facts: NodeFacts | None = None,
) -> Decision:
    """The offers of `node` at `now`; unknown, unreadable and stale amounts are not offered.

    Without a strategy (no readable configuration yet) the Node stays as it is until its NodeMetric turns stale.
    `learned` is the learned share of the buffer; `facts` are the node's, if already known.
    """
    tiers = tuple(tiers)
    try:
        facts = facts or situation.facts(node)
    except InvalidInput as problem:
        return with_floors(_degraded(UNREADABLE, str(problem), tiers, now), known.held)
    observed = situation.observe(facts, report, known.requested, known.prod_requested_lately)
    return with_floors(_decided(node, observed, known, strategy, now, tiers, learned), known.held)


def with_floors(decision: Decision, held: Mapping[Tier, Holding]) -> Decision:
    """The decision with the amounts that pods hold of each tier."""
    if not any(each.floor != NOTHING or each.beyond for each in held.values()):
        return decision
    offers = {
        tier: msgspec.structs.replace(offer, floor=known.floor, beyond=known.beyond)
        if (known := held.get(tier)) is not None
        else offer
        for tier, offer in decision.offers.items()
    }
    return msgspec.structs.replace(decision, offers=offers)


def paused(decision: Decision, why: str) -> Decision:
    """The decision with nothing lent anew."""
    offers = {tier: msgspec.structs.replace(offer, paused=why) for tier, offer in decision.offers.items()}
    return msgspec.structs.replace(decision, offers=offers)


def _decided(
    node: Node,
    observed: NodeSituation,
    known: Known,
    strategy: NodeStrategy | None,
    now: float,
    tiers: Iterable[Tier],
    learned: Learned | None,
) -> Decision:
    report = observed.report
    if strategy is not None and not strategy.enabled:
        return Decision({tier: _withheld(DISABLED, DISABLED_REASON) for tier in tiers}, now, observed=observed)
    if report is not None and report.problem is not None:
        return _degraded(UNREADABLE, str(report.problem), tiers, now, observed)
    update_time = None if report is None else report.update_time
    degrade_seconds = (strategy.strategy if strategy else DEFAULTS).degrade_seconds
    stale = why_stale(update_time, degrade_seconds=degrade_seconds, now=now) or _why_foreign(observed, update_time)
    if stale is None and update_time is not None and update_time == known.was_ahead:
        stale = "the NodeMetric was dated into the future when it came"
    if stale is not None:
        return _degraded(STALE, stale, tiers, now, observed)
    expires_at = None if update_time is None else update_time + degrade_seconds
    if strategy is None:
        undecided = {tier: _withheld(UNDECIDED, UNDECIDED_REASON) for tier in tiers}
        return Decision(undecided, now, hold=True, observed=observed, expires_at=expires_at)
    formulas = {
        Tier.MID: partial(_mid, strategy.strategy, observed, learned, known.lessons),
        Tier.BATCH: partial(_batch, strategy.strategy, observed, known.above_batch, node.metadata.name),
    }
    offers = {tier: _guarded(tier, formulas[tier]) for tier in tiers}
    mid_offer = offers.get(Tier.MID)
    contradiction = "" if mid_offer is None or mid_offer.failed else plausibility.contradiction(observed)
    return Decision(offers, now, observed=observed, expires_at=expires_at, contradiction=contradiction)


def obsolete_annotations(decision: Decision) -> tuple[str, ...]:
    """The annotations that the Node must not keep.

    Former versions wrote the amount of Batch there for allocators outside Kubernetes. Nothing updates it now, so no
    allocator may rely on it.
    """
    return (names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE,) if Tier.BATCH in decision.offers else ()


def failed(error: Exception, tiers: Iterable[Tier], now: float) -> Decision:
    """The decision if deciding itself failed: the tiers are withheld, since old offers could be unsafe."""
    return _degraded(FAILED, _located(error), tiers, now)


def why_stale(update_time: float | None, *, degrade_seconds: int, now: float) -> str | None:
    """Why a NodeMetric of that age does not count; None while it does. At exactly `degrade_seconds` it still counts.

    A time further ahead than the tolerance comes from an untrustworthy clock or agent.
    """
    if update_time is None:
        return "no NodeMetric has been reported"
    age = now - update_time
    if age > degrade_seconds:
        return f"the NodeMetric is {age:.0f} s old, the limit is {degrade_seconds} s"
    if is_ahead(update_time, now):
        return f"the NodeMetric is dated {-age:.0f} s into the future"
    return None


def is_ahead(update_time: float, now: float) -> bool:
    """Whether the time is further ahead than the tolerance. Such a time does not become valid by waiting."""
    return update_time - now > CLOCK_SKEW_SECONDS


def _why_foreign(observed: NodeSituation, update_time: float | None) -> str | None:
    """Why the NodeMetric is of an earlier machine with the Node's name; None if it is of this one."""
    if update_time is None or observed.created_at is None:
        return None
    earlier = observed.created_at - update_time
    return f"it was reported {earlier:.0f} s before the Node was created" if earlier > CLOCK_SKEW_SECONDS else None


def _guarded(tier: Tier, formula: Callable[[], Offer]) -> Offer:
    """The tier's offer; a formula that fails affects only its own tier."""
    try:
        return formula()
    except Exception as error:
        return _withheld(FAILED, f"{DEGRADED_REASONS[tier]}: {_located(error)}")


def _located(error: Exception) -> str:
    """The error and the line that raised it, for debugging."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _mid(
    strategy: ColocationStrategy, observed: NodeSituation, learned: Learned | None, lessons: Mapping[str, Lesson]
) -> Offer:
    explained = mid.calculate(strategy, observed, learned, lessons)
    held_back, taught = (_taken_last(explained, name) for name in (mid.BUFFER, mid.LESSON))
    return Offer(_results(explained), explained, held_back, partial(mid.reason, explained), taught=taught)


def _batch(strategy: ColocationStrategy, observed: NodeSituation, above: Above, node: str) -> Offer:
    """Koordinator takes a missing system usage as zero, and offers the system's share; this does not.

    Each resource is judged by itself; see `batch.calculate`.
    """
    if observed.report is None or observed.report.system_usage == (None, None):
        unknown = f"NodeMetric {node} lacks cpu and memory in status.nodeMetric.systemUsage"
        return _withheld(UNKNOWN, f"{DEGRADED_REASONS[Tier.BATCH]}: {unknown}")
    explained = batch.calculate(strategy, observed, above)
    margin = Resources(_margin(explained.cpu), _margin(explained.memory))
    return Offer(_results(explained), explained, say=partial(batch.reason, explained), margin=margin)


def _results(explained: Explanation) -> Resources:
    return Resources(explained.cpu.result, explained.memory.result)


def _taken_last(explained: Explanation, name: str) -> Resources:
    """The amounts of the term with that name, which is among the last two if there is one."""
    cpu, memory = (
        next((term.value for term in each.terms[-2:] if term.name == name), 0)
        for each in (explained.cpu, explained.memory)
    )
    return Resources(cpu, memory)


def _margin(explained: ResourceExplanation) -> int:
    """Batch's safety margin; 0 if more than all may be reclaimed."""
    return max(0, next(term.value for term in explained.terms if term.name == batch.MARGIN))


def _degraded(
    bound: str, problem: str, tiers: Iterable[Tier], now: float, observed: NodeSituation | None = None
) -> Decision:
    offers = {tier: _withheld(bound, f"{DEGRADED_REASONS[tier]}: {problem}") for tier in tiers}
    return Decision(offers, now, observed=observed)


def _withheld(bound: str, reason: str) -> Offer:
    nothing = ResourceExplanation((), bound, 0)
    return Offer(None, Explanation(nothing, nothing), say=lambda: reason)


def _held_up(explained: ResourceExplanation, floor: int, unit: str) -> ResourceExplanation:
    terms = (*explained.terms, Term(HELD, floor, unit, "Pods of {node}"))
    if floor <= explained.result:
        return ResourceExplanation(terms, explained.bound, explained.result)
    return ResourceExplanation(terms, HELD, floor)


def _paused(explained: ResourceExplanation, lent: int, unit: str) -> ResourceExplanation:
    if lent >= explained.result:
        return explained
    terms = (
        *explained.terms,
        Term(PROD_SLOWED, lent, unit, "Pods of {node}, while NodeMetric {node} status.interference"),
    )
    return ResourceExplanation(terms, PROD_SLOWED, lent)


def _amount(of: Resources) -> str:
    return f"{words.amount(of.cpu_milli, 'milli')} and {words.amount(of.memory_bytes, 'bytes')}"
