"""The Node conditions of this manager: that pods of a tier hold more than the node has for them, and that its
NodeMetric is implausible.

Kubelets write the same list of conditions, so a patch must be a strategic one, which merges by type. The Node shows the
last report, so every change is reported once, whichever replica leads.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from manager.nodeside.eviction.shortfall import Cause, Shortfall
from shared import durations, names
from shared.api.core import Condition, Node
from shared.kube.events import NORMAL, WARNING, EventReason
from shared.kube.events import Said as SaidEvent
from shared.names import Tier
from shared.quantity import Resources

TYPES = {Tier.MID: names.CONDITION_MID_SHORTFALL, Tier.BATCH: names.CONDITION_BATCH_SHORTFALL}
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"

# A reported figure that is further off is misleading. The usual share for writes to Nodes.
MOVED_SHARE = 0.1

OTHERS_STAY = "the offer to other pods does not change"
SHOWN = "the Node keeps showing what they request, and nothing more is lent"

# Also beside another cause, so that pods that do not count are news.
BEYOND_OFFER = "BeyondOffer"

_REASONS = {
    Cause.SHRUNK: "OfferShrunk",
    Cause.DISABLED: "ColocationDisabled",
    Cause.UNKNOWN: "NodeMetricAbnormal",
    Cause.BEYOND: BEYOND_OFFER,
}
_MESSAGE = "{message}"
# The Event of each condition, by its status.
_EVENTS = {
    **{
        type_: {
            TRUE: EventReason(f"{tier.capitalize()}ResourceShort", WARNING, _MESSAGE),
            UNKNOWN: EventReason(f"{tier.capitalize()}ResourceUnknown", WARNING, _MESSAGE),
            FALSE: EventReason(f"{tier.capitalize()}ResourceSuffices", NORMAL, _MESSAGE),
        }
        for tier, type_ in TYPES.items()
    },
    names.CONDITION_CONTRADICTION: {
        TRUE: EventReason("NodeMetricContradiction", WARNING, _MESSAGE),
        FALSE: EventReason("NodeMetricPlausible", NORMAL, _MESSAGE),
    },
}


@dataclass(frozen=True, slots=True)
class Said:
    """The content of one condition, without its times. `figures` are the relevant numbers in the message."""

    status: str
    reason: str
    message: str = ""
    figures: tuple[int, ...] = field(default=(), compare=False)

    def event(self, type_: str) -> SaidEvent:
        """The Event about the condition of this type."""
        return _EVENTS[type_][self.status].say(message=self.message)

    def misleads(self, now: "Said") -> bool:
        """Whether one of its figures differs by more than a tenth `now`."""
        return any(abs(new - old) > MOVED_SHARE * old for old, new in zip(self.figures, now.figures, strict=False))


@dataclass(frozen=True, slots=True)
class Notice:
    """The conditions due on a Node, by type; those that `turned` are news, and get an Event."""

    node: Node
    said: Mapping[str, Said]
    turned: frozenset[str]

    def patch(self, now: float) -> dict[str, object]:
        """The strategic patch of the Node's status at `now`, in Unix seconds."""
        moment = durations.timestamp(now)
        conditions = [_entry(type_, each, find(self.node, type_), moment) for type_, each in self.said.items()]
        metadata = {"resourceVersion": self.node.metadata.resource_version}
        return {"metadata": metadata, "status": {"conditions": conditions}}


# The end of each condition.
ENDS = {
    **dict.fromkeys(TYPES.values(), Said(FALSE, "OfferSuffices", "the offer covers what pods request")),
    names.CONDITION_CONTRADICTION: Said(FALSE, "WithinRequests", "the reported reclaimable is within the requests"),
}


def types(tiers: Container[Tier]) -> list[str]:
    """The conditions that a manager of these tiers writes."""
    found = [type_ for tier, type_ in TYPES.items() if tier in tiers]
    return [*found, names.CONDITION_CONTRADICTION] if Tier.MID in tiers else found


def of_contradiction(contradiction: str) -> Said:
    """The condition for an implausible NodeMetric."""
    return Said(TRUE, "ReclaimableBeyondRequests", f"{contradiction}; Mid is no more than the latter leave")


def describe(shortfall: Shortfall, *, patience_seconds: int | None) -> Said:
    """The condition for a shortfall; pods are evicted after `patience_seconds`, or never if None."""
    becomes = "none is evicted" if patience_seconds is None else f"eviction begins after {patience_seconds} s"
    status = UNKNOWN if shortfall.cause is Cause.UNKNOWN else TRUE
    reason = BEYOND_OFFER if shortfall.beyond else _REASONS[shortfall.cause]
    follows = OTHERS_STAY if shortfall.cause is Cause.BEYOND else f"{SHOWN}; {becomes}"
    beyond = Resources(*map(sum, zip(*shortfall.beyond.values(), strict=True)))
    figures = (*shortfall.held, *shortfall.missing, *beyond, *(shortfall.there_is or ()))
    return Said(status, reason, f"{shortfall.reason}; {follows}", figures)


def find(node: Node, type_: str) -> Condition | None:
    """The Node's present condition of this type."""
    found = (each for each in node.status.conditions or () if each.type == type_)
    return next(found, None)


def _entry(type_: str, said: Said, before: Condition | None, now: str) -> dict[str, str]:
    turned = now
    if before is not None and before.status == said.status and before.last_transition_time:
        turned = before.last_transition_time
    return {
        "type": type_,
        "status": said.status,
        "reason": said.reason,
        "message": said.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": turned,
    }
