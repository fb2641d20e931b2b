"""The decision about one node: what is on offer to Mid now, and every term of why."""

from collections.abc import Iterable
from dataclasses import dataclass

from manager.noderesource import mid, situation
from manager.noderesource.situation import Requested, Situation
from shared.api.colocation import DEFAULTS, NodeStrategy
from shared.api.core import Node, Pod
from shared.api.nodemetric import NodeMetric
from shared.errors import InvalidInput
from shared.explanation import Explanation, ResourceExplanation
from shared.quantity import Resources

# What bounds an offer where no formula does.
DISABLED = "disabled"
STALE = "stale"
UNREADABLE = "unreadable"
UNDECIDED = "undecided"

DISABLED_REASON = "node colocation is disabled in Config, reason: DisableInConfig"
DEGRADED_REASON = "degrade node Mid resource because of abnormal nodeMetric, reason: degradedByMidResource"
CLOCK_SKEW_SECONDS = 60  # what an agent's clock may be behind the API server's; no machine is replaced within it

UNDECIDED_REASON = "no colocation configuration could be read yet; the Node is left as it is"


@dataclass(frozen=True)
class Decision:
    """`offer` None takes Mid off the node, unless `hold` says to leave the Node as it is.

    `expires_at` is the Unix time at which the NodeMetric turns stale.
    """

    explanation: Explanation
    offer: Resources | None = None
    hold: bool = False
    observed: Situation | None = None
    expires_at: float | None = None

    @property
    def is_degraded(self) -> bool:
        """Whether Mid is withheld because the node is not known well enough."""
        return self.explanation.cpu.bound in (STALE, UNREADABLE)


def decide(
    node: Node, metric: NodeMetric | None, requested: Requested, strategy: NodeStrategy | None, now: float
) -> Decision:
    """What Mid may have of `node` at `now`; whatever is unknown, unreadable or stale is not on offer.

    Without a strategy (no configuration could be read yet) the Node stays as it is until its NodeMetric turns stale.
    """
    try:
        observed = situation.observe(node, metric, requested)
    except InvalidInput as problem:
        return _withheld(UNREADABLE, f"{DEGRADED_REASON}: {problem}")
    if strategy is not None and not strategy.enabled:
        return _withheld(DISABLED, DISABLED_REASON, observed)
    degrade_seconds = (strategy.strategy if strategy else DEFAULTS).degrade_seconds
    stale = why_stale(observed.update_time, degrade_seconds=degrade_seconds, now=now) or _why_foreign(observed)
    if stale is not None:
        return _withheld(STALE, f"{DEGRADED_REASON}: {stale}", observed)
    expires_at = None if observed.update_time is None else observed.update_time + degrade_seconds
    if strategy is None:
        undecided = _explained(UNDECIDED, UNDECIDED_REASON)
        return Decision(undecided, hold=True, observed=observed, expires_at=expires_at)
    explained = mid.calculate(strategy.strategy, observed)
    return Decision(
        explained, Resources(explained.cpu.result, explained.memory.result), observed=observed, expires_at=expires_at
    )


def explain(
    node: Node, metric: NodeMetric | None, running: Iterable[Pod], strategy: NodeStrategy, now: float
) -> Explanation:
    """`decide` for whoever has objects and no caches. Raises InvalidInput for a pod that means nothing."""
    return decide(node, metric, situation.requested_by_all(running), strategy, now).explanation


def why_stale(update_time: float | None, *, degrade_seconds: int, now: float) -> str | None:
    """Why a NodeMetric of that age says nothing; None while it does. Exactly `degrade_seconds` old it still does.

    A time further ahead than the same limit comes from a clock, or an agent, not to be trusted.
    """
    if update_time is None:
        return "no NodeMetric has been reported"
    age = now - update_time
    if age > degrade_seconds:
        return f"the NodeMetric is {age:.0f} s old, the limit is {degrade_seconds} s"
    if -age > degrade_seconds:
        return f"the NodeMetric is dated {-age:.0f} s into the future"
    return None


def _why_foreign(observed: Situation) -> str | None:
    """Why the NodeMetric is of a machine that had the Node's name before; None while it is of this one."""
    if observed.update_time is None or observed.created_at is None:
        return None
    earlier = observed.created_at - observed.update_time
    return f"it was reported {earlier:.0f} s before the Node was created" if earlier > CLOCK_SKEW_SECONDS else None


def _withheld(bound: str, reason: str, observed: Situation | None = None) -> Decision:
    return Decision(_explained(bound, reason), observed=observed)


def _explained(bound: str, reason: str) -> Explanation:
    nothing = ResourceExplanation((), bound, 0)
    return Explanation(nothing, nothing, reason)
